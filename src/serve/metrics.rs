//! Metrics: kube-proxy's, by the same names, where they mean something here (behaviour section K), and our own.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, GenericCounterVec, GenericGaugeVec};
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder, exponential_buckets,
};

use super::observer::SyncKind;
use crate::nftables::program::Applied;
use crate::objects::Family;
use crate::tracker::{Seen, Tracker};

/// Of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label of metrics that kube-proxy has for each family. Here one sync programs both, so both say the same where it
/// is about the sync.
const FAMILY: &str = "ip_family";

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
    sync: HistogramVec,
    full_sync: HistogramVec,
    partial_sync: HistogramVec,
    programming: HistogramVec,
    last_sync: GaugeVec,
    last_queued: GaugeVec,
    endpoint_changes_pending: IntGaugeVec,
    endpoint_changes: IntCounterVec,
    service_changes_pending: IntGaugeVec,
    service_changes: IntCounterVec,
    sync_failures: IntCounterVec,
    cleanup_failures: IntCounterVec,
    no_local_endpoints: IntGaugeVec,
    healthz: IntCounterVec,
    livez: IntCounterVec,
    transactions: IntCounter,
    messages: IntCounter,
    bytes: IntCounter,
    elements_added: IntCounter,
    elements_deleted: IntCounter,
    refused: IntCounter,
    encode: Histogram,
    commit: Histogram,
    repairs: IntCounter,
    aside: IntGauge,
    objects: IntGaugeVec,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// kube-proxy's buckets for the time of a sync: 1 ms to 16 s.
fn sync_buckets() -> Vec<f64> {
    exponential_buckets(0.001, 2.0, 15).expect("a start, a factor and a number that make buckets")
}

/// From 10 µs to 5 s: a change of one endpoint takes the kernel some tens of µs.
fn kernel_buckets() -> Vec<f64> {
    exponential_buckets(0.000_01, 2.0, 20).expect("a start, a factor and a number that make buckets")
}

/// kube-proxy's buckets for the time from a change to its being in force: up to 5 minutes.
fn programming_buckets() -> Vec<f64> {
    let steps = |from: u32, step: u32, count: u32| (0..count).map(move |n| f64::from(from + n * step));
    [0.0, 0.25, 0.5].into_iter().chain(steps(1, 1, 59)).chain(steps(60, 5, 12)).chain(steps(120, 30, 7)).collect()
}

/// Makes metrics and registers them.
struct Maker(Registry);

impl Maker {
    fn register<M: Collector + Clone + 'static>(&self, made: prometheus::Result<M>) -> M {
        let metric = made.expect("names and labels are well formed");
        self.0.register(Box::new(metric.clone())).expect("each name is used once");
        metric
    }

    fn histograms(&self, name: &str, help: &str, buckets: Vec<f64>) -> HistogramVec {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), &[FAMILY]))
    }

    fn histogram(&self, name: &str, help: &str) -> Histogram {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(kernel_buckets())))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(GenericCounterVec::new(Opts::new(name, help), labels))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::new(name, help))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(GenericGaugeVec::new(Opts::new(name, help), labels))
    }

    fn times(&self, name: &str, help: &str) -> GaugeVec {
        self.register(GaugeVec::new(Opts::new(name, help), &[FAMILY]))
    }
}

