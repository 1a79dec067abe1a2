//! v1 Endpoints, which clusters had before EndpointSlices.

use std::net::IpAddr;

use crate::objects::{Conditions, Endpoint, ServiceKey, SlicePort};

use super::field::Field;
use super::meta::{self, Meta};
use super::{Interner, Object};

const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

/// The endpoints of a Service of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Namespace and name, of the object and of the Service.
    pub key: ServiceKey,
    /// `subsets`.
    pub subsets: Vec<Subset>,
}

/// Endpoints, of both families, that listen on the same ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset {
    /// The ports.
    pub ports: Vec<SlicePort>,
    /// `addresses`, which are ready, and `notReadyAddresses`.
    pub endpoints: Vec<Endpoint>,
}

/// Reads an Endpoints object. Those that only hold a leader election's record are nothing.
pub fn convert(root: &Field, meta: &Meta, interner: &mut Interner) -> Option<Object> {
    if meta::annotation(root, LEADER_ANNOTATION).is_some() {
        return None;
    }
    let subsets = root.get("subsets").mappings("it is left out").map(|field| subset(&field, interner)).collect();
    Some(Object::Endpoints(Endpoints {
        key: ServiceKey { namespace: meta.namespace.clone(), name: meta.name.clone() },
        subsets,
    }))
}

fn subset(field: &Field, interner: &mut Interner) -> Subset {
    let mut endpoints = Vec::new();
    for (list, ready) in [("addresses", true), ("notReadyAddresses", false)] {
        endpoints.extend(
            field.get(list).mappings("the endpoint is left out").filter_map(|entry| endpoint(&entry, ready, interner)),
        );
    }
    Subset {
        ports: field.get("ports").mappings("the port is left out").filter_map(|port| subset_port(&port)).collect(),
        endpoints,
    }
}

/// A port without a name is the unnamed one.
fn subset_port(field: &Field) -> Option<SlicePort> {
    Some(SlicePort {
        name: field.get("name").port_name()?,
        protocol: field.get("protocol").protocol()?,
        port: field.get("port").port()?,
    })
}

fn endpoint(field: &Field, ready: bool, interner: &mut Interner) -> Option<Endpoint> {
    let ip = field.get("ip");
    if ip.is_absent() {
        ip.problem("is missing; the endpoint is left out");
    }
    let address: IpAddr = ip.routable_address()?;
    Some(Endpoint {
        address,
        // The mirroring controller says nothing of `serving`, and nothing means yes.
        conditions: Conditions { ready, serving: true, terminating: false },
        node: field.get("nodeName").text().filter(|name| !name.is_empty()).map(|name| interner.get(name)),
        hints: None,
    })
}
