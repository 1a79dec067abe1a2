//! What the loop that programs the kernel tells about itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use tokio::sync::{mpsc, watch};

use super::health::Progress;
use super::metrics::Metrics;
use crate::netlink::conntrack::Swept;
use crate::nftables::program::{Applied, SyncError};
use crate::objects::{Family, ServiceKey};
use crate::policy::health::HealthCheck;
use crate::source::cluster::Asked;
use crate::tracker::{Counts, Seen, Tracker};

/// How many syncs are remembered for people.
const REMEMBERED: usize = 10;

/// What there is to see at any moment.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// How far the proxy has come.
    pub progress: Progress,
    /// How many objects are known.
    pub counts: Counts,
    /// The last syncs that changed something, the newest first.
    pub syncs: VecDeque<Synced>,
    /// Why the last sync failed, where it did.
    pub failure: Option<String>,
}

/// A sync that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    /// When it was over.
    pub at: SystemTime,
    /// Whether the kernel was read first.
    pub kind: SyncKind,
    /// How long it took.
    pub took: Duration,
    /// What was done.
    pub applied: Applied,
}

/// Whether a sync went by what the kernel is known to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// The kernel was read, and brought in line with the whole plan.
    Full,
    /// Only a change was sent.
    Partial,
}

/// What changed for the health checks.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Where node ports are served, if that changed.
    pub networks: Option<Vec<IpNet>>,
    /// The checks that are new or tell something else; nothing for those that went.
    pub checks: BTreeMap<ServiceKey, Option<HealthCheck>>,
}

/// Takes note of what the loop does. Nothing here waits for anybody who looks.
#[derive(Debug)]
pub struct Observer {
    metrics: Metrics,
    status: watch::Sender<Status>,
    news: mpsc::UnboundedSender<News>,
    networks: Vec<IpNet>,
    queued: Seen,
    synced: Seen,
}

/// What those have who look.
#[derive(Debug)]
pub struct Audience {
    pub(super) metrics: Metrics,
    pub(super) status: watch::Receiver<Status>,
    pub(super) news: mpsc::UnboundedReceiver<News>,
}

/// An observer, and what is seen through it.
pub fn observer() -> (Observer, Audience) {
    let metrics = Metrics::new();
    let (status, seen) = watch::channel(Status::default());
    let (news, heard) = mpsc::unbounded_channel();
    let observer = Observer {
        metrics: metrics.clone(),
        status,
        news,
        networks: Vec::new(),
        queued: Seen::default(),
        synced: Seen::default(),
    };
    (observer, Audience { metrics, status: seen, news: heard })
}

/// An observer that nobody looks at.
impl Default for Observer {
    fn default() -> Observer {
        observer().0
    }
}

impl Observer {
    /// Tells the metrics of sweeps through the connections that are tracked: for [`Cleaner::start_observed`].
    ///
    /// [`Cleaner::start_observed`]: crate::conntrack::Cleaner::start_observed
    pub fn of_sweeps(&self) -> impl FnMut(Family, Duration, Swept) + Send + 'static {
        let metrics = self.metrics.clone();
        move |family, took, swept| metrics.swept(family, took, swept)
    }

    /// Tells the metrics of requests to the API server.
    pub fn of_requests(&self) -> impl FnMut(Asked) + Send + 'static {
        let metrics = self.metrics.clone();
        move |asked| metrics.asked(&asked)
    }

    /// The tracker was told something: if it was news, it is still to be programmed.
    pub fn queued(&mut self, tracker: &Tracker) {
        if !tracker.is_touched() {
            return;
        }
        if self.queued != tracker.seen() {
            self.queued = tracker.seen();
            self.metrics.queued(self.queued, self.synced);
        }
        self.status.send_modify(|status| {
            status.progress.pending.get_or_insert_with(Instant::now);
        });
    }

    /// The kernel refused a transaction, and the sync goes on without it.
    pub fn refused(&mut self) {
        self.metrics.refused();
    }

    /// What the tracker says is programmed.
    pub fn synced(&mut self, kind: SyncKind, took: Duration, applied: &Applied, tracker: &mut Tracker) {
        self.synced = tracker.seen();
        self.metrics.synced(kind, took, tracker);
        self.metrics.applied(applied);
        let at = SystemTime::now();
        self.status.send_modify(|status| {
            status.progress =
                Progress { pending: None, updated: Some(at), node_leaving: tracker.is_leaving(), damaged: false };
            status.counts = tracker.counts();
            status.failure = None;
            if applied.bytes > 0 {
                status.syncs.truncate(REMEMBERED - 1);
                status.syncs.push_front(Synced { at, kind, took, applied: *applied });
            }
        });
        self.tell(tracker);
    }

    /// Somebody seems to have changed the tables, or has not.
    pub fn damaged(&mut self, damaged: bool) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.progress.damaged, damaged) != damaged);
    }

    /// Somebody had changed the tables, and they have been put right.
    pub fn repaired(&mut self) {
        self.metrics.repaired();
    }

    /// So many Service ports are set aside, because the kernel refuses them.
    pub fn set_aside(&mut self, ports: usize) {
        self.metrics.set_aside(ports);
    }

    /// These changes of endpoints are in force now (behaviour row J16).
    pub fn programmed(&mut self, changes: &[SystemTime], now: SystemTime) {
        // clocks of different machines differ: a change of the future took no time
        changes.iter().for_each(|at| self.metrics.programmed(now.duration_since(*at).unwrap_or_default()));
    }

    /// Chains that nothing used any more were deleted.
    pub fn collected(&mut self, applied: &Applied) {
        self.metrics.applied(applied);
    }

    /// They could not be.
    pub fn collection_failed(&mut self) {
        self.metrics.collection_failed();
    }

    /// A sync failed, and will be tried again.
    pub fn failed(&mut self, error: &SyncError) {
        self.metrics.failed();
        if matches!(error, SyncError::Commit { .. }) {
            self.metrics.refused();
        }
        self.status.send_modify(|status| status.failure = Some(error.to_string()));
    }

    /// What the health checks tell changes with what is programmed, not before.
    fn tell(&mut self, tracker: &mut Tracker) {
        let networks = tracker.node_plan().map(|node| &node.node_port_addresses);
        let networks = networks.filter(|networks| **networks != self.networks).cloned();
        if let Some(networks) = &networks {
            self.networks.clone_from(networks);
        }
        let checks = tracker.take_checks();
        if networks.is_some() || !checks.is_empty() {
            // without an audience there is nothing to tell
            let _ = self.news.send(News { networks, checks });
        }
    }
}
