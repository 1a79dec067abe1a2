//! What a plan comes to in one family.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::names::Set;
use super::settings::Settings;
use crate::objects::{Family, FamilyOf, Protocol};
use crate::plan::{Endpoint, Frontend, FrontendAddress, Masquerade, NodePlan, Plan, PortPlan, Verdict};

/// Which virtual server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Of which protocol.
    pub protocol: Protocol,
    /// Where clients send to.
    pub address: SocketAddr,
}

/// A virtual server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Which scheduler chooses.
    pub scheduler: String,
    /// The scheduler's flags.
    pub flags: u32,
    /// For how many seconds a client stays with its real server (row D2).
    pub persistence: Option<u32>,
    /// The endpoints.
    pub destinations: BTreeSet<SocketAddr>,
}

/// What a plan comes to in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The family.
    pub family: Family,
    /// The addresses of the dummy interface.
    pub addresses: BTreeSet<IpAddr>,
    /// The virtual servers.
    pub servers: BTreeMap<Key, Server>,
    /// The entries of all sets, as `ipset` reads them.
    pub sets: BTreeMap<Set, BTreeSet<String>>,
}

impl State {
    /// What the plan comes to on a node that has these addresses of its own.
    pub fn new(plan: &Plan, family: Family, own: &[IpAddr], settings: &Settings) -> State {
        let state = State {
            family,
            addresses: BTreeSet::new(),
            servers: BTreeMap::new(),
            sets: Set::ALL.map(|set| (set, BTreeSet::new())).into(),
        };
        let mut writer = Writer { state, own, node_ports: node_port_addresses(&plan.node, family, own), settings };
        for port in plan.ports.values().filter(|port| port.id.family == family) {
            port.frontends.iter().for_each(|frontend| writer.frontend(port, frontend));
        }
        writer.state
    }

    /// How many things it is made of: virtual and real servers, addresses, entries of sets.
    pub fn objects(&self) -> usize {
        let servers = self.servers.values().map(|server| 1 + server.destinations.len()).sum::<usize>();
        servers + self.addresses.len() + self.sets.values().map(BTreeSet::len).sum::<usize>()
    }
}

/// The node's own addresses as far as the plan knows them, for who cannot ask the kernel.
pub fn planned_addresses(node: &NodePlan) -> Vec<IpAddr> {
    let single = |prefix: &IpNet| (prefix.prefix_len() == prefix.max_prefix_len()).then(|| prefix.addr());
    let prefixes = node.node_port_addresses.iter().filter_map(single);
    prefixes.chain(node.node_ips.iter().copied()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Where node ports are served (rows F1–F4). Loopback addresses are not: IPVS does not translate their packets.
fn node_port_addresses(node: &NodePlan, family: Family, own: &[IpAddr]) -> Vec<IpAddr> {
    let is_usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let is_served = |ip: &IpAddr| node.node_port_addresses.iter().any(|prefix| prefix.contains(ip));
    own.iter().copied().filter(|ip| ip.family() == family && is_usable(ip) && is_served(ip)).collect()
}

struct Writer<'a> {
    state: State,
    own: &'a [IpAddr],
    node_ports: Vec<IpAddr>,
    settings: &'a Settings,
}

impl Writer<'_> {
    fn frontend(&mut self, port: &PortPlan, frontend: &Frontend) {
        // what is to pass must not be taken for the node's own, not even for pods' sake
        if frontend.no_endpoints == Some(Verdict::Pass) {
            return;
        }
        let mut endpoints = port.pool(frontend.pool);
        if endpoints.is_empty() && frontend.short_circuit {
            endpoints = &port.cluster;
        }
        let places: Vec<SocketAddr> = match (frontend.address.ip(), frontend.address.port()) {
            (Some(ip), number) => vec![SocketAddr::new(ip, number)],
            (None, number) => self.node_ports.iter().map(|ip| SocketAddr::new(*ip, number)).collect(),
        };
        for place in places {
            self.place(port, frontend, endpoints, place);
        }
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.local) {
            let from = entry(port.protocol, SocketAddr::new(endpoint.ip, endpoint.port));
            self.add(Set::LoopBack, format!("{from},{}", endpoint.ip));
        }
    }

    fn place(&mut self, port: &PortPlan, frontend: &Frontend, endpoints: &[Endpoint], place: SocketAddr) {
        let entry = entry(port.protocol, place);
        let is_dropped = frontend.no_endpoints == Some(Verdict::Drop);
        if is_dropped {
            self.add(if endpoints.is_empty() { Set::Dropped } else { Set::DroppedOutside }, entry.clone());
        }
        // without real servers the kernel refuses, which is not what is wanted there
        if !(is_dropped && endpoints.is_empty()) {
            let server = self.server(port, endpoints);
            self.state.servers.insert(Key { protocol: port.protocol, address: place }, server);
        }
        self.classify(port.protocol, frontend, place, entry);
    }

    fn server(&self, port: &PortPlan, endpoints: &[Endpoint]) -> Server {
        Server {
            scheduler: self.settings.scheduler.clone(),
            flags: self.settings.flags(),
            persistence: port.affinity,
            destinations: endpoints.iter().map(|endpoint| SocketAddr::new(endpoint.ip, endpoint.port)).collect(),
        }
    }

    /// In which sets an address and port of a Service are.
    fn classify(&mut self, protocol: Protocol, frontend: &Frontend, place: SocketAddr, entry: String) {
        let keeps_source = frontend.masquerade == Masquerade::Never;
        match frontend.address {
            FrontendAddress::NodePort(number) => {
                let set = if keeps_source { Set::NodePortLocal(protocol) } else { Set::NodePort(protocol) };
                self.add(set, if set.kind() == "bitmap:port" { number.to_string() } else { entry });
                return;
            }
            FrontendAddress::Cluster(..) => self.add(Set::ClusterIp, entry),
            FrontendAddress::External(..) => match &frontend.sources {
                None => self.add(if keeps_source { Set::ExternalIpLocal } else { Set::ExternalIp }, entry),
                Some(sources) => {
                    self.add(Set::LoadBalancer, entry.clone());
                    if keeps_source {
                        self.add(Set::LoadBalancerLocal, entry.clone());
                    }
                    sources.iter().for_each(|source| self.allow(&entry, *source));
                    self.add(Set::LoadBalancerFw, entry);
                }
            },
        }
        if !self.own.contains(&place.ip()) {
            self.state.addresses.insert(place.ip());
            self.add(Set::IpvsIps, place.ip().to_string());
        }
    }

    /// A set of prefixes does not take one of length zero: its two halves stand for it.
    fn allow(&mut self, entry: &str, source: IpNet) {
        if source.prefix_len() == source.max_prefix_len() {
            self.add(Set::LoadBalancerSourceIp, format!("{entry},{}", source.addr()));
        } else if source.prefix_len() == 0 {
            let halves = source.subnets(1).into_iter().flatten();
            halves.for_each(|half| self.add(Set::LoadBalancerSourceCidr, format!("{entry},{half}")));
        } else {
            self.add(Set::LoadBalancerSourceCidr, format!("{entry},{source}"));
        }
    }

    fn add(&mut self, set: Set, entry: String) {
        self.state.sets.entry(set).or_default().insert(entry);
    }
}

/// An address and port as a set has them.
fn entry(protocol: Protocol, place: SocketAddr) -> String {
    format!("{},{protocol}:{}", place.ip(), place.port())
}
