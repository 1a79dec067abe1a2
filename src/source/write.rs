//! A snapshot as manifests: what is written reads back as the same snapshot.

use std::io::{self, Write};
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::objects::{
    Endpoint, EndpointSlice, Family, FamilyOf, NO_ENDPOINTS_ANNOTATION, Name, Node, Service, ServicePort, ServiceType,
    Target, TrafficPolicy,
};

use super::Snapshot;

/// The form of manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A YAML document for each object.
    #[default]
    Yaml,
    /// One JSON `List`.
    Json,
}

/// Writes a snapshot, object by object.
///
/// # Errors
/// The writer's.
pub fn write(snapshot: &Snapshot, format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Yaml => {
            for object in objects(snapshot) {
                out.write_all(b"---\n")?;
                let text = serde_saphyr::to_string(&object).map_err(io::Error::other)?;
                out.write_all(text.as_bytes())?;
            }
        }
        Format::Json => {
            out.write_all(b"{\"apiVersion\":\"v1\",\"items\":[")?;
            for (i, object) in objects(snapshot).enumerate() {
                out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
                serde_json::to_writer(&mut *out, &object)?;
            }
            out.write_all(b"\n],\"kind\":\"List\"}\n")?;
        }
    }
    out.flush()
}

/// The objects as an API server would show them, less what does not matter to a proxy.
fn objects(snapshot: &Snapshot) -> impl Iterator<Item = Value> {
    let cidrs = snapshot.service_cidrs.iter().enumerate().map(|(i, cidr)| service_cidr(i, cidr));
    let nodes = snapshot.nodes.iter().map(node);
    let services = snapshot.services.iter().map(service);
    cidrs.chain(nodes).chain(services).chain(snapshot.slices.iter().map(slice))
}

fn service_cidr(index: usize, cidr: &IpNet) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": format!("services-{index}")},
        "spec": {"cidrs": [cidr.to_string()]},
    })
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn node(node: &Node) -> Value {
    let address = |address: &IpAddr| json!({"type": "InternalIP", "address": address.to_string()});
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": &*node.name},
        "spec": {"podCIDRs": texts(&node.pod_cidrs)},
        "status": {"addresses": node.addresses.iter().map(address).collect::<Vec<_>>()},
    });
    if let Some(zone) = &node.zone {
        object["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": &**zone});
    }
    if node.leaving {
        object["spec"]["taints"] = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    }
    object
}

fn service(service: &Service) -> Value {
    let mut metadata = json!({"name": &*service.key.name, "namespace": &*service.key.namespace});
    if let Some(created) = service.created.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
        metadata["creationTimestamp"] = created.to_string().into();
    }
    if service.other_proxy {
        metadata["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
    }
    if let Some(pass) = service.pass_without_endpoints {
        metadata["annotations"] = json!({NO_ENDPOINTS_ANNOTATION: if pass { "pass" } else { "refuse" }});
    }
    let mut object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service_spec(service)});
    if !service.load_balancer_ips.is_empty() {
        let ingress: Vec<_> = service.load_balancer_ips.iter().map(|ip| json!({"ip": ip.to_string()})).collect();
        object["status"] = json!({"loadBalancer": {"ingress": ingress}});
    }
    object
}

fn service_spec(service: &Service) -> Value {
    let kind = match service.kind {
        ServiceType::ClusterIp => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
        ServiceType::ExternalName => "ExternalName",
    };
    let policy = |policy| if policy == TrafficPolicy::Local { "Local" } else { "Cluster" };
    let selector: Map<String, Value> = service.selector.iter().map(|(k, v)| (k.to_string(), text(v))).collect();
    let mut spec = json!({
        "type": kind,
        "ports": service.ports.iter().map(service_port).collect::<Vec<_>>(),
        "internalTrafficPolicy": policy(service.internal_policy),
        "externalTrafficPolicy": policy(service.external_policy),
        "selector": selector,
        "sessionAffinity": if service.affinity.is_some() { "ClientIP" } else { "None" },
    });
    if let Some(seconds) = service.affinity {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    match service.cluster_ips.first() {
        Some(first) => {
            let families: Vec<_> = service.cluster_ips.iter().map(|ip| ip.family().to_string()).collect();
            spec["clusterIP"] = first.to_string().into();
            spec["clusterIPs"] = texts(&service.cluster_ips).into();
            spec["ipFamilies"] = families.into();
        }
        None if service.kind == ServiceType::ExternalName => {}
        None => spec["clusterIP"] = "None".into(),
    }
    if !service.external_ips.is_empty() {
        spec["externalIPs"] = texts(&service.external_ips).into();
    }
    if !service.source_ranges.is_empty() {
        spec["loadBalancerSourceRanges"] = texts(&service.source_ranges).into();
    }
    if service.health_check_node_port != 0 {
        spec["healthCheckNodePort"] = service.health_check_node_port.into();
    }
    if service.publish_not_ready {
        spec["publishNotReadyAddresses"] = true.into();
    }
    spec
}

fn text(name: &Name) -> Value {
    Value::String(name.to_string())
}

fn service_port(port: &ServicePort) -> Value {
    let target = match &port.target {
        Target::Number(number) => json!(number),
        Target::Named(name) => text(name),
    };
    let mut object = json!({"port": port.port, "protocol": port.protocol.kubernetes(), "targetPort": target});
    if !port.name.is_empty() {
        object["name"] = text(&port.name);
    }
    if port.node_port != 0 {
        object["nodePort"] = port.node_port.into();
    }
    object
}

fn slice(slice: &EndpointSlice) -> Value {
    let ports: Vec<_> = slice
        .ports
        .iter()
        .map(|p| json!({"name": &*p.name, "port": p.port, "protocol": p.protocol.kubernetes()}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": &*slice.key.name,
            "namespace": &*slice.key.namespace,
            "labels": {"kubernetes.io/service-name": &*slice.service},
        },
        "addressType": match slice.family { Family::V4 => "IPv4", Family::V6 => "IPv6" },
        "ports": ports,
        "endpoints": slice.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn endpoint(endpoint: &Endpoint) -> Value {
    let conditions = endpoint.conditions;
    let mut object = json!({
        "addresses": [endpoint.address.to_string()],
        "conditions": {
            "ready": conditions.ready,
            "serving": conditions.serving,
            "terminating": conditions.terminating,
        },
    });
    if let Some(node) = &endpoint.node {
        object["nodeName"] = node.as_ref().into();
    }
    if let Some(hints) = &endpoint.hints {
        let named = |names: &[Name]| names.iter().map(|name| json!({"name": &**name})).collect::<Vec<_>>();
        object["hints"] = json!({"forZones": named(&hints.zones), "forNodes": named(&hints.nodes)});
    }
    object
}
