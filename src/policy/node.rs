//! What holds for all Services of the node: detectors, node port addresses, marks (behaviour rows E9, E12, F1–F5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Warning;
use super::source_ranges::aggregate;
use crate::config::{DetectLocal, NodePortAddresses, ProxyConfig};
use crate::objects::{Family, FamilyOf, Node};
use crate::plan::{Detector, InterfaceMatch, NodePlan};

/// The node's part of the plan, and what in the configuration will not do what it seems to ask for.
pub fn plan(config: &ProxyConfig, node: Option<&Node>, service_cidrs: &[IpNet]) -> (NodePlan, Vec<Warning>) {
    let mut warnings = Vec::new();
    let node_ips = primary_addresses(config, node);
    let mut detector = |family| detector(config, node, family, has(&node_ips, family), &mut warnings);
    let (detector_v4, detector_v6) = (detector(Family::V4), detector(Family::V6));
    let localhost_node_ports = serves_loopback(config);
    let mut node_port_addresses = node_port_addresses(config, &node_ips, &mut warnings);
    if config.localhost_node_ports {
        node_port_addresses = aggregate(node_port_addresses.into_iter().chain([loopback(Family::V4)]));
    }
    let plan = NodePlan {
        masquerade_mark: 1u32.wrapping_shl(config.masquerade_bit.into()),
        masquerade_all: config.masquerade_all,
        detector_v4,
        detector_v6,
        node_port_addresses,
        localhost_node_ports,
        service_cidrs: aggregate(service_cidrs.iter().copied()),
        node_ips,
        affinity_clients: config.affinity_clients,
        counters: config.counters,
    };
    (plan, warnings)
}

/// The node's own address of each family: `bindAddress`, else the first that its Node object lists, else the first of the
/// configuration.
/// Loopback addresses do not count (row F2), and bindAddress goes before all (row J10).
fn primary_addresses(config: &ProxyConfig, node: Option<&Node>) -> Vec<IpAddr> {
    let known = known_addresses(config, node);
    Family::BOTH.into_iter().filter_map(|family| known.iter().copied().find(|ip| ip.family() == family)).collect()
}

/// All that is known of the node's addresses, those that go before others first.
pub fn known_addresses(config: &ProxyConfig, node: Option<&Node>) -> Vec<IpAddr> {
    let listed = node.map_or(&[][..], |node| &node.addresses);
    let known = if listed.is_empty() { &config.node_ips } else { listed };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for ip in config.bind_address.iter().chain(known) {
        if !ip.is_loopback() && !ip.is_unspecified() && !addresses.contains(ip) {
            addresses.push(*ip);
        }
    }
    addresses
}

/// How pods are told from others in one family (row E12). `used` says whether the node has the family: only then the
/// lack of a prefix is worth a warning.
fn detector(
    config: &ProxyConfig,
    node: Option<&Node>,
    family: Family,
    used: bool,
    warnings: &mut Vec<Warning>,
) -> Detector {
    let of_family = |networks: &[IpNet]| networks.iter().filter(|n| n.family() == family).copied().collect::<Vec<_>>();
    let (setting, sources) = match &config.detect_local {
        DetectLocal::ClusterCidr => {
            ("clusterCIDR", of_family(&config.cluster_cidrs).into_iter().take(1).collect::<Vec<_>>())
        }
        DetectLocal::NodeCidr => ("spec.podCIDRs of the Node", node.map_or(Vec::new(), |n| of_family(&n.pod_cidrs))),
        DetectLocal::BridgeInterface(name) => return Detector::Interface(InterfaceMatch::Exact(name.clone())),
        DetectLocal::InterfaceNamePrefix(prefix) => return Detector::Interface(InterfaceMatch::Prefix(prefix.clone())),
    };
    if sources.is_empty() {
        if used {
            warnings.push(Warning::NoDetector { setting, family });
        }
        return Detector::None;
    }
    Detector::Sources(aggregate(sources))
}

/// Whether node ports are asked for on IPv4 loopback addresses: by the flag, or by a prefix that holds nothing else.
fn serves_loopback(config: &ProxyConfig) -> bool {
    let listed = match &config.node_port_addresses {
        NodePortAddresses::Primary => &[][..],
        NodePortAddresses::Networks(listed) => listed,
    };
    config.localhost_node_ports || listed.iter().any(|network| loopback(Family::V4).contains(network))
}

