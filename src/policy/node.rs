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
    let node_port_addresses = node_port_addresses(config, &node_ips, &mut warnings);
    let plan = NodePlan {
        masquerade_mark: 1u32.wrapping_shl(config.masquerade_bit.into()),
        masquerade_all: config.masquerade_all,
        detector_v4,
        detector_v6,
        node_port_addresses,
        service_cidrs: aggregate(service_cidrs.iter().copied()),
        node_ips,
    };
    (plan, warnings)
}

/// The node's own address of each family: the first that its Node object lists, else the first of the configuration.
/// Loopback addresses do not count (row F2).
fn primary_addresses(config: &ProxyConfig, node: Option<&Node>) -> Vec<IpAddr> {
    let listed = node.map_or(&[][..], |node| &node.addresses);
    let known = if listed.is_empty() { &config.node_ips } else { listed };
    let usable = |ip: &&IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    Family::BOTH
        .into_iter()
        .filter_map(|family| known.iter().filter(usable).find(|ip| ip.family() == family))
        .copied()
        .collect()
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
        if loopback(network.family()).contains(network) {
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
