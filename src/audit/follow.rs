//! Clients are taken through the proxy's own rules to the frontends that were read, and what becomes of them is held
//! against what was read: elements alone say nothing as long as no rule looks them up.
//!
//! Only the proxy's tables are gone through, as if there were no others: what those do is looked for elsewhere
//! ([`findings`](super::findings)). What differs is said once for each rule that it is seen at, with one connection as an example.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::clients::Clients;
use super::deviation::{Deviation, Seen, deviation};
use super::findings::{Finding, Kind};
use super::ports::{Frontend, Port};
use super::promise::{From, Promise, promise};
use super::readers::{Layout, Reading};
use crate::explain::Surroundings;
use crate::nftables::names::{Map, TABLE};
use crate::nftables::rule::nf_family;
use crate::objects::{Family, Protocol};
use crate::plan::FrontendAddress;
use crate::trace::{Assumption, Hook, Outcome, Packet, Ruleset, Step, TableRules, Trace, Tracer};

/// How many frontends all clients are taken to; where there are more, an even sample.
const ALL_CLIENTS: usize = 512;
/// How many ways of a connection are taken a second time, to see whether the client is remembered.
const MOST_REPEATED: usize = 8;
/// The priority at which destinations are changed.
const DNAT: i32 = -100;
/// A port that is unlikely to be a Service's, and on from there.
const UNUSED_PORT: u16 = 65_521;

/// Where connections are not what the reading says of their frontends.
pub fn follow(reading: &Reading, ruleset: &Ruleset, surroundings: &Surroundings) -> Vec<Finding> {
    let name = match reading.layouts.as_slice() {
        [Layout::Svcmap] => TABLE,
        [Layout::KubeProxyNftables] => "kube-proxy",
        // two are too many, and of the others the rules are not all there
        _ => return Vec::new(),
    };
    let mut findings = Vec::new();
    for family in Family::BOTH {
        let is_table = |table: &&TableRules| table.table.family == nf_family(family) && table.table.name == name;
        let Some(table) = ruleset.tables().find(is_table) else { continue };
        let clients = Clients::new(ruleset, table, family, surroundings);
        let tracer = Tracer::of_tables(ruleset, &clients.surroundings.node, |table| table.name == name);
        let mut follower = Follower {
            reading,
            family,
            table,
            clients: &clients,
            tracer,
            causes: BTreeMap::new(),
            named: reading.findings.iter().filter_map(|finding| finding.service.as_deref()).collect(),
            strange: BTreeSet::new(),
            doubtful: BTreeMap::new(),
        };
        follower.frontends();
        follower.other_ports();
        if name == TABLE {
            follower.unused_addresses(&ruleset.prefixes_of(table, &Map::ServiceCidrs.name()));
        }
        findings.extend(follower.findings());
        let other = clients.other_pods(surroundings);
        if !other.is_empty() {
            let list = |pods: &[IpNet]| pods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let told = list(&clients.surroundings.pods);
            let what = format!(
                "{} {name}: rules take {told} for pods' addresses, which are in {}",
                table.table.family.name(),
                list(&other)
            );
            findings.push(Finding { kind: Kind::Astray, service: None, what });
        }
    }
    findings
}

struct Follower<'a> {
    reading: &'a Reading,
    family: Family,
    table: &'a TableRules,
    clients: &'a Clients,
    tracer: Tracer<'a>,
    causes: BTreeMap<(Deviation, String), Cause>,
    /// Service ports of which elements are known to be missing or wrong, and so why other endpoints are drawn.
    named: BTreeSet<&'a str>,
    /// What the trace stopped at.
    strange: BTreeSet<String>,
    /// Rules of which it is not known whether they match, and what they would do then.
    doubtful: BTreeMap<String, String>,
}

/// Deviations that are seen at the same chain.
struct Cause {
    /// The Service ports, as far as one is told from several.
    service: Option<String>,
    several: bool,
    /// How many frontends, and the last one counted.
    frontends: usize,
    last: SocketAddr,
    example: String,
}

/// A connection to a frontend, or to what is none.
struct Connection<'a> {
    port: Option<&'a Port>,
    to: SocketAddr,
    protocol: Protocol,
    from: &'a From,
    /// Whether there is a verdict for those who get no endpoint.
    has_verdict: bool,
}

impl Connection<'_> {
    /// The connection, with what becomes of it.
    fn example(&self, said: &str) -> String {
        let Connection { to, protocol, from, .. } = self;
        let of = self.port.map(|port| format!(" of {}", port.id.name)).unwrap_or_default();
        format!("{from} to {to}/{protocol}{of}: {said}")
    }
}

