//! What tables that are no proxy's do to connections to Services: first packets of pods, of the node and from outside are traced
//! through all tables.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::findings::{Finding, Kind};
use super::ports::Port;
use super::readers::{Reading, rule};
use crate::explain::{Client, Surroundings};
use crate::netlink::model::{Expr, Verdict};
use crate::nftables::names::TABLE;
use crate::plan::FrontendAddress;
use crate::trace::{Event, Outcome, Possibility, Refusal, Ruleset, Step, Tracer};

/// How many Service ports connections are traced to, beside those that rules of others name: most rules know none of them.
pub const TRACED: usize = 256;

/// Rules of others that end connections to Services or lead them elsewhere, and those behind which nothing is known.
pub fn diverted(reading: &Reading, ruleset: &Ruleset, surroundings: &Surroundings) -> Vec<Finding> {
    if ruleset.tables().all(|table| is_proxy(&table.table.name)) {
        return Vec::new();
    }
    let tracer = Tracer::new(ruleset, &surroundings.node);
    let mut search = Search { seen: BTreeSet::new(), findings: Vec::new() };
    for port in sample(reading, ruleset) {
        for frontend in &port.frontends {
            let Some(to) = destination(port, frontend.address, surroundings) else { continue };
            for client in [Client::Pod, Client::Node, Client::Outside] {
                let Some(from) = surroundings.example(client, port.id.family) else { continue };
                let packet = surroundings.packet(from, to, port.protocol, None);
                let example = format!("for example from {client} to {to}");
                for possibility in tracer.possibilities_beyond(&packet) {
                    search.look(port, &possibility, &example);
                }
            }
        }
    }
    search.findings
}

fn is_proxy(table: &str) -> bool {
    table == TABLE || table == "kube-proxy"
}

/// An even sample of all Service ports, and those whose addresses other tables name.
fn sample<'a>(reading: &'a Reading, ruleset: &Ruleset) -> impl Iterator<Item = &'a Port> {
    let named = addresses_of_others(ruleset);
    let every = reading.ports.len().div_ceil(TRACED).max(1);
    let is_named = move |port: &Port| {
        let own = port.frontends.iter().filter_map(|frontend| frontend.address.ip());
        let pools = port.cluster.iter().chain(&port.local).map(|drawn| drawn.ip);
        !named.is_empty() && own.chain(pools).any(|ip| named.contains(&ip))
    };
    let ports = reading.ports.values().enumerate();
    ports.filter(move |(at, port)| at % every == 0 || is_named(port)).map(|(_, port)| port).take(4 * TRACED)
}

struct Search {
    /// What is said already.
    seen: BTreeSet<String>,
    findings: Vec<Finding>,
}

impl Search {
    fn look(&mut self, port: &Port, possibility: &Possibility, example: &str) {
        let trace = match &possibility.trace {
            Ok(trace) => trace,
            Err(refusal) => return self.stopped(port, refusal, example),
        };
        let if_any = if possibility.assumptions.all().is_empty() { "" } else { " (perhaps)" };
        for step in trace.ways.iter().filter_map(|way| culprit(&way.steps, way.outcome)) {
            let place = &step.place;
            if !is_proxy(&place.table) && self.seen.insert(place.to_string()) {
                self.find(Kind::Diverted, port, format!("{place}: {}{if_any}, {example}", step.event));
            }
        }
    }

    /// What the proxy's own tables stop a trace at is found where clients follow those alone.
    fn stopped(&mut self, port: &Port, refusal: &Refusal, example: &str) {
        let is_own = refusal.place.as_ref().is_some_and(|place| is_proxy(&place.table));
        let place = refusal.place.as_ref().map_or_else(|| refusal.to_string(), |place| place.to_string());
        if !is_own && self.seen.insert(format!("beyond {place}")) {
            let what = format!(
                "connections cannot be followed beyond {refusal}: what becomes of them there is not known, {example}"
            );
            self.find(Kind::NotUnderstood, port, what);
        }
    }

    fn find(&mut self, kind: Kind, port: &Port, what: String) {
        self.findings.push(Finding { kind, service: Some(port.id.name.as_str().to_owned()), what });
    }
}

/// The addresses that rules and sets of other tables compare with.
fn addresses_of_others(ruleset: &Ruleset) -> BTreeSet<IpAddr> {
    let mut addresses = BTreeSet::new();
    let mut note = |bytes: &[u8]| {
        // a key may have several parts, each of whole words
        for at in (0..bytes.len()).step_by(4) {
            for length in [4, 16] {
                addresses.extend(bytes.get(at..at + length).and_then(rule::ip));
            }
        }
    };
    for table in ruleset.tables().filter(|table| !is_proxy(&table.table.name)) {
        for expr in table.chains.values().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.exprs) {
            if let Expr::Cmp { data, .. } = expr {
                note(data);
            }
        }
        table.sets.values().flat_map(|set| set.elements.iter()).for_each(|element| note(&element.key));
    }
    addresses
}

fn destination(port: &Port, address: FrontendAddress, surroundings: &Surroundings) -> Option<SocketAddr> {
    let ip = match address.ip() {
        Some(ip) => ip,
        None => surroundings.example(Client::Node, port.id.family)?,
    };
    Some(SocketAddr::new(ip, address.port()))
}

/// The step that ends a way, that changes the destination, or that keeps the proxy from doing so.
fn culprit(steps: &[Step], outcome: Outcome) -> Option<&Step> {
    let ends = |step: &&Step| match outcome {
        Outcome::Dropped => step.event == Event::Verdict(Verdict::Drop),
        Outcome::Rejected(_) => matches!(step.event, Event::Rejected(_)),
        Outcome::Delivered { .. } => matches!(step.event, Event::Destination(_)),
        Outcome::Untouched => step.event == Event::Untracked,
    };
    steps.iter().rev().find(ends)
}
