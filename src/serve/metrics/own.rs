//! svcmap's own metrics.

use prometheus::{Gauge, Histogram, IntCounter, IntGauge, IntGaugeVec, Opts};

use super::make::Maker;

/// All of them.
#[allow(missing_docs)] // what they say is said where they are made
#[derive(Clone)]
pub struct Own {
    pub transactions: IntCounter,
    pub messages: IntCounter,
    pub bytes: IntCounter,
    pub elements_added: IntCounter,
    pub elements_deleted: IntCounter,
    pub refused: IntCounter,
    pub encode: Histogram,
    pub commit: Histogram,
    pub repairs: IntCounter,
    pub aside: IntGauge,
    pub objects: IntGaugeVec,
}

impl Own {
    /// At their beginning.
    pub fn new(make: &Maker) -> Own {
        let version: Gauge = make.register(Gauge::with_opts(
            Opts::new("svcmap_build_info", "Always 1; the label says which version runs")
                .const_label("version", env!("CARGO_PKG_VERSION")),
        ));
        version.set(1.0);
        Own {
            transactions: make.counter("svcmap_transactions_total", "nftables transactions that were committed"),
            messages: make.counter("svcmap_messages_total", "Netlink messages that were sent"),
            bytes: make.counter("svcmap_sent_bytes_total", "Bytes that were sent over netlink"),
            elements_added: make.counter("svcmap_elements_added_total", "Elements of maps and sets that were added"),
            elements_deleted: make
                .counter("svcmap_elements_deleted_total", "Elements of maps and sets that were deleted"),
            refused: make.counter("svcmap_refused_transactions_total", "nftables transactions that failed"),
            encode: make
                .histogram("svcmap_encode_duration_seconds", "Time that making the transactions of a sync took"),
            commit: make.histogram("svcmap_commit_duration_seconds", "Time that the kernel took for those of a sync"),
            repairs: make.counter("svcmap_repairs_total", "Times that somebody had changed svcmap's tables"),
            aside: make.gauge(
                "svcmap_service_ports_set_aside",
                "Service ports that stay as they are, because the kernel refuses what they should be",
            ),
            objects: make.gauges("svcmap_objects", "Objects that are known, by kind", &["kind"]),
        }
    }
}
