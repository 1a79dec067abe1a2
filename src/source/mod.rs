//! Where objects come from: manifests now, a cluster's API server later.
//!
//! Whatever the source, it ends in the compact types of [`crate::objects`].

use ipnet::IpNet;

use crate::objects::{EndpointSlice, Node, Service, ServiceKey, SliceKey};

/// Everything that a source knows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All Services, in no particular order, each key once.
    pub services: Vec<Service>,
    /// All EndpointSlices, in no particular order, each key once. Slices made from Pods or from Endpoints objects
    /// are among them.
    pub slices: Vec<EndpointSlice>,
    /// The Nodes; the tracker looks for its own.
    pub nodes: Vec<Node>,
    /// `spec.cidrs` of the ServiceCIDR objects; empty where none are known.
    pub service_cidrs: Vec<IpNet>,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A Service is new or differs.
    Service(Service),
    /// A Service is gone.
    ServiceGone(ServiceKey),
    /// An EndpointSlice is new or differs.
    Slice(EndpointSlice),
    /// An EndpointSlice is gone.
    SliceGone(SliceKey),
    /// The own Node is new or differs.
    Node(Node),
    /// The ServiceCIDRs are these now.
    ServiceCidrs(Vec<IpNet>),
}

/// Something in the input that cannot be used as it stands.
///
/// It reads `Service default/web: spec.ports[1].port: 70000 is not a port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {message}")]
pub struct Problem {
    /// Kind, namespace and name, or the file where there is no object to name.
    pub object: String,
    /// The path of the field, as `kubectl explain` writes it.
    pub field: String,
    /// What is wrong, and what became of it where that is not plain.
    pub message: String,
    /// Whether the object was left out (otherwise only the field was, or the value was repaired).
    pub skipped: bool,
}
