//! `svcmap demo`: a small cluster in network namespaces, with real requests to its Services.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::output::Failure;
use crate::amounts::{counted, seconds};
use crate::config::ProxyConfig;
use crate::lab::{self, Lab, Listen, Outcome, Place, Server};
use crate::netlink::CodecKind;
use crate::nftables::program::Programmer;
use crate::nftables::text;
use crate::objects::{FamilyOf, Protocol};
use crate::plan::FrontendAddress;
use crate::source::load_text;
use crate::tracker::Tracker;

/// Arguments of `demo`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How many requests each client makes to each address
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
}

/// The cluster's objects, which anybody can look at and render.
const MANIFESTS: &str = include_str!("../../deploy/demo/cluster.yaml");
const MANIFESTS_NAME: &str = "deploy/demo/cluster.yaml";
const NODE: &str = "demo";
const CLUSTER_CIDRS: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/48"];

/// Pods by name, and the last part of their addresses.
const PODS: [(&str, &str); 7] = [
    ("client", "10"),
    ("web-1", "1"),
    ("web-2", "2"),
    ("web-3", "3"),
    ("dns-1", "21"),
    ("dns-2", "22"),
    ("dns-3", "23"),
];
const NODE_IPS: [&str; 2] = ["198.51.100.10", "2001:db8:100::10"];
const OUTSIDE: [&str; 4] = ["203.0.113.7", "203.0.113.8", "203.0.113.9", "2001:db8:113::7"];

/// Everything is within one machine: what takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who makes requests to which Service port, and where.
struct Visit {
    client: &'static str,
    from: &'static str,
    service: &'static str,
    protocol: Protocol,
    to: &'static str,
    what: &'static str,
}

