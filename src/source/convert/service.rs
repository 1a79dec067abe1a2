//! v1 Service.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::objects::{
    FamilyOf, NO_ENDPOINTS_ANNOTATION, Name, Protocol, Service, ServiceKey, ServicePort, ServiceType, Target,
    TrafficPolicy, parse_network,
};
use crate::shown::Clipped;

use super::field::{Field, is_dns_label};
use super::meta::{self, Meta};
use super::{Interner, Object, tight};

const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// Reads a Service.
pub fn convert(root: &Field, meta: &Meta, _: &mut Interner) -> Option<Object> {
    let spec = root.get("spec");
    let kind = service_type(&spec.get("type"));
    let cluster_ips = cluster_ips(&spec, kind)?;
    let (source_ranges, readable) = source_ranges(root, &spec);
    let load_balancer_ips = load_balancer_ips(root, readable);
    Some(Object::Service(Service {
        key: ServiceKey { namespace: meta.namespace.clone(), name: meta.name.clone() },
        created: created(root),
        other_proxy: meta::has_label(root, meta::PROXY_NAME_LABEL),
        kind,
        cluster_ips: tight(cluster_ips.into_iter()),
        external_ips: unique(spec.get("externalIPs").items().filter_map(|ip| ip.routable_address())),
        load_balancer_ips,
        source_ranges,
        ports: tight(ports(&spec.get("ports"), kind).into_iter()),
        internal_policy: policy(&spec.get("internalTrafficPolicy")),
        external_policy: policy(&spec.get("externalTrafficPolicy")),
        affinity: affinity(&spec),
        health_check_node_port: spec
            .get("healthCheckNodePort")
            .number(0..=65535, "a port")
            .map_or(0, |port| port as u16),
        selector: tight(selector(&spec.get("selector")).into_iter()),
        publish_not_ready: spec.get("publishNotReadyAddresses").boolean().unwrap_or(false),
        pass_without_endpoints: pass_without_endpoints(root),
    }))
}

fn pass_without_endpoints(root: &Field) -> Option<bool> {
    let metadata = root.get("metadata");
    let annotations = metadata.get("annotations");
    annotations.entry(NO_ENDPOINTS_ANNOTATION).word(&[("pass", true), ("refuse", false)], "pass or refuse")
}

fn created(root: &Field) -> Option<i64> {
    let metadata = root.get("metadata");
    let field = metadata.get("creationTimestamp");
    let text = field.text()?;
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Some(time.as_second()),
        Err(_) => {
            field.problem("is not a time such as 2026-01-31T12:00:00Z");
            None
        }
    }
}

fn service_type(field: &Field) -> ServiceType {
    field
        .word(
            &[
                ("ClusterIP", ServiceType::ClusterIp),
                ("NodePort", ServiceType::NodePort),
                ("LoadBalancer", ServiceType::LoadBalancer),
                ("ExternalName", ServiceType::ExternalName),
            ],
            "one of ClusterIP, NodePort, LoadBalancer, ExternalName; taken for ClusterIP",
        )
        .unwrap_or_default()
}

fn policy(field: &Field) -> TrafficPolicy {
    let words = [("Cluster", TrafficPolicy::Cluster), ("Local", TrafficPolicy::Local)];
    field.word(&words, "Cluster or Local; taken for Cluster").unwrap_or_default()
}

fn unique(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut seen = HashSet::new();
    addresses.filter(|address| seen.insert(*address)).collect()
}

