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

/// Times that were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// All of them together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
    /// The last one.
    pub last: Duration,
}

impl Latency {
    /// Adds the time from an event until now. Clocks of different machines differ: an event of the future took no time.
    pub fn observe(&mut self, event: SystemTime, now: SystemTime) {
        let took = now.duration_since(event).unwrap_or_default();
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
        self.last = took;
    }
}
