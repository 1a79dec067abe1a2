//! What the kernel uses memory for.

use std::io;
use std::thread;
use std::time::Duration;

/// What the rules of any mode are kept in: slab that cannot be reclaimed, vmalloc, and what there is of on every processor.
const FIELDS: [&str; 3] = ["SUnreclaim:", "VmallocUsed:", "Percpu:"];
/// What was freed is given back by and by, namespaces that ended among it.
const PAUSE: Duration = Duration::from_millis(100);
/// Looks at most until it stays what it is.
const LOOKS: usize = 50;
/// Bytes by which it may differ all the same.
const NOISE: i64 = 128 << 10;

/// Bytes that the whole kernel uses of the kinds of memory that rules are kept in. Whatever else goes on on the machine adds
/// to it, so that differences of less than about a MiB say nothing.
///
/// # Errors
/// Those of reading `/proc/meminfo`.
pub fn kernel_memory() -> io::Result<i64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let kib = |line: &str| line.split_whitespace().nth(1).and_then(|number| number.parse::<i64>().ok());
    let is_counted = |line: &&str| FIELDS.iter().any(|field| line.starts_with(field));
    Ok(1024 * text.lines().filter(is_counted).filter_map(kib).sum::<i64>())
}

/// The same, once it does not shrink any more, or after five seconds.
///
/// # Errors
/// As before.
pub fn settled_kernel_memory() -> io::Result<i64> {
    let mut last = kernel_memory()?;
    let mut quiet = 0;
    for _ in 0..LOOKS {
        thread::sleep(PAUSE);
        let now = kernel_memory()?;
        quiet = if last - now < NOISE { quiet + 1 } else { 0 };
        last = now;
        if quiet == 3 {
            break;
        }
    }
    Ok(last)
}
