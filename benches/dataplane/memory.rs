//! How far the machine's memory is away: what the kernel's walks over large maps mostly wait for.

use std::time::Instant;

/// 64 MiB: more than the caches nearest to a processor hold.
const WORDS: usize = 8 << 20;
const READS: u32 = 2_000_000;

/// Seconds for a read of memory at random, each of which names the next.
pub fn random_read() -> f64 {
    // a single cycle through all words (Sattolo's shuffle), drawn by a linear congruential generator
    let mut next: Vec<usize> = (0..WORDS).collect();
    let mut random = 1_u64;
    for i in (1..WORDS).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        next.swap(i, (random >> 33) as usize % i);
    }
    let started = Instant::now();
    let last = (0..READS).fold(0, |at, _| next[at]);
    let spent = started.elapsed().as_secs_f64();
    std::hint::black_box(last);
    spent / f64::from(READS)
}
