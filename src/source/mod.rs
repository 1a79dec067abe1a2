//! Where objects come from: manifests, or a cluster's API server.
//!
//! Whatever the source, it ends in the compact types of [`crate::objects`].

mod assemble;
pub mod cluster;
mod convert;
mod derive;
pub mod generate;
mod manifests;
mod unmatched;
mod watch;
mod write;

use std::collections::HashSet;
use std::fmt;

use ipnet::IpNet;

use crate::objects::{EndpointSlice, Node, Service, ServiceKey, ServiceType, SliceKey};
use crate::shown::Line;

pub use manifests::{LoadError, Loaded, display, load, load_text};
pub use watch::{Watch, on_change, watch};
pub use write::{Format, write};

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
    /// These are all the Services there are: others are gone.
    OnlyServices(HashSet<ServiceKey>),
    /// These are all the EndpointSlices there are: others are gone.
    OnlySlices(HashSet<SliceKey>),
    /// The own Node is new or differs.
    Node(Node),
    /// The ServiceCIDRs are these now.
    ServiceCidrs(Vec<IpNet>),
}

impl Snapshot {
    /// The Services that are not proxied, by the reason.
    pub fn left_alone(&self) -> LeftAlone {
        let mut counts = LeftAlone::default();
        for service in &self.services {
            match service {
                Service { kind: ServiceType::ExternalName, .. } => counts.external_name += 1,
                Service { cluster_ips, .. } if cluster_ips.is_empty() => counts.headless += 1,
                Service { other_proxy: true, .. } => counts.other_proxy += 1,
                _ => {}
            }
        }
        counts
    }
}

/// How many Services are not proxied, and why (behaviour rows A1, A2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftAlone {
    /// Without a ClusterIP.
    pub headless: usize,
    /// Aliases of DNS names.
    pub external_name: usize,
    /// Handed to another proxy by a label.
    pub other_proxy: usize,
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftAlone { headless, external_name, other_proxy } = self;
        let reasons = [(headless, "headless"), (external_name, "ExternalName"), (other_proxy, "of another proxy")];
        let mut parts =
            reasons.into_iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}"));
        f.write_str(&parts.next().unwrap_or_else(|| "none".into()))?;
        parts.try_for_each(|part| write!(f, ", {part}"))
    }
}

/// Something in the input that cannot be used as it stands.
///
/// It reads `Service default/web: spec.ports[1].port: 70000 is not a port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind, namespace and name, or the file where there is no object to name.
    pub object: String,
    /// The path of the field, as `kubectl explain` writes it; the line of a file; or nothing.
    pub field: String,
    /// What is wrong, and what became of it where that is not plain.
    pub message: String,
    /// Whether the object was left out (otherwise only the field was, or the value was repaired).
    pub skipped: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "{}", Line(format_args!("{}: {}", self.object, self.message))),
            field => write!(f, "{}", Line(format_args!("{}: {field}: {}", self.object, self.message))),
        }
    }
}

impl std::error::Error for Problem {}
