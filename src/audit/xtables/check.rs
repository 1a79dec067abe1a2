//! Whether packets fare as the reading says, frontend by frontend.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::super::compare::NAMELESS;
use super::super::findings::{Finding, Kind};
use super::super::ports::{Frontend, Port, Who};
use super::super::readers::ipvs_sets::{is_address, is_node_port};
use super::super::readers::{Layout, Reading};
use super::cause::{Cause, Causes};
use super::clients::Clients;
use super::expected::{Expected, Mode, expected};
use super::walk::{Fate, Ground, Packet, Walker, Way};
use super::{jumps, shared};
use crate::explain::{Client, Surroundings};
use crate::objects::{Family, FamilyOf, Protocol};
use crate::plan::{FrontendAddress, Verdict};

/// On so many of the node's addresses a node port is tried.
const MOST_ADDRESSES: usize = 4;

/// Where packets of a reading of iptables or IPVS fare otherwise than the Services in it say, by cause.
pub fn check(reading: &Reading, surroundings: &Surroundings) -> Vec<Finding> {
    let mode = match reading.layouts.as_slice() {
        [Layout::KubeProxyIptables] => Mode::Iptables,
        [Layout::KubeProxyIpvs] => Mode::Ipvs,
        _ => return Vec::new(),
    };
    let has_services = |family, layer: &&super::Tables| {
        layer.table(family, "nat").is_some_and(|nat| nat.find("KUBE-SERVICES").is_some())
    };
    let mut findings = Vec::new();
    for family in Family::BOTH {
        // of two, each would be at the other's packets; and that there are two is said already
        let mut with_services = reading.xtables.layers.iter().filter(|layer| has_services(family, layer));
        let (Some(layer), None) = (with_services.next(), with_services.next()) else { continue };
        let Some(nat) = layer.table(family, "nat") else { continue };
        let other = Family::BOTH.into_iter().find(|one| *one != family).and_then(|one| layer.table(one, "nat"));
        let mut clients = Clients::new(family, nat, other, surroundings);
        if mode == Mode::Ipvs {
            clients.taken =
                reading.ports.values().flat_map(|port| &port.frontends).filter_map(|one| one.address.ip()).collect();
            clients.taken.extend(reading.xtables.servers.keys().map(|(_, to)| to.ip()));
        }
        let has_filter = layer.table(family, "filter").is_some();
        let is_local = |ip| clients.is_local(ip);
        let route = |ip| clients.route(ip);
        let walker = Walker::new(&reading.xtables, family, Ground { is_local: &is_local, route: &route });
        let mut check = Check::new(mode, reading, &clients, &walker);
        check.has_filter = has_filter;
        check.all();
        findings.extend(check.groups.done());
    }
    findings
}

/// What [`check`] does not look for in a reading.
pub fn limits(reading: &Reading) -> Vec<String> {
    let tables =
        |name: &str| reading.xtables.layers.iter().flat_map(|layer| layer.all()).any(|(_, table, _)| table == name);
    let mut limits = Vec::new();
    if reading.layouts.len() > 1 {
        limits.push("rules that drop or divert connections, where there are several proxies".into());
    } else if !tables("nat") {
        limits.push("what the rules of iptables do, which are not listed".into());
    } else {
        if !tables("filter") {
            limits.push("what the table filter of iptables does, which is not listed".into());
        }
        limits.push(
            "rules of nftables that drop or divert connections (of those of iptables they are looked for)".into(),
        );
    }
    limits
}

/// What is wrong, by cause.
#[derive(Default)]
pub struct Groups {
    groups: BTreeMap<Cause, Group>,
}

#[derive(Default)]
struct Group {
    services: BTreeSet<String>,
    count: usize,
    example: Option<String>,
}

impl Groups {
    /// Notes a fault that shows in what a Service port does, if it is one's.
    pub fn add(&mut self, cause: Cause, port: Option<&Port>, example: impl FnOnce() -> String) {
        let group = self.groups.entry(cause).or_default();
        group.count += 1;
        let name = port.map(|port| port.id.name.as_str()).filter(|name| !name.starts_with(NAMELESS));
        // one more than is told apart
        if group.services.len() < 2 {
            group.services.extend(name.map(str::to_owned));
        }
        group.example.get_or_insert_with(example);
    }

