//! On which addresses and ports a Service answers (behaviour section B).

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use smallvec::SmallVec;

use super::seen::Seen;
use super::{Warning, masquerade, selection};
use crate::objects::{Family, FamilyOf, Protocol, Service, ServicePort};
use crate::plan::{Claim, Frontend, FrontendAddress};

/// How an address came to the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `spec.clusterIPs` (row B1).
    ClusterIp,
    /// `status.loadBalancer.ingress` (row B3).
    LoadBalancer,
    /// `spec.externalIPs` (row B2).
    ExternalIp,
    /// `spec.ports[].nodePort` (row B4).
    NodePort,
}

/// A Service port with the addresses that it answers on in one family.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    /// The port.
    pub port: &'a ServicePort,
    /// Its addresses, each once.
    pub addresses: SmallVec<[(FrontendAddress, Origin); 2]>,
}

/// The ports of a Service with the addresses that each answers on in one family; nothing where the Service has no
/// ClusterIP of the family (row B1). Of two ports that collide, the earlier one is served.
pub fn served(service: &Service, family: Family) -> impl Iterator<Item = Served<'_>> {
    let places = places(service, family);
    let ports: &[ServicePort] = if places.is_empty() { &[] } else { &service.ports };
    let mut earlier = Earlier::default();
    ports.iter().filter_map(move |port| {
        let News { number, node_port } = earlier.note(port)?;
        let mut addresses = SmallVec::new();
        if number {
            addresses.extend(places.iter().map(|(ip, origin)| (address(*ip, port.port, *origin), *origin)));
        }
        if node_port {
            addresses.push((FrontendAddress::NodePort(port.node_port), Origin::NodePort));
        }
        Some(Served { port, addresses })
    })
}

/// Everything that a Service occupies if no other Service has it already.
pub fn claims(service: &Service) -> SmallVec<[Claim; 4]> {
    let mut claims = SmallVec::new();
    if !selection::is_proxied(service) {
        return claims;
    }
    for family in Family::BOTH {
        for Served { port, addresses } in served(service, family) {
            claims.extend(addresses.iter().map(|(address, _)| Claim::new(family, port.protocol, *address)));
        }
    }
    claims
}

/// The frontends of a Service port in one family. `sources` are those that load balancer addresses are open to; other
/// addresses are open to all (row F7).
pub fn resolve(service: &Service, served: &Served<'_>, sources: Option<&Arc<[IpNet]>>) -> Vec<Frontend> {
    let frontend = |&(address, origin): &(FrontendAddress, Origin)| {
        let routing = match origin {
            Origin::ClusterIp => masquerade::internal(service.internal_policy),
            Origin::LoadBalancer | Origin::ExternalIp | Origin::NodePort => {
                masquerade::external(service.external_policy)
            }
        };
        Frontend {
            address,
            pool: routing.pool,
            short_circuit: routing.short_circuit,
            masquerade: routing.masquerade,
            no_endpoints: None,
            sources: sources.filter(|_| origin == Origin::LoadBalancer).cloned(),
        }
    };
    served.addresses.iter().map(frontend).collect()
}

/// What of a Service's ports is not served, because an earlier port has it.
pub fn collisions(service: &Service) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut earlier = Earlier::default();
    for (index, port) in service.ports.iter().enumerate() {
        let service = || service.key.clone();
        let Some(News { number, node_port }) = earlier.note(port) else {
            warnings.push(Warning::PortName { service: service(), index, name: port.name.to_string() });
            continue;
        };
        if !number {
            warnings.push(Warning::PortNumber { service: service(), index, field: "port" });
        }
        if !node_port && port.node_port != 0 {
            warnings.push(Warning::PortNumber { service: service(), index, field: "nodePort" });
        }
    }
    warnings
}

/// The addresses of the Service in one family, each once, the ClusterIP first. A load balancer's address that is an
/// external one too stays under its source ranges.
fn places(service: &Service, family: Family) -> SmallVec<[(IpAddr, Origin); 2]> {
    let mut places: SmallVec<[(IpAddr, Origin); 2]> = SmallVec::new();
    let Some(cluster_ip) = service.cluster_ips.iter().find(|ip| ip.family() == family) else { return places };
    let mut known = Seen::default();
    known.insert(*cluster_ip);
    places.push((*cluster_ip, Origin::ClusterIp));
    for (ips, origin) in
        [(&service.load_balancer_ips, Origin::LoadBalancer), (&service.external_ips, Origin::ExternalIp)]
    {
        for ip in ips.iter().filter(|ip| ip.family() == family) {
            if known.insert(*ip) {
                places.push((*ip, origin));
            }
        }
    }
    places
}

