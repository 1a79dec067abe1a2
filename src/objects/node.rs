//! The Node, as far as a proxy is concerned with it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Name;

/// A Node: of all nodes, only the own one matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: Name,
    /// `status.addresses` of type InternalIP, then ExternalIP, in the order of the object.
    pub addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<IpNet>,
    /// Label `topology.kubernetes.io/zone`, where it is there and not empty (row C8).
    pub zone: Option<Name>,
    /// Whether the Node is being deleted (`metadata.deletionTimestamp`), or the cluster autoscaler is about to (taint
    /// `ToBeDeletedByClusterAutoscaler`): load balancers are to send nothing new to it (row I9).
    pub leaving: bool,
}
