//! Random histories of objects: few names, addresses and ports, so that objects meet.

use std::collections::BTreeMap;

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use svcmap::config::ProxyConfig;
use svcmap::objects::{
    Conditions, Endpoint, EndpointSlice, Family, Hints, Name, Node, Protocol, Service, ServiceKey, ServicePort,
    ServiceType, SliceKey, SlicePort, Target, TrafficPolicy,
};
use svcmap::source::{Change, Snapshot};

const SERVICES: [&str; 4] = ["a", "b", "c", "d"];
const VIPS: [&str; 5] = ["172.30.0.1", "172.30.0.2", "203.0.113.5", "fd00::1", "2001:db8::5"];
const ENDPOINTS: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00:10::1", "fd00:10::2"];
const RANGES: [&str; 4] = ["192.168.0.0/24", "203.0.113.0/24", "203.0.113.0/25", "fd00::/16"];

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: Vec<&str>) -> Vec<T> {
    texts.into_iter().map(|text| text.parse().unwrap()).collect()
}

fn some<T: std::str::FromStr<Err: std::fmt::Debug> + std::fmt::Debug>(
    of: &'static [&'static str],
    at_most: usize,
) -> impl Strategy<Value = Vec<T>> {
    subsequence(of, 0..=at_most).prop_shuffle().prop_map(parse)
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    select(vec![TrafficPolicy::Cluster, TrafficPolicy::Local])
}

fn protocol() -> impl Strategy<Value = Protocol> {
    select(vec![Protocol::Tcp, Protocol::Udp])
}

fn port() -> impl Strategy<Value = ServicePort> {
    (select(vec!["", "x", "y"]), protocol(), 80..83u16, select(vec![0, 0, 30080, 30081])).prop_map(
        |(name, protocol, port, node_port)| ServicePort {
            name: name.into(),
            protocol,
            port,
            node_port,
            target: Target::Number(8080),
        },
    )
}

/// The annotation that says what becomes of connections without endpoints; most have none.
fn pass() -> impl Strategy<Value = Option<bool>> {
    select(vec![None, None, None, Some(true), Some(false)])
}

/// Seconds, of which the first are most often those of an edited Service before, too.
fn affinity() -> impl Strategy<Value = u32> {
    select(vec![10_800, 10_800, 3_600, 86_400])
}

fn service() -> impl Strategy<Value = Service> {
    let addresses = (some(&VIPS, 2), some(&VIPS, 2), some(&VIPS, 2), some(&RANGES, 2));
    let rest = (vec(port(), 0..4), policy(), policy(), option::of(1..3i64), 0..12u8, option::of(affinity()), pass());
    (select(&SERVICES[..]), addresses, rest).prop_map(|(name, addresses, rest)| {
        let (cluster_ips, external_ips, load_balancer_ips, source_ranges) = addresses;
        let (ports, internal_policy, external_policy, created, oddity, affinity, pass) = rest;
        Service {
            key: ServiceKey::new("ns", name),
            created,
            other_proxy: oddity == 0,
            kind: if oddity == 1 { ServiceType::ExternalName } else { ServiceType::LoadBalancer },
            cluster_ips,
            external_ips,
            load_balancer_ips,
            source_ranges,
            ports,
            internal_policy,
            external_policy,
            affinity,
            health_check_node_port: 0,
            selector: Vec::new(),
            publish_not_ready: false,
            pass_without_endpoints: pass,
        }
    })
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let conditions = (any::<bool>(), any::<bool>(), any::<bool>());
    let conditions = conditions.prop_map(|(ready, serving, terminating)| Conditions { ready, serving, terminating });
    let names = |of: &'static [&'static str]| subsequence(of, 0..=of.len()).prop_map(parse::<Name>);
    let hints =
        option::of((names(&["a", "b"]), names(&["n1", "n2"])).prop_map(|(zones, nodes)| Hints { zones, nodes }));
    (select(&ENDPOINTS[..]), conditions, option::of(select(vec!["n1", "n2"])), hints).prop_map(
        |(address, conditions, node, hints)| Endpoint {
            address: address.parse().unwrap(),
            conditions,
            node: node.map(Into::into),
            hints: hints.map(Box::new),
        },
    )
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let slice_port = (select(vec!["", "x", "y"]), protocol(), 8080..8082u16);
    let slice_port = slice_port.prop_map(|(name, protocol, port)| SlicePort { name: name.into(), protocol, port });
    (
        select(vec!["s1", "s2", "s3", "s4"]),
        select(&SERVICES[..]),
        select(Family::BOTH.to_vec()),
        vec(slice_port, 0..3),
        vec(endpoint(), 0..4),
    )
        .prop_map(|(name, service, family, ports, endpoints)| EndpointSlice {
            key: SliceKey { namespace: "ns".into(), name: name.into() },
            service: service.into(),
            family,
            ports,
            endpoints,
        })
}