impl Follower<'_> {
    fn frontends(&mut self) {
        let reading = self.reading;
        let ports = || reading.ports.values().filter(|port| port.id.family == self.family);
        let count: usize = ports().map(|port| port.frontends.len()).sum();
        let every = count.div_ceil(ALL_CLIENTS).max(1);
        let taken: BTreeSet<(Protocol, IpAddr, u16)> = ports()
            .flat_map(|port| {
                port.frontends
                    .iter()
                    .filter_map(|frontend| Some((port.protocol, frontend.address.ip()?, frontend.address.port())))
            })
            .collect();
        let frontends = ports().flat_map(|port| port.frontends.iter().map(move |frontend| (port, frontend)));
        for (at, (port, frontend)) in frontends.enumerate().collect::<Vec<_>>() {
            let Some(ip) = frontend.address.ip().or(self.clients.node_port_ip) else { continue };
            let to = SocketAddr::new(ip, frontend.address.port());
            // somebody else's, which is a finding of its own
            if frontend.address.ip().is_none() && taken.contains(&(port.protocol, ip, to.port())) {
                continue;
            }
            if at % every == 0 {
                for from in self.clients.of(port, frontend) {
                    self.connect(port, frontend, to, &from);
                    self.connect_again(port, frontend, to, &from);
                }
            } else if let Some(from) = self.clients.most_telling(frontend) {
                self.connect(port, frontend, to, from);
            }
        }
    }

    fn connect(&mut self, port: &Port, frontend: &Frontend, to: SocketAddr, from: &From) {
        let promise = promise(port, frontend, from);
        let has_verdict = frontend.no_endpoints.is_some();
        self.expect(&Connection { port: Some(port), to, protocol: port.protocol, from, has_verdict }, &promise);
    }

    /// Releases of kube-proxy up to 1.33 look for missing endpoints before DNAT in the output hook, so that the node itself gets
    /// what everybody gets.
    fn is_asked_first(&self, trace: &Trace) -> bool {
        let priority = |step: &Step| Some(self.table.chains.get(&step.place.chain)?.chain.hook.as_ref()?.priority);
        trace.ways.iter().all(|way| {
            let base = way.steps.iter().rev().find_map(|step| Some((step.hook, priority(step)?)));
            way.outcome == Outcome::Dropped && base.is_some_and(|(hook, at)| hook == Hook::Output && at < DNAT)
        })
    }

    /// Holds what becomes of a connection against what is promised. No proxy makes a rule of which it is not known whether it
    /// matches: where one does not keep the promise if it does, or if it does not, that is said.
    fn expect(&mut self, connection: &Connection, promise: &Promise) {
        let node = &self.clients.surroundings.node;
        let (mut found, mut is_kept) = (None, false);
        for possibility in self.tracer.possibilities(&self.packet(connection)) {
            match possibility.trace {
                Err(refusal) => {
                    self.strange.insert(refusal.to_string());
                    return;
                }
                Ok(trace) => match deviation(promise, &trace, connection.from, node) {
                    None => is_kept = true,
                    Some(_) if connection.has_verdict && self.is_asked_first(&trace) => is_kept = true,
                    Some(seen) if found.is_none() => {
                        let assumed = possibility.assumptions.all();
                        let decisive = assumed.iter().rfind(|one| one.matches).or(assumed.last()).cloned();
                        found = Some((seen.deviation, seen.chain(), said(&trace, &seen), decisive));
                    }
                    Some(_) => {}
                },
            }
        }
        let Some((deviation, chain, said, decisive)) = found else { return };
        let said = format!("{said} (promised: {promise})");
        match decisive.filter(|_| is_kept) {
            Some(Assumption { place, why, matches }) => {
                let if_so = if matches { "if it matches" } else { "if it does not" };
                let example = connection.example(&said);
                self.doubtful.entry(format!("{place}: {why}")).or_insert_with(|| {
                    format!("{if_so}, connections {}, for example from {example}", deviation.text())
                });
            }
            None => self.note(connection, deviation, chain, &said),
        }
    }

    /// With session affinity, a client that comes again gets the endpoint that it had.
    fn connect_again(&mut self, port: &Port, frontend: &Frontend, to: SocketAddr, from: &From) {
        if port.affinity.is_none() || !matches!(promise(port, frontend, from), Promise::Endpoints { .. }) {
            return;
        }
        let connection = Connection { port: Some(port), to, protocol: port.protocol, from, has_verdict: false };
        let packet = self.packet(&connection);
        let possibilities = self.tracer.possibilities(&packet);
        let [only] = possibilities.as_slice() else { return };
        let Ok(first) = &only.trace else { return };
        for way in first.ways.iter().take(MOST_REPEATED) {
            let Outcome::Delivered { to: had, .. } = way.outcome else { continue };
            let again = self.tracer.possibilities_after(&packet, &way.learned);
            let Some(Ok(trace)) = again.first().map(|possibility| &possibility.trace) else { continue };
            let other =
                trace.ways.iter().find(|way| !matches!(way.outcome, Outcome::Delivered { to, .. } if to == had));
            if let Some(other) = other {
                let seen = Seen { deviation: Deviation::NotRemembered, step: other.steps.last() };
                let said = format!("at first {had}, then {}", said(trace, &seen));
                self.note(&connection, seen.deviation, seen.chain(), &said);
                return;
            }
        }
    }

    /// Ports of ClusterIPs that are no Service's are refused.
    fn other_ports(&mut self) {
        let reading = self.reading;
        let ports = reading.ports.values().filter(|port| port.id.family == self.family);
        let mut used: BTreeMap<IpAddr, BTreeSet<u16>> = BTreeMap::new();
        for frontend in ports.flat_map(|port| &port.frontends) {
            if let FrontendAddress::Cluster(ip, port) = frontend.address {
                used.entry(ip).or_default().insert(port);
            }
        }
        let every = used.len().div_ceil(ALL_CLIENTS).max(1);
        for (ip, used) in used.iter().step_by(every) {
            let Some(port) = (UNUSED_PORT..).find(|port| !used.contains(port)) else { continue };
            for from in self.clients.kinds() {
                let to = SocketAddr::new(*ip, port);
                self.expect(
                    &Connection { port: None, to, protocol: Protocol::Tcp, from, has_verdict: false },
                    &Promise::Rejected,
                );
            }
        }
    }

    /// Addresses of the ranges for Services that none of them has are dropped.
    fn unused_addresses(&mut self, ranges: &[IpNet]) {
        let frontends = self.reading.ports.values().flat_map(|port| &port.frontends);
        let used: BTreeSet<IpAddr> = frontends.filter_map(|frontend| frontend.address.ip()).collect();
        let Some(ip) = self.clients.unused(ranges, &used) else { return };
        for from in self.clients.kinds() {
            let to = SocketAddr::new(ip, UNUSED_PORT);
            self.expect(
                &Connection { port: None, to, protocol: Protocol::Tcp, from, has_verdict: false },
                &Promise::Dropped,
            );
        }
    }

    fn packet(&self, connection: &Connection) -> Packet {
        let Connection { from, to, protocol, .. } = connection;
        self.clients.surroundings.packet(from.ip, *to, *protocol, from.interface.as_deref())
    }

    fn note(&mut self, connection: &Connection, deviation: Deviation, chain: String, said: &str) {
        let name = connection.port.map(|port| port.id.name.as_str());
        let is_of_endpoints = matches!(deviation, Deviation::OtherEndpoints | Deviation::OtherShares);
        if is_of_endpoints && name.is_some_and(|name| self.named.contains(name)) {
            return;
        }
        let to = &connection.to;
        let cause = self.causes.entry((deviation, chain)).or_insert_with(|| Cause {
            service: name.map(str::to_owned),
            several: false,
            frontends: 0,
            last: *to,
            example: connection.example(said),
        });
        cause.several |= cause.service.as_deref() != name;
        if cause.frontends == 0 || cause.last != *to {
            cause.frontends += 1;
        }
        cause.last = *to;
    }

    fn findings(self) -> Vec<Finding> {
        let strange = self.strange.into_iter().map(|what| format!("connections cannot be followed beyond {what}"));
        let doubtful = self.doubtful.into_iter().map(|(rule, what)| format!("{rule}; {what}"));
        let not_understood =
            strange.chain(doubtful).map(|what| Finding { kind: Kind::NotUnderstood, service: None, what });
        let causes = self.causes.into_iter().map(|((deviation, chain), cause)| {
            let at = if chain.is_empty() { "no rule does anything".to_owned() } else { chain };
            let frontends = match cause.frontends {
                1 => "one address and port".to_owned(),
                count => format!("{count} addresses and ports"),
            };
            let what =
                format!("{at}: connections to {frontends} {}, for example from {}", deviation.text(), cause.example);
            Finding { kind: Kind::Astray, service: cause.service.filter(|_| !cause.several), what }
        });
        not_understood.chain(causes).collect()
    }
}

/// What becomes of a connection, and the rule that it is seen at.
fn said(trace: &Trace, seen: &Seen) -> String {
    match seen.step {
        Some(step) => format!("{}, {}: {}", shortened(trace), step.place, step.event),
        None => shortened(trace),
    }
}

/// The outcomes, but for most of many.
fn shortened(trace: &Trace) -> String {
    let outcomes = trace.outcomes();
    match outcomes.len() {
        0..=3 => trace.summary(),
        count => {
            let first = outcomes.iter().take(2).map(|(outcome, share)| format!("{share} {outcome}"));
            format!("{}; and {} more", first.collect::<Vec<_>>().join("; "), count - 2)
        }
    }
}
