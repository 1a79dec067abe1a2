//! Who connects to frontends in an audit: clients that stand for all that rules tell apart.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::ports::{Frontend, Port};
use super::promise::From;
use super::readers::rule;
use crate::explain::{Client, Surroundings};
use crate::netlink::model::{Expr, Rule, Verdict};
use crate::nftables::names::Map;
use crate::objects::{Family, FamilyOf};
use crate::trace::{Interface, Ruleset, TableRules};

/// The interface of clients from outside where no route is known.
const OUTSIDE: &str = "outside";

/// The most endpoints of a Service port that connect to it.
const MOST_OWN: usize = 8;

/// The clients of one family, and what there has to be known of the node for them.
#[derive(Debug)]
pub struct Clients {
    /// What is known of the node; where that is too little, with an address that node ports are served on.
    pub surroundings: Surroundings,
    /// The pod, the node and the outside, as far as there are any.
    kinds: Vec<From>,
    family: Family,
    is_told_by_interface: bool,
    tells_pods: bool,
    /// Endpoints of which rules know that they run on this node.
    own: Own,
    /// Where node ports are served.
    pub node_port_ip: Option<IpAddr>,
}

#[derive(Debug)]
enum Own {
    All,
    These(BTreeSet<IpAddr>),
}

impl Clients {
    /// The clients that a proxy's table tells apart.
    pub fn new(ruleset: &Ruleset, table: &TableRules, family: Family, around: &Surroundings) -> Clients {
        let mut surroundings = around.clone();
        let served =
            table.sets.get(&Map::NodePortIps.name()).map(|_| ruleset.prefixes_of(table, &Map::NodePortIps.name()));
        let node_port_ip = node_address(&mut surroundings, family, served.as_deref());
        let prefixes = pod_prefixes(ruleset, table);
        surroundings.pod_interface = surroundings.pod_interface.take().filter(|_| prefixes.is_empty());
        surroundings.pods = prefixes.clone();
        // the narrowest first: an address of it is one of the others as well, where they are not beside each other
        surroundings.pods.sort_by_key(|prefix| std::cmp::Reverse(prefix.prefix_len()));
        let is_told_by_interface = surroundings.pod_interface.is_some();
        let tells_pods = !prefixes.is_empty() || is_told_by_interface;
        let own = own_endpoints(table, around);
        let mut clients =
            Clients { surroundings, kinds: Vec::new(), family, is_told_by_interface, tells_pods, own, node_port_ip };
        clients.kinds = [Client::Pod, Client::Node, Client::Outside]
            .into_iter()
            .filter_map(|kind| Some(clients.from(clients.surroundings.example(kind, family)?)))
            .collect();
        clients
    }

    /// A client with this address.
    fn from(&self, ip: IpAddr) -> From {
        let kind = self.surroundings.client(ip);
        let is_pod = self.tells_pods
            && match self.is_told_by_interface {
                true => kind == Client::Pod,
                false => self.surroundings.pods.iter().any(|pods| pods.contains(&ip)),
            };
        let interface = match kind {
            Client::Pod => self.surroundings.pod_interface.as_ref().map(|pods| pods.example().to_string()),
            Client::Node => None,
            Client::Outside => self.surroundings.node.route(ip).is_none().then(|| OUTSIDE.to_owned()),
        };
        From { kind, ip, is_pod, is_own_endpoint: false, interface }
    }

    /// The prefixes that pods are said to have, where rules tell pods by others.
    pub fn other_pods(&self, around: &Surroundings) -> Vec<IpNet> {
        let told = &self.surroundings.pods;
        let said: Vec<IpNet> = around.pods.iter().filter(|pods| pods.family() == self.family).copied().collect();
        let overlap = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
        let any = said.iter().any(|one| told.iter().any(|other| overlap(one, other)));
        if told.is_empty() || any { Vec::new() } else { said }
    }

    /// One of each kind.
    pub fn kinds(&self) -> &[From] {
        &self.kinds
    }

    /// Those that a frontend may tell apart: beside one of each kind, a source that is listed, and an endpoint of this node.
    pub fn of(&self, port: &Port, frontend: &Frontend) -> Vec<From> {
        let mut clients = self.kinds.clone();
        let listed = frontend.sources.iter().flatten().next().map(|source| self.from(inside(source)));
        clients.extend(listed);
        let drawn = port.cluster.iter().chain(&port.local).map(|one| one.ip);
        let is_own = |ip: &IpAddr| match &self.own {
            Own::All => true,
            Own::These(these) => these.contains(ip) || port.local.iter().any(|one| one.ip == *ip),
        };
        let own: BTreeSet<IpAddr> = drawn.filter(is_own).collect();
        clients.extend(own.into_iter().take(MOST_OWN).map(|ip| From { is_own_endpoint: true, ..self.from(ip) }));
        clients
    }

