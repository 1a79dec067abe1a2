//! Synthetic clusters, for benchmarks and for trying things out: the same options give the same cluster.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::objects::{
    Conditions, Endpoint, EndpointSlice, Family, Name, Node, Protocol, Service, ServiceKey, ServicePort, ServiceType,
    SliceKey, SlicePort, Target, TrafficPolicy,
};

use super::Snapshot;
use super::convert::is_dns_subdomain;

/// Where ClusterIPs come from: 2²⁰ addresses of each family.
const SERVICES_V4: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const SERVICES_V6: Ipv6Addr = Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 0);
const SERVICE_BITS: u32 = 20;
/// Where Pods' addresses come from: the first half is the own node's, the second half the others'.
const PODS_V4: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);
const PODS_V6: Ipv6Addr = Ipv6Addr::new(0xfd10, 0, 0, 0, 0, 0, 0, 0);
const POD_BITS: u32 = 23;
const NODES_V4: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 0);
const NODES_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
const BALANCERS_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const BALANCERS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);
const BALANCER_BITS: u32 = 17;
/// An API server hands out these node ports unless told otherwise.
const NODE_PORTS: std::ops::Range<u16> = 30_000..32_768;
/// The endpoint slice controller's limit, and the kubelet's usual number of Pods.
const ENDPOINTS_PER_SLICE: usize = 100;
const PODS_PER_NODE: usize = 110;
const SERVICES_PER_NAMESPACE: usize = 50;
/// 2026-01-01; each Service is a second younger than the one before.
const FIRST_CREATED: i64 = 1_767_225_600;

/// The prefixes that Pods' addresses come from, for `--cluster-cidr`.
pub fn pod_cidrs() -> [IpNet; 2] {
    [IpNet::V4(Ipv4Net::new_assert(PODS_V4, (32 - POD_BITS) as u8)), IpNet::V6(Ipv6Net::new_assert(PODS_V6, 48))]
}

/// Which families the Services have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Families {
    /// IPv4 only.
    #[default]
    Ipv4,
    /// IPv6 only.
    Ipv6,
    /// Both.
    Dual,
}

impl Families {
    fn list(self) -> &'static [Family] {
        match self {
            Families::Ipv4 => &[Family::V4],
            Families::Ipv6 => &[Family::V6],
            Families::Dual => &Family::BOTH,
        }
    }
}

/// What the cluster is like.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Options {
    /// How many Services
    #[arg(long, default_value_t = 100)]
    pub services: usize,
    /// How many endpoints each Service has
    #[arg(long, default_value_t = 10)]
    pub endpoints: usize,
    /// The families of the Services
    #[arg(long, value_enum, default_value_t)]
    pub family: Families,
    /// How many nodes (default: as many as 110 pods on each ask for, 3 to 5000)
    #[arg(long, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pub nodes: Option<usize>,
    /// The name of the first node; the others are n2, n3, …
    #[arg(long, default_value = "n1", value_parser = node_name)]
    pub node: String,
    /// The share of all endpoints that is on the first node, 0 to 1 (default: the same on each)
    #[arg(long, value_parser = share)]
    pub local_fraction: Option<f64>,
    /// Give Services node ports, as far as 30000-32767 goes
    #[arg(long)]
    pub node_ports: bool,
    /// Give Services the address of a load balancer
    #[arg(long)]
    pub load_balancers: bool,
    /// Give Services session affinity by client address
    #[arg(long)]
    pub affinity: bool,
    /// Give Services the external traffic policy Local
    #[arg(long)]
    pub external_local: bool,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "is not between 0 and 1".into())
}

fn node_name(text: &str) -> Result<String, String> {
    if is_dns_subdomain(text) {
        Ok(text.into())
    } else {
        Err("is no name of a node: small letters, digits, - and .".into())
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            services: 100,
            endpoints: 10,
            family: Families::default(),
            nodes: None,
            node: "n1".into(),
            local_fraction: None,
            node_ports: false,
            load_balancers: false,
            affinity: false,
            external_local: false,
        }
    }
}

/// The cluster does not fit into the address ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are addresses for {limit} {what} only")]
pub struct OutOfAddresses {
    /// Of what there are too many.
    pub what: &'static str,
    /// How many there can be.
    pub limit: usize,
}

/// Makes a cluster.
///
/// # Errors
/// It is too large for the address ranges: a million Services, eight million Pods.
pub fn generate(options: &Options) -> Result<Snapshot, OutOfAddresses> {
    check("Services", options.services, (1 << SERVICE_BITS) - 1)?;
    if options.load_balancers {
        check("load balancers", options.services, (1 << BALANCER_BITS) - 1)?;
    }
    let mut nodes = Nodes::new(options)?;
    let mut snapshot = Snapshot { nodes: nodes.objects(options), ..Snapshot::default() };
    snapshot.service_cidrs = options.family.list().iter().map(|family| service_cidr(*family)).collect();
    let mut placed = 0;
    for index in 0..options.services {
        let service = service(index, options);
        let pods: Vec<(usize, usize)> = (0..options.endpoints).map(|_| nodes.place(&mut placed)).collect();
        for family in options.family.list() {
            snapshot.slices.extend(slices(&service.key, *family, &pods, &nodes));
        }
        snapshot.services.push(service);
    }
    Ok(snapshot)
}