fn address(ip: IpAddr, port: u16, origin: Origin) -> FrontendAddress {
    match origin {
        Origin::ClusterIp => FrontendAddress::Cluster(ip, port),
        _ => FrontendAddress::External(ip, port),
    }
}

/// What the earlier ports of a Service have.
#[derive(Debug, Default)]
struct Earlier<'a> {
    names: Seen<&'a str>,
    numbers: Seen<(Protocol, u16)>,
    node_ports: Seen<(Protocol, u16)>,
}

/// What of a port no earlier one has.
struct News {
    number: bool,
    node_port: bool,
}

impl<'a> Earlier<'a> {
    /// Takes note of a port; nothing where an earlier one has its name.
    fn note(&mut self, port: &'a ServicePort) -> Option<News> {
        self.names.insert(&port.name).then(|| News {
            number: self.numbers.insert((port.protocol, port.port)),
            node_port: port.node_port != 0 && self.node_ports.insert((port.protocol, port.node_port)),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::objects::{ServiceKey, ServiceType, Target, TrafficPolicy};

    pub fn service(cluster_ips: &[&str]) -> Service {
        Service {
            key: ServiceKey::new("ns", "svc"),
            created: None,
            other_proxy: false,
            kind: ServiceType::ClusterIp,
            cluster_ips: cluster_ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            ports: Vec::new(),
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity: None,
            health_check_node_port: 0,
            selector: Vec::new(),
            publish_not_ready: false,
            pass_without_endpoints: None,
        }
    }

    fn port(name: &str, protocol: Protocol, port: u16, node_port: u16) -> ServicePort {
        ServicePort { name: name.into(), protocol, port, node_port, target: Target::Number(0) }
    }

    fn claims_of(service: &Service) -> Vec<String> {
        claims(service).iter().map(Claim::to_string).collect()
    }

    /// Row B1: without a ClusterIP of a family the Service's other addresses of it do not count either.
    #[test]
    fn a_family_without_a_cluster_ip_is_left_out() {
        let mut service = service(&["172.30.0.1"]);
        service.ports = vec![port("", Protocol::Tcp, 80, 30080)];
        service.external_ips = vec!["203.0.113.5".parse().unwrap(), "2001:db8::5".parse().unwrap()];
        service.load_balancer_ips = vec!["2001:db8::6".parse().unwrap()];
        assert_eq!(claims_of(&service), ["172.30.0.1:80/tcp", "203.0.113.5:80/tcp", "IPv4 node port 30080/tcp"]);
        service.cluster_ips.push("fd00::1".parse().unwrap());
        assert_eq!(
            claims_of(&service)[3..],
            ["[fd00::1]:80/tcp", "[2001:db8::6]:80/tcp", "[2001:db8::5]:80/tcp", "IPv6 node port 30080/tcp"]
        );
        for unproxied in [
            Service { other_proxy: true, ..service.clone() },
            Service { kind: ServiceType::ExternalName, ..service.clone() },
            Service { cluster_ips: Vec::new(), ..service.clone() },
        ] {
            assert_eq!(claims_of(&unproxied), [""; 0]);
        }
    }

    #[test]
    fn of_two_ports_that_collide_the_earlier_is_served() {
        let mut service = service(&["172.30.0.1"]);
        service.ports = vec![
            port("a", Protocol::Tcp, 80, 30080),
            port("a", Protocol::Tcp, 81, 30081),
            port("b", Protocol::Tcp, 80, 30082),
            port("c", Protocol::Tcp, 82, 30080),
            port("d", Protocol::Udp, 80, 30080),
            port("e", Protocol::Tcp, 81, 0),
            port("f", Protocol::Tcp, 83, 0),
        ];
        assert_eq!(
            claims_of(&service),
            [
                "172.30.0.1:80/tcp",
                "IPv4 node port 30080/tcp",
                "IPv4 node port 30082/tcp",
                "172.30.0.1:82/tcp",
                "172.30.0.1:80/udp",
                "IPv4 node port 30080/udp",
                "172.30.0.1:81/tcp",
                "172.30.0.1:83/tcp",
            ]
        );
        let seen: Vec<String> = collisions(&service).iter().map(Warning::to_string).collect();
        let starts = ["spec.ports[1].name: \"a\"", "spec.ports[2].port:", "spec.ports[3].nodePort:"];
        assert_eq!(seen.len(), starts.len(), "{seen:?}");
        for (warning, start) in seen.iter().zip(starts) {
            assert!(warning.starts_with(&format!("Service ns/svc: {start}")), "{warning:?} does not name {start:?}");
        }
    }
}
