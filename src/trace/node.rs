//! What decides over a packet beside the rules: the node's addresses, interfaces and routes.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::netlink::model::{Name, NfFamily};
use crate::objects::Protocol;

/// The name of the loopback interface.
pub const LOOPBACK: &str = "lo";

/// What the node has and knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its interfaces with their addresses. The loopback interface need not be among them.
    pub interfaces: Vec<Interface>,
    /// Its routes. Those to its own addresses need not be among them. Without a route to where a packet goes, the
    /// interface that it leaves through is not known. Where there are none at all, packets come in where the way back leads.
    pub routes: Vec<Route>,
}

/// An interface of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: Name,
    /// Its number, if it is known.
    pub index: Option<u32>,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// Whether it is a bridge: then the rules of the bridge family see its packets, too.
    pub is_bridge: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// To where.
    pub to: IpNet,
    /// Through which interface.
    pub interface: Name,
}

/// The first packet of a new connection, as it comes to the node or from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its protocol.
    pub protocol: Protocol,
    /// Who sent it.
    pub source: IpAddr,
    /// From which port; none for one that the system picks, of which nothing is known.
    pub source_port: Option<u16>,
    /// Where it was sent.
    pub destination: SocketAddr,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a packet comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The node itself sends it.
    Node,
    /// It comes in through the interface of this name.
    Interface(Name),
    /// It comes in through an interface of which nothing is known but that the way back leads through it.
    Somewhere,
}

/// What an address is to the node, by the numbers of `RTN_*` in `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressType {
    Unicast,
    Local,
    Broadcast,
    Multicast,
    /// Either unicast or unreachable.
    NotLocal,
}

impl Node {
    /// Whether the address is one of the node's own, loopback included.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.interfaces.iter().any(|interface| interface.addresses.contains(&ip))
    }

    /// The interface through which packets to this address leave, if a route is known.
    pub fn route(&self, ip: IpAddr) -> Option<Name> {
        if self.is_local(ip) {
            return Some(LOOPBACK.into());
        }
        let routes = self.routes.iter().filter(|route| route.to.contains(&ip));
        routes.max_by_key(|route| route.to.prefix_len()).map(|route| route.interface.clone())
    }

    /// Whether what is sent to this address leaves through an interface. Where no routes are known at all, packets come in where
    /// the way back leads.
    pub(super) fn leads_through(&self, ip: IpAddr, interface: &str) -> Option<bool> {
        let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if self.routes.is_empty() && !self.is_local(ip) {
            return Some(true);
        }
        let best = self.route(ip).filter(|_| !is_link_local)?;
        if best == interface {
            return Some(true);
        }
        let length = |route: &Route| route.to.prefix_len();
        let matching = || self.routes.iter().filter(|route| route.to.contains(&ip));
        let longest = matching().map(length).max();
        // one of several equally good ones, or one that is worse by its metric
        let is_one = matching().any(|route| Some(length(route)) == longest && route.interface == interface);
        (!is_one).then_some(false)
    }

    /// The addresses that the kernel may put in the place of a sender's, of the receiver's family (`inet_select_addr`,
    /// `ipv6_dev_get_saddr`). `outgoing` is where the packet leaves, where that is known.
    pub(super) fn masquerades(&self, to: IpAddr, outgoing: Option<&str>) -> Vec<IpAddr> {
        let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let is_usable = |ip: &&IpAddr| {
            ip.is_ipv4() == to.is_ipv4() && !ip.is_loopback() && (is_link_local(&to) || !is_link_local(ip))
        };
        let of = |interface: &Interface| interface.addresses.iter().filter(is_usable).copied().collect::<Vec<_>>();
        let leaves = outgoing.filter(|_| to.is_ipv4()).and_then(|name| self.interface(name)).map(of);
        leaves.filter(|own| !own.is_empty()).unwrap_or_else(|| self.interfaces.iter().flat_map(of).collect())
    }

    /// The interface of this name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The number of an interface, if it is known. That of the loopback interface is always 1 (`LOOPBACK_IFINDEX`).
    pub(super) fn index(&self, name: &str) -> Option<u32> {
        if name == LOOPBACK { Some(1) } else { self.interface(name)?.index }
    }

    /// What an address is, as `nft_fib4_eval_type` and `nft_fib6_eval_type` of the kernel's `net/ipv[46]/netfilter`
    /// say: IPv4 looks only at the node's own addresses, IPv6 at all routes. Broadcast addresses of subnets are not
    /// known here.
    pub(super) fn address_type(&self, ip: IpAddr) -> AddressType {
        match ip {
            _ if self.is_local(ip) => AddressType::Local,
            _ if ip.is_multicast() => AddressType::Multicast,
            IpAddr::V4(ip) if ip.is_broadcast() || ip.is_unspecified() => AddressType::Broadcast,
            IpAddr::V4(_) => AddressType::Unicast,
            IpAddr::V6(_) if self.route(ip).is_some() => AddressType::Unicast,
            IpAddr::V6(_) => AddressType::NotLocal,
        }
    }
}

impl Packet {
    /// The family whose rules it meets, beside those of `inet`.
    pub fn family(&self) -> NfFamily {
        if self.destination.is_ipv4() { NfFamily::IPV4 } else { NfFamily::IPV6 }
    }
}
