//! The part of the plan that holds for all Services.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::objects::Family;

/// How traffic from pods is told from other traffic (behaviour row E12).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detector {
    /// No way to tell: ClusterIP traffic keeps its source address (row E3).
    #[default]
    None,
    /// Pods have source addresses in these prefixes.
    Sources(Vec<IpNet>),
    /// Pods' traffic comes in through an interface.
    Interface(InterfaceMatch),
}

/// Which interfaces lead to pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceMatch {
    /// The one of this name, such as `cni0`.
    Exact(String),
    /// All whose names begin so, such as `cali`.
    Prefix(String),
}

impl InterfaceMatch {
    /// Whether an interface of this name leads to pods.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            InterfaceMatch::Exact(exact) => name == exact,
            InterfaceMatch::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }

    /// A name that matches.
    pub fn example(&self) -> &str {
        let (InterfaceMatch::Exact(name) | InterfaceMatch::Prefix(name)) = self;
        name
    }
}

/// What holds for all Services of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// The single bit of the packet mark that asks for masquerading, as a mask (row E9).
    pub masquerade_mark: u32,
    /// Whether all ClusterIP traffic is masqueraded (row E4).
    pub masquerade_all: bool,
    /// How IPv4 traffic from pods is told from other traffic.
    pub detector_v4: Detector,
    /// The same for IPv6.
    pub detector_v6: Detector,
    /// The local addresses that node ports are served on, as prefixes (rows F1–F4). What is not an address of the
    /// node is never matched, so `0.0.0.0/0` means all of the node's addresses; loopback addresses only are where
    /// [`NodePlan::localhost_node_ports`] says so.
    pub node_port_addresses: Vec<IpNet>,
    /// Whether the node itself reaches node ports on IPv4 loopback addresses, those of
    /// [`NodePlan::node_port_addresses`] (row F6). The kernel cannot do it in IPv6: it never sends from `::1` to another host.
    pub localhost_node_ports: bool,
    /// The ranges that ClusterIPs come from, where they are known (row B9).
    pub service_cidrs: Vec<IpNet>,
    /// The node's own address of each family (rows F2, F8).
    pub node_ips: Vec<IpAddr>,
    /// How many clients the maps of a Service port with session affinity hold; none for the kernel's own limit, which is
    /// 65,535 (row D9).
    pub affinity_clients: Option<u32>,
    /// Whether new connections are counted, see [`PortPlan::counted`](super::PortPlan::counted).
    pub counters: bool,
}

impl NodePlan {
    /// Whether node ports are served on loopback addresses of the family.
    pub fn serves_loopback(&self, family: Family) -> bool {
        self.localhost_node_ports && family == Family::V4
    }

    /// The detector for one family.
    pub fn detector(&self, family: Family) -> &Detector {
        match family {
            Family::V4 => &self.detector_v4,
            Family::V6 => &self.detector_v6,
        }
    }
}

impl Default for NodePlan {
    fn default() -> Self {
        NodePlan {
            masquerade_mark: 1 << 14,
            masquerade_all: false,
            detector_v4: Detector::None,
            detector_v6: Detector::None,
            node_port_addresses: Vec::new(),
            localhost_node_ports: false,
            service_cidrs: Vec::new(),
            node_ips: Vec::new(),
            affinity_clients: None,
            counters: false,
        }
    }
}
