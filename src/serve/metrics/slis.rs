//! What components of Kubernetes tell of their health as metrics, by the names that they have in common (KEP-3466).

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::make::Maker;
use super::{Probe, text};

/// What is checked: whether what came in is programmed in time.
const CHECK: &str = "sync-loop";

/// They have a page of their own, so that they can be scraped often.
#[derive(Clone)]
pub struct Slis {
    registry: Registry,
    now: IntGaugeVec,
    total: IntCounterVec,
}

impl Slis {
    /// At their beginning.
    pub fn new() -> Slis {
        let make = Maker(Registry::new());
        let now = make.gauges("kubernetes_healthcheck", "The result of a health check: 1 is well", &["name", "type"]);
        let help = "Health checks that were answered, by their results";
        let total = make.counters("kubernetes_healthchecks_total", help, &["name", "type", "status"]);
        for kind in [Probe::Healthz, Probe::Livez].map(kind) {
            ["success", "error"].iter().for_each(|status| drop(total.with_label_values(&[CHECK, kind, status])));
        }
        Slis { registry: make.0, now, total }
    }

    /// A probe got this status.
    pub fn probed(&self, probe: Probe, status: u16) {
        let result = if status == 200 { "success" } else { "error" };
        self.total.with_label_values(&[CHECK, kind(probe), result]).inc();
    }

    /// The page, where health is like this.
    pub fn text(&self, healthz: bool, livez: bool) -> String {
        for (probe, is_well) in [(Probe::Healthz, healthz), (Probe::Livez, livez)] {
            self.now.with_label_values(&[CHECK, kind(probe)]).set(i64::from(is_well));
        }
        text(&self.registry)
    }
}

fn kind(probe: Probe) -> &'static str {
    match probe {
        Probe::Healthz => "healthz",
        Probe::Livez => "livez",
    }
}
