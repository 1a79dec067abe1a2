//! `./dev bench latency`: from a change of endpoints to its commit, with the daemon's own loop, while changes keep coming.
//!
//! 5,000 Services with 10 endpoints each are programmed; then slices change one after the other, some of them together
//! with their Service, at a steady rate, with `minSyncPeriod` 0. What is measured is the time from the moment at which the
//! cluster source would hand a change on to the kernel's acknowledgement, by the clock. As in the daemon, the kernel is listened
//! to for what others change.

use std::sync::mpsc::{Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use svcmap::config::ProxyConfig;
use svcmap::conntrack::Cleaner;
use svcmap::lab;
use svcmap::netlink::CodecKind;
use svcmap::nftables::program::Programmer;
use svcmap::objects::EndpointSlice;
use svcmap::source::cluster::Message;
use svcmap::source::generate::{self, Options};
use svcmap::source::{Change, Snapshot};
use svcmap::sync::{Event, Latency, Periods, Runner};
use svcmap::tracker::Tracker;

const SERVICES: usize = 5_000;
const ENDPOINTS: usize = 10;
/// Changes at each rate.
const CHANGES: usize = 3_000;
/// Changes per second.
const RATES: [u32; 3] = [50, 200, 1000];
/// The aim, at whatever rate.
const AIM: Duration = Duration::from_millis(10);

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == "--help") {
        println!("cargo bench --bench latency");
        return Ok(());
    }
    lab::enter_network()?;
    println!("{SERVICES} Services with {ENDPOINTS} endpoints each, minSyncPeriod 0, {CHANGES} changes at each rate");
    println!("| changes per second | median | p99 | longest | p99 within {AIM:?} |");
    println!("| ---: | ---: | ---: | ---: | --- |");
    for rate in RATES {
        let latency = measure(rate)?;
        let [median, p99] = [0.5, 0.99].map(|part| latency.quantile(part));
        let verdict = if p99 <= AIM { "yes" } else { "no" };
        println!("| {rate} | {median:.2?} | {p99:.2?} | {:.2?} | {verdict} |", latency.longest);
    }
    Ok(())
}

fn measure(rate: u32) -> Result<Latency> {
    let options = Options { services: SERVICES, endpoints: ENDPOINTS, ..Options::default() };
    let cluster = generate::generate(&options).context("the size fits into the address plan")?;
    let config = ProxyConfig {
        node_name: options.node.clone(),
        cluster_cidrs: generate::pod_cidrs().to_vec(),
        ..ProxyConfig::default()
    };
    let periods = Periods { min: Duration::ZERO, ..Periods::default() };
    let (synced, first) = channel();
    let runner = Runner::new(Tracker::new(config), Programmer::open(CodecKind::Native)?, Cleaner::start()?, periods);
    let (sender, events) = channel();
    // as the daemon does: the kernel then tells of every transaction, also of our own
    let mut runner = runner.when_synced(synced).guarded_by(sender.clone());
    let running = std::thread::spawn(move || {
        runner.run(&events);
        runner.stats().programming
    });
    tell_all(&cluster, &sender)?;
    first.recv()?;
    let sent = churn(&cluster, rate, &sender)?;
    sleep(Duration::from_secs(1)); // what came last has to be in force before the end
    sender.send(Event::Stop)?;
    let latency = running.join().expect("the loop does not panic");
    ensure!(latency.count == sent, "{sent} changes were sent, and {} measured", latency.count);
    Ok(latency)
}

fn tell_all(cluster: &Snapshot, sender: &Sender<Event>) -> Result<()> {
    cluster.services.iter().try_for_each(|service| tell(sender, Change::Service(service.clone()), None))?;
    cluster.slices.iter().try_for_each(|slice| tell(sender, Change::Slice(slice.clone()), None))?;
    Ok(sender.send(Event::Cluster(Message::Listed))?)
}

fn tell(sender: &Sender<Event>, change: Change, triggered: Option<SystemTime>) -> Result<()> {
    Ok(sender.send(Event::Cluster(Message::Change(change, triggered)))?)
}

/// Of ten changes, eight put an endpoint in the place of another, one takes an endpoint away or brings it back, and one takes a
/// Service with its slice away and brings both back. How many of them are measured: those of slices that have a time.
fn churn(cluster: &Snapshot, rate: u32, sender: &Sender<Event>) -> Result<u64> {
    let interval = Duration::from_secs(1) / rate;
    let (started, mut sent) = (Instant::now(), 0);
    for n in 0..CHANGES {
        sleep((interval * n as u32).saturating_sub(started.elapsed()));
        let index = n * 7 % cluster.slices.len();
        let mut slice = cluster.slices[index].clone();
        match n % 10 {
            8 => drop(slice.endpoints.pop()),
            9 => {
                let service = cluster.services.iter().find(|service| service.key == slice.service_key());
                let service = service.context("each slice has a Service")?.clone();
                tell(sender, Change::ServiceGone(service.key.clone()), None)?;
                tell(sender, Change::SliceGone(slice.key.clone()), None)?;
                tell(sender, Change::Service(service), None)?;
            }
            _ => replace(&mut slice, n),
        }
        tell(sender, Change::Slice(slice), Some(SystemTime::now()))?;
        sent += 1;
    }
    Ok(sent)
}

/// Puts an endpoint that nobody had before in the place of the first.
fn replace(slice: &mut EndpointSlice, n: usize) {
    slice.endpoints[0].address = std::net::Ipv4Addr::from(0x0a_c8_00_00 + n as u32).into();
}
