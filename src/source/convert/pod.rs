//! v1 Pod, as far as endpoints are made from it.

use std::net::IpAddr;
use std::sync::Arc;

use crate::objects::{Name, Protocol};

use super::field::Field;
use super::meta::{self, Meta};
use super::{Interner, Object};

/// A Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// `metadata.labels`, sorted by key.
    pub labels: Vec<(Name, Name)>,
    /// `status.podIPs`, or `status.podIP`: at most one of a family is used.
    pub addresses: Vec<IpAddr>,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Whether the phase is Succeeded or Failed.
    pub finished: bool,
    /// `spec.nodeName`.
    pub node: Option<Arc<str>>,
    /// The named ports of the containers that run beside each other, in their order.
    pub ports: Vec<ContainerPort>,
}

/// A Pod's namespace and name.
pub type PodKey = crate::objects::SliceKey;

/// A named port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPort {
    /// The name.
    pub name: Name,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// `containerPort`.
    pub port: u16,
}

/// Reads a Pod.
pub fn convert(root: &Field, meta: &Meta, interner: &mut Interner) -> Option<Object> {
    let (spec, status, metadata) = (root.get("spec"), root.get("status"), root.get("metadata"));
    let phase = status.get("phase").text();
    Some(Object::Pod(Pod {
        key: PodKey { namespace: meta.namespace.clone(), name: meta.name.clone() },
        labels: meta::labels(root),
        addresses: addresses(&status),
        ready: is_ready(&status.get("conditions")),
        terminating: !metadata.get("deletionTimestamp").is_absent(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        node: spec.get("nodeName").text().filter(|name| !name.is_empty()).map(|name| interner.get(name)),
        ports: ports(&spec),
    }))
}

/// Whether the condition `Ready` is `True`, which is text: unquoted, YAML takes it for a truth value.
fn is_ready(conditions: &Field) -> bool {
    const NOT_READY: &str = "the Pod is taken for not ready";
    let is_ready = |condition: Field| {
        let status = condition.get("status");
        match status.peek_text() {
            Some("True") => true,
            Some("False" | "Unknown") => false,
            _ => {
                status.wrong_type(&format!("\"True\", \"False\" or \"Unknown\" (in quotes); {NOT_READY}"));
                false
            }
        }
    };
    let mut ready = conditions.mappings(NOT_READY).filter(|condition| condition.get("type").text() == Some("Ready"));
    ready.any(is_ready)
}

fn addresses(status: &Field) -> Vec<IpAddr> {
    let (list, single) = (status.get("podIPs"), status.get("podIP"));
    let mut addresses: Vec<IpAddr> = Vec::new();
    addresses.extend(list.items().filter_map(|entry| entry.get("ip").routable_address()));
    if addresses.is_empty() && single.peek_text() != Some("") {
        addresses.extend(single.routable_address());
    }
    addresses
}

/// The named ports of the containers, and of the init containers that keep running (sidecars).
fn ports(spec: &Field) -> Vec<ContainerPort> {
    let mut ports = Vec::new();
    for (list, sidecars_only) in [("containers", false), ("initContainers", true)] {
        for container in spec.get(list).items() {
            if sidecars_only && container.get("restartPolicy").text() != Some("Always") {
                continue;
            }
            ports.extend(container.get("ports").items().filter_map(|port| container_port(&port)));
        }
    }
    ports
}

fn container_port(field: &Field) -> Option<ContainerPort> {
    let name = field.get("name").port_name().filter(|name| !name.is_empty())?;
    Some(ContainerPort { name, protocol: field.get("protocol").protocol()?, port: field.get("containerPort").port()? })
}