/// `clusterIPs`, or `clusterIP` where an older client wrote only that: at most one per family, none for a headless
/// Service. Nothing where there are addresses that cannot be read, or where none is allocated yet: neither makes a Service
/// headless.
fn cluster_ips(spec: &Field, kind: ServiceType) -> Option<Vec<IpAddr>> {
    if kind == ServiceType::ExternalName {
        return Some(Vec::new());
    }
    let (single, list) = (spec.get("clusterIP"), spec.get("clusterIPs"));
    let first = single.text().filter(|text| !text.is_empty());
    if first == Some("None") || list.items().any(|ip| ip.peek_text() == Some("None")) {
        return Some(Vec::new());
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for field in list.items() {
        let Some(address) = field.unicast_address() else { continue };
        if addresses.iter().any(|known| known.family() == address.family()) {
            field.problem(format_args!("{address} is a second {} address and was left out", address.family()));
        } else {
            addresses.push(address);
        }
    }
    if first.is_some()
        && let Some(address) = single.unicast_address()
    {
        match addresses.first() {
            None => addresses.push(address),
            Some(primary) if *primary == address => {}
            Some(primary) => {
                single.problem(format_args!("{address} differs from clusterIPs[0], {primary}, which is used"));
            }
        }
    }
    if addresses.is_empty() {
        let is_unset = single.is_absent() || single.peek_text() == Some("");
        if is_unset && list.value().as_array().is_none_or(Vec::is_empty) {
            single.fatal("is not set (an API server allocates it); the Service is left out");
        } else {
            single.fatal("no address of the Service can be used; the Service is left out");
        }
        return None;
    }
    check_families(&spec.get("ipFamilies"), &addresses);
    Some(addresses)
}

/// `ipFamilies` says nothing that the addresses do not say; where it says something else, somebody erred.
fn check_families(field: &Field, addresses: &[IpAddr]) {
    for (entry, address) in field.items().zip(addresses.iter().map(Some).chain(std::iter::repeat(None))) {
        let (Some(family), Some(address)) = (entry.family(), address) else { continue };
        if address.family() != family {
            entry.problem(format_args!("{family} is not the family of {address}, which is used"));
        }
    }
}

/// `status.loadBalancer.ingress[].ip` of the entries that are to be captured (row B3). Where there are source ranges
/// and none of them can be read, there are no addresses either: an unreadable list must not open a Service to all.
fn load_balancer_ips(root: &Field, ranges_readable: bool) -> Vec<IpAddr> {
    let (status, mut addresses) = (root.get("status"), Vec::new());
    let load_balancer = status.get("loadBalancer");
    let ingress = load_balancer.get("ingress");
    for entry in ingress.mappings("it is left out") {
        let mode = entry.get("ipMode");
        let captured = mode.word(&[("VIP", true), ("Proxy", false)], "VIP or Proxy; the address is left out");
        if captured.unwrap_or(mode.is_absent())
            && let Some(address) = entry.get("ip").address_unless_empty()
        {
            addresses.push(address);
        }
    }
    if !addresses.is_empty() && !ranges_readable {
        ingress.problem(
            "is left out, because no entry of loadBalancerSourceRanges can be read; another Service that asks for the same \
             address gets it",
        );
        return Vec::new();
    }
    unique(addresses.into_iter())
}

/// `spec.loadBalancerSourceRanges`, or the annotation that came before it; and whether anything of what is not empty
/// could be read (row A14): what cannot be read must not open the address to everybody.
fn source_ranges(root: &Field, spec: &Field) -> (Vec<IpNet>, bool) {
    let field = spec.get("loadBalancerSourceRanges");
    let is_empty_list = field.value().as_array().is_some_and(Vec::is_empty);
    if !field.is_absent() && !is_empty_list {
        let ranges: Vec<IpNet> = field.items().filter_map(|range| range.network()).collect();
        let readable = !ranges.is_empty();
        return (ranges, readable);
    }
    let (metadata, mut ranges) = (root.get("metadata"), Vec::new());
    let annotations = metadata.get("annotations");
    let annotation = annotations.entry(SOURCE_RANGES_ANNOTATION);
    if annotation.is_absent() {
        return (Vec::new(), true);
    }
    let Some(text) = annotation.text() else { return (Vec::new(), false) };
    if text.trim().is_empty() {
        return (Vec::new(), true);
    }
    for part in text.split(',') {
        match parse_network(part) {
            Some(range) => ranges.push(range),
            None => annotations
                .entry(SOURCE_RANGES_ANNOTATION)
                .problem(format_args!("\"{}\" is not a prefix such as 10.0.0.0/8", Clipped(part.trim()))),
        }
    }
    let readable = !ranges.is_empty();
    (ranges, readable)
}

/// `sessionAffinity` with its timeout in seconds (row D2).
fn affinity(spec: &Field) -> Option<u32> {
    let words = [("None", false), ("ClientIP", true)];
    if !spec.get("sessionAffinity").word(&words, "None or ClientIP; taken for None")? {
        return None;
    }
    let config = spec.get("sessionAffinityConfig");
    let client_ip = config.get("clientIP");
    let seconds = client_ip.get("timeoutSeconds").number(1..=86_400, "between 1 and 86400 seconds; taken for 10800");
    Some(seconds.unwrap_or(DEFAULT_AFFINITY_SECONDS))
}

/// `spec.selector`. An entry that cannot be read makes the whole selector unusable: without it, Pods of others
/// would match.
fn selector(field: &Field) -> Vec<(Name, Name)> {
    let entries: Option<Vec<_>> =
        field.entries().map(|(key, value)| Some((key.into(), value.text()?.into()))).collect();
    entries.unwrap_or_default()
}

fn ports(list: &Field, kind: ServiceType) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = Vec::new();
    // the positions of those before it by number and by name
    let (mut numbers, mut names) = (HashMap::new(), HashMap::new());
    for field in list.mappings("this port is left out") {
        let Some(port) = service_port(&field, kind) else { continue };
        let number = (port.protocol, port.port);
        let name = (port.protocol, port.name.clone());
        let twin = numbers.get(&number).into_iter().chain(names.get(&name)).copied().min();
        match twin {
            None => {
                numbers.insert(number, ports.len());
                names.insert(name, ports.len());
                ports.push(port);
            }
            Some(twin) if ports[twin].port == port.port => field.problem(format_args!(
                "{} port {} is spec.ports[{twin}] already; this one is left out",
                port.protocol.kubernetes(),
                port.port
            )),
            Some(twin) => field.get("name").problem(format_args!(
                "{:?} is the name of spec.ports[{twin}] already; this port is left out",
                port.name
            )),
        }
    }
    ports
}

