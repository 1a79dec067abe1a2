//! What is known of the node beside its rules, and which clients there are.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use serde::Serialize;

use crate::netlink::model::Expr;
use crate::netlink::route;
use crate::nftables::names::TABLE;
use crate::objects::{Family, FamilyOf, Protocol};
use crate::plan::{Detector, InterfaceMatch, NodePlan};
use crate::trace::{Interface, LOOPBACK, Node, Origin, Packet, Route, Ruleset};

/// The tables of kube-proxy's nftables mode.
const KUBE_PROXY: &str = "kube-proxy";
/// `NFT_META_IIFNAME`.
const IIFNAME: u32 = 6;

/// Where a client is, seen from the node: rules tell these three apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// A pod, as far as the detector can tell.
    Pod,
    /// The node itself.
    Node,
    /// Anybody else.
    Outside,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Client::Pod => "a pod",
            Client::Node => "the node itself",
            Client::Outside => "outside",
        })
    }
}

/// The node, and how pods are told.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Its addresses, interfaces and routes.
    pub node: Node,
    /// Source addresses of pods.
    pub pods: Vec<IpNet>,
    /// The interfaces that pods' packets come in through, where they are told by them.
    pub pod_interface: Option<InterfaceMatch>,
    /// Endpoints of which it is known that they run on this node, whatever the rules say.
    pub own_endpoints: Vec<IpAddr>,
}

/// The interfaces that a rule compares the incoming one with: a whole name ends within what is compared, the beginning of
/// one does not.
fn compared_interface(exprs: &[Expr]) -> Option<InterfaceMatch> {
    exprs.windows(2).find_map(|pair| match pair {
        [Expr::MetaLoad { key: IIFNAME, .. }, Expr::Cmp { data, .. }] => {
            let name = data.split(|byte| *byte == 0).next()?;
            let whole = name.len() < data.len();
            let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && *name != LOOPBACK)?;
            Some(if whole { InterfaceMatch::Exact(name.into()) } else { InterfaceMatch::Prefix(name.into()) })
        }
        _ => None,
    })
}

/// Addresses for documentation (RFC 5737, RFC 3849) stand for clients from outside.
const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

impl Surroundings {
    /// The node of the current network namespace.
    ///
    /// # Errors
    /// Its interfaces or routes cannot be read.
    pub fn of_namespace(pods: Vec<IpNet>) -> io::Result<Surroundings> {
        let links = route::links()?;
        let names: BTreeMap<u32, &str> = links.iter().map(|link| (link.index, link.name.as_str())).collect();
        let mut routes = route::routes()?;
        routes.sort_by_key(|route| std::cmp::Reverse(route.metric)); // of equally long ones the tracer takes the last
        let named =
            |route: &route::Route| Some(Route { to: route.to, interface: (*names.get(&route.interface)?).into() });
        let interface = |link: &route::Link| Interface {
            name: link.name.as_str().into(),
            index: Some(link.index),
            addresses: link.addresses.clone(),
            is_bridge: link.kind == "bridge",
        };
        let node = Node {
            interfaces: links.iter().filter(|link| link.name != LOOPBACK).map(interface).collect(),
            routes: routes.iter().filter_map(named).collect(),
        };
        Ok(Surroundings { node, pods, ..Surroundings::default() })
    }

    /// A node of which only the plan is known: its addresses, and how pods are told.
    pub fn of_plan(plan: &NodePlan, addresses: &[IpAddr]) -> Surroundings {
        let mut surroundings = Surroundings::with_addresses(addresses);
        surroundings.detect(plan);
        surroundings
    }

    /// A node of which only the addresses are known.
    pub fn with_addresses(addresses: &[IpAddr]) -> Surroundings {
        let own = Interface { addresses: addresses.to_vec(), ..Interface::default() };
        Surroundings { node: Node { interfaces: vec![own], routes: Vec::new() }, ..Surroundings::default() }
    }

    /// Tells pods as the plan does.
    pub fn detect(&mut self, plan: &NodePlan) {
        for family in Family::BOTH {
            match plan.detector(family) {
                Detector::None => {}
                Detector::Sources(prefixes) => self.pods.extend(prefixes),
                Detector::Interface(interface) => self.pod_interface = Some(interface.clone()),
            }
        }
    }

    /// Tells pods as the proxy's rules do, where those ask for the interface that packets come in through.
    pub fn learn(&mut self, ruleset: &Ruleset) {
        let own = ruleset.tables().filter(|table| table.table.name == TABLE || table.table.name == KUBE_PROXY);
        let rules = own.flat_map(|table| table.chains.values()).flat_map(|chain| &chain.rules);
        let interface = rules.filter_map(|rule| compared_interface(&rule.exprs)).next();
        self.pod_interface = self.pod_interface.take().or(interface);
    }

    /// Who has this address.
    pub fn client(&self, ip: IpAddr) -> Client {
        self.client_through(ip, None)
    }

    /// The same, where it is known better than by the route back through which interface the packets come in.
    pub fn client_through(&self, ip: IpAddr, interface: Option<&str>) -> Client {
        let from_pods = |name: &str| self.pod_interface.as_ref().is_some_and(|pods| pods.matches(name));
        if self.node.is_local(ip) {
            Client::Node
        } else if self.pods.iter().any(|prefix| prefix.contains(&ip))
            || interface.map_or_else(|| self.node.route(ip).is_some_and(|name| from_pods(&name)), from_pods)
        {
            Client::Pod
        } else {
            Client::Outside
        }
    }

    /// An address that stands for the clients of a kind; none where none is known.
    pub fn example(&self, client: Client, family: Family) -> Option<IpAddr> {
        match client {
            Client::Pod => {
                let prefix = self.pods.iter().find(|prefix| prefix.family() == family)?;
                // the last addresses are the least likely to be somebody's
                match prefix {
                    IpNet::V4(prefix) => prefix.hosts().next_back().map(IpAddr::V4),
                    IpNet::V6(prefix) => Some(IpAddr::V6(prefix.broadcast())),
                }
            }
            Client::Node => {
                let own = self.node.interfaces.iter().flat_map(|interface| &interface.addresses);
                let is_link_local = |ip: &&IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
                own.filter(|ip| ip.family() == family && !ip.is_loopback() && !is_link_local(ip)).copied().next()
            }
            Client::Outside if family == Family::V4 => Some(OUTSIDE_V4.into()),
            Client::Outside => Some(OUTSIDE_V6.into()),
        }
    }

    /// The first packet of a connection, as it comes to the node or from it. `interface` is the one that it comes in
    /// through, where that is known better than by the route back.
    pub fn packet(&self, from: IpAddr, to: SocketAddr, protocol: Protocol, interface: Option<&str>) -> Packet {
        let client = self.client_through(from, interface);
        let by_pods = self.pod_interface.as_ref().filter(|_| client == Client::Pod).map(|pods| pods.example().into());
        let named = interface.map(Into::into).or_else(|| self.node.route(from)).or(by_pods);
        let origin = match (client, named) {
            (Client::Node, _) => Origin::Node,
            (_, Some(name)) => Origin::Interface(name),
            (_, None) => Origin::Somewhere,
        };
        Packet { protocol, source: from, source_port: None, destination: to, origin }
    }
}
