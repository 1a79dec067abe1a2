//! The thread that deletes stale flows.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

use super::{Criteria, UNDER_WAY, sweep};
use crate::netlink::ReadError;
use crate::netlink::conntrack::{Conntrack, Selection, Swept};
use crate::netlink::model::NfFamily;
use crate::objects::Family;
use crate::plan::Claim;

/// The pause before a sweep that failed is tried again: doubled each time, up to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Deletes stale flows on a thread of its own, so that programming never waits for it, however many flows there are.
/// What it is given while it is at work is one sweep afterwards. Failures are logged and tried again (row H8).
#[derive(Debug)]
pub struct Cleaner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    /// For the next sweep.
    waiting: Criteria,
    /// Of the sweep that is going on.
    current: Criteria,
    is_sweeping: bool,
    deleted: usize,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("nothing panics with it")
    }
}

impl Cleaner {
    /// Starts it for the current network namespace.
    ///
    /// # Errors
    /// When there is no connection to the kernel, or no thread.
    pub fn start() -> io::Result<Cleaner> {
        Cleaner::start_observed(|_, _, _| {})
    }

    /// The same; `tell` is told of each family's sweeps, how long they took and what they came to.
    ///
    /// # Errors
    /// Those of [`Cleaner::start`].
    pub fn start_observed(tell: impl FnMut(Family, Duration, Swept) + Send + 'static) -> io::Result<Cleaner> {
        let conntrack = Conntrack::open()?;
        let shared = Arc::new(Shared::default());
        let mut worker = Worker { shared: shared.clone(), conntrack, tell };
        let thread = thread::Builder::new().name("conntrack".into()).spawn(move || worker.run())?;
        Ok(Cleaner { shared, thread: Some(thread) })
    }

    /// To be called before a change is committed, with the frontends that it touches: endpoints may serve from then on
    /// of which the criteria that were given before know nothing, and a sweep that is going on must not take the flows
    /// to them for stale. What there is to check is to be given again after the commit.
    pub fn exempt<'a>(&self, claims: impl IntoIterator<Item = &'a Claim> + Clone) {
        let mut work = self.shared.lock();
        work.waiting.exempt(claims.clone());
        work.current.exempt(claims);
    }

    /// Has the stale flows deleted, soon. To be called after the commit.
    pub fn check(&self, criteria: Criteria) {
        if !criteria.is_empty() {
            self.shared.lock().waiting.merge(criteria);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until there is nothing left to do; false if that takes longer than `patience`.
    pub fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut work = self.shared.lock();
        while work.is_sweeping || !work.waiting.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            work = self.shared.changed.wait_timeout(work, left).expect("nothing panics with it").0;
        }
        true
    }

    /// How many flows were deleted so far.
    pub fn deleted(&self) -> usize {
        self.shared.lock().deleted
    }
}

/// Ends the thread, after the sweep that is going on. What is still waiting is found by the next run's first sweep.
impl Drop for Cleaner {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // a panic of the thread has been printed, and there is nothing to be done about it here
            let _ = thread.join();
        }
    }
}

struct Worker<T> {
    shared: Arc<Shared>,
    conntrack: Conntrack,
    tell: T,
}

impl<T: FnMut(Family, Duration, Swept)> Worker<T> {
    fn run(&mut self) {
        let mut pause = FIRST_RETRY;
        while let Some(selections) = self.next() {
            thread::sleep(UNDER_WAY);
            let started = Instant::now();
            let result = self.sweep(&selections);
            if self.finish(result, started.elapsed()) {
                pause = FIRST_RETRY;
            } else {
                self.rest(pause);
                pause = (pause * 2).min(LONGEST_RETRY);
            }
        }
    }

    /// Deletes the stale ones among the selected flows, family by family.
    fn sweep(&mut self, selections: &[Selection]) -> Result<Swept, ReadError> {
        let mut all = Swept::default();
        for family in Family::BOTH {
            let of_family: Vec<Selection> =
                selections.iter().filter(|selection| selection.family == nf_family(family)).copied().collect();
            if of_family.is_empty() {
                continue;
            }
            let (started, shared) = (Instant::now(), &self.shared);
            let swept = sweep(&mut self.conntrack, &of_family, |flow| shared.lock().current.is_stale(flow))?;
            (self.tell)(family, started.elapsed(), swept);
            all += swept;
        }
        Ok(all)
    }

    /// Waits for work and begins it; nothing at the end.
    fn next(&self) -> Option<Vec<Selection>> {
        let idle = |work: &mut Work| !work.stop && work.waiting.is_empty();
        let mut work = self.shared.changed.wait_while(self.shared.lock(), idle).expect("nothing panics with it");
        if work.stop {
            return None;
        }
        work.current = std::mem::take(&mut work.waiting);
        work.is_sweeping = true;
        Some(work.current.selections())
    }

    /// Takes the result in; whether that is the end of it. If not, all of it is to be done again, and the connection
    /// is a new one: the old one may be in the middle of a listing.
    fn finish(&mut self, result: Result<Swept, ReadError>, took: Duration) -> bool {
        let mut work = self.shared.lock();
        work.is_sweeping = false;
        let mut done = std::mem::take(&mut work.current);
        let refused = match result {
            Ok(swept) => {
                work.deleted += swept.deleted;
                report(&swept, took);
                swept.refused.is_some()
            }
            Err(error) => {
                warn!("stale UDP flows cannot be looked for: {error}; trying again");
                true
            }
        };
        if refused {
            done.merge(std::mem::take(&mut work.waiting));
            work.waiting = done;
        }
        drop(work);
        if refused && let Ok(conntrack) = Conntrack::open() {
            self.conntrack = conntrack;
        }
        self.shared.changed.notify_all();
        !refused
    }

    /// Pauses, but not beyond the end.
    fn rest(&self, pause: Duration) {
        let running = |work: &mut Work| !work.stop;
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), pause, running);
        drop(waited.expect("nothing panics with it"));
    }
}

fn nf_family(family: Family) -> NfFamily {
    match family {
        Family::V4 => NfFamily::IPV4,
        Family::V6 => NfFamily::IPV6,
    }
}

fn report(swept: &Swept, took: Duration) {
    let Swept { seen, deleted, refused } = *swept;
    if let Some((count, errno)) = refused {
        let error = io::Error::from_raw_os_error(errno);
        warn!("{count} stale UDP flows cannot be deleted: {error}; trying again");
    }
    let took_us = took.as_micros();
    match deleted {
        0 => debug!(seen, took_us, "no stale UDP flows"),
        _ => info!(deleted, seen, took_us, "deleted stale UDP flows"),
    }
}