    /// The one that most rules have to do with: a pod where pods are served otherwise, else somebody whose address is
    /// replaced.
    pub fn most_telling(&self, frontend: &Frontend) -> Option<&From> {
        let wanted = if frontend.short_circuit { Client::Pod } else { Client::Outside };
        self.kinds.iter().find(|from| from.kind == wanted).or(self.kinds.last())
    }

    /// An address that none of these has, of one of the prefixes.
    pub fn unused(&self, prefixes: &[IpNet], used: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let of_family = prefixes.iter().filter(|prefix| prefix.family() == self.family);
        of_family.flat_map(last_hosts).find(|ip| !used.contains(ip))
    }
}

/// Addresses from the end of a prefix, where they are the least likely to be somebody's.
fn last_hosts(prefix: &IpNet) -> Box<dyn Iterator<Item = IpAddr>> {
    match *prefix {
        IpNet::V4(prefix) => Box::new(prefix.hosts().rev().take(64).map(IpAddr::V4)),
        IpNet::V6(prefix) => {
            let last = u128::from(prefix.broadcast());
            let first = u128::from(prefix.network());
            Box::new(
                (0..64)
                    .map(move |back| last.saturating_sub(back))
                    .filter(move |ip| *ip >= first)
                    .map(|ip| IpAddr::V6(ip.into())),
            )
        }
    }
}

/// An address within a prefix.
fn inside(prefix: &IpNet) -> IpAddr {
    last_hosts(prefix).next().unwrap_or(prefix.addr())
}

/// An address of the node that node ports are served on; where none is known, the node gets one. None where they are served
/// nowhere.
fn node_address(surroundings: &mut Surroundings, family: Family, served: Option<&[IpNet]>) -> Option<IpAddr> {
    let is_served = |ip: &IpAddr| served.is_none_or(|served| served.iter().any(|prefix| prefix.contains(ip)));
    let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let own = surroundings.node.interfaces.iter().flat_map(|interface| &interface.addresses);
    let mut usable = own.filter(|ip| ip.family() == family && !ip.is_loopback() && !is_link_local(ip));
    if let Some(ip) = usable.find(|ip| is_served(ip)) {
        return Some(*ip);
    }
    let stand_in: IpAddr = match family {
        Family::V4 => IpAddr::from([192, 0, 2, 254]),
        Family::V6 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe]),
    };
    let in_set = || served?.iter().filter(|prefix| prefix.family() == family).map(inside).find(|ip| !ip.is_loopback());
    let ip = if is_served(&stand_in) { stand_in } else { in_set()? };
    surroundings.node.interfaces.push(Interface { addresses: vec![ip], ..Interface::default() });
    Some(ip)
}

/// The prefixes that rules tell pods by: what sources are compared with, but by endpoints' and firewalls' rules.
fn pod_prefixes(ruleset: &Ruleset, table: &TableRules) -> Vec<IpNet> {
    let mut prefixes: BTreeSet<IpNet> = ruleset.prefixes_of(table, &Map::PodCidrs.name()).into_iter().collect();
    let drops = |rule: &Rule| {
        let is_drop = |expr: &Expr| {
            matches!(expr, Expr::Immediate { data: crate::netlink::model::Data::Verdict(Verdict::Drop), .. })
        };
        rule.exprs.iter().any(is_drop)
    };
    let rules = table.chains.values().flat_map(|chain| &chain.rules);
    for rule in rules.filter(|rule| rule::asks_for_source(rule) && !drops(rule)) {
        prefixes.extend(rule::compared_source(rule).filter(|prefix| prefix.prefix_len() < prefix.max_prefix_len()));
        for (set, _) in rule::lookups(rule).filter(|(set, _)| set.starts_with("__set")) {
            prefixes.extend(ruleset.prefixes_of(table, set));
        }
    }
    prefixes.into_iter().collect()
}

/// The endpoints of this node: those of a set of pairs, or all where each endpoint has a rule that looks for itself.
fn own_endpoints(table: &TableRules, around: &Surroundings) -> Own {
    let Some((_, pairs)) = table.sets.iter().find(|(name, _)| name.starts_with("hairpin")) else { return Own::All };
    let length = if pairs.set.key_len >= 32 { 16 } else { 4 };
    let mut these: BTreeSet<IpAddr> =
        pairs.elements.iter().filter_map(|element| rule::ip(element.key.get(..length)?)).collect();
    these.extend(&around.own_endpoints);
    Own::These(these)
}