    /// Notes a fault that shows in the rules themselves.
    pub fn note(&mut self, cause: Cause) {
        self.groups.entry(cause).or_default();
    }

    fn done(self) -> Vec<Finding> {
        let finding = |((kind, what), group): (Cause, Group)| {
            let service = if group.services.len() == 1 { group.services.into_iter().next() } else { None };
            let what = match group.example {
                Some(example) if group.count > 1 => format!("{what}; {example} and {} more", group.count - 1),
                Some(example) => format!("{what}; {example}"),
                None => what,
            };
            Finding { kind, service, what }
        };
        self.groups.into_iter().map(finding).collect()
    }
}

/// One family's check.
pub struct Check<'w, 'a> {
    pub(super) mode: Mode,
    pub(super) reading: &'w Reading,
    pub(super) clients: &'w Clients<'w>,
    pub(super) walker: &'w Walker<'a>,
    pub(super) groups: Groups,
    /// Whether what drops and refuses is known.
    has_filter: bool,
    off_cluster: Who,
    node_port_servers: BTreeMap<u16, Vec<IpAddr>>,
    /// Addresses and ports of Services, which node ports come after.
    taken: HashSet<(Protocol, SocketAddr)>,
}

impl<'w, 'a> Check<'w, 'a> {
    fn new(mode: Mode, reading: &'w Reading, clients: &'w Clients<'w>, walker: &'w Walker<'a>) -> Check<'w, 'a> {
        let mut check = Check {
            mode,
            reading,
            clients,
            walker,
            groups: Groups::default(),
            has_filter: true,
            off_cluster: Who::Nobody,
            node_port_servers: BTreeMap::new(),
            taken: HashSet::new(),
        };
        let frontends = reading.ports.values().flat_map(|port| port.frontends.iter().map(move |one| (port, one)));
        check.taken.extend(
            frontends.filter_map(|(port, one)| {
                Some((port.protocol, SocketAddr::new(one.address.ip()?, one.address.port())))
            }),
        );
        check.off_cluster = check.most_masquerade();
        if mode == Mode::Ipvs {
            for (_, to) in reading.xtables.servers.keys() {
                check.node_port_servers.entry(to.port()).or_default().push(to.ip());
            }
        }
        check
    }

    fn all(&mut self) {
        for cause in jumps::all_missing(self.mode, self.walker) {
            self.groups.note(cause);
        }
        let family = self.walker.family();
        let reading = self.reading;
        for port in reading.ports.values().filter(|port| port.id.family == family) {
            for frontend in &port.frontends {
                self.frontend(port, frontend);
            }
        }
        shared::check(self);
        for place in self.walker.doubts() {
            let what = format!("whether this rule matches cannot be told: {}", self.walker.words(place));
            self.groups.note((Kind::NotUnderstood, what));
        }
    }

    pub(super) fn causes(&self) -> Causes<'w, 'a> {
        Causes { walker: self.walker, mode: self.mode }
    }

    /// What most ClusterIPs do about sources off the cluster: the same is done for all.
    fn most_masquerade(&self) -> Who {
        let family = self.walker.family();
        let ports = self.reading.ports.values().filter(|port| port.id.family == family);
        let is_cluster =
            |one: &&Frontend| matches!(one.address, FrontendAddress::Cluster(..)) && one.no_endpoints.is_none();
        let (mut off_cluster, mut everybody) = (0, 0);
        for frontend in ports.flat_map(|port| &port.frontends).filter(is_cluster) {
            match frontend.masquerade {
                Who::OffCluster => off_cluster += 1,
                Who::Everybody => everybody += 1,
                Who::Nobody => {}
            }
        }
        match (off_cluster, everybody) {
            (0, 0) => Who::Nobody,
            _ if off_cluster >= everybody => Who::OffCluster,
            _ => Who::Everybody,
        }
    }

