//! What the loop has done.

use std::time::{Duration, SystemTime};

/// Counts since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Syncs that succeeded, whether or not there was anything to send.
    pub syncs: u64,
    /// Syncs that failed.
    pub failures: u64,
    /// Service ports that the kernel refused, each as often as it did.
    pub refused: u64,
    /// Service ports that are set aside now.
    pub aside: usize,
    /// From a change of endpoints to its commit (behaviour row J16).
    pub programming: Latency,
}

/// Times that were measured, to an eighth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// All of them together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
    /// The last one.
    pub last: Duration,
    /// How many were in each step of a scale of eight steps for each doubling, in microseconds.
    steps: [u32; STEPS],
}

/// Steps for each doubling.
const EIGHT: u64 = 8;
/// They reach to a minute.
const STEPS: usize = 200;

impl Default for Latency {
    fn default() -> Latency {
        let none = Duration::ZERO;
        Latency { count: 0, total: none, longest: none, last: none, steps: [0; STEPS] }
    }
}

impl Latency {
    /// Adds the time from an event until now. Clocks of different machines differ: an event of the future took no time.
    pub fn observe(&mut self, event: SystemTime, now: SystemTime) {
        let took = now.duration_since(event).unwrap_or_default();
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
        self.last = took;
        self.steps[step(took)] += 1;
    }

    /// What this part of the times does not exceed, rounded up to the end of its step; zero where none was measured.
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        let found = self.steps.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted && seen > 0
        });
        found.map_or(Duration::ZERO, end).min(self.longest)
    }
}

/// The step that a time is in.
fn step(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    if micros < EIGHT {
        return micros as usize;
    }
    let doubling = u64::from(micros.ilog2()) - 2;
    let within = (micros >> (doubling - 1)) - EIGHT;
    ((doubling * EIGHT + within) as usize).min(STEPS - 1)
}

/// Where a step ends.
fn end(step: usize) -> Duration {
    let (doubling, within) = (step as u64 / EIGHT, step as u64 % EIGHT);
    Duration::from_micros(match doubling {
        0 => within + 1,
        _ => (EIGHT + within + 1) << (doubling - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other() {
        for micros in (0..100_000).chain([1 << 20, (1 << 25) + 12_345, u64::MAX]) {
            let (time, at) = (Duration::from_micros(micros), step(Duration::from_micros(micros)));
            if at < STEPS - 1 {
                assert!(time < end(at) && (at == 0 || time >= end(at - 1)), "{micros} is in step {at}");
            }
        }
    }

    #[test]
    fn a_quantile_is_what_so_many_do_not_exceed() {
        let (mut latency, now) = (Latency::default(), SystemTime::now());
        assert_eq!(latency.quantile(0.99), Duration::ZERO);
        (1..=100).for_each(|n| latency.observe(now - Duration::from_millis(n), now));
        for (part, millis) in [(0.5, 50), (0.99, 99), (1.0, 100)] {
            let (found, exact) = (latency.quantile(part), Duration::from_millis(millis));
            assert!(found >= exact && found <= exact * 9 / 8, "{part}: {found:?}");
        }
    }
}