impl Metrics {
    /// Metrics at their beginning.
    pub fn new() -> Metrics {
        let make = Maker(Registry::new());
        make.0.register(Box::new(ProcessCollector::for_self())).expect("each name is used once");
        let version: Gauge = make.register(Gauge::with_opts(
            Opts::new("svcmap_build_info", "Always 1; the label says which version runs")
                .const_label("version", env!("CARGO_PKG_VERSION")),
        ));
        version.set(1.0);
        let sync = "kubeproxy_sync_proxy_rules";
        let metrics = Metrics {
            sync: make.histograms(
                &format!("{sync}_duration_seconds"),
                "Time that bringing the kernel in step took, from the plan to the last commit",
                sync_buckets(),
            ),
            full_sync: make.histograms(
                "kubeproxy_sync_full_proxy_rules_duration_seconds",
                "The same for syncs that read the kernel first and compare everything",
                sync_buckets(),
            ),
            partial_sync: make.histograms(
                "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                "The same for syncs that send a change alone",
                sync_buckets(),
            ),
            programming: make.histograms(
                "kubeproxy_network_programming_duration_seconds",
                "Time from a change of endpoints to its being in force",
                programming_buckets(),
            ),
            last_sync: make.times(&format!("{sync}_last_timestamp_seconds"), "When a sync last succeeded"),
            last_queued: make.times(&format!("{sync}_last_queued_timestamp_seconds"), "When a change last came in"),
            endpoint_changes_pending: make.gauges(
                &format!("{sync}_endpoint_changes_pending"),
                "Changes of EndpointSlices that are not programmed yet",
                &[FAMILY],
            ),
            endpoint_changes: make.counters(
                &format!("{sync}_endpoint_changes_total"),
                "Changes of EndpointSlices that came in",
                &[FAMILY],
            ),
            service_changes_pending: make.gauges(
                &format!("{sync}_service_changes_pending"),
                "Changes of Services that are not programmed yet",
                &[FAMILY],
            ),
            service_changes: make.counters(
                &format!("{sync}_service_changes_total"),
                "Changes of Services that came in",
                &[FAMILY],
            ),
            sync_failures: make.counters(
                &format!("{sync}_nftables_sync_failures_total"),
                "Syncs that failed as a whole",
                &[FAMILY],
            ),
            cleanup_failures: make.counters(
                &format!("{sync}_nftables_cleanup_failures_total"),
                "Attempts to delete unused chains that failed",
                &[FAMILY],
            ),
            no_local_endpoints: make.gauges(
                &format!("{sync}_no_local_endpoints_total"),
                "Services that drop connections, because a traffic policy wants an endpoint on this node and all are elsewhere",
                &[FAMILY, "traffic_policy"],
            ),
            healthz: make.counters("kubeproxy_proxy_healthz_total", "Answers of /healthz by status", &["code"]),
            livez: make.counters("kubeproxy_proxy_livez_total", "Answers of /livez by status", &["code"]),
            transactions: make.counter("svcmap_transactions_total", "nftables transactions that were committed"),
            messages: make.counter("svcmap_messages_total", "Netlink messages that were sent"),
            bytes: make.counter("svcmap_sent_bytes_total", "Bytes that were sent over netlink"),
            elements_added: make.counter("svcmap_elements_added_total", "Elements of maps and sets that were added"),
            elements_deleted: make
                .counter("svcmap_elements_deleted_total", "Elements of maps and sets that were deleted"),
            refused: make.counter("svcmap_refused_transactions_total", "nftables transactions that failed"),
            encode: make.histogram("svcmap_encode_duration_seconds", "Time that making the transactions of a sync took"),
            commit: make.histogram("svcmap_commit_duration_seconds", "Time that the kernel took for those of a sync"),
            repairs: make.counter("svcmap_repairs_total", "Times that somebody had changed svcmap's tables"),
            aside: make.register(IntGauge::new(
                "svcmap_service_ports_set_aside",
                "Service ports that stay as they are, because the kernel refuses what they should be",
            )),
            objects: make.gauges("svcmap_objects", "Objects that are known, by kind", &["kind"]),
            registry: make.0,
        };
        metrics.begin();
        metrics
    }

    /// Makes the series appear whose labels are known, so that rates can be taken from the first scrape on.
    fn begin(&self) {
        for family in Family::BOTH.map(label) {
            self.endpoint_changes.with_label_values(&[family]);
            self.service_changes.with_label_values(&[family]);
            self.sync_failures.with_label_values(&[family]);
            self.cleanup_failures.with_label_values(&[family]);
            self.programming.with_label_values(&[family]);
        }
        for code in ["200", "503"] {
            self.healthz.with_label_values(&[code]);
            self.livez.with_label_values(&[code]);
        }
    }