fn node() -> impl Strategy<Value = Node> {
    let address = select(vec!["192.168.0.2", "192.168.7.2", "2001:db8::7"]);
    let pods = some(&["10.0.1.0/24", "fd00:10:1::/64"], 2);
    (select(vec!["n1", "n2"]), option::of(select(vec!["a", "b"])), address, pods).prop_map(
        |(name, zone, address, pod_cidrs)| Node {
            name: name.into(),
            addresses: vec![address.parse().unwrap()],
            pod_cidrs,
            zone: zone.map(Into::into),
            leaving: false,
        },
    )
}

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    /// An object is new, other, or gone.
    Apply(Change),
    /// One thing of an object becomes other, if there is such an object.
    Edit(Edit),
    /// These are all objects now.
    Replace(Snapshot),
    /// What was changed since the last time is planned.
    Take,
}

/// One thing of an object becomes that of another, the donor.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Of the Service with the donor's name.
    Service(Service, usize),
    /// Of the slice with the donor's name, and of one of its endpoints.
    Slice(EndpointSlice, usize, Index),
}

const SERVICE_EDITS: usize = 13;
const SLICE_EDITS: usize = 8;

impl Edit {
    fn service(&self, service: &Service) -> Option<Service> {
        let Edit::Service(donor, what) = self else { return None };
        let (mut service, donor) = (service.clone(), donor.clone());
        match what {
            0 => service.cluster_ips = donor.cluster_ips,
            1 => service.external_ips = donor.external_ips,
            2 => service.load_balancer_ips = donor.load_balancer_ips,
            3 => service.source_ranges = donor.source_ranges,
            4 => service.internal_policy = donor.internal_policy,
            5 => service.external_policy = donor.external_policy,
            6 => service.affinity = donor.affinity,
            7 => service.kind = donor.kind,
            8 => service.ports = donor.ports,
            9 => service.ports.extend(donor.ports.into_iter().take(1)),
            10 => drop(service.ports.pop()),
            11 => service.pass_without_endpoints = donor.pass_without_endpoints,
            _ => service.ports.iter_mut().for_each(|port| port.protocol = other_protocol(port.protocol)),
        }
        Some(service)
    }

    fn slice(&self, slice: &EndpointSlice) -> Option<EndpointSlice> {
        let Edit::Slice(donor, what, index) = self else { return None };
        let mut slice = slice.clone();
        let other = donor.endpoints.first()?.clone();
        match what {
            0 => slice.ports.clone_from(&donor.ports),
            1 => slice.endpoints.push(other),
            // so that an endpoint may be one of several ports
            7 => {
                let twin = |port: &SlicePort| SlicePort { protocol: other_protocol(port.protocol), ..port.clone() };
                let twins: Vec<_> = slice.ports.iter().map(twin).collect();
                slice.ports.extend(twins);
                slice.ports.truncate(4);
            }
            _ if slice.endpoints.is_empty() => {}
            2 => drop(slice.endpoints.swap_remove(index.index(slice.endpoints.len()))),
            what => {
                let endpoint = index.get_mut(&mut slice.endpoints);
                match what {
                    3 => endpoint.conditions = other.conditions,
                    4 => endpoint.hints = other.hints,
                    5 => endpoint.node = other.node,
                    _ => endpoint.address = other.address,
                }
            }
        }
        Some(slice)
    }
}

fn other_protocol(protocol: Protocol) -> Protocol {
    if protocol == Protocol::Tcp { Protocol::Udp } else { Protocol::Tcp }
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (service(), 0..SERVICE_EDITS).prop_map(|(donor, what)| Edit::Service(donor, what)),
        (slice(), 0..SLICE_EDITS, any::<Index>()).prop_map(|(donor, what, index)| Edit::Slice(donor, what, index)),
    ]
}

