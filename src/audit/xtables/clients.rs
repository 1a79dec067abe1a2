//! Who the packets come from that are followed, as far as the rules and the node tell.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::Rule;
use super::expected::Sender;
use super::matches::{Match, is_named};
use super::tables::Table;
use super::walk::Packet;
use crate::explain::{Client, Surroundings};
use crate::ipvs::names::DEVICE;
use crate::objects::{Family, FamilyOf, Protocol};

/// How the rules tell pods.
#[derive(Clone, Debug, Default)]
struct Detector {
    pods: Vec<IpNet>,
    interface: Option<Box<str>>,
}

/// The clients of one family.
#[derive(Debug)]
pub struct Clients<'a> {
    family: Family,
    surroundings: &'a Surroundings,
    detector: Detector,
    /// An address of the node.
    pub node: IpAddr,
    /// Addresses that node ports are looked for on.
    pub node_ports: Vec<IpAddr>,
    /// Further addresses that the kernel takes for the node's own.
    pub taken: HashSet<IpAddr>,
}

/// As many addresses of node ports are tried.
const MOST_ADDRESSES: usize = 4;

/// Addresses of nobody: for documentation, for benchmarks, for carriers.
const NOBODY_V4: [[u8; 4]; 6] =
    [[192, 0, 2, 1], [198, 51, 100, 1], [203, 0, 113, 1], [198, 18, 0, 1], [100, 64, 0, 1], [233, 252, 0, 1]];
const NOBODY_V6: [[u16; 4]; 4] =
    [[0x2001, 0xdb8, 0, 0], [0x3fff, 0, 0, 1], [0x2001, 0x2, 0, 0], [0x2001, 0xdb8, 0xffff, 0xffff]];

fn nobody(family: Family) -> Vec<IpAddr> {
    match family {
        Family::V4 => NOBODY_V4.into_iter().map(|ip| IpAddr::V4(ip.into())).collect(),
        Family::V6 => {
            let address = |[a, b, c, d]: [u16; 4]| IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 1));
            NOBODY_V6.into_iter().map(address).collect()
        }
    }
}

/// The last address of a prefix that a host may have: the least likely to be somebody's.
fn last_of(net: IpNet) -> IpAddr {
    match net {
        IpNet::V4(net) => net.hosts().next_back().map_or(IpAddr::V4(net.addr()), IpAddr::V4),
        IpNet::V6(net) => IpAddr::V6(net.broadcast()),
    }
}

/// One that is in the prefix and not its own name.
fn first_of(net: IpNet) -> IpAddr {
    let bits = u128::from(net.max_prefix_len() - net.prefix_len() > 1);
    match net.network() {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() + bits as u32).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() + bits).into(),
    }
}