    /// Changes came in; so many are programmed already.
    pub fn queued(&self, seen: Seen, synced: Seen) {
        for family in Family::BOTH.map(label) {
            self.last_queued.with_label_values(&[family]).set(now());
            self.pend(family, seen, synced);
        }
    }

    fn pend(&self, family: &str, seen: Seen, synced: Seen) {
        let known = self.endpoint_changes.with_label_values(&[family]);
        known.inc_by(seen.slices - known.get());
        let known = self.service_changes.with_label_values(&[family]);
        known.inc_by(seen.services - known.get());
        let pending = |seen: u64, synced: u64| seen.saturating_sub(synced) as i64;
        self.endpoint_changes_pending.with_label_values(&[family]).set(pending(seen.slices, synced.slices));
        self.service_changes_pending.with_label_values(&[family]).set(pending(seen.services, synced.services));
    }

    /// A sync succeeded.
    pub fn synced(&self, kind: SyncKind, took: Duration, tracker: &Tracker) {
        let by_kind = match kind {
            SyncKind::Full => &self.full_sync,
            SyncKind::Partial => &self.partial_sync,
        };
        let seen = tracker.seen();
        for family in Family::BOTH {
            let stranded = tracker.stranded(family);
            let family = label(family);
            self.sync.with_label_values(&[family]).observe(took.as_secs_f64());
            by_kind.with_label_values(&[family]).observe(took.as_secs_f64());
            self.last_sync.with_label_values(&[family]).set(now());
            self.pend(family, seen, seen);
            for (policy, services) in [("internal", stranded.internal), ("external", stranded.external)] {
                self.no_local_endpoints.with_label_values(&[family, policy]).set(services as i64);
            }
        }
        let counts = tracker.counts();
        for (kind, count) in [
            ("Service", counts.services),
            ("ProxiedService", counts.proxied),
            ("EndpointSlice", counts.slices),
            ("Endpoint", counts.endpoints),
        ] {
            self.objects.with_label_values(&[kind]).set(count as i64);
        }
    }

    /// This was sent.
    pub fn applied(&self, applied: &Applied) {
        if applied.bytes == 0 {
            return;
        }
        self.transactions.inc_by(applied.transactions as u64);
        self.messages.inc_by(applied.messages as u64);
        self.bytes.inc_by(applied.bytes as u64);
        self.elements_added.inc_by(applied.added as u64);
        self.elements_deleted.inc_by(applied.deleted as u64);
        self.encode.observe(applied.encode.as_secs_f64());
        self.commit.observe(applied.kernel.as_secs_f64());
    }

    /// The kernel refused a transaction.
    pub fn refused(&self) {
        self.refused.inc();
    }

    /// The tables have been put right.
    pub fn repaired(&self) {
        self.repairs.inc();
    }

    /// So many Service ports are set aside.
    pub fn set_aside(&self, ports: usize) {
        self.aside.set(ports as i64);
    }

    /// A change took so long to be in force.
    pub fn programmed(&self, took: Duration) {
        for family in Family::BOTH.map(label) {
            self.programming.with_label_values(&[family]).observe(took.as_secs_f64());
        }
    }

    /// A sync failed.
    pub fn failed(&self) {
        for family in Family::BOTH.map(label) {
            self.sync_failures.with_label_values(&[family]).inc();
        }
    }

    /// Unused chains could not be deleted.
    pub fn collection_failed(&self) {
        for family in Family::BOTH.map(label) {
            self.cleanup_failures.with_label_values(&[family]).inc();
        }
    }

    /// A question about health was answered.
    pub fn probed(&self, probe: Probe, status: u16) {
        let counters = match probe {
            Probe::Healthz => &self.healthz,
            Probe::Livez => &self.livez,
        };
        counters.with_label_values(&[&status.to_string()]).inc();
    }

    /// All of it as Prometheus reads it.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("a Vec takes everything");
        String::from_utf8(text).expect("names, labels and figures are text")
    }
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