/// The addresses that node ports are served on, as prefixes (rows F1–F4).
fn node_port_addresses(config: &ProxyConfig, node_ips: &[IpAddr], warnings: &mut Vec<Warning>) -> Vec<IpNet> {
    let listed = match &config.node_port_addresses {
        NodePortAddresses::Primary => {
            if node_ips.is_empty() {
                warnings.push(Warning::NoNodeAddress { node: config.node_name.clone() });
            }
            return aggregate(node_ips.iter().map(|ip| IpNet::from(*ip)));
        }
        NodePortAddresses::Networks(listed) => listed,
    };
    let mut networks = Vec::new();
    for network in listed {
        if loopback(Family::V6).contains(network) {
            warnings.push(Warning::LoopbackNodePorts { network: *network });
        } else {
            networks.push(*network);
        }
    }
    for family in Family::BOTH {
        if !listed.iter().any(|network| network.family() == family) {
            if has(node_ips, family) {
                warnings.push(Warning::AllNodePortAddresses { family });
            }
            networks.push(everything(family));
        }
    }
    aggregate(networks)
}

fn has(ips: &[IpAddr], family: Family) -> bool {
    ips.iter().any(|ip| ip.family() == family)
}

fn everything(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::default().into(),
        Family::V6 => Ipv6Net::default().into(),
    }
}

