//! One thread that owns the tracker and the programmer.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::conntrack::{self, Cleaner};
use crate::nftables::program::{Applied, Programmer, Rest, SyncError};
use crate::source::Loaded;
use crate::tracker::Tracker;

/// The pause before a failed sync is tried again: doubled each time, up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// How long a chain that nothing uses any more is kept: the next Service with as many endpoints finds it.
const KEEP_UNUSED: Duration = Duration::from_secs(30);

/// What the loop is told.
#[derive(Debug)]
pub enum Event {
    /// The manifests say this now.
    Manifests(Loaded),
    /// The end.
    Stop,
}

/// The daemon's state.
#[derive(Debug)]
pub struct Runner {
    tracker: Tracker,
    programmer: Programmer,
    cleaner: Cleaner,
    /// Whether the source has spoken: nothing is programmed before that (behaviour row A12).
    synced: bool,
    /// What happens to Services that only the kernel knows; not known before the source has spoken.
    rest: Option<Rest>,
    retry: Option<(Instant, Duration)>,
    collect_at: Option<Instant>,
    /// Whether the kernel was told to route loopback addresses, where that is needed.
    routed: bool,
}

impl Runner {
    /// A runner that has not been told anything.
    pub fn new(tracker: Tracker, programmer: Programmer, cleaner: Cleaner) -> Runner {
        Runner { tracker, programmer, cleaner, synced: false, rest: None, retry: None, collect_at: None, routed: false }
    }

    /// Runs until it is told to stop, or until everybody who could tell it anything is gone. What is programmed stays.
    pub fn run(&mut self, events: &Receiver<Event>) {
        loop {
            let due = [self.retry.map(|(at, _)| at), self.collect_at].into_iter().flatten().min();
            let wait = due.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match events.recv_timeout(wait) {
                Ok(event) => {
                    // whatever piled up during the last sync is one change
                    let stop = std::iter::once(event).chain(events.try_iter()).any(|event| self.take_in(event));
                    if stop {
                        return;
                    }
                    self.sync();
                }
                Err(RecvTimeoutError::Timeout) => self.on_time(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Whether it is the end.
    fn take_in(&mut self, event: Event) -> bool {
        match event {
            Event::Manifests(loaded) => {
                loaded.problems.iter().for_each(|problem| warn!("{problem}"));
                self.settle_rest(&loaded.broken);
                self.tracker.replace(loaded.snapshot);
                self.synced = true;
                false
            }
            Event::Stop => true,
        }
    }

    /// Until every file has been read to its end once, what an earlier run programmed may belong to the rest of one: it
    /// stays. From then on a file that cannot be read any more keeps its objects by itself.
    fn settle_rest(&mut self, broken: &[PathBuf]) {
        let rest = if broken.is_empty() || self.rest == Some(Rest::Delete) { Rest::Delete } else { Rest::Keep };
        if rest == Rest::Keep {
            for file in broken {
                error!("{}: until it can be read to its end, programmed Services are not removed", file.display());
            }
        }
        if self.rest != Some(rest) {
            self.rest = Some(rest);
            self.programmer.set_rest(rest);
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.retry.is_some_and(|(at, _)| at <= now) {
            self.sync();
        }
        if self.collect_at.is_some_and(|at| at <= now) {
            self.collect_at = None;
            match self.programmer.collect() {
                Ok(applied) if applied.bytes > 0 => info!("deleted chains that nothing used any more"),
                Ok(_) | Err(SyncError::OutOfStep) => {}
                Err(error) => self.failed(&error),
            }
        }
    }

    fn sync(&mut self) {
        if !self.synced {
            return;
        }
        let (change, warnings) = self.tracker.take();
        warnings.iter().for_each(|warning| warn!("{warning}"));
        self.cleaner.exempt(self.tracker.unsettled());
        let mut result = match self.programmer.is_in_step() {
            true => self.programmer.change(change),
            false => Err(SyncError::OutOfStep),
        };
        if let Err(error) = &result {
            if !matches!(error, SyncError::OutOfStep) {
                warn!("{error}; starting over from what the kernel holds");
            }
            let (node, ports) = self.tracker.whole().unwrap_or_default();
            result = self.programmer.replace(node, ports);
        }
        match result {
            Ok(applied) => {
                self.succeeded(&applied);
                self.route_loopback();
                self.clean_up();
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Has the flows deleted that the change left without an endpoint (behaviour row H1). After a sync that failed this
    /// is not reached: what it touched stays unsettled until one succeeds.
    fn clean_up(&mut self) {
        match conntrack::due(&mut self.tracker, self.programmer.take_found()) {
            Ok(criteria) => self.cleaner.check(criteria),
            Err(error) => {
                warn!("stale UDP flows stay until the next sync: the node's addresses cannot be read: {error}")
            }
        }
    }

    /// Only after the rules are there that keep other hosts from loopback addresses.
    fn route_loopback(&mut self) {
        if std::mem::replace(&mut self.routed, true) || !self.programmer.state().node().localhost_node_ports {
            return;
        }
        if let Err(error) = super::route_loopback() {
            warn!("{error}");
        }
    }

    fn succeeded(&mut self, applied: &Applied) {
        self.retry = None;
        if applied.bytes == 0 {
            return;
        }
        self.collect_at = Some(Instant::now() + KEEP_UNUSED);
        info!(
            added = applied.added,
            deleted = applied.deleted,
            transactions = applied.transactions,
            bytes = applied.bytes,
            encode_us = applied.encode.as_micros(),
            commit_us = applied.kernel.as_micros(),
            "synced"
        );
    }

    fn failed(&mut self, error: &SyncError) {
        let pause = self.retry.map_or(FIRST_RETRY, |(_, pause)| (pause * 2).min(LONGEST_RETRY));
        self.retry = Some((Instant::now() + pause, pause));
        error!("{error}; trying again in {pause:?}");
    }
}