const fn visit(who: [&'static str; 2], service: &'static str, protocol: Protocol, to: [&'static str; 2]) -> Visit {
    Visit { client: who[0], from: who[1], service, protocol, to: to[0], what: to[1] }
}

const CLIENT: [&str; 2] = ["pod client", "10.244.1.10"];
const CLIENT_V6: [&str; 2] = ["pod client", "fd00:10:244:1::10"];
const WEB: &str = "shop/web:http";
const DNS: &str = "shop/dns:dns";

const VISITS: [Visit; 6] = [
    visit(CLIENT, WEB, Protocol::Tcp, ["10.96.0.80:80", "ClusterIP"]),
    visit(CLIENT_V6, WEB, Protocol::Tcp, ["[fd00:10:96::80]:80", "ClusterIP"]),
    visit(["pod web-1", "10.244.1.1"], WEB, Protocol::Tcp, ["10.96.0.80:80", "ClusterIP"]),
    visit(["the node", "198.51.100.10"], WEB, Protocol::Tcp, ["10.96.0.80:80", "ClusterIP"]),
    visit(["outside", "203.0.113.7"], WEB, Protocol::Tcp, ["198.51.100.10:30080", "NodePort"]),
    visit(["outside", "2001:db8:113::7"], WEB, Protocol::Tcp, ["[2001:db8:100::10]:30080", "NodePort"]),
];

const STICKY_VISITS: [Visit; 4] = [
    visit(CLIENT, DNS, Protocol::Udp, ["10.96.0.53:53", "ClusterIP"]),
    visit(["outside", "203.0.113.7"], DNS, Protocol::Udp, ["198.51.100.10:30053", "NodePort"]),
    visit(["outside", "203.0.113.8"], DNS, Protocol::Udp, ["198.51.100.10:30053", "NodePort"]),
    visit(["outside", "203.0.113.9"], DNS, Protocol::Udp, ["198.51.100.10:30053", "NodePort"]),
];

/// Runs the command.
///
/// # Errors
/// When this machine does not let the process have namespaces, `ip` is missing, or the kernel refuses the rules.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    show(args, &mut io::stdout().lock()).map_err(Failure::Demo)
}

fn show(args: &Args, out: &mut impl Write) -> Result<ExitCode> {
    lab::enter()?;
    let lab = build(out)?;
    let programmer = program(&lab, out)?;
    let _servers = serve(&lab, &programmer)?;
    show_rules(&lab, &programmer, out)?;

    writeln!(out, "\n4. Requests: who answered how often, and whose address it saw\n")?;
    let mut tallies = Vec::new();
    for visit in &VISITS {
        tallies.push(make_requests(&lab, &programmer, visit, args.requests)?);
    }
    write!(out, "{}", table(&tallies))?;
    writeln!(
        out,
        "\n   A pod that gets itself sees the node's address: else its answer would not come back through the rules."
    )?;

    writeln!(out, "\n5. {DNS} has session affinity: every client stays with the endpoint that it got first\n")?;
    let mut sticky = Vec::new();
    for visit in &STICKY_VISITS {
        sticky.push(make_requests(&lab, &programmer, visit, args.requests)?);
    }
    write!(out, "{}", table(&sticky))?;
    writeln!(out, "\n   The rules remember that in a map, which each new connection refreshes:\n")?;
    let listing = listing(&lab, &programmer, out)?;
    print_blocks(&listing, &["map affinity-"], out)?;

    Ok(verdict(&tallies, &sticky, out)?)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("the demo's addresses are addresses")
}

fn pod_addresses(last: &str) -> [IpAddr; 2] {
    [ip(&format!("10.244.1.{last}")), ip(&format!("fd00:10:244:1::{last}"))]
}

fn build(out: &mut impl Write) -> Result<Lab> {
    writeln!(out, "1. A cluster in network namespaces of this process: no root, and nothing of it stays\n")?;
    let start = Instant::now();
    let mut lab = Lab::new(&NODE_IPS.map(ip))?;
    for (name, last) in PODS {
        lab.add_pod(name, &pod_addresses(last))?;
    }
    lab.place(&OUTSIDE.map(|address| (ip(address), Place::Outside)))?;
    writeln!(out, "   node     {}", NODE_IPS.join("  "))?;
    for (name, last) in PODS {
        let [v4, v6] = pod_addresses(last);
        writeln!(out, "   {name:<8} {v4:<14} {v6}")?;
    }
    writeln!(out, "   outside  {}", OUTSIDE.join("  "))?;
    writeln!(out, "\n   Built in {}.", seconds(start.elapsed().as_secs_f64(), 0))?;
    Ok(lab)
}

/// Programs the node as `svcmap apply` does.
fn program(lab: &Lab, out: &mut impl Write) -> Result<Programmer> {
    writeln!(out, "\n2. The Services of {MANIFESTS_NAME}\n")?;
    let loaded = load_text(MANIFESTS, MANIFESTS_NAME);
    ensure!(loaded.problems.is_empty(), "{MANIFESTS_NAME}: {:?}", loaded.problems);
    let cluster_cidrs = CLUSTER_CIDRS.map(|text| text.parse().expect("the demo's prefixes are prefixes")).to_vec();
    let config = ProxyConfig { node_name: NODE.into(), cluster_cidrs, ..ProxyConfig::default() };
    let mut tracker = Tracker::new(config);
    tracker.replace(loaded.snapshot);
    let (change, _) = tracker.take();
    let mut ports: Vec<_> = change.changed.iter().collect();
    ports.sort_by_key(|port| &port.id);
    for port in ports {
        let frontends: Vec<String> = port.frontends.iter().map(|frontend| in_words(frontend.address)).collect();
        let endpoints: Vec<String> = port.cluster.iter().map(ToString::to_string).collect();
        writeln!(
            out,
            "   {} {} {}\n      -> {}",
            port.id.name,
            port.protocol,
            frontends.join(", "),
            endpoints.join(", ")
        )?;
    }
    let mut programmer = lab.node().run(|| Programmer::open(CodecKind::default())).context("nf_tables")?;
    let applied = programmer.replace(change.node.unwrap_or_default(), change.changed)?;
    writeln!(
        out,
        "\n   Programmed: {} elements of maps and sets, {} bytes; {} to make, {} in the kernel.",
        applied.added,
        applied.bytes,
        seconds(applied.encode.as_secs_f64(), 2),
        seconds(applied.kernel.as_secs_f64(), 2)
    )?;
    Ok(programmer)
}

fn in_words(address: FrontendAddress) -> String {
    match address.ip() {
        Some(ip) => SocketAddr::new(ip, address.port()).to_string(),
        None => format!("node port {}", address.port()),
    }
}

/// Every endpoint of the plan gets a server in its pod.
fn serve(lab: &Lab, programmer: &Programmer) -> Result<Vec<Server>> {
    let listens: Vec<Listen> = programmer
        .state()
        .ports()
        .flat_map(|port| {
            port.cluster.iter().map(|endpoint| Listen {
                protocol: port.protocol,
                address: SocketAddr::new(endpoint.ip, endpoint.port),
            })
        })
        .collect();
    lab.serve(&listens)
}

fn show_rules(lab: &Lab, programmer: &Programmer, out: &mut impl Write) -> Result<()> {
    writeln!(out, "\n3. What the kernel holds of it (the IPv4 table; nft list ruleset shows all)\n")?;
    let listing = listing(lab, programmer, out)?;
    print_blocks(
        &listing,
        &["chain dispatch", "map services", "chain cluster-3", "chain pick-3", "map endpoints"],
        out,
    )?;
    writeln!(
        out,
        "   A new connection to 10.96.0.80:80 looks its address up in `services`, which names a chain; that draws a"
    )?;
    writeln!(
        out,
        "   number, and the element of `endpoints` with that number says where to. However many Services there are,"
    )?;
    writeln!(out, "   these are the chains, and Services are elements of the maps.")?;
    Ok(())
}

/// What `nft` lists; where there is no `nft`, the same from our own books.
fn listing(lab: &Lab, programmer: &Programmer, out: &mut impl Write) -> Result<String> {
    match lab.node().command("nft", &["list", "table", "ip", "svcmap"], "") {
        Ok(listing) => Ok(listing),
        Err(error) => {
            writeln!(out, "   (from svcmap itself, since nft does not run here: {error:#})\n")?;
            let mut own = Vec::new();
            text::write(programmer.state(), &mut own)?;
            Ok(String::from_utf8_lossy(&own).into_owned())
        }
    }
}

/// Prints the chains and maps whose headings begin so, each the first time that it stands there.
fn print_blocks(listing: &str, headings: &[&str], out: &mut impl Write) -> io::Result<()> {
    for heading in headings {
        let start = format!("\t{heading}");
        let block = listing.lines().skip_while(|line| !line.starts_with(&start));
        for line in block.take_while(|line| *line != "\t}") {
            let line = line.replace('\t', "        ");
            writeln!(out, "   {}", line.strip_prefix("        ").unwrap_or(&line))?;
        }
        writeln!(out, "   }}\n")?;
    }
    Ok(())
}

/// What came of a client's requests.
struct Tally<'a> {
    visit: &'a Visit,
    /// How often each endpoint of the Service answered, by its pod's name.
    answers: BTreeMap<String, u32>,
    masqueraded: u32,
    /// What was not answered by an endpoint of the Service.
    lost: Vec<String>,
}

