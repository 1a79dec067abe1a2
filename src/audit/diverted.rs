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
use crate::trace::{
    Assumptions, Event, Outcome, Possibility, Refusal, Ruleset, Source, Step, Trace, Tracer, Unknown, Way,
};

/// How many Service ports connections are traced to, beside those that rules of others name: most rules know none of them.
pub const TRACED: usize = 256;

/// Rules of others that end connections to Services or lead them elsewhere, and those behind which nothing is known.
pub fn diverted(reading: &Reading, ruleset: &Ruleset, surroundings: &Surroundings) -> Vec<Finding> {
    if ruleset.tables().all(|table| is_proxy(&table.table.name)) {
        return Vec::new();
    }
    let tracer = Tracer::new(ruleset, &surroundings.node);
    let proxy = Tracer::of_tables(ruleset, &surroundings.node, |table| is_proxy(&table.name));
    let mut search = Search { seen: BTreeSet::new(), findings: Vec::new() };
    for port in sample(reading, ruleset) {
        for frontend in &port.frontends {
            let Some(to) = destination(port, frontend.address, surroundings) else { continue };
            for client in [Client::Pod, Client::Node, Client::Outside] {
                let Some(from) = surroundings.example(client, port.id.family) else { continue };
                let packet = surroundings.packet(from, to, port.protocol, None);
                let alone = proxy.trace(&packet, &Assumptions::default()).ok();
                let connection = Connection { port, alone, example: format!("for example from {client} to {to}") };
                for possibility in tracer.possibilities_beyond(&packet) {
                    search.look(&connection, &possibility);
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

/// A connection, and what becomes of it in the proxy's tables alone, where that is known.
struct Connection<'a> {
    port: &'a Port,
    alone: Option<Trace>,
    example: String,
}

impl Connection<'_> {
    /// Whether the proxy itself refuses or drops it.
    fn is_ended(&self) -> bool {
        let is_end = |way: &Way| matches!(way.outcome, Outcome::Dropped | Outcome::Rejected(_));
        self.alone.as_ref().is_some_and(|alone| alone.ways.iter().all(is_end))
    }

    /// Whether the proxy itself replaces the source address on the way to an endpoint.
    fn is_masqueraded(&self, endpoint: SocketAddr) -> Option<bool> {
        self.alone.as_ref()?.ways.iter().find_map(|way| match way.outcome {
            Outcome::Delivered { to, source } if to == endpoint => Some(source != Source::Kept),
            _ => None,
        })
    }
}

struct Search {
    /// What is said already.
    seen: BTreeSet<String>,
    findings: Vec<Finding>,
}

impl Search {
    fn look(&mut self, connection: &Connection, possibility: &Possibility) {
        let trace = match &possibility.trace {
            Ok(trace) => trace,
            Err(refusal) => return self.stopped(connection, refusal),
        };
        let if_any = if possibility.assumptions.all().is_empty() { "" } else { " (perhaps)" };
        for way in &trace.ways {
            let culprit = culprit(&way.steps, way.outcome).map(|step| (step, ""));
            for (step, so_that) in culprit.into_iter().chain(remarked(connection, way)) {
                let place = &step.place;
                if !is_proxy(&place.table) && self.seen.insert(place.to_string()) {
                    let what = format!("{place}: {}{so_that}{if_any}, {}", step.event, connection.example);
                    self.find(Kind::Diverted, connection.port, what);
                }
            }
        }
    }

    /// What the proxy's own tables stop a trace at is found where clients follow those alone. And what the proxy ends itself
    /// ends in any order.
    fn stopped(&mut self, connection: &Connection, refusal: &Refusal) {
        let is_own = refusal.place.as_ref().is_some_and(|place| is_proxy(&place.table));
        if is_own || (matches!(refusal.what, Unknown::Order { .. }) && connection.is_ended()) {
            return;
        }
        let place = refusal.place.as_ref().map_or_else(|| refusal.to_string(), |place| place.to_string());
        if self.seen.insert(format!("beyond {place}")) {
            let example = &connection.example;
            let what = format!(
                "connections cannot be followed beyond {refusal}: what becomes of them there is not known, {example}"
            );
            self.find(Kind::NotUnderstood, connection.port, what);
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

/// The step that changes the bits of the mark by which the proxy tells whose source address it replaces, where it comes
/// to another decision than by itself; and what comes of it.
fn remarked<'a>(connection: &Connection, way: &'a Way) -> Option<(&'a Step, &'static str)> {
    let Outcome::Delivered { to, source } = way.outcome else { return None };
    let is_replaced = source != Source::Kept;
    if connection.is_masqueraded(to)? == is_replaced {
        return None;
    }
    let translates = |step: &&Step| matches!(step.event, Event::Source(_));
    // others may replace addresses by rules of their own
    if is_replaced && !way.steps.iter().rev().find(translates).is_some_and(|step| is_proxy(&step.place.table)) {
        return None;
    }
    let mut before = 0;
    let changes: Vec<(&Step, u32)> = way
        .steps
        .iter()
        .filter_map(|step| match step.event {
            Event::Mark(mark) => Some((step, mark ^ std::mem::replace(&mut before, mark))),
            _ => None,
        })
        .collect();
    let is_of_proxy = |step: &Step| is_proxy(&step.place.table);
    let bits = changes.iter().filter(|(step, _)| is_of_proxy(step)).fold(0, |bits, (_, changed)| bits | changed);
    let (step, _) = changes.iter().rev().find(|(step, changed)| !is_of_proxy(step) && changed & bits != 0)?;
    Some((step, if is_replaced { REPLACED } else { STAYS }))
}

const REPLACED: &str = ", so that a source address is replaced that has to stay";
const STAYS: &str = ", so that a source address stays that has to be replaced";
