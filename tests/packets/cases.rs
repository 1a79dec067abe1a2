//! The behavioural cases, each connection of them made for real.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Listen, Outcome as Seen, Place};
use svcmap::objects::Protocol;
use svcmap::source::Snapshot;

use crate::common::cases::{Case, Flow, Home, Look, Outcome, Stack};
use crate::fixture;
use crate::proxy::Proxy;
use crate::traced;
use crate::trial;

/// For packets that are answered or refused. TCP over IPv6 hears of an ICMP error only when it sends its first packet
/// again, after a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// For packets that are dropped. Nothing is late within a machine, but for that first packet sent again.
const SHORT: Duration = Duration::from_millis(250);

/// A trial for each case and stack that has packets to send.
pub fn trials() -> Vec<Trial> {
    // What a change costs is not seen in packets, and has no expectation for them.
    let has_packets = |case: &Case| matches!(case.look(Stack::V4), Look::Flows(_) | Look::Nothing);
    Case::all().into_iter().filter(has_packets).map(Arc::new).flat_map(in_all_stacks).collect()
}

fn in_all_stacks(case: Arc<Case>) -> [Trial; 3] {
    let why = case.excluded_from("packets");
    if let Some(why) = why {
        eprintln!("cannot run here: case {}: {why}", case.id);
    }
    let ignored = why.is_some();
    Stack::ALL.map(|stack| {
        let name = format!("cases::{}::{}", case.id, format!("{stack:?}").to_lowercase());
        let case = case.clone();
        trial(name, move || fixture::in_a_lab(|lab| run(&case, stack, lab))).with_ignored_flag(ignored)
    })
}

