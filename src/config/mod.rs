//! What the operator configured.

mod by_field;
mod duration;
mod effective;
mod fields;
mod file;
mod flags;
pub(crate) mod host;
mod mode;
mod validate;

use std::net::IpAddr;

use ipnet::IpNet;

pub use duration::{DurationError, GoDuration};
pub use effective::{ConfigError, Effective, effective, effective_in};
pub use fields::changed as changed_fields;
pub use file::{
    ClientConnection, Conntrack, DetectLocalFields, Iptables, Ipvs, KubeProxyConfiguration, LogOptions, LogRouting,
    Logging, Nftables, VModule, Winkernel,
};
pub use flags::{DaemonFlags, ProxyFlags};
pub use mode::Mode;
pub use validate::FieldError;

/// How pods' traffic is told from other traffic: `detectLocalMode` with what it needs (behaviour row E12).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DetectLocal {
    /// `ClusterCIDR`: by source address, in the first prefix of each family of `clusterCIDR`. The default; without
    /// a prefix of a family there is no detection in it.
    #[default]
    ClusterCidr,
    /// `NodeCIDR`: by source address, in the own Node's `spec.podCIDRs`.
    NodeCidr,
    /// `BridgeInterface`: by the name of the interface that the packet came in through.
    BridgeInterface(String),
    /// `InterfaceNamePrefix`: by the beginning of that name.
    InterfaceNamePrefix(String),
}

/// `nodePortAddresses` (rows F1–F4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// `primary`, the default: the Node's own address of each family.
    #[default]
    Primary,
    /// The node's addresses within these prefixes; a family that has none listed takes all (row F3).
    Networks(Vec<IpNet>),
}

/// The part of the configuration that decides what Services mean on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// The name of the node that rules are made for.
    pub node_name: String,
    /// `--node-ip`, or the addresses of the network namespace; used where no Node object tells.
    pub node_ips: Vec<IpAddr>,
    /// `bindAddress`, if it is an address: that of the node in its family, whatever the Node object says (row J10).
    pub bind_address: Option<IpAddr>,
    /// `clusterCIDR`, split at commas.
    pub cluster_cidrs: Vec<IpNet>,
    /// `detectLocalMode`.
    pub detect_local: DetectLocal,
    /// `masqueradeAll` (row E4).
    pub masquerade_all: bool,
    /// `masqueradeBit`, 0 to 31 (row E9).
    pub masquerade_bit: u8,
    /// `nodePortAddresses`.
    pub node_port_addresses: NodePortAddresses,
    /// `--localhost-nodeports`: whether the node reaches node ports on 127.0.0.1 (row F6).
    pub localhost_node_ports: bool,
    /// `--pass-without-endpoints`: whether connections to external addresses that find no endpoint are left alone.
    pub pass_without_endpoints: bool,
    /// `--affinity-clients`: how many clients are remembered for a Service port.
    pub affinity_clients: Option<u32>,
    /// `--counters`: whether new connections are counted.
    pub counters: bool,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        ProxyConfig {
            node_name: String::new(),
            node_ips: Vec::new(),
            bind_address: None,
            cluster_cidrs: Vec::new(),
            detect_local: DetectLocal::default(),
            masquerade_all: false,
            masquerade_bit: 14,
            node_port_addresses: NodePortAddresses::default(),
            localhost_node_ports: false,
            pass_without_endpoints: false,
            affinity_clients: None,
            counters: false,
        }
    }
}