/// Many endpoints: sizes of chains that are exact, at the edge, and in steps.
fn large_slice() -> impl Strategy<Value = EndpointSlice> {
    (slice(), select(vec![7u8, 20, 63, 64, 65, 66, 90])).prop_map(|(mut slice, count)| {
        slice.family = Family::V4;
        slice.ports = vec![SlicePort { name: "".into(), protocol: Protocol::Tcp, port: 8080 }];
        let node = |number: u8| Some(if number.is_multiple_of(9) { "n1".into() } else { "n2".into() });
        let conditions = Conditions { ready: true, serving: true, terminating: false };
        let endpoint =
            |number| Endpoint { address: [10, 0, 1, number].into(), conditions, node: node(number), hints: None };
        slice.endpoints = (0..count).map(endpoint).collect();
        slice
    })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    (vec(service(), 0..4), vec(slice(), 0..4), vec(node(), 0..2)).prop_map(|(services, slices, nodes)| {
        let mut model = Model::default();
        services.into_iter().for_each(|service| model.apply(Change::Service(service)));
        slices.into_iter().for_each(|slice| model.apply(Change::Slice(slice)));
        Snapshot { nodes, ..model.snapshot() }
    })
}

/// Steps of which one in six is [`Step::Take`].
pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => edit().prop_map(Step::Edit),
        1 => large_slice().prop_map(|slice| Step::Apply(Change::Slice(slice))),
        6 => service().prop_map(|service| Step::Apply(Change::Service(service))),
        6 => slice().prop_map(|slice| Step::Apply(Change::Slice(slice))),
        2 => select(&SERVICES[..]).prop_map(|name| Step::Apply(Change::ServiceGone(ServiceKey::new("ns", name)))),
        2 => slice().prop_map(|slice| Step::Apply(Change::SliceGone(slice.key))),
        1 => vec(service(), 0..6).prop_map(|services| {
            Step::Apply(Change::OnlyServices(services.into_iter().map(|service| service.key).collect()))
        }),
        1 => vec(slice(), 0..6).prop_map(|slices| {
            Step::Apply(Change::OnlySlices(slices.into_iter().map(|slice| slice.key).collect()))
        }),
        2 => node().prop_map(|node| Step::Apply(Change::Node(node))),
        1 => some::<IpNet>(&RANGES, 2).prop_map(|networks| Step::Apply(Change::ServiceCidrs(networks))),
        1 => snapshot().prop_map(Step::Replace),
        5 => Just(Step::Take),
    ]
}

/// The objects, held in the plainest way.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub services: BTreeMap<ServiceKey, Service>,
    pub slices: BTreeMap<String, EndpointSlice>,
    pub node: Option<Node>,
    pub service_cidrs: Vec<IpNet>,
}

impl Model {
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Service(service) => drop(self.services.insert(service.key.clone(), service)),
            Change::ServiceGone(key) => drop(self.services.remove(&key)),
            Change::Slice(slice) => drop(self.slices.insert(slice.key.to_string(), slice)),
            Change::SliceGone(key) => drop(self.slices.remove(&key.to_string())),
            Change::OnlyServices(keys) => self.services.retain(|key, _| keys.contains(key)),
            Change::OnlySlices(keys) => self.slices.retain(|_, slice| keys.contains(&slice.key)),
            Change::Node(node) if node.name == "n1" => self.node = Some(node),
            Change::Node(_) => {}
            Change::ServiceCidrs(networks) => self.service_cidrs = networks,
        }
    }

    pub fn replace(&mut self, snapshot: Snapshot) {
        *self = Model { service_cidrs: snapshot.service_cidrs, ..Model::default() };
        snapshot.services.into_iter().for_each(|service| self.apply(Change::Service(service)));
        snapshot.slices.into_iter().for_each(|slice| self.apply(Change::Slice(slice)));
        self.node = snapshot.nodes.into_iter().find(|node| node.name == "n1");
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            services: self.services.values().cloned().collect(),
            slices: self.slices.values().cloned().collect(),
            nodes: self.node.iter().cloned().collect(),
            service_cidrs: self.service_cidrs.clone(),
        }
    }

    /// The change that an edit comes to; none where there is no such object.
    pub fn edited(&self, edit: &Edit) -> Option<Change> {
        match edit {
            Edit::Service(donor, _) => edit.service(self.services.get(&donor.key)?).map(Change::Service),
            Edit::Slice(donor, ..) => edit.slice(self.slices.get(&donor.key.to_string())?).map(Change::Slice),
        }
    }
}

/// That of the node `n1`.
pub fn config() -> ProxyConfig {
    ProxyConfig {
        node_name: "n1".into(),
        node_ips: parse(vec!["192.168.0.2", "2001:db8::2"]),
        cluster_cidrs: parse(vec!["10.0.0.0/8", "fd00:10::/32"]),
        ..ProxyConfig::default()
    }
}