fn run(case: &Case, stack: Stack, lab: &mut Lab) -> Result<()> {
    let last = case.steps.len() - 1;
    let snapshot = case.snapshot(last, stack);
    let Look::Flows(flows) = case.look(stack) else {
        return nothing_is_programmed(case, stack, lab);
    };
    ensure!(!flows.is_empty(), "no packet to send");
    lab.settle(&places(case, stack, &flows))?;
    let mut proxy = start(case, stack, lab)?;
    for step in 0..=last {
        proxy.sync(case.snapshot(step, stack)).with_context(|| format!("step {step}"))?;
    }
    let _servers = lab.serve(&listens(&snapshot, &flows))?;
    let packets = flows.iter().map(|flow| check(lab, flow));
    let mut wrong: Vec<String> = packets.filter_map(Result::err).map(|e| format!("{e:#}")).collect();
    if wrong.is_empty() {
        // the tracer has to say the same of the rules that the packets met
        let (ruleset, node) = (traced::ruleset(lab)?, traced::node(lab)?);
        let traces = flows.iter().map(|flow| traced::check(lab, &ruleset, &node, flow));
        wrong.extend(traces.filter_map(Result::err).map(|e| format!("{e:#}")));
        let explained = flows.iter().map(|flow| traced::check_explanation(lab, &ruleset, flow));
        wrong.extend(explained.filter_map(Result::err).map(|e| format!("{e:#}")));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let rules = lab.node().command("nft", &["list", "ruleset"], "").unwrap_or_else(|error| format!("{error:#}"));
    bail!("{}\n{}\nThe objects:\n{}\nThe rules:\n{rules}", case.row, wrong.join("\n"), case.manifests(last, stack))
}

/// The steps leave no element of a map or set that stands for a Service.
fn nothing_is_programmed(case: &Case, stack: Stack, lab: &Lab) -> Result<()> {
    let mut proxy = start(case, stack, lab)?;
    for step in 0..case.steps.len() {
        proxy.sync(case.snapshot(step, stack))?;
    }
    let rules = lab.node().command("nft", &["list", "ruleset"], "")?;
    let of_services: Vec<&str> = rules.lines().filter(|line| line.contains("comment \"ns/")).collect();
    ensure!(of_services.is_empty(), "{}\nexpected no Service, seen\n{}", case.row, of_services.join("\n"));
    ensure!(rules.contains("table ip svcmap"), "there is no table at all:\n{rules}");
    Ok(())
}

/// In one family, the node has no rules yet. In two, it has those of the case before, which are not the ones wanted: the
/// proxy has to find out what to change.
fn start(case: &Case, stack: Stack, lab: &Lab) -> Result<Proxy> {
    let mut proxy = Proxy::start(lab, case.config(stack))?;
    if stack != Stack::Dual {
        proxy.clean()?;
    }
    Ok(proxy)
}

pub fn places(case: &Case, stack: Stack, flows: &[Flow]) -> HashMap<IpAddr, Place> {
    let place = |home| match home {
        Home::Pod => Place::Pod,
        Home::Elsewhere => Place::Elsewhere,
        Home::Node => Place::Node,
        Home::Outside => Place::Outside,
    };
    let endpoints = (0..case.steps.len()).flat_map(|step| case.places(step, stack));
    let clients = flows.iter().map(|flow| (flow.from.ip, flow.from.home));
    endpoints.chain(clients).map(|(address, home)| (address, place(home))).collect()
}

/// Every endpoint on every port that it has; and, wherever a packet is sent to, somebody who answers if it comes
/// through as it is.
pub fn listens(snapshot: &Snapshot, flows: &[Flow]) -> Vec<Listen> {
    let endpoints = snapshot.slices.iter().flat_map(|slice| {
        let addresses = slice.endpoints.iter().map(|endpoint| endpoint.address);
        addresses.flat_map(|ip| slice.ports.iter().map(move |port| (port.protocol, SocketAddr::new(ip, port.port))))
    });
    let targets = flows.iter().map(|flow| (flow.protocol, flow.to));
    let all: BTreeSet<(Protocol, SocketAddr)> = endpoints.chain(targets).collect();
    all.into_iter().map(|(protocol, address)| Listen { protocol, address }).collect()
}

pub fn check(lab: &Lab, flow: &Flow) -> Result<()> {
    match &flow.expect {
        Outcome::Endpoints(expected) => check_endpoints(lab, flow, expected),
        Outcome::Reject => expect(lab, flow, PATIENCE, |seen| *seen == Seen::Refused),
        Outcome::Drop => expect(lab, flow, SHORT, |seen| *seen == Seen::TimedOut),
        Outcome::Untouched => {
            expect(lab, flow, PATIENCE, |seen| matches!(seen, Seen::Answered(a) if a.by == flow.to && !a.masqueraded()))
        }
    }
}

fn expect(lab: &Lab, flow: &Flow, patience: Duration, right: impl Fn(&Seen) -> bool) -> Result<()> {
    let seen = lab.probe(flow.from.ip, flow.protocol, flow.to, patience)?;
    ensure!(right(&seen), "{flow}: expected {}, seen: {seen}", flow.expect);
    Ok(())
}

/// How often an endpoint answered, and whose address it saw.
#[derive(Debug, Default)]
struct Count {
    clients: usize,
    nodes: usize,
}

/// Goes on until every endpoint has answered, each by chance as often as any other, and then some more, so that one
/// that must not answer would have been seen, too.
fn check_endpoints(lab: &Lab, flow: &Flow, expected: &BTreeMap<SocketAddr, bool>) -> Result<()> {
    let (most, least) = (40 * expected.len(), 2 * expected.len() + 2);
    let mut counts: BTreeMap<SocketAddr, Count> = BTreeMap::new();
    let (mut tries, mut surprise) = (0, None);
    lab.probe_while(flow.from.ip, flow.protocol, flow.to, PATIENCE, |seen| {
        tries += 1;
        match &seen {
            Seen::Answered(answer) if expected.contains_key(&answer.by) => {
                let count = counts.entry(answer.by).or_default();
                if !answer.masqueraded() {
                    count.clients += 1;
                } else if lab.place_of(answer.seen.ip()) == Place::Node {
                    count.nodes += 1;
                } else {
                    surprise = Some(seen);
                }
            }
            _ => surprise = Some(seen),
        }
        surprise.is_none() && tries < most && (tries < least || counts.len() < expected.len())
    })?;
    if let Some(seen) = surprise {
        bail!("{flow}: expected {}, seen: {seen}", flow.expect);
    }
    // The node's own connections have its address either way; then masquerading only gives them another port, which
    // may by chance be the same.
    let from_node = flow.from.home == Home::Node;
    let right = |(endpoint, masqueraded): (&SocketAddr, &bool)| match (counts.get(endpoint), masqueraded) {
        (None, _) => false,
        (Some(count), true) => count.nodes > 0 && (count.clients == 0 || from_node),
        (Some(count), false) => count.nodes == 0,
    };
    ensure!(expected.iter().all(right), "{flow}: expected {}, seen in {tries} tries: {counts:?}", flow.expect);
    Ok(())
}