    fn frontend(&mut self, port: &Port, frontend: &Frontend) {
        let number = frontend.address.port();
        let addresses: Vec<IpAddr> = match frontend.address.ip() {
            Some(ip) => vec![ip],
            None if self.mode == Mode::Ipvs => {
                let all = self.node_port_servers.get(&number).into_iter().flatten().copied();
                let sets = &self.reading.xtables.sets;
                let is_service = |ip: &IpAddr| is_address(sets, port.protocol, SocketAddr::new(*ip, number));
                all.filter(|ip| ip.family() == port.id.family && !is_service(ip)).take(MOST_ADDRESSES).collect()
            }
            None => self.clients.node_ports.clone(),
        };
        let is_foreign = |to: &SocketAddr| {
            let external = matches!(frontend.address, FrontendAddress::External(..));
            external && self.mode == Mode::Ipvs && !is_address(&self.reading.xtables.sets, port.protocol, *to)
        };
        // a node port is not to be had where another frontend is, which is a finding of its own
        let is_free = |to: &SocketAddr| frontend.address.ip().is_some() || !self.taken.contains(&(port.protocol, *to));
        let addresses: Vec<SocketAddr> =
            addresses.into_iter().map(|ip| SocketAddr::new(ip, number)).filter(is_free).collect();
        if addresses.iter().any(is_foreign) {
            return;
        }
        for to in addresses {
            let kinds = [Client::Pod, Client::Node, Client::Outside];
            let mut packets: Vec<Packet> =
                kinds.into_iter().filter_map(|from| self.clients.packet(from, port.protocol, to)).collect();
            for net in frontend.sources.iter().flatten().take(8) {
                packets.push(self.clients.packet_from(self.clients.within(*net), port.protocol, to));
            }
            if let Some(sources) = &frontend.sources
                && let Some(refused) = self.clients.outside(sources)
            {
                packets.push(self.clients.packet_from(refused, port.protocol, to));
            }
            // nobody but the node gets to its loopback addresses
            let gets_there = |packet: &Packet| packet.from == Client::Node || !to.ip().is_loopback();
            for packet in packets.into_iter().filter(gets_there) {
                self.packet(port, frontend, &packet);
            }
        }
    }

    fn packet(&mut self, port: &Port, frontend: &Frontend, packet: &Packet) {
        let expected = expected(self.mode, port, frontend, self.clients.sender(packet), self.off_cluster);
        let causes = self.causes();
        let is_for_endpoints = matches!(expected, Expected::Endpoints(..));
        let before = (!is_for_endpoints).then(|| self.walker.doubts());
        let ways = self.walker.ways(packet);
        let mut found: Vec<Cause> = Vec::new();
        match expected {
            Expected::Open => {}
            Expected::NotAllowed | Expected::Verdict(_) if !self.has_filter => return,
            Expected::NotAllowed => {
                let has_passed = |way: &&Way| !matches!(way.fate, Fate::Dropped(_));
                found.extend(ways.iter().find(has_passed).map(|way| match way.translated {
                    _ if way.fate != Fate::Delivered || way.trail.untracked.is_some() => {
                        causes.of_no_verdict(way, Verdict::Drop)
                    }
                    Some(Some(place)) => causes.by_rule(place, ", of sources that are not allowed", way.is_doubtful),
                    _ => (Kind::Damaged, "sources that are not allowed are not dropped".into()),
                }));
            }
            Expected::Verdict(verdict) => {
                let is_carried_out = |way: &&Way| match verdict {
                    Verdict::Drop => matches!(way.fate, Fate::Dropped(_)),
                    _ => matches!(way.fate, Fate::Rejected(_)),
                };
                let other = ways.iter().find(|way| !is_carried_out(way));
                found.extend(other.map(|way| causes.of_no_verdict(way, verdict)));
            }
            Expected::Endpoints([], _) if !self.has_filter => return,
            Expected::Endpoints([], _) => {
                found.push((Kind::Missing, "neither an endpoint nor a rule that refuses".into()));
            }
            Expected::Endpoints(pool, replaced) => {
                let replaced = replaced.filter(|_| !self.is_taken_for_node_port(port, frontend));
                found.extend(ways.iter().filter_map(|way| self.way(way, packet, frontend, pool, replaced)));
                if found.is_empty() {
                    let reached: BTreeSet<SocketAddr> = ways.iter().map(|way| way.destination).collect();
                    let missing = pool.iter().find(|one| one.share > 1e-9 && !reached.contains(&one.socket()));
                    found.extend(
                        missing.map(|one| (Kind::Damaged, format!("endpoint {} is not reached", one.socket()))),
                    );
                    self.affinity(port, &ways, &mut found);
                }
            }
        }
        // of what is ended as it should be, it does not matter who else might end it
        if let Some(before) = before.filter(|_| found.is_empty()) {
            self.walker.forget_doubts_but(before);
        }
        let claim = port.claim(frontend);
        found.sort();
        found.dedup();
        for cause in found {
            self.groups.add(cause, Some(port), || format!("from {} to {claim}", shown(packet.from)));
        }
    }

