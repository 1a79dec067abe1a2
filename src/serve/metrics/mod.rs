//! Metrics: kube-proxy's, by the same names, where they mean something here (behaviour section K), and our own.

mod kube_proxy;
mod make;
mod own;
mod slis;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, Registry, TextEncoder};

use super::observer::SyncKind;
use crate::netlink::conntrack::Swept;
use crate::nftables::program::Applied;
use crate::objects::Family;
use crate::source::cluster::Asked;
use crate::tracker::{Seen, Tracker};

use kube_proxy::KubeProxy;
use make::Maker;
use own::Own;
use slis::Slis;

/// Of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Which question about health was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Whether the node should get traffic.
    Healthz,
    /// Whether the process should go on.
    Livez,
}

/// All metrics. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    kube_proxy: KubeProxy,
    own: Own,
    slis: Slis,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Metrics at their beginning.
    pub fn new() -> Metrics {
        let make = Maker(Registry::new());
        make.0.register(Box::new(ProcessCollector::for_self())).expect("each name is used once");
        let (kube_proxy, own) = (KubeProxy::new(&make), Own::new(&make));
        let metrics = Metrics { registry: make.0, kube_proxy, own, slis: Slis::new() };
        metrics.begin();
        metrics
    }

    /// Makes the series appear whose labels are known, so that rates can be taken from the first scrape on.
    fn begin(&self) {
        for family in Family::BOTH.map(label) {
            self.kube_proxy.sync_failures.with_label_values(&[family]);
            self.kube_proxy.cleanup_failures.with_label_values(&[family]);
            self.kube_proxy.programming.with_label_values(&[family]);
            self.kube_proxy.conntrack.sweep.with_label_values(&[family]);
            self.kube_proxy.conntrack.deleted.with_label_values(&[family]);
        }
        for code in ["200", "503"] {
            self.kube_proxy.healthz.with_label_values(&[code]);
            self.kube_proxy.livez.with_label_values(&[code]);
        }
    }

    /// Changes came in; so many are programmed already.
    pub fn queued(&self, seen: Seen, synced: Seen) {
        for family in Family::BOTH.map(label) {
            self.kube_proxy.last_queued.with_label_values(&[family]).set(now());
        }
        self.changes(seen, synced);
    }

    fn changes(&self, seen: Seen, synced: Seen) {
        self.kube_proxy.endpoint_changes.are(seen.slices, synced.slices);
        self.kube_proxy.service_changes.are(seen.services, synced.services);
    }

    /// A sync succeeded.
    pub fn synced(&self, kind: SyncKind, took: Duration, tracker: &Tracker) {
        let by_kind = match kind {
            SyncKind::Full => &self.kube_proxy.full_sync,
            SyncKind::Partial => &self.kube_proxy.partial_sync,
        };
        let seen = tracker.seen();
        self.changes(seen, seen);
        for family in Family::BOTH {
            let stranded = tracker.stranded(family);
            let family = label(family);
            self.kube_proxy.sync.with_label_values(&[family]).observe(took.as_secs_f64());
            by_kind.with_label_values(&[family]).observe(took.as_secs_f64());
            self.kube_proxy.last_sync.with_label_values(&[family]).set(now());
            for (policy, services) in [("internal", stranded.internal), ("external", stranded.external)] {
                self.kube_proxy.no_local_endpoints.with_label_values(&[family, policy]).set(services as i64);
            }
        }
        let counts = tracker.counts();
        for (kind, count) in [
            ("Service", counts.services),
            ("ProxiedService", counts.proxied),
            ("EndpointSlice", counts.slices),
            ("Endpoint", counts.endpoints),
        ] {
            self.own.objects.with_label_values(&[kind]).set(count as i64);
        }
    }

    /// This was sent.
    pub fn applied(&self, applied: &Applied) {
        if applied.bytes == 0 {
            return;
        }
        self.own.transactions.inc_by(applied.transactions as u64);
        self.own.messages.inc_by(applied.messages as u64);
        self.own.bytes.inc_by(applied.bytes as u64);
        self.own.elements_added.inc_by(applied.added as u64);
        self.own.elements_deleted.inc_by(applied.deleted as u64);
        self.own.encode.observe(applied.encode.as_secs_f64());
        self.own.commit.observe(applied.kernel.as_secs_f64());
    }

    /// The kernel refused a transaction.
    pub fn refused(&self) {
        self.own.refused.inc();
    }

    /// The tables have been put right.
    pub fn repaired(&self) {
        self.own.repairs.inc();
    }

    /// So many Service ports are set aside.
    pub fn set_aside(&self, ports: usize) {
        self.own.aside.set(ports as i64);
    }

    /// A change took so long to be in force.
    pub fn programmed(&self, took: Duration) {
        for family in Family::BOTH.map(label) {
            self.kube_proxy.programming.with_label_values(&[family]).observe(took.as_secs_f64());
        }
    }

    /// A sync failed.
    pub fn failed(&self) {
        for family in Family::BOTH.map(label) {
            self.kube_proxy.sync_failures.with_label_values(&[family]).inc();
        }
    }

    /// Unused chains could not be deleted.
    pub fn collection_failed(&self) {
        for family in Family::BOTH.map(label) {
            self.kube_proxy.cleanup_failures.with_label_values(&[family]).inc();
        }
    }

    /// Stale flows of a family were looked for.
    pub fn swept(&self, family: Family, took: Duration, swept: Swept) {
        let (family, conntrack) = (label(family), &self.kube_proxy.conntrack);
        conntrack.sweep.with_label_values(&[family]).observe(took.as_secs_f64());
        conntrack.deleted.with_label_values(&[family]).inc_by(swept.deleted as u64);
    }

    /// A request to the API server came to its end. Without an answer the code is what Kubernetes's own clients say.
    pub fn asked(&self, asked: &Asked) {
        let code = asked.code.map_or_else(|| "<error>".into(), |code| code.to_string());
        self.kube_proxy.requests.total.with_label_values(&[code.as_str(), &asked.host, asked.method]).inc();
        if let Some(took) = asked.took {
            let duration = self.kube_proxy.requests.duration.with_label_values(&[&asked.host, asked.method]);
            duration.observe(took.as_secs_f64());
        }
    }

    /// A question about health was answered.
    pub fn probed(&self, probe: Probe, status: u16) {
        let counters = match probe {
            Probe::Healthz => &self.kube_proxy.healthz,
            Probe::Livez => &self.kube_proxy.livez,
        };
        counters.with_label_values(&[&status.to_string()]).inc();
        self.slis.probed(probe, status);
    }

    /// What `/metrics/slis` answers: how health is told just now, and how often it was told how.
    pub fn slis(&self, healthz: bool, livez: bool) -> String {
        self.slis.text(healthz, livez)
    }

    /// All of it as Prometheus reads it.
    pub fn text(&self) -> String {
        text(&self.registry)
    }
}

/// A registry as Prometheus reads it.
pub fn text(registry: &Registry) -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text).expect("a Vec takes everything");
    String::from_utf8(text).expect("names, labels and figures are text")
}

fn label(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
