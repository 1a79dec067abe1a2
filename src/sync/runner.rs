//! One thread that owns the tracker and the programmer.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, info, warn};

use super::aside::{Aside, Outcome};
use super::stats::Stats;
use crate::amounts::counted;
use crate::config::Nftables;
use crate::conntrack::{self, Cleaner};
use crate::dataplane::Dataplane;
use crate::netlink::heap;
use crate::nftables::guard::Intrusion;
use crate::nftables::program::{Applied, Rest, SyncError};
use crate::serve::{Observer, Question, SyncKind};
use crate::source::Loaded;
use crate::source::cluster::Message;
use crate::tracker::Tracker;

/// The pause before a failed sync is tried again: doubled each time, up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// How long a chain that nothing uses any more is kept: the next Service with as many endpoints finds it.
const KEEP_UNUSED: Duration = Duration::from_secs(30);

/// The pause between two looks at the kernel's tables because of somebody else's changes; it is twice as long as the
/// first look took, if that is longer.
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// How many events are taken in before a sync, should they come without a pause.
const MOST_EVENTS: usize = 100_000;

/// What the loop is told.
#[derive(Debug)]
pub enum Event {
    /// The manifests say this now.
    Manifests(Loaded),
    /// The cluster says this.
    Cluster(Message),
    /// Somebody else has changed what is programmed.
    Intrusion(Intrusion),
    /// Somebody wants to know what the Services are.
    Question(Question),
    /// The end.
    Stop,
}

/// When the loop syncs (behaviour rows J1, J2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// The time between the end of a sync and the beginning of the next: changes that come within it are one. The first
    /// change after a longer silence is programmed at once.
    pub min: Duration,
    /// The time between two looks at what the kernel holds. Where nobody else has changed any rules that costs one
    /// message; else all of svcmap's tables are read and compared.
    pub full: Duration,
}

impl Periods {
    /// Those of the configuration.
    pub fn of(configuration: &Nftables) -> Periods {
        Periods { min: configuration.min_sync_period.0, full: configuration.sync_period.0 }
    }
}

impl Default for Periods {
    fn default() -> Periods {
        Periods::of(&Nftables::default())
    }
}

/// The daemon's state.
#[derive(Debug)]
pub struct Runner {
    tracker: Tracker,
    programmer: Box<dyn Dataplane>,
    cleaner: Cleaner,
    periods: Periods,
    /// Whether the source has spoken: nothing is programmed before that (behaviour row A12).
    synced: bool,
    /// What happens to Services that only the kernel knows; not known before the source has spoken.
    rest: Option<Rest>,
    /// Whether anything was taken in since the last sync.
    pending: bool,
    /// Whether all that the manifests say was held a second time since the last sync.
    doubled: bool,
    /// Whether the manifests hold no Service any more, which has not been said yet.
    emptied: bool,
    /// Whether the manifests hold no Service.
    empty: bool,
    /// When the next change may be programmed.
    free_at: Instant,
    retry: Option<(Instant, Duration)>,
    check_at: Option<Instant>,
    /// Before this, nobody else's change leads to another look.
    rest_until: Instant,
    collect_at: Option<Instant>,
    /// Whether the kernel was told to route loopback addresses, where that is needed.
    routed: bool,
    aside: Aside,
    /// When the changes of endpoints happened that are not programmed yet.
    triggered: Vec<SystemTime>,
    stats: Stats,
    observer: Observer,
    /// Who is to be told of the first sync that succeeds.
    waiting: Option<Sender<()>>,
    /// Where others' changes of what is programmed shall be told, until that has begun.
    guard: Option<Sender<Event>>,
}

impl Runner {
    /// A runner that has not been told anything.
    pub fn new(
        tracker: Tracker,
        programmer: impl Into<Box<dyn Dataplane>>,
        cleaner: Cleaner,
        periods: Periods,
    ) -> Runner {
        Runner {
            tracker,
            programmer: programmer.into(),
            cleaner,
            periods,
            synced: false,
            rest: None,
            pending: false,
            doubled: false,
            emptied: false,
            empty: false,
            free_at: Instant::now(),
            retry: None,
            check_at: None,
            rest_until: Instant::now(),
            collect_at: None,
            routed: false,
            aside: Aside::default(),
            triggered: Vec::new(),
            stats: Stats::default(),
            observer: Observer::default(),
            waiting: None,
            guard: None,
        }
    }

    /// The runner that sends word once the rules are in force for the first time.
    pub fn when_synced(mut self, tell: Sender<()>) -> Runner {
        self.waiting = Some(tell);
        self
    }

    /// The runner that puts right at once what somebody else changes. It hears of that through this, the other end of
    /// what [`Runner::run`] is given.
    pub fn guarded_by(mut self, events: Sender<Event>) -> Runner {
        self.guard = Some(events);
        self
    }

    /// The runner that tells somebody what it does.
    pub fn observed_by(mut self, observer: Observer) -> Runner {
        self.observer = observer;
        self
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        Stats { aside: self.aside.held().len(), ..self.stats }
    }

