//! kube-proxy's metrics, by its names and with its labels and buckets.

use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::make::{FAMILY, Maker, programming_buckets, sync_buckets};

/// All of them.
#[allow(missing_docs)] // what they say is said where they are made
#[derive(Clone)]
pub struct KubeProxy {
    pub sync: HistogramVec,
    pub full_sync: HistogramVec,
    pub partial_sync: HistogramVec,
    pub programming: HistogramVec,
    pub last_sync: GaugeVec,
    pub last_queued: GaugeVec,
    pub endpoint_changes: Changes,
    pub service_changes: Changes,
    pub sync_failures: IntCounterVec,
    pub cleanup_failures: IntCounterVec,
    pub no_local_endpoints: IntGaugeVec,
    pub healthz: IntCounterVec,
    pub livez: IntCounterVec,
    pub conntrack: Conntrack,
    pub requests: Requests,
}

/// Those that all clients of Kubernetes have, about requests to the API server.
#[allow(missing_docs)]
#[derive(Clone)]
pub struct Requests {
    pub total: IntCounterVec,
    pub duration: HistogramVec,
}

impl Requests {
    fn new(make: &Maker) -> Requests {
        let help = "Requests to the API server by the status of the answer, method and server";
        Requests {
            total: make.counters("rest_client_requests_total", help, &["code", "host", "method"]),
            duration: make.register(HistogramVec::new(
                HistogramOpts::new(
                    "rest_client_request_duration_seconds",
                    "Time that a request took, watches left out",
                )
                .buckets(vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]),
                &["host", "verb"],
            )),
        }
    }
}

/// Those about flows that are deleted.
#[allow(missing_docs)]
#[derive(Clone)]
pub struct Conntrack {
    pub sweep: HistogramVec,
    pub deleted: IntCounterVec,
}

impl Conntrack {
    fn new(make: &Maker) -> Conntrack {
        let name = "kubeproxy_conntrack_reconciler";
        Conntrack {
            sweep: make.histograms(
                &format!("{name}_sync_duration_seconds"),
                "Time that looking for stale UDP flows took, with their deletion",
                sync_buckets(),
            ),
            deleted: make.counters(
                &format!("{name}_deleted_entries_total"),
                "Stale UDP flows that were deleted",
                &[FAMILY],
            ),
        }
    }
}

/// The changes of one kind of objects, which kube-proxy does not tell by family.
#[allow(missing_docs)]
#[derive(Clone)]
pub struct Changes {
    pub total: IntCounter,
    pub pending: IntGauge,
}

impl Changes {
    fn new(make: &Maker, kind: &str, objects: &str) -> Changes {
        let name = format!("kubeproxy_sync_proxy_rules_{kind}_changes");
        Changes {
            total: make.counter(&format!("{name}_total"), &format!("Changes of {objects} that came in")),
            pending: make
                .gauge(&format!("{name}_pending"), &format!("Changes of {objects} that are not programmed yet")),
        }
    }

    /// So many came in, and so many of them are programmed.
    pub fn are(&self, seen: u64, programmed: u64) {
        self.total.inc_by(seen - self.total.get());
        self.pending.set(seen.saturating_sub(programmed) as i64);
    }
}

impl KubeProxy {
    /// At their beginning.
    pub fn new(make: &Maker) -> KubeProxy {
        let syncs = |name: &str, help: &str| make.histograms(&format!("kubeproxy_{name}"), help, sync_buckets());
        let sync = "kubeproxy_sync_proxy_rules";
        KubeProxy {
            sync: syncs(
                "sync_proxy_rules_duration_seconds",
                "Time that bringing the kernel in step took, from the plan to the last commit",
            ),
            full_sync: syncs(
                "sync_full_proxy_rules_duration_seconds",
                "The same for syncs that read the kernel first and compare everything",
            ),
            partial_sync: syncs(
                "sync_partial_proxy_rules_duration_seconds",
                "The same for syncs that send a change alone",
            ),
            programming: make.histograms(
                "kubeproxy_network_programming_duration_seconds",
                "Time from a change of endpoints to its being in force",
                programming_buckets(),
            ),
            last_sync: make.times(&format!("{sync}_last_timestamp_seconds"), "When a sync last succeeded"),
            last_queued: make.times(&format!("{sync}_last_queued_timestamp_seconds"), "When a change last came in"),
            endpoint_changes: Changes::new(make, "endpoint", "EndpointSlices"),
            service_changes: Changes::new(make, "service", "Services"),
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
            conntrack: Conntrack::new(make),
            requests: Requests::new(make),
        }
    }
}
