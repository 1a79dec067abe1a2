//! The flows of the cases, sent in a lab.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use svcmap::lab::{Lab, Listen, Outcome as Seen, Place};
use svcmap::objects::Protocol;
use svcmap::source::Snapshot;

use super::cases::{Case, Flow, Home, Outcome, Stack};

/// For packets that are answered or refused. TCP over IPv6 hears of an ICMP error only when it sends its first packet
/// again, after a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// For packets that are dropped. Nothing is late within a machine, but for that first packet sent again.
const SHORT: Duration = Duration::from_millis(250);

/// Where the addresses of a case are: those of its clients, and of the endpoints of all its steps.
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

/// Sends what a flow says, as often as it takes to see all that may become of it.
///
/// # Errors
/// Something else became of it.
pub fn check(lab: &Lab, flow: &Flow) -> Result<()> {
    check_patiently(lab, flow, SHORT)
}

/// The same on a machine where an answer may take longer: without one after so long, a packet was dropped.
///
/// # Errors
/// As before.
pub fn check_patiently(lab: &Lab, flow: &Flow, short: Duration) -> Result<()> {
    match &flow.expect {
        Outcome::Endpoints(expected) => check_endpoints(lab, flow, expected),
        Outcome::Reject => expect(lab, flow, PATIENCE, |seen| *seen == Seen::Refused),
        Outcome::Drop => expect(lab, flow, short, |seen| *seen == Seen::TimedOut),
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