    /// In the mode ipvs all addresses are the node's own, and what is not a node port but has the number of one is masqueraded as
    /// that is.
    fn is_taken_for_node_port(&self, port: &Port, frontend: &Frontend) -> bool {
        let Some(ip) = frontend.address.ip().filter(|_| self.mode == Mode::Ipvs) else { return false };
        let to = SocketAddr::new(ip, frontend.address.port());
        is_node_port(&self.reading.xtables.sets, port.id.family, (port.protocol, to))
    }

    /// What is wrong with one way of a packet that one of these endpoints should get.
    fn way(
        &self,
        way: &Way,
        packet: &Packet,
        frontend: &Frontend,
        pool: &[super::super::ports::Drawn],
        replaced: Option<bool>,
    ) -> Option<Cause> {
        let causes = self.causes();
        if !causes.is_for_want_of_translation(way)
            && let Some(cause) = causes.of_end(way)
        {
            return Some(cause);
        }
        let Some(by) = way.translated else {
            return Some(causes.of_no_translation(way, packet.from, frontend.address));
        };
        if !pool.iter().any(|one| one.socket() == way.destination) {
            let to = way.destination;
            return Some(match by {
                Some(place) => causes.by_rule(place, &format!(" to {to}"), way.is_doubtful),
                None => (Kind::Damaged, format!("IPVS sends to {to}")),
            });
        }
        // what stays on the node does not come to where sources are replaced
        if self.clients.is_local(way.destination.ip()) {
            return None;
        }
        let is_own = |place: &super::walk::Place| self.walker.chain(*place).name.starts_with("KUBE-");
        match (replaced?, way.masqueraded) {
            (true, None) => Some(causes.of_no_masquerade(way)),
            (false, Some(place)) if is_own(&place) => Some(causes.of_masquerade(way, place)),
            (true, Some(place)) if is_own(&place) => self.mark_left(way),
            // what others replace is theirs to say
            _ => None,
        }
    }

    /// The mark goes with the masquerading, or packets that are wrapped up into others are masqueraded twice.
    fn mark_left(&self, way: &Way) -> Option<Cause> {
        let (_, nat) = self.walker.tables("nat").next()?;
        let sets = nat.rules("KUBE-MARK-MASQ").iter().find_map(|rule| match rule.action {
            super::Action::Mark { value, .. } => Some(value),
            _ => None,
        })?;
        let has_return = nat.rules("KUBE-POSTROUTING").iter().any(|rule| rule.action == super::Action::Return);
        (has_return && way.mark & sets != 0)
            .then(|| (Kind::Damaged, "nat KUBE-POSTROUTING leaves the mark on what it masquerades".into()))
    }

    /// Whether clients that are noted are looked up, and the other way round.
    fn affinity(&self, port: &Port, ways: &[Way], found: &mut Vec<Cause>) {
        if self.mode == Mode::Ipvs {
            return;
        }
        let lookups = self.walker.lookups();
        for way in ways {
            let Some(Some(place)) = way.translated else { continue };
            let chain = &self.walker.chain(place).name;
            let lookup = way.noted.and_then(|noted| lookups.iter().find(|lookup| lookup.list == noted));
            let what = match (port.affinity, way.noted, lookup) {
                (None, None, _) => continue,
                (Some(_), None, _) => format!("nat {chain} does not note its clients"),
                (_, Some(list), None) => format!("nat {chain} notes clients in {list}, which no rule looks up"),
                (_, _, Some(lookup)) => {
                    let rule = self.walker.rule(lookup.place);
                    let leads = rule.is_some_and(|rule| rule.target.as_deref() == Some(&**chain));
                    match (leads, lookup.seconds == port.affinity) {
                        (true, true) => continue,
                        (false, _) => format!("{} for clients of {chain}", self.walker.words(lookup.place)),
                        (true, false) => {
                            format!("{} for another time than the others", self.walker.words(lookup.place))
                        }
                    }
                }
            };
            found.push((Kind::Damaged, what));
        }
    }
}

fn shown(client: Client) -> String {
    if client == Client::Outside { "outside".into() } else { client.to_string() }
}
