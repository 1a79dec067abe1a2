//! The EndpointSlice, as far as a proxy is concerned with it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Family, Name, Protocol, ServiceKey};

/// An EndpointSlice's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SliceKey {
    /// `metadata.namespace`.
    pub namespace: Name,
    /// `metadata.name`.
    pub name: Name,
}

/// `namespace/name`.
impl fmt::Display for SliceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A slice of a Service's endpoints, all of one family. Slices without a Service (row A4), of FQDNs (row A5), or
/// meant for somebody else (row A3) do not become one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Namespace and name.
    pub key: SliceKey,
    /// Label `kubernetes.io/service-name`.
    pub service: Name,
    /// `addressType`.
    pub family: Family,
    /// Every endpoint listens on every port of its slice. Ports without a name or a number are left out (row A6).
    pub ports: Vec<SlicePort>,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl EndpointSlice {
    /// The Service that the slice belongs to.
    pub fn service_key(&self) -> ServiceKey {
        ServiceKey { namespace: self.key.namespace.clone(), name: self.service.clone() }
    }
}

/// An entry of a slice's `ports`. It is matched with a Service port by name and protocol (row A6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlicePort {
    /// The port's name, empty for the unnamed one.
    pub name: Name,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// The port that the endpoints listen on; it may differ from slice to slice (row B6).
    pub port: u16,
}

/// An endpoint: its first address (row A8), its state and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `addresses[0]`.
    pub address: IpAddr,
    /// `conditions`, defaults applied (row A7).
    pub conditions: Conditions,
    /// `nodeName`; shared between the endpoints of a node.
    pub node: Option<Arc<str>>,
    /// `hints`, where there are any.
    pub hints: Option<Box<Hints>>,
}

/// An endpoint's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// Absent means true.
    pub ready: bool,
    /// Absent means true.
    pub serving: bool,
    /// Absent means false.
    pub terminating: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Conditions { ready: true, serving: true, terminating: false }
    }
}

/// For which zones and nodes an endpoint is meant (rows C8, C9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `hints.forZones[].name`.
    pub zones: Vec<Name>,
    /// `hints.forNodes[].name`.
    pub nodes: Vec<Name>,
}
