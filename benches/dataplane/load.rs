//! Loading, changing, restarting.

use std::process::{Command, Stdio};
use std::time::Instant;

use svcmap::config::ProxyConfig;
use svcmap::lab::{Stopwatch, kernel_memory, median};
use svcmap::netlink::CodecKind;
use svcmap::nftables::program::{Applied, Programmer};
use svcmap::nftables::text;
use svcmap::objects::{Endpoint, EndpointSlice, Service};
use svcmap::source::generate::{self, Options};
use svcmap::source::{Change, Snapshot};
use svcmap::tracker::Tracker;

use crate::report::{Row, Size};
use crate::walk;

/// Changes of each kind; the median is taken.
const CHANGES: usize = 51;

/// How many endpoints more a Service gets, one by one.
const NEW_NUMBERS: usize = 5;

/// A cluster of this size and the configuration of its first node.
pub fn cluster(size: Size) -> (Snapshot, ProxyConfig) {
    let options = Options { services: size.0, endpoints: size.1, ..Options::default() };
    let config = ProxyConfig {
        node_name: options.node.clone(),
        cluster_cidrs: generate::pod_cidrs().to_vec(),
        ..ProxyConfig::default()
    };
    (generate::generate(&options).expect("the size fits into the address plan"), config)
}

/// Everything but the connections; the ruleset is left loaded.
pub fn measure(size: Size) -> anyhow::Result<Row> {
    let (snapshot, config) = cluster(size);
    let samples = samples(&snapshot);
    let mut tracker = Tracker::new(config);
    let kernel_before = kernel_memory()?;
    let mut programmer = Programmer::open(CodecKind::Native)?;
    let clock = Instant::now();
    let started = Stopwatch::start()?;
    tracker.replace(snapshot);
    let (change, _) = tracker.take();
    let plan = started.spent()?.processor;
    let node = change.node.unwrap_or_default();
    let started = Stopwatch::start()?;
    let applied = programmer.replace(node.clone(), change.changed)?;
    let load = started.spent()?.processor;
    let wall = clock.elapsed().as_secs_f64();
    // the kernel's split of processor time into program and system is too coarse here: the clock's share has to do
    let in_kernel = applied.kernel.as_secs_f64() / (applied.kernel + applied.encode).as_secs_f64();
    let rss = peak_rss()?;
    let kernel_memory = kernel_memory()? - kernel_before;

    let replace = changes(&samples, &mut tracker, &mut programmer, |(_, slice)| {
        let mut slice = slice.clone();
        slice.endpoints[0].address = "10.128.255.1".parse().expect("an address");
        vec![Change::Slice(slice)]
    })?;
    changes(&samples, &mut tracker, &mut programmer, |(_, slice)| vec![Change::Slice(slice.clone())])?;
    let remove_service = changes(&samples, &mut tracker, &mut programmer, |(service, slice)| {
        vec![Change::ServiceGone(service.key.clone()), Change::SliceGone(slice.key.clone())]
    })?;
    let add_service = changes(&samples, &mut tracker, &mut programmer, |(service, slice)| {
        vec![Change::Slice(slice.clone()), Change::Service(service.clone())]
    })?;
    let new_number = new_numbers(&samples[0].1, &mut tracker, &mut programmer)?;

    let ports: Vec<_> = programmer.state().ports().cloned().collect();
    let started = Stopwatch::start()?;
    let mut restarted = Programmer::open(CodecKind::Native)?;
    let again = restarted.replace(node, ports)?;
    let adopt = started.spent()?.processor;
    anyhow::ensure!(again.bytes == 0, "a restart found something to change: {again:?}");
    Ok(Row {
        size,
        elements: applied.added,
        plan,
        encode: load * (1.0 - in_kernel),
        commit: load * in_kernel,
        longest_commit: applied.longest.as_secs_f64(),
        transactions: applied.transactions,
        wall,
        nft: nft(&programmer)?,
        replace,
        add_service,
        walk: walk::measure(size.0)?,
        remove_service,
        new_number,
        adopt,
        rss,
        kernel_memory,
        bare: 0.0,
        direct: 0.0,
        connections: [0.0; 3],
        counted: [0.0; 3],
    })
}

/// Services all over the cluster, each with its slice.
fn samples(snapshot: &Snapshot) -> Vec<(Service, EndpointSlice)> {
    let sample = |i: usize| {
        let service = snapshot.services.get(i * snapshot.services.len() / CHANGES)?;
        let slice = snapshot.slices.iter().find(|slice| slice.service_key() == service.key)?;
        Some((service.clone(), slice.clone()))
    };
    (0..CHANGES).filter_map(sample).collect()
}

/// Medians over all samples: the kernel's time, and the time from the event to the commit.
fn changes(
    samples: &[(Service, EndpointSlice)],
    tracker: &mut Tracker,
    programmer: &mut Programmer,
    events: impl Fn(&(Service, EndpointSlice)) -> Vec<Change>,
) -> anyhow::Result<(f64, f64)> {
    let (mut kernel, mut whole) = (Vec::new(), Vec::new());
    for sample in samples {
        let events = events(sample);
        let started = Instant::now();
        events.into_iter().for_each(|event| tracker.apply(event));
        let applied: Applied = programmer.change(tracker.take().0)?;
        whole.push(started.elapsed().as_secs_f64());
        kernel.push(applied.kernel.as_secs_f64());
        anyhow::ensure!(applied.transactions == 1, "a change took {} transactions", applied.transactions);
    }
    Ok((median(kernel), median(whole)))
}

/// One Service that comes to have as many endpoints as no other: the kernel's time for each such number. At the end it has
/// what it had.
fn new_numbers(slice: &EndpointSlice, tracker: &mut Tracker, programmer: &mut Programmer) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    let mut grown = slice.clone();
    for i in 1..=NEW_NUMBERS {
        let address = format!("10.128.255.{i}").parse()?;
        grown.endpoints.push(Endpoint { address, ..slice.endpoints[0].clone() });
        tracker.apply(Change::Slice(grown.clone()));
        times.push(programmer.change(tracker.take().0)?.kernel.as_secs_f64());
    }
    tracker.apply(Change::Slice(slice.clone()));
    programmer.change(tracker.take().0)?;
    Ok(median(times))
}

/// `nft -f` of what is programmed, in a network namespace of its own.
fn nft(programmer: &Programmer) -> anyhow::Result<Option<f64>> {
    let path = std::env::temp_dir().join(format!("svcmap-bench-{}.nft", std::process::id()));
    text::write(programmer.state(), &mut std::io::BufWriter::new(std::fs::File::create(&path)?))?;
    let started = Stopwatch::start()?;
    let status = Command::new("unshare").args(["-n", "nft", "-f"]).arg(&path).stderr(Stdio::inherit()).status();
    let used = started.spent()?.processor;
    std::fs::remove_file(&path)?;
    Ok(status?.success().then_some(used))
}

fn peak_rss() -> anyhow::Result<u64> {
    Ok(1024 * field("/proc/self/status", "VmHWM:")?)
}

/// The number behind a name in one of the kernel's files, in KiB.
fn field(path: &str, name: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().parse()?)
}