fn make_requests<'a>(lab: &Lab, programmer: &Programmer, visit: &'a Visit, requests: u32) -> Result<Tally<'a>> {
    let to: SocketAddr = visit.to.parse().expect("the demo's addresses are addresses");
    let ports = programmer.state().ports();
    let port =
        ports.into_iter().find(|port| port.id.name.as_str() == visit.service && port.id.family == to.ip().family());
    let endpoints = &port.context("a Service of the demo is not programmed")?.cluster;
    let mut tally = Tally { visit, answers: BTreeMap::new(), masqueraded: 0, lost: Vec::new() };
    let mut made = 0;
    lab.probe_while(ip(visit.from), visit.protocol, to, PATIENCE, |outcome| {
        made += 1;
        match outcome {
            Outcome::Answered(answer) if endpoints.iter().any(|e| SocketAddr::new(e.ip, e.port) == answer.by) => {
                tally.masqueraded += u32::from(answer.masqueraded());
                *tally.answers.entry(answer.name).or_default() += 1;
            }
            other => tally.lost.push(other.to_string()),
        }
        made < requests
    })?;
    Ok(tally)
}

impl fmt::Display for Tally<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.answers {
            write!(f, "{name} {count:<6} ")?;
        }
        let answered: u32 = self.answers.values().sum();
        match self.masqueraded {
            0 => write!(f, "saw the client's address"),
            all if all == answered => write!(f, "saw the node's address"),
            some => write!(f, "saw the node's address {}", counted(some as usize, "time")),
        }
    }
}

fn table(tallies: &[Tally]) -> String {
    let line = |tally: &Tally| {
        let Visit { client, from, protocol, to, what, .. } = tally.visit;
        format!("   {:<28} -> {:<40} {tally}\n", format!("{client} {from}"), format!("{what} {to}/{protocol}"))
    };
    tallies.iter().map(line).collect()
}

/// The last words, and the exit status that goes with them.
fn verdict(tallies: &[Tally], sticky: &[Tally], out: &mut impl Write) -> io::Result<ExitCode> {
    let all = || tallies.iter().chain(sticky);
    let answered: u32 = all().flat_map(|tally| tally.answers.values()).sum();
    let lost = || all().flat_map(|tally| tally.lost.iter().map(move |what| (tally.visit, what)));
    let wandered = sticky.iter().filter(|tally| tally.answers.len() > 1);
    for (visit, what) in lost().take(10) {
        writeln!(out, "   LOST: {} {} -> {}: {what}", visit.client, visit.from, visit.to)?;
    }
    for tally in wandered.clone() {
        writeln!(
            out,
            "   NOT STICKY: {} {} got {}",
            tally.visit.client,
            tally.visit.from,
            counted(tally.answers.len(), "endpoint")
        )?;
    }
    let total = answered as usize + lost().count();
    writeln!(out, "{answered} of {total} requests were answered by an endpoint of their Service.")?;
    let well = lost().next().is_none() && wandered.count() == 0;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