impl<'a> Clients<'a> {
    /// The clients that the rules of a table `nat` tell apart. `other` is that of the other family: where that has node ports
    /// on loopback addresses alone, this one may have them nowhere.
    pub fn new(
        family: Family,
        nat: &'a Table,
        other: Option<&'a Table>,
        surroundings: &'a Surroundings,
    ) -> Clients<'a> {
        let to_node = |nat: &'a Table| {
            nat.rules("KUBE-SERVICES").iter().filter(|rule| rule.target.as_deref() == Some("KUBE-NODEPORTS"))
        };
        let detector = Detector::of(nat);
        let is_free = |ip: &IpAddr| !detector.has(*ip);
        let placeholder = || {
            let own = match family {
                Family::V4 => IpAddr::V4([172, 31, 255, 254].into()),
                Family::V6 => IpAddr::V6(Ipv6Addr::new(0xfdff, 0xffff, 0, 0, 0, 0, 0, 0xfffe)),
            };
            std::iter::once(own).chain(nobody(family).into_iter().rev()).find(is_free).unwrap_or(own)
        };
        // addresses of Services are the node's own in the mode ipvs, but it does not send from them to others
        let interfaces = surroundings.node.interfaces.iter().filter(|interface| &*interface.name != DEVICE);
        let is_reached = |ip: &&IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_loopback(),
            IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        };
        let is_usable = |ip: &&IpAddr| ip.family() == family && is_reached(ip);
        let addresses = || interfaces.clone().flat_map(|interface| &interface.addresses);
        let own = addresses().find(is_usable);
        let node = own.copied().unwrap_or_else(placeholder);
        let mut node_ports = Vec::new();
        let loopback = |rule: &Rule| matches!(rule.destination, Some((net, false)) if net.addr().is_loopback());
        let serves_loopback_alone =
            other.is_some_and(|other| to_node(other).next().is_some() && to_node(other).all(loopback));
        for rule in to_node(nat) {
            let address = match rule.destination {
                Some((net, false)) if net.prefix_len() == net.max_prefix_len() => net.addr(),
                Some((net, false)) if net.contains(&node) => node,
                Some((net, false)) if net.addr().is_loopback() => net.hosts().next().unwrap_or(net.addr()),
                Some((net, false)) => first_of(net),
                _ => node,
            };
            if !node_ports.contains(&address) && node_ports.len() < MOST_ADDRESSES {
                node_ports.push(address);
            }
        }
        // with addresses of the other family alone, there is nowhere to serve node ports in this one
        let is_of_other_family = own.is_none() && addresses().any(|ip| is_reached(&ip));
        if node_ports.is_empty() && !serves_loopback_alone && !is_of_other_family {
            node_ports.push(node);
        }
        Clients { family, surroundings, detector, node, node_ports, taken: HashSet::new() }
    }

    /// Whether the node takes packets to an address for its own.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        ip == self.node
            || ip.is_loopback()
            || self.node_ports.contains(&ip)
            || self.taken.contains(&ip)
            || self.surroundings.node.is_local(ip)
    }

    /// The interface that packets to an address leave through.
    pub fn route(&self, ip: IpAddr) -> Option<Box<str>> {
        self.surroundings.node.route(ip).map(|name| (*name).into())
    }

    /// The first packet of a client of a kind; none where no such client is known.
    pub fn packet(&self, from: Client, protocol: Protocol, to: SocketAddr) -> Option<Packet> {
        let source = match from {
            Client::Node => self.node,
            Client::Outside => self.outside(&[])?,
            Client::Pod => match self.detector.pods.first() {
                Some(net) => last_of(*net),
                None if self.detector.interface.is_some() => *nobody(self.family).last()?,
                None => return None,
            },
        };
        Some(self.packet_of(from, source, protocol, to))
    }

    /// The first packet of whoever has an address.
    pub fn packet_from(&self, source: IpAddr, protocol: Protocol, to: SocketAddr) -> Packet {
        let from = match (self.is_of_pods(source), self.is_local(source)) {
            (_, true) => Client::Node,
            (true, false) => Client::Pod,
            (false, false) => Client::Outside,
        };
        self.packet_of(from, source, protocol, to)
    }

    /// Who sends a packet.
    pub fn sender(&self, packet: &Packet) -> Sender {
        let is_pod = packet.from == Client::Pod || self.detector.has(packet.source);
        Sender { client: packet.from, source: packet.source, is_pod }
    }

    /// Whether an address is a pod's, by itself or by the interface that packets come in through from there.
    fn is_of_pods(&self, ip: IpAddr) -> bool {
        let is_behind = |of_pods: &str| self.route(ip).is_some_and(|name| is_named(of_pods, &name));
        self.detector.has(ip) || self.detector.interface.as_deref().is_some_and(is_behind)
    }

    fn packet_of(&self, from: Client, source: IpAddr, protocol: Protocol, destination: SocketAddr) -> Packet {
        let of_pods = self.detector.interface.as_deref();
        let interface = match from {
            Client::Pod if of_pods.is_some() => of_pods.map(|name| name.replace('+', "0").into()),
            Client::Node => None,
            _ => self.route(source),
        };
        let other_interface = of_pods.filter(|_| from != Client::Pod).map(Into::into);
        Packet { protocol, source, destination, from, interface, other_interface, is_answer: false }
    }

    /// An address from outside that is in none of these prefixes.
    pub fn outside(&self, but: &[IpNet]) -> Option<IpAddr> {
        let is_free =
            |ip: &IpAddr| !but.iter().any(|net| net.contains(ip)) && !self.is_of_pods(*ip) && !self.is_local(*ip);
        nobody(self.family).into_iter().find(is_free)
    }

    /// An address of a prefix.
    pub fn within(&self, net: IpNet) -> IpAddr {
        first_of(net)
    }
}

impl Detector {
    /// Whether an address is among those of pods.
    fn has(&self, ip: IpAddr) -> bool {
        self.pods.iter().any(|net| net.contains(&ip))
    }

    fn of(nat: &Table) -> Detector {
        let mut detector = Detector::default();
        let own = nat.chains().iter().filter(|chain| chain.name.starts_with("KUBE-"));
        for chain in own {
            chain.rules.iter().for_each(|rule| detector.learn(&chain.name, rule));
            if !detector.pods.is_empty() || detector.interface.is_some() {
                break;
            }
        }
        if detector.pods.first().is_some_and(|net| net.addr().family() == Family::V6 && net.prefix_len() == 0) {
            detector.pods.clear();
        }
        detector
    }

    /// Takes from a rule how it tells pods, if it does.
    fn learn(&mut self, chain: &str, rule: &Rule) {
        let target = rule.target.as_deref().unwrap_or_default();
        // all but pods are marked; or pods are led elsewhere
        let not = target == "KUBE-MARK-MASQ";
        let tells = match chain {
            "KUBE-MARK-OFF-CLUSTER" => target == "RETURN",
            name if name.starts_with("KUBE-EXT-") => target.starts_with("KUBE-SVC-"),
            name if name.starts_with("KUBE-SVC-") || name.starts_with("KUBE-SVL-") => not,
            "KUBE-SERVICES" => not,
            _ => false,
        };
        if !tells {
            return;
        }
        if let Some((net, excluded)) = rule.source
            && excluded == not
            && !net.addr().is_loopback()
        {
            self.pods.push(net);
        }
        self.interface = self.interface.take().or_else(|| {
            rule.more.iter().find_map(|one| match one {
                Match::In(name, excluded) if *excluded == not => Some(name.clone()),
                _ => None,
            })
        });
    }
}
