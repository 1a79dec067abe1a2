//! How metrics come about.

use prometheus::core::{Collector, GenericCounterVec, GenericGaugeVec};
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    exponential_buckets,
};

/// The label of metrics that kube-proxy has for each family. Here one sync programs both, so both say the same where it
/// is about the sync.
pub const FAMILY: &str = "ip_family";

/// kube-proxy's buckets for the time of a sync: 1 ms to 16 s.
pub fn sync_buckets() -> Vec<f64> {
    exponential_buckets(0.001, 2.0, 15).expect("a start, a factor and a number that make buckets")
}

/// From 10 µs to 5 s: a change of one endpoint takes the kernel some tens of µs.
fn kernel_buckets() -> Vec<f64> {
    exponential_buckets(0.000_01, 2.0, 20).expect("a start, a factor and a number that make buckets")
}

/// kube-proxy's buckets for the time from a change to its being in force: up to 5 minutes.
pub fn programming_buckets() -> Vec<f64> {
    let steps = |from: u32, step: u32, count: u32| (0..count).map(move |n| f64::from(from + n * step));
    [0.0, 0.25, 0.5].into_iter().chain(steps(1, 1, 59)).chain(steps(60, 5, 12)).chain(steps(120, 30, 7)).collect()
}

/// Makes metrics and registers them.
pub struct Maker(pub Registry);

impl Maker {
    /// One that is made by hand.
    pub fn register<M: Collector + Clone + 'static>(&self, made: prometheus::Result<M>) -> M {
        let metric = made.expect("names and labels are well formed");
        self.0.register(Box::new(metric.clone())).expect("each name is used once");
        metric
    }

    /// A histogram for each family.
    /// A histogram of times in the kernel.
    pub fn histograms(&self, name: &str, help: &str, buckets: Vec<f64>) -> HistogramVec {
        self.register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), &[FAMILY]))
    }

    pub fn histogram(&self, name: &str, help: &str) -> Histogram {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(kernel_buckets())))
    }

    /// Counters by labels.
    /// A counter.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(GenericCounterVec::new(Opts::new(name, help), labels))
    }

    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::new(name, help))
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::new(name, help))
    }

    /// Gauges by labels.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(GenericGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A time of the clock for each family.
    pub fn times(&self, name: &str, help: &str) -> GaugeVec {
        self.register(GaugeVec::new(Opts::new(name, help), &[FAMILY]))
    }
}
