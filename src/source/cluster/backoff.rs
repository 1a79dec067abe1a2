//! Pauses: before what failed is tried again, and between requests.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Pauses that double, so that an API server that comes back is not run over: each node waits another while.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The pause after one more failure: between half and the whole of a time that grows to half a minute.
    pub fn pause(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures += 1;
        jitter(whole)
    }
}

/// A random time between half of this and all of it.
pub fn jitter(whole: Duration) -> Duration {
    // hash maps are seeded with random numbers, and these do for here
    let random = RandomState::new().build_hasher().finish() as u32;
    whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Lets so many requests through at once, and so many per second in the long run.
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    /// How far ahead of its time a request may be.
    ahead: Duration,
    /// When the next request would be due if all came evenly.
    due: Instant,
}

impl Throttle {
    /// With `qps` not above zero there is no limit, as in kube-proxy.
    pub fn new(qps: f32, burst: u32, now: Instant) -> Throttle {
        let interval = if qps > 0.0 { Duration::from_secs_f32(qps.recip().min(3600.0)) } else { Duration::ZERO };
        Throttle { interval, ahead: interval * burst.saturating_sub(1).min(1_000_000), due: now }
    }

    /// How long the request that is to be made now has to wait.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let due = self.due.max(now);
        self.due = due + self.interval;
        due.saturating_duration_since(now + self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_begin_anew() {
        let mut backoff = Backoff::default();
        for whole in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0] {
            let pause = backoff.pause().as_secs_f64();
            assert!(pause >= whole / 2.0 && pause <= whole, "{pause} of {whole}");
        }
        (0..100).for_each(|_| assert!(backoff.pause() <= LONGEST));
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }

    #[test]
    fn pauses_differ() {
        let pauses: Vec<_> = (0..10).map(|_| jitter(LONGEST)).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }

    #[test]
    fn requests_come_in_a_burst_and_then_evenly() {
        let start = Instant::now();
        let mut throttle = Throttle::new(5.0, 3, start);
        let waits: Vec<_> = (0..6).map(|_| throttle.wait(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200, 400, 600]);
        let later = start + Duration::from_secs(60);
        assert_eq!((throttle.wait(later), throttle.wait(later)), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn without_a_rate_there_is_no_limit() {
        let start = Instant::now();
        let mut throttle = Throttle::new(-1.0, 1, start);
        (0..1000).for_each(|_| assert_eq!(throttle.wait(start), Duration::ZERO));
    }
}