    /// Runs until it is told to stop, or until everybody who could tell it anything is gone. What is programmed stays.
    pub fn run(&mut self, events: &Receiver<Event>) {
        loop {
            let wait = self.due().map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match events.recv_timeout(wait) {
                Ok(event) => {
                    // whatever piled up during the last sync is one change
                    let mut events = std::iter::once(event).chain(events.try_iter()).take(MOST_EVENTS);
                    if events.any(|event| self.take_in(event)) {
                        return;
                    }
                    self.observer.queued(&self.tracker);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.on_time(Instant::now());
        }
    }

    /// When there is something to do next.
    fn due(&self) -> Option<Instant> {
        let retry = self.retry.map(|(at, _)| at);
        [self.change_at(), retry, self.check_at, self.collect_at].into_iter().flatten().min()
    }

    /// When what was taken in is programmed.
    fn change_at(&self) -> Option<Instant> {
        (self.pending && self.synced).then_some(self.free_at)
    }

    /// Whether it is the end.
    fn take_in(&mut self, event: Event) -> bool {
        match event {
            Event::Manifests(loaded) => {
                loaded.problems.iter().for_each(|problem| warn!("{problem}"));
                self.settle_rest(&loaded.broken);
                let empty = loaded.snapshot.services.is_empty();
                self.emptied = empty && (self.emptied || !self.empty);
                self.empty = empty;
                self.tracker.replace(loaded.snapshot);
                self.doubled = true;
                self.synced = true;
            }
            Event::Cluster(Message::Change(change, triggered)) => {
                self.tracker.apply(change);
                self.triggered.extend(triggered);
            }
            Event::Cluster(Message::Listed) => {
                self.settle_rest(&[]);
                self.synced = true;
            }
            Event::Intrusion(intrusion) => {
                self.suspect(&intrusion);
                return false;
            }
            Event::Question(question) => {
                question.answer(&self.tracker);
                return false;
            }
            Event::Stop => return true,
        }
        self.pending = true;
        false
    }

    /// Has the tables looked at (row J6). Where others go on changing them, that is not done all the time.
    fn suspect(&mut self, intrusion: &Intrusion) {
        match intrusion {
            Intrusion::Unknown => info!("{intrusion}"),
            Intrusion::Changed(_) => {
                warn!("{intrusion}");
                self.observer.damaged(true);
            }
        }
        self.check_at = Some(self.check_at.map_or(self.rest_until, |other| other.min(self.rest_until)));
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

    fn on_time(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let (change, retry) = (is_due(self.change_at()), is_due(self.retry.map(|(at, _)| at)));
        let check = is_due(self.check_at) && self.synced && self.has_to_check(now);
        if check {
            self.aside.begin_anew();
        }
        if change || retry || check {
            self.sync(check);
        }
        if check {
            let done = Instant::now();
            self.rest_until = done + BETWEEN_CHECKS.max(2 * (done - now));
        }
        if is_due(self.collect_at) {
            let collected = self.programmer.collect();
            self.collect_at = self.programmer.has_leftovers().then(|| now + KEEP_UNUSED);
            match collected {
                Ok(applied) if applied.deleted + applied.bytes > 0 => {
                    self.observer.collected(&applied);
                    info!("deleted what nothing used any more");
                }
                Ok(_) | Err(SyncError::OutOfStep) => {}
                Err(error) => {
                    self.observer.collection_failed();
                    self.failed(&error);
                }
            }
        }
    }

    /// Whether the kernel's tables may not be what they should: somebody has changed rules, or something was refused.
    fn has_to_check(&mut self, now: Instant) -> bool {
        self.check_at = Some(now + self.periods.full);
        let untouched = self.programmer.is_untouched().unwrap_or_else(|error| {
            warn!("{error}");
            false
        });
        self.observer.damaged(!untouched);
        !untouched || !self.aside.held().is_empty()
    }

    /// Sends what changed, or whatever differs from what the kernel holds (rows J3, J9).
    fn sync(&mut self, full: bool) {
        let started = Instant::now();
        let (change, warnings) = self.tracker.take();
        warnings.iter().for_each(|warning| warn!("{warning}"));
        self.pending = false;
        self.cleaner.exempt(self.tracker.unsettled());
        let is_news = !change.is_empty();
        let again = self.aside.begin(&change);
        let mut result = match self.programmer.is_in_step() && !full && !again {
            true => self.programmer.change(change),
            false => Err(SyncError::OutOfStep),
        };
        let mut kind = SyncKind::Partial;
        if let Err(error) = &result {
            kind = SyncKind::Full;
            if !matches!(error, SyncError::OutOfStep) {
                self.observer.refused();
                warn!("{error}; starting over from what the kernel holds");
            }
            result = self.replace();
        }
        match result {
            Ok(applied) => {
                self.observer.synced(kind, started.elapsed(), &applied, &mut self.tracker);
                self.observer.set_aside(self.aside.held().len());
                if full && !is_news && applied.bytes > 0 {
                    self.observer.repaired();
                    warn!("the tables were not as they should have been, and have been put right");
                }
                self.say_if_empty(&applied);
                self.succeeded(&applied);
                self.route_loopback();
                self.clean_up();
            }
            Err(error) => self.failed(&error),
        }
        if std::mem::take(&mut self.doubled) {
            heap::give_back();
        }
        self.free_at = Instant::now() + self.periods.min;
    }

    /// Makes the kernel hold the whole plan, but for what it refuses.
    fn replace(&mut self) -> Result<Applied, SyncError> {
        loop {
            let (node, ports) = self.tracker.whole().unwrap_or_default();
            self.programmer.keep(self.aside.held().clone());
            let result = self.programmer.replace(node, self.aside.without(ports));
            let Err(SyncError::Commit { object: Some(id), .. }) = &result else { return result };
            let reason = result.as_ref().map_or_else(ToString::to_string, |_| String::new());
            self.stats.refused += 1;
            self.observer.refused();
            match self.aside.add(id, &reason) {
                Outcome::News => error!("{reason}; it stays as it is until it changes, the others go on"),
                Outcome::Known => {}
                Outcome::Useless => return result,
            }
        }
    }

    /// Somebody may have meant another directory.
    fn say_if_empty(&mut self, applied: &Applied) {
        if std::mem::take(&mut self.emptied) && self.rest == Some(Rest::Delete) {
            let Applied { removed, deleted, .. } = applied;
            warn!(
                "the manifests hold no Service, so that nothing is served: of what was programmed, {} and {} have been \
                 removed",
                counted(*removed, "Service port"),
                counted(*deleted, "element")
            );
        }
    }

    /// Has the flows deleted that the change left without an endpoint (behaviour row H1). After a sync that failed this
    /// is not reached: what it touched stays unsettled until one succeeds.
    fn clean_up(&mut self) {
        match conntrack::due(&mut self.tracker, self.programmer.take_found()) {
            Ok(mut criteria) => {
                criteria.answered_by(|claim| self.programmer.answers_for(claim));
                self.cleaner.check(criteria);
            }
            Err(error) => {
                warn!("stale UDP flows stay until the next sync: the node's addresses cannot be read: {error}")
            }
        }
    }

    /// Only after the rules are there that keep other hosts from loopback addresses.
    fn route_loopback(&mut self) {
        if std::mem::replace(&mut self.routed, true) || !self.programmer.serves_loopback() {
            return;
        }
        if let Err(error) = super::route_loopback() {
            warn!("{error}");
        }
    }

    fn succeeded(&mut self, applied: &Applied) {
        self.retry = None;
        self.stats.syncs += 1;
        if let Some(waiting) = self.waiting.take() {
            // nobody waits any more only where that thread has come to its end
            let _ = waiting.send(());
        }
        self.check_at.get_or_insert(Instant::now() + self.periods.full);
        if let Some(events) = self.guard.take() {
            self.begin_to_guard(events);
        }
        self.aside
            .recovered()
            .iter()
            .for_each(|id| info!("Service {}: the kernel takes it now, {}", id.name, id.family));
        let now = SystemTime::now();
        // row J16
        let triggered = std::mem::take(&mut self.triggered);
        triggered.iter().for_each(|event| self.stats.programming.observe(*event, now));
        self.observer.programmed(&triggered, now);
        if applied.bytes == 0 {
            if self.stats.syncs == 1 {
                let services = counted(self.tracker.counts().proxied, "Service");
                info!("adopted {services}: the kernel holds what it should, so that nothing had to be sent");
            }
            return;
        }
        // counted from the first change that may have left something: steady changes must not put it off for ever
        self.collect_at.get_or_insert_with(|| Instant::now() + KEEP_UNUSED);
        let latency = triggered.iter().min().map(|first| now.duration_since(*first).unwrap_or_default().as_millis());
        info!(
            added = applied.added,
            deleted = applied.deleted,
            transactions = applied.transactions,
            bytes = applied.bytes,
            encode_us = applied.encode.as_micros(),
            commit_us = applied.kernel.as_micros(),
            latency_ms = latency,
            "synced"
        );
    }

    /// Not before the first sync: the kernel takes some time to tell of its own changes to a large table.
    fn begin_to_guard(&mut self, events: Sender<Event>) {
        // nobody listens any more only where the loop has come to its end
        let tell = move |intrusion| drop(events.send(Event::Intrusion(intrusion)));
        match self.programmer.guard(Box::new(tell)) {
            Ok(()) => self.check_at = Some(Instant::now()), // since the rules were made, something may have happened
            Err(error) => warn!("changes by others are noticed only once in a sync period: {error}"),
        }
    }

    fn failed(&mut self, error: &SyncError) {
        self.stats.failures += 1;
        self.observer.failed(error);
        let pause = self.retry.map_or(FIRST_RETRY, |(_, pause)| (pause * 2).min(LONGEST_RETRY));
        self.retry = Some((Instant::now() + pause, pause));
        error!("{error}; trying again in {pause:?}");
    }
}
