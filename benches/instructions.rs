//! `cargo bench --bench instructions`: how many instructions a TCP connection through a Service takes, in maps of nftables and in
//! virtual servers of IPVS, beside a direct one with connection tracking.
//!
//! An emulated machine with Debian's kernel, one processor and a clock that counts instructions (`tests/vm/run --icount`): what
//! else runs on the host changes nothing. This program starts itself there. The figures are those of the whole connection:
//! client, router and server, from the first packet to the last.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use svcmap::config::ProxyConfig;
use svcmap::dataplane::Dataplane;
use svcmap::lab::{Lab, Listen, Outcome, Place, Server};
use svcmap::netlink::CodecKind;
use svcmap::objects::Protocol;
use svcmap::plan::{Plan, PortPlan};
use svcmap::source::generate::{Options, generate, pod_cidrs};
use svcmap::tracker::Tracker;
use svcmap::{ipvs, nftables};

/// Says in the machine that this is it.
const HERE: &str = "SVCMAP_IN_THE_MACHINE";
const ENDPOINTS: usize = 2;
/// Connections that are not counted, in which routes and neighbours are found and slabs filled.
const WARM: usize = 100;
const CONNECTIONS: usize = 200;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 129, 255, 254));
const PATIENCE: Duration = Duration::from_secs(30);
/// Connection tracking without any translation.
const TRACKING: &str = "table ip tracking { chain c { type filter hook forward priority 0; ct state invalid drop; }; }";

fn main() -> Result<()> {
    if std::env::var_os(HERE).is_some() {
        return in_the_machine();
    }
    let sizes: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let sizes = if sizes.is_empty() { vec!["1000".to_owned(), "10000".to_owned()] } else { sizes };
    let status = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vm/run"))
        .args([
            "--icount",
            "--timeout",
            "3600",
            "--memory",
            "2048",
            "--",
            "env",
            &format!("{HERE}={}", sizes.join(",")),
        ])
        .arg(std::env::current_exe()?)
        .status()
        .context("tests/vm/run")?;
    ensure!(status.success(), "in the machine: {status}");
    Ok(())
}

/// What is measured with one ruleset.
struct Bench {
    lab: Lab,
    plan: Plan,
    _servers: Vec<Server>,
}

fn in_the_machine() -> Result<()> {
    let sizes = std::env::var(HERE)?;
    println!("| Services | rules | direct | first | middle | last | excess over direct with tracking |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for size in sizes.split(',') {
        let services: usize = size.parse().context(size.to_owned())?;
        let bench = Bench::new(services)?;
        bench.lab.node().command("nft", &["-f", "-"], TRACKING)?;
        let direct = bench.direct()?;
        println!("| {services} | none but tracking | {} | | | | |", millions(direct));
        bench.lab.node().command("nft", &["flush", "ruleset"], "")?;
        let nftables = || Ok(Box::new(nftables::program::Programmer::open(CodecKind::Native)?) as Box<dyn Dataplane>);
        let ours = bench.row("nftables", direct, nftables)?;
        bench.lab.node().command("nft", &["flush", "ruleset"], "")?;
        let settings = ipvs::Settings::default();
        let theirs =
            bench.row("ipvs", direct, || Ok(Box::new(ipvs::Programmer::open(settings)?) as Box<dyn Dataplane>))?;
        println!("\nnftables' excess is {:.0} % of that of ipvs\n", 100.0 * ours / theirs);
    }
    Ok(())
}

fn millions(instructions: f64) -> String {
    format!("{:.2} M", instructions / 1e6)
}

impl Bench {
    fn new(services: usize) -> Result<Bench> {
        let options = Options { services, endpoints: ENDPOINTS, ..Options::default() };
        let mut tracker = Tracker::new(ProxyConfig {
            node_name: options.node.clone(),
            cluster_cidrs: pod_cidrs().to_vec(),
            ..ProxyConfig::default()
        });
        tracker.replace(generate(&options)?);
        let (change, _) = tracker.take();
        let plan = Plan::new(change.node.unwrap_or_default(), change.changed);
        let mut lab = Lab::new(&ipvs::state::planned_addresses(&plan.node))?;
        let mut places = vec![(CLIENT, Place::Pod)];
        let mut listens = Vec::new();
        for endpoint in targets(&plan).iter().flat_map(|port| &port.cluster) {
            places.push((endpoint.ip, Place::Elsewhere));
            listens.push(Listen { protocol: Protocol::Tcp, address: SocketAddr::new(endpoint.ip, endpoint.port) });
        }
        lab.place(&places)?;
        let servers = lab.serve(&listens)?;
        Ok(Bench { lab, plan, _servers: servers })
    }

    fn direct(&self) -> Result<f64> {
        let endpoint = targets(&self.plan)[0].cluster[0];
        self.connections(SocketAddr::new(endpoint.ip, endpoint.port))
    }

    /// Measures with the plan programmed; the excess of the last Service over the direct connection with tracking alone.
    fn row(&self, name: &str, tracked: f64, open: impl FnOnce() -> Result<Box<dyn Dataplane>> + Send) -> Result<f64> {
        let (node, ports) = (self.plan.node.clone(), self.plan.ports.values().cloned().collect());
        let dataplane = self.lab.node().run(|| {
            let mut dataplane = open()?;
            dataplane.replace(node, ports)?;
            anyhow::Ok(dataplane)
        })?;
        let direct = self.direct()?;
        let through = targets(&self.plan).map(|port| {
            let address = port.frontends[0].address;
            self.connections(SocketAddr::new(address.ip().expect("a ClusterIP"), address.port()))
        });
        let [first, middle, last] = through;
        let [first, middle, last] = [first?, middle?, last?];
        drop(dataplane);
        let excess = last - tracked;
        println!(
            "| {} | {name} | {} | {} | {} | {} | {} |",
            self.plan.ports.len(),
            millions(direct),
            millions(first),
            millions(middle),
            millions(last),
            millions(excess)
        );
        Ok(excess)
    }

    /// Instructions for [`CONNECTIONS`] connections.
    fn connections(&self, to: SocketAddr) -> Result<f64> {
        let (mut count, mut started, mut failed) = (0, None, None);
        self.lab.probe_while(CLIENT, Protocol::Tcp, to, PATIENCE, |outcome| {
            count += 1;
            if count == WARM {
                started = Some(Instant::now());
            }
            if !matches!(outcome, Outcome::Answered(_)) {
                failed = Some(outcome);
            }
            failed.is_none() && count < WARM + CONNECTIONS
        })?;
        ensure!(failed.is_none(), "{to}: {failed:?}");
        Ok(started.context("no connection was counted")?.elapsed().as_nanos() as f64)
    }
}

/// The first, the middle and the last Service.
fn targets(plan: &Plan) -> [&PortPlan; 3] {
    let all: Vec<&PortPlan> = plan.ports.values().collect();
    [all[0], all[all.len() / 2], all[all.len() - 1]]
}