fn check(what: &'static str, wanted: usize, limit: usize) -> Result<(), OutOfAddresses> {
    if wanted > limit { Err(OutOfAddresses { what, limit }) } else { Ok(()) }
}

fn service_cidr(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::new_assert(SERVICES_V4, (32 - SERVICE_BITS) as u8)),
        Family::V6 => IpNet::V6(Ipv6Net::new_assert(SERVICES_V6, (128 - SERVICE_BITS) as u8)),
    }
}

fn offset(v4: Ipv4Addr, v6: Ipv6Addr, family: Family, by: u32) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() + by)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() + u128::from(by))),
    }
}

/// Spreads 1, 2, 3, … over a range of that many bits without hitting anything twice, as an allocator that draws at
/// random would.
fn scatter(index: usize, bits: u32) -> u32 {
    const ODD: u64 = 0x9e37_79b1;
    ((index as u64 + 1).wrapping_mul(ODD) & ((1 << bits) - 1)) as u32
}

fn service(index: usize, options: &Options) -> Service {
    let name: Name = format!("svc-{index}").into();
    let node_port = u16::try_from(index).ok().and_then(|i| NODE_PORTS.start.checked_add(i));
    let node_port = node_port.filter(|port| options.node_ports && NODE_PORTS.contains(port)).unwrap_or(0);
    let addresses = |v4, v6, bits| -> Vec<IpAddr> {
        options.family.list().iter().map(|family| offset(v4, v6, *family, scatter(index, bits))).collect()
    };
    Service {
        key: ServiceKey { namespace: format!("ns-{}", index / SERVICES_PER_NAMESPACE).into(), name: name.clone() },
        created: Some(FIRST_CREATED + index as i64),
        other_proxy: false,
        kind: match (options.load_balancers, node_port) {
            (true, _) => ServiceType::LoadBalancer,
            (false, 0) => ServiceType::ClusterIp,
            (false, _) => ServiceType::NodePort,
        },
        cluster_ips: addresses(SERVICES_V4, SERVICES_V6, SERVICE_BITS),
        external_ips: Vec::new(),
        load_balancer_ips: match options.load_balancers {
            true => addresses(BALANCERS_V4, BALANCERS_V6, BALANCER_BITS),
            false => Vec::new(),
        },
        source_ranges: Vec::new(),
        ports: vec![ServicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port,
            target: Target::Number(8080),
        }],
        internal_policy: TrafficPolicy::Cluster,
        external_policy: if options.external_local { TrafficPolicy::Local } else { TrafficPolicy::Cluster },
        affinity: options.affinity.then_some(10_800),
        health_check_node_port: 0,
        selector: vec![("app".into(), name)],
        publish_not_ready: false,
        pass_without_endpoints: None,
    }
}

/// The slices of one Service and family; `pods` are (node, number on that node).
fn slices<'a>(
    service: &'a ServiceKey,
    family: Family,
    pods: &'a [(usize, usize)],
    nodes: &'a Nodes,
) -> impl Iterator<Item = EndpointSlice> + use<'a> {
    pods.chunks(ENDPOINTS_PER_SLICE).enumerate().map(move |(number, pods)| EndpointSlice {
        key: SliceKey {
            namespace: service.namespace.clone(),
            name: format!("{}-{}-{number}", service.name, if family == Family::V4 { "v4" } else { "v6" }).into(),
        },
        service: service.name.clone(),
        family,
        ports: vec![SlicePort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 }],
        endpoints: pods
            .iter()
            .map(|&(node, pod)| Endpoint {
                address: nodes.pod_address(family, node, pod),
                conditions: Conditions::default(),
                node: Some(nodes.names[node].clone()),
                hints: None,
            })
            .collect(),
    })
}

/// The nodes, and how many Pods each has so far.
struct Nodes {
    names: Vec<Arc<str>>,
    pods: Vec<usize>,
    /// How many addresses the first node has, and how many each other node.
    room: [usize; 2],
    local_fraction: f64,
}

impl Nodes {
    fn new(options: &Options) -> Result<Nodes, OutOfAddresses> {
        let total = options.services.saturating_mul(options.endpoints);
        let count = options.nodes.unwrap_or_else(|| total.div_ceil(PODS_PER_NODE).clamp(3, 5000)).clamp(1, 65_536);
        let local_fraction = if count == 1 { 1.0 } else { options.local_fraction.unwrap_or(1.0 / count as f64) };
        let local = (total as f64 * local_fraction).ceil() as usize;
        let elsewhere = if count == 1 { 0 } else { (total - local.min(total)).div_ceil(count - 1) };
        // The address of a network and the one after the last Pod stay free, and no network is smaller than a /24.
        let room = [local, elsewhere].map(|pods| (pods + 2).next_power_of_two().max(256));
        let half = 1 << (POD_BITS - 1);
        check("Pods on the first node", room[0], half)?;
        check("Pods on the other nodes", room[1].saturating_mul(count - 1), half)?;
        let name = |i| if i == 0 { options.node.as_str().into() } else { format!("n{}", i + 1).into() };
        Ok(Nodes { names: (0..count).map(name).collect(), pods: vec![0; count], room, local_fraction })
    }

