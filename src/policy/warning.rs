//! What the operator should know about, although everything else goes on.

use ipnet::IpNet;

use crate::objects::{Family, ServiceKey};
use crate::plan::Claim;

/// Something that does not do what it seems to ask for. It names the object or the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Two Services ask for one address and port, or one node port (row A11).
    #[error(
        "Service {loser}: {claim} belongs to Service {winner}, the older one or the first by name; {loser} does not answer on it"
    )]
    Contested {
        /// What both ask for.
        claim: Claim,
        /// The Service that has it.
        winner: ServiceKey,
        /// The Service that does not get it.
        loser: ServiceKey,
    },
    /// Two ports of a Service have one name; a port is known by its name (row B5).
    #[error("Service {service}: spec.ports[{index}].name: {name:?} names an earlier port too; this one is not served")]
    PortName {
        /// The Service.
        service: ServiceKey,
        /// The position of the later port.
        index: usize,
        /// The name.
        name: String,
    },
    /// Two ports of a Service have one number and protocol.
    #[error(
        "Service {service}: spec.ports[{index}].{field}: an earlier port has the same; this one is not served on it"
    )]
    PortNumber {
        /// The Service.
        service: ServiceKey,
        /// The position of the later port.
        index: usize,
        /// `port` or `nodePort`.
        field: &'static str,
    },
    /// The source ranges of a Service with load balancer addresses of both families name only one family (row A14).
    #[error(
        "Service {service}: spec.loadBalancerSourceRanges: no {family} range, so its {family} load balancer addresses \
         are open to every source"
    )]
    OpenToAll {
        /// The Service.
        service: ServiceKey,
        /// The family without a range.
        family: Family,
    },
    /// There is no way to tell pods from others in a family that the node has (row E12).
    #[error(
        "{setting}: no {family} prefix, so {family} traffic from pods cannot be told from other traffic: ClusterIP \
         traffic keeps its source address"
    )]
    NoDetector {
        /// `clusterCIDR`, or the field of the Node.
        setting: &'static str,
        /// The family.
        family: Family,
    },
    /// `nodePortAddresses` lists prefixes, but none of a family that the node has (row F3).
    #[error("nodePortAddresses: no {family} prefix is listed, so {family} node ports are served on all addresses")]
    AllNodePortAddresses {
        /// The family.
        family: Family,
    },
    /// `nodePortAddresses` asks for the loopback address of IPv6 (rows F4, F6).
    #[error(
        "nodePortAddresses: {network}: node ports cannot be served on ::1, since no packet from it leaves the node"
    )]
    LoopbackNodePorts {
        /// The prefix, which is left out.
        network: IpNet,
    },
    /// `nodePortAddresses` is `primary`, but no address of the node is known.
    #[error("nodePortAddresses: no address of node {node:?} is known, so no node port is served")]
    NoNodeAddress {
        /// The node's name.
        node: String,
    },
}

impl Warning {
    /// Whether it is an object that asks for the impossible; else it is the configuration, or the node.
    pub fn is_about_a_service(&self) -> bool {
        match self {
            Warning::Contested { .. }
            | Warning::PortName { .. }
            | Warning::PortNumber { .. }
            | Warning::OpenToAll { .. } => true,
            Warning::NoDetector { .. }
            | Warning::AllNodePortAddresses { .. }
            | Warning::LoopbackNodePorts { .. }
            | Warning::NoNodeAddress { .. } => false,
        }
    }
}
