//! The pure parts: objects to plan, plan to transaction, plan to text.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use svcmap::config::ProxyConfig;
use svcmap::nftables::state::State;
use svcmap::nftables::text;
use svcmap::plan::PlanChange;
use svcmap::source::generate::{self, Options};
use svcmap::source::{Change, Snapshot};
use svcmap::tracker::Tracker;

fn snapshot(services: usize, endpoints: usize) -> Snapshot {
    generate::generate(&Options { services, endpoints, ..Options::default() }).expect("the size fits")
}

fn tracker() -> Tracker {
    Tracker::new(ProxyConfig {
        node_name: "n1".into(),
        cluster_cidrs: generate::pod_cidrs().to_vec(),
        ..ProxyConfig::default()
    })
}

fn whole(services: usize, endpoints: usize) -> PlanChange {
    let mut tracker = tracker();
    tracker.replace(snapshot(services, endpoints));
    tracker.take().0
}

fn cold_start(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("5000 Services x 10");
    group.sample_size(10);
    group.bench_function("objects to plan", |bencher| {
        let plan = |snapshot| {
            let mut tracker = tracker();
            tracker.replace(snapshot);
            black_box(tracker.take())
        };
        bencher.iter_batched(|| snapshot(5000, 10), plan, BatchSize::PerIteration);
    });
    group.bench_function("plan to transaction", |bencher| {
        bencher.iter_batched(
            || whole(5000, 10),
            |change| black_box(State::default().advance(change)),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("plan to text", |bencher| {
        let mut state = State::default();
        state.advance(whole(5000, 10));
        bencher.iter(|| text::write(&state, &mut std::io::sink()).expect("a sink takes everything"));
    });
    group.finish();
}

fn one_change(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one endpoint replaced");
    for (services, endpoints) in [(100, 10), (20_000, 10), (100, 1000)] {
        group.bench_function(format!("at {services} Services x {endpoints}"), |bencher| {
            let objects = snapshot(services, endpoints);
            let mut slices = [objects.slices[0].clone(), objects.slices[0].clone()];
            slices[1].endpoints[0].address = [10, 200, 0, 1].into();
            let (mut tracker, mut state) = (tracker(), State::default());
            tracker.replace(objects);
            state.advance(tracker.take().0);
            let mut turn = 0;
            bencher.iter(|| {
                turn = 1 - turn;
                tracker.apply(Change::Slice(slices[turn].clone()));
                black_box(state.advance(tracker.take().0))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, cold_start, one_change);
criterion_main!(benches);