    /// Chooses a node for the next Pod: in turn, so that the first one keeps its share.
    fn place(&mut self, placed: &mut usize) -> (usize, usize) {
        let local = ((*placed + 1) as f64 * self.local_fraction).floor() as usize;
        let others = self.names.len() - 1;
        let node = if others == 0 || local > self.pods[0] { 0 } else { 1 + (*placed - self.pods[0]) % others };
        *placed += 1;
        self.pods[node] += 1;
        (node, self.pods[node])
    }

    /// The address of a node's first possible Pod, less one.
    fn pod_base(&self, node: usize) -> u32 {
        if node == 0 { 0 } else { (1 << (POD_BITS - 1)) + ((node - 1) * self.room[1]) as u32 }
    }

    fn pod_address(&self, family: Family, node: usize, pod: usize) -> IpAddr {
        match family {
            Family::V4 => offset(PODS_V4, PODS_V6, family, self.pod_base(node) + pod as u32),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(PODS_V6.to_bits() + ((node as u128) << 64) + pod as u128)),
        }
    }

    fn objects(&self, options: &Options) -> Vec<Node> {
        let network = |family, node: usize| match family {
            Family::V4 => {
                let bits = self.room[usize::from(node > 0)].trailing_zeros() as u8;
                IpNet::new_assert(self.pod_address(family, node, 0), 32 - bits)
            }
            Family::V6 => IpNet::new_assert(self.pod_address(family, node, 0), 64),
        };
        let families = options.family.list().iter().copied();
        (0..self.names.len())
            .map(|i| Node {
                name: self.names[i].as_ref().into(),
                addresses: families.clone().map(|f| offset(NODES_V4, NODES_V6, f, i as u32 + 256)).collect(),
                pod_cidrs: families.clone().map(|f| network(f, i)).collect(),
                zone: Some(["zone-a", "zone-b", "zone-c"][i % 3].into()),
                leaving: false,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::objects::FamilyOf;

    #[test]
    fn addresses_are_unique_and_within_their_ranges() {
        let options = Options { services: 5000, endpoints: 7, family: Families::Dual, ..Options::default() };
        let snapshot = generate(&options).unwrap();
        let vips: HashSet<_> = snapshot.services.iter().flat_map(|s| &s.cluster_ips).collect();
        assert_eq!(vips.len(), 10_000);
        assert!(vips.iter().all(|vip| snapshot.service_cidrs.iter().any(|cidr| cidr.contains(*vip))));
        let pods: HashSet<_> = snapshot.slices.iter().flat_map(|s| &s.endpoints).map(|e| e.address).collect();
        assert_eq!(pods.len(), 70_000);
        for slice in &snapshot.slices {
            for endpoint in &slice.endpoints {
                let node = snapshot.nodes.iter().find(|n| *n.name == **endpoint.node.as_ref().unwrap()).unwrap();
                assert_eq!(endpoint.address.family(), slice.family);
                assert!(node.pod_cidrs.iter().any(|cidr| cidr.contains(&endpoint.address)), "{endpoint:?} {node:?}");
                assert!(pod_cidrs().iter().any(|cidr| cidr.contains(&endpoint.address)), "{endpoint:?}");
            }
        }
    }

    #[test]
    fn the_first_node_has_its_share_of_the_endpoints() {
        for (fraction, nodes, want) in [
            (None, Some(4), 250),
            (Some(0.5), Some(4), 500),
            (Some(0.0), None, 0),
            (Some(1.0), None, 1000),
            (None, Some(1), 1000),
        ] {
            let options = Options {
                services: 100,
                endpoints: 10,
                local_fraction: fraction,
                nodes,
                node: "mine".into(),
                ..Options::default()
            };
            let snapshot = generate(&options).unwrap();
            let endpoints = snapshot.slices.iter().flat_map(|s| &s.endpoints);
            let local = endpoints.filter(|e| e.node.as_deref() == Some("mine")).count();
            assert_eq!(local, want, "{fraction:?} of {nodes:?}");
        }
    }

    #[test]
    fn node_ports_end_where_the_range_ends() {
        let options = Options { services: 4000, endpoints: 0, node_ports: true, ..Options::default() };
        let snapshot = generate(&options).unwrap();
        let ports: HashSet<_> = snapshot.services.iter().map(|s| s.ports[0].node_port).filter(|p| *p != 0).collect();
        assert_eq!(ports.len(), 2768);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let options = Options { services: 1 << 20, endpoints: 0, ..Options::default() };
        assert_eq!(generate(&options).unwrap_err().to_string(), "there are addresses for 1048575 Services only");
        let options = Options { services: 1000, endpoints: 10_000, ..Options::default() };
        assert_eq!(generate(&options).unwrap_err().what, "Pods on the other nodes");
    }
}