/// A node port is one of its own for each protocol, 0 is none, and type ClusterIP has none (row B4).
fn service_port(field: &Field, kind: ServiceType) -> Option<ServicePort> {
    let number = field.get("port");
    if number.is_absent() {
        number.problem("is missing; this port is left out");
    }
    let port = number.port()?;
    let node_port_field = field.get("nodePort");
    let mut node_port = node_port_field.number(0..=65535, "a port").map_or(0, |n| n as u16);
    if node_port != 0 && kind == ServiceType::ClusterIp {
        node_port_field.problem("cannot be used where spec.type is ClusterIP");
        node_port = 0;
    }
    Some(ServicePort {
        name: field.get("name").port_name()?,
        protocol: field.get("protocol").protocol()?,
        port,
        node_port,
        target: target(&field.get("targetPort"), port),
    })
}

fn target(field: &Field, port: u16) -> Target {
    match field.peek_text() {
        Some("") => Target::Number(port),
        Some(name) => match name.parse() {
            Ok(number) if number != 0 => {
                field.problem(format_args!("\"{name}\" is the name of no port; taken for the number {number}"));
                Target::Number(number)
            }
            _ if is_port_name(name) => Target::Named(name.into()),
            _ => {
                field.problem(format_args!("\"{}\" is the name of no port; taken for {port}", Clipped(name)));
                Target::Number(port)
            }
        },
        None => Target::Number(match field.peek_number() {
            Some(0) => port,
            _ if field.is_absent() => port,
            _ => field.number(1..=65535, &format!("a port; taken for {port}")).map_or(port, |number| number as u16),
        }),
    }
}

/// As the API server wants the names of pods' ports: a letter at least, no two hyphens in a row, and at most 15 characters.
fn is_port_name(name: &str) -> bool {
    is_dns_label(name) && name.len() <= 15 && !name.contains("--") && name.contains(|c: char| c.is_ascii_lowercase())
}

impl Field<'_> {
    /// TCP where it is absent.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        if self.is_absent() {
            return Some(Protocol::Tcp);
        }
        let words = Protocol::ALL.map(|protocol| (protocol.kubernetes(), protocol));
        self.word(&words, "TCP, UDP or SCTP; this port is left out")
    }

    fn address_unless_empty(&self) -> Option<IpAddr> {
        (self.peek_text() != Some("")).then(|| self.unicast_address()).flatten()
    }
}
