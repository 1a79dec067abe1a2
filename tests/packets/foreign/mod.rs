//! The tracer against the kernel on rulesets that nobody thought of: small random ones, a few packets through each, and
//! what becomes of every packet is among what the trace says.
//!
//! Every ruleset follows from its seed, which a failure names. `FOREIGN_SEEDS=FIRST..END` runs others than the usual ones.

mod generate;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Answer, Lab, Listen, Outcome as Seen, Place};
use svcmap::objects::{Family, Protocol};
use svcmap::trace::{Event, Node, Outcome, Reject, Ruleset, Source, Trace, Way, trace};

use self::generate::{CLIENTS, PORTS, TARGETS, script};
use crate::common::cases::address;
use crate::common::fixture;
use crate::random::Random;
use crate::traced;
use crate::trial;

/// The usual seeds, and how many of them a test runs.
const SEEDS: Range<u64> = 0..96;
const SEEDS_A_TEST: u64 = 8;
/// Packets through each ruleset.
const PACKETS: usize = 8;
/// As with the cases: TCP over IPv6 hears of an ICMP error only after a second.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(250);

/// How many traces there were, and how many were refused.
static TRACED: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

pub fn trials() -> Vec<Trial> {
    let seeds = match std::env::var("FOREIGN_SEEDS") {
        Err(_) => SEEDS,
        Ok(text) => {
            let bounds = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
            bounds.unwrap_or_else(|| panic!("FOREIGN_SEEDS={text:?} is not FIRST..END"))
        }
    };
    let starts = seeds.clone().step_by(SEEDS_A_TEST as usize);
    let chunks = starts.map(|start| start..(start + SEEDS_A_TEST).min(seeds.end));
    chunks
        .map(|seeds| {
            let name = format!("foreign::rulesets_{}_to_{}", seeds.start, seeds.end - 1);
            trial(name, move || fixture::in_a_lab(|lab| seeds.clone().try_for_each(|seed| run(lab, seed))))
        })
        .collect()
}

fn run(lab: &mut Lab, seed: u64) -> Result<()> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let family = if random.once_in(3) { Family::V6 } else { Family::V4 };
    let places = [("10.180.0.1", Place::Pod), ("10.180.0.2", Place::Elsewhere), ("203.0.113.2", Place::Outside)];
    lab.settle(&places.map(|(ip, place)| (address(ip, family), place)).into_iter().collect())?;
    let rules = script(&mut random, family);
    lab.node().command("nft", &["flush", "ruleset"], "")?;
    lab.node().command("nft", &["-f", "-"], &rules).with_context(|| format!("seed {seed}:\n{rules}"))?;
    let node = traced::node(lab)?;
    let _servers = lab.serve(&listens(family))?;
    for _ in 0..PACKETS {
        let from = address(random.pick(&CLIENTS), family);
        let to = SocketAddr::new(address(random.pick(&TARGETS), family), PORTS[random.below(PORTS.len())]);
        let protocol = if random.once_in(3) { Protocol::Udp } else { Protocol::Tcp };
        if from != to.ip() {
            // read anew: rules may have put something into a set
            let ruleset = traced::ruleset(lab)?;
            compare(lab, &ruleset, &node, from, protocol, to).with_context(|| format!("seed {seed}:\n{rules}"))?;
        }
    }
    lab.node().command("nft", &["flush", "ruleset"], "")?;
    let (traced, refused) = (TRACED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    ensure!(refused * 5 <= traced + 100, "{refused} of {traced} traces were refused");
    Ok(())
}

/// Whoever a packet may come to answers. The world answers for addresses that nobody has.
fn listens(family: Family) -> Vec<Listen> {
    let loopback = if family == Family::V4 { "127.0.0.1" } else { "::1" };
    let mut addresses: Vec<IpAddr> = TARGETS.iter().map(|ip| address(ip, family)).collect();
    addresses.push(loopback.parse().expect("an address"));
    let all = addresses.iter().flat_map(|ip| PORTS.map(|port| SocketAddr::new(*ip, port)));
    let both = |address| [Protocol::Tcp, Protocol::Udp].map(|protocol| Listen { protocol, address });
    all.flat_map(both).collect()
}

fn compare(lab: &Lab, ruleset: &Ruleset, node: &Node, from: IpAddr, protocol: Protocol, to: SocketAddr) -> Result<()> {
    let packet = traced::packet(lab, node, from, protocol, to)?;
    TRACED.fetch_add(1, Ordering::Relaxed);
    let trace: Trace = match trace(ruleset, node, &packet) {
        Ok(trace) => trace,
        Err(refusal) => {
            eprintln!("refused: {refusal}");
            REFUSED.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    };
    let patience = if trace.ways.iter().all(|way| way.outcome == Outcome::Dropped) { SHORT } else { PATIENCE };
    let seen = lab.probe(from, protocol, to, patience)?;
    if trace.ways.iter().any(|way| agrees(lab, way, to, &seen)) {
        return Ok(());
    }
    let ways: String = trace.ways.iter().map(ToString::to_string).collect();
    bail!("{protocol} {from} -> {to}: {seen}, but the trace says\n{ways}")
}

fn agrees(lab: &Lab, way: &Way, to: SocketAddr, seen: &Seen) -> bool {
    match (way.outcome, seen) {
        (Outcome::Untouched, Seen::Answered(answer)) => answer.by == to && answer.seen.ip() == answer.client.ip(),
        (Outcome::Delivered { to, source }, Seen::Answered(answer)) => answer.by == to && is_from(lab, source, answer),
        (Outcome::Dropped, Seen::TimedOut) => true,
        (Outcome::Rejected(Reject::Reset), Seen::Refused) => true,
        // an ICMP error about a packet that was translated before means nothing to its sender
        (Outcome::Rejected(Reject::Unreachable(_)), Seen::Refused) => true,
        (Outcome::Rejected(_), Seen::TimedOut) => is_translated(way),
        _ => false,
    }
}

fn is_from(lab: &Lab, source: Source, answer: &Answer) -> bool {
    match source {
        Source::Kept => answer.seen.ip() == answer.client.ip(),
        Source::Masqueraded => answer.seen.ip().is_loopback() || lab.place_of(answer.seen.ip()) == Place::Node,
        Source::Address(ip) => answer.seen.ip() == ip,
    }
}

fn is_translated(way: &Way) -> bool {
    way.steps.iter().any(|step| matches!(step.event, Event::Destination(_) | Event::Source(_)))
}