fn loopback(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(),
        Family::V6 => Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ProxyConfig {
        ProxyConfig {
            node_name: "n1".into(),
            node_ips: vec!["198.51.100.1".parse().unwrap()],
            cluster_cidrs: networks(&["10.0.0.0/8", "10.0.0.0/9", "fd00:10::/48"]),
            ..ProxyConfig::default()
        }
    }

    fn node(addresses: &[&str]) -> Node {
        Node {
            name: "n1".into(),
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            pod_cidrs: networks(&["10.7.0.0/24", "fd00:10:7::/64"]),
            zone: None,
            leaving: false,
        }
    }

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn warnings(config: &ProxyConfig, node: &Node) -> Vec<String> {
        plan(config, Some(node), &[]).1.iter().map(Warning::to_string).collect()
    }

    #[test]
    fn the_nodes_addresses_are_the_first_of_each_family() {
        for (listed, expected) in [
            (&["192.168.0.2", "192.168.1.2", "2001:db8::1", "2001:db8::2"][..], &["192.168.0.2", "2001:db8::1"][..]),
            (&["2001:db8::1", "192.168.0.2"], &["192.168.0.2", "2001:db8::1"]),
            (&["127.0.0.1", "::1", "192.168.0.2"], &["192.168.0.2"]),
            (&[], &["198.51.100.1"]),
        ] {
            let (plan, warnings) = plan(&config(), Some(&node(listed)), &[]);
            let seen: Vec<String> = plan.node_ips.iter().map(IpAddr::to_string).collect();
            assert_eq!((seen, warnings), (expected.iter().map(|ip| ip.to_string()).collect(), vec![]), "{listed:?}");
            let addresses: Vec<IpNet> = plan.node_ips.iter().map(|ip| IpNet::from(*ip)).collect();
            assert_eq!(plan.node_port_addresses, addresses, "primary (row F2)");
        }
        let bound = ProxyConfig { bind_address: Some("192.168.7.7".parse().unwrap()), ..config() };
        let seen = plan(&bound, Some(&node(&["192.168.0.2", "2001:db8::1"])), &[]).0.node_ips;
        assert_eq!(seen.iter().map(IpAddr::to_string).collect::<Vec<_>>(), ["192.168.7.7", "2001:db8::1"], "row J10");
        assert_eq!(plan(&config(), None, &[]).0.node_ips, vec!["198.51.100.1".parse::<IpAddr>().unwrap()]);
        let nothing = ProxyConfig { node_ips: Vec::new(), ..config() };
        assert_eq!(plan(&nothing, None, &[]).1, vec![Warning::NoNodeAddress { node: "n1".into() }]);
    }

    /// Rows F1–F4: a family that the list leaves out has all addresses, unless it is there and cannot be served.
    #[test]
    fn node_ports_are_served_on_what_is_listed() {
        for (listed, expected, told) in [
            (&["192.168.0.0/16", "2001:db8::/32"][..], &["192.168.0.0/16", "2001:db8::/32"][..], &[][..]),
            (&["192.168.0.0/16"], &["192.168.0.0/16", "::/0"], &["no IPv6 prefix is listed"]),
            (&["2001:db8::/32"], &["0.0.0.0/0", "2001:db8::/32"], &["no IPv4 prefix is listed"]),
            (&["0.0.0.0/0", "::/0"], &["0.0.0.0/0", "::/0"], &[]),
            (&["192.168.0.0/17", "192.168.0.0/24", "192.168.128.0/17", "::/0"], &["192.168.0.0/16", "::/0"], &[]),
            (&["127.0.0.0/8", "::1/128"], &["127.0.0.0/8"], &["::1/128: node ports"]),
            (&["127.0.0.1/32", "192.168.0.0/16", "::/0"], &["127.0.0.1/32", "192.168.0.0/16", "::/0"], &[]),
        ] {
            let config = ProxyConfig { node_port_addresses: NodePortAddresses::Networks(networks(listed)), ..config() };
            let both = node(&["192.168.0.2", "2001:db8::1"]);
            assert_eq!(plan(&config, Some(&both), &[]).0.node_port_addresses, networks(expected), "{listed:?}");
            let warnings = warnings(&config, &both);
            assert_eq!(warnings.len(), told.len(), "{listed:?}: {warnings:?}");
            for (warning, told) in warnings.iter().zip(told) {
                assert!(warning.contains(told), "{listed:?}: {told:?} is not in {warning:?}");
            }
        }
        let config =
            ProxyConfig { node_port_addresses: NodePortAddresses::Networks(networks(&["192.168.0.0/16"])), ..config() };
        assert_eq!(warnings(&config, &node(&["192.168.0.2"])), [""; 0], "a node without IPv6 needs no IPv6 prefix");
    }

    /// Row F6: where somebody asks for it, and only in IPv4.
    #[test]
    fn node_ports_are_served_on_loopback_addresses_where_asked() {
        let both = node(&["192.168.0.2", "2001:db8::1"]);
        let plan = |flag, listed: Option<&[&str]>| {
            let addresses = listed.map_or(NodePortAddresses::Primary, |l| NodePortAddresses::Networks(networks(l)));
            let config = ProxyConfig { localhost_node_ports: flag, node_port_addresses: addresses, ..config() };
            let plan = super::plan(&config, Some(&both), &[]).0;
            assert!(!plan.serves_loopback(Family::V6));
            (plan.serves_loopback(Family::V4), plan.node_port_addresses)
        };
        assert_eq!(plan(false, None), (false, networks(&["192.168.0.2/32", "2001:db8::1/128"])));
        assert_eq!(plan(true, None), (true, networks(&["127.0.0.0/8", "192.168.0.2/32", "2001:db8::1/128"])));
        assert_eq!(plan(false, Some(&["0.0.0.0/0", "::/0"])), (false, networks(&["0.0.0.0/0", "::/0"])));
        assert_eq!(plan(true, Some(&["0.0.0.0/0", "::/0"])), (true, networks(&["0.0.0.0/0", "::/0"])));
        assert_eq!(plan(false, Some(&["127.0.0.1/32", "::/0"])), (true, networks(&["127.0.0.1/32", "::/0"])));
    }

    /// Row E12.
    #[test]
    fn pods_are_told_from_others_as_configured() {
        let detectors = |detect_local, cluster_cidrs: &[&str], node: Option<&Node>| {
            let config = ProxyConfig { detect_local, cluster_cidrs: networks(cluster_cidrs), ..config() };
            let (plan, warnings) = plan(&config, node, &[]);
            (plan.detector_v4, plan.detector_v6, warnings)
        };
        let sources = |texts: &[&str]| Detector::Sources(networks(texts));
        let (v4_only, both) = (node(&["192.168.0.2"]), node(&["192.168.0.2", "2001:db8::1"]));
        let no_v6 = Warning::NoDetector { setting: "clusterCIDR", family: Family::V6 };
        for (cidrs, of, expected) in [
            (
                &["10.0.0.0/8", "10.0.0.0/9", "fd00::/48", "fd01::/48"][..],
                &both,
                (sources(&["10.0.0.0/8"]), sources(&["fd00::/48"]), vec![]),
            ),
            (&["10.0.0.0/8"], &both, (sources(&["10.0.0.0/8"]), Detector::None, vec![no_v6])),
            (&["10.0.0.0/8"], &v4_only, (sources(&["10.0.0.0/8"]), Detector::None, vec![])),
        ] {
            assert_eq!(detectors(DetectLocal::ClusterCidr, cidrs, Some(of)), expected, "{cidrs:?}");
        }
        assert_eq!(
            detectors(DetectLocal::NodeCidr, &["10.0.0.0/8"], Some(&both)),
            (sources(&["10.7.0.0/24"]), sources(&["fd00:10:7::/64"]), vec![])
        );
        let (v4, v6, warnings) = detectors(DetectLocal::NodeCidr, &["10.0.0.0/8"], None);
        assert_eq!((v4, v6, warnings.len()), (Detector::None, Detector::None, 1), "{warnings:?}");
        for (mode, expected) in [
            (DetectLocal::BridgeInterface("cni0".into()), InterfaceMatch::Exact("cni0".into())),
            (DetectLocal::InterfaceNamePrefix("cali".into()), InterfaceMatch::Prefix("cali".into())),
        ] {
            let expected = Detector::Interface(expected);
            assert_eq!(detectors(mode, &[], Some(&both)), (expected.clone(), expected, vec![]));
        }
    }

    #[test]
    fn the_masquerade_mark_is_one_bit() {
        for bit in 0..32 {
            let plan = plan(&ProxyConfig { masquerade_bit: bit, ..config() }, None, &[]).0;
            assert_eq!((plan.masquerade_mark.count_ones(), plan.masquerade_mark.trailing_zeros()), (1, bit.into()));
        }
    }
}
