//! Compact own types for what is watched: Services, EndpointSlices, Nodes.
//!
//! Everything that comes from an API server or a manifest is turned into these at once. They hold what a
//! Service proxy needs and nothing else, because a large cluster has a million of them.

mod address;
mod node;
mod service;
mod slice;

pub use address::{Family, FamilyOf, Protocol, parse_address, parse_network};
pub use node::Node;
pub use service::{NO_ENDPOINTS_ANNOTATION, Service, ServiceKey, ServicePort, ServiceType, Target, TrafficPolicy};
pub use slice::{Conditions, Endpoint, EndpointSlice, Hints, SliceKey, SlicePort};

/// A Kubernetes name, namespace, label key or label value; up to 24 bytes of it are stored inline.
pub type Name = compact_str::CompactString;
