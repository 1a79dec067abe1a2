//! v1 Node and networking.k8s.io ServiceCIDR.

use std::net::IpAddr;

use crate::objects::Node;

use super::field::Field;
use super::meta::{self, Meta};
use super::{Interner, Object};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// What the cluster autoscaler puts on a Node before it takes it away.
const LEAVING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Reads a Node.
pub fn convert(root: &Field, meta: &Meta, _: &mut Interner) -> Option<Object> {
    let spec = root.get("spec");
    let (list, single) = (spec.get("podCIDRs"), spec.get("podCIDR"));
    let mut pod_cidrs: Vec<_> = list.items().filter_map(|cidr| cidr.network()).collect();
    if list.items().next().is_none() && single.peek_text() != Some("") {
        pod_cidrs.extend(single.network());
    }
    Some(Object::Node(Node {
        name: meta.name.clone(),
        addresses: addresses(root),
        pod_cidrs,
        zone: meta::label(root, ZONE_LABEL).filter(|zone| !zone.is_empty()).map(Into::into),
        leaving: leaving(root),
    }))
}

fn leaving(root: &Field) -> bool {
    let (metadata, spec) = (root.get("metadata"), root.get("spec"));
    let taints = spec.get("taints");
    !metadata.get("deletionTimestamp").is_absent()
        || taints.items().any(|taint| taint.get("key").peek_text() == Some(LEAVING_TAINT))
}

fn addresses(root: &Field) -> Vec<IpAddr> {
    let status = root.get("status");
    let list = status.get("addresses");
    let mut found = Vec::new();
    for wanted in ["InternalIP", "ExternalIP"] {
        for entry in list.items().filter(|entry| entry.get("type").peek_text() == Some(wanted)) {
            if let Some(address) = entry.get("address").address()
                && !found.contains(&address)
            {
                found.push(address);
            }
        }
    }
    found
}

/// Reads a ServiceCIDR.
pub fn convert_service_cidr(root: &Field, meta: &Meta, _: &mut Interner) -> Option<Object> {
    let spec = root.get("spec");
    let cidrs = spec.get("cidrs").items().filter_map(|cidr| cidr.network()).collect();
    Some(Object::ServiceCidr(meta.name.clone(), cidrs))
}
