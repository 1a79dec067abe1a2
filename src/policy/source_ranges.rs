//! Who may send to a load balancer's addresses (behaviour rows F7–F10, A14).

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::{Context, Warning};
use crate::objects::{Family, FamilyOf, Service};

/// The sources that the Service's load balancer addresses of one family are open to, sorted and without overlaps;
/// `None` where every source may come.
///
/// Only ranges of the family count, and without any the addresses are open (row A14). Where a range holds the node's
/// address, the load balancer addresses are sources too: a connection that the node itself makes to such an address
/// has it as its source where the address is configured on the node (row F8). Pods get no exception (row F9), and
/// neither does a Service without endpoints (row F10).
pub fn allowed(context: &Context, service: &Service, family: Family) -> Option<Arc<[IpNet]>> {
    let ranges: Vec<IpNet> = service.source_ranges.iter().filter(|r| r.family() == family).copied().collect();
    let mut addresses = service.load_balancer_ips.iter().filter(|ip| ip.family() == family).peekable();
    if ranges.is_empty() || addresses.peek().is_none() {
        return None;
    }
    let from_node = context.node.node_ips.iter().any(|ip| ranges.iter().any(|range| range.contains(ip)));
    let own = addresses.filter(|_| from_node).map(|ip| IpNet::from(*ip));
    Some(aggregate(ranges.iter().copied().chain(own)).into())
}

/// Families in which the Service's ranges say nothing, although they do in the other one (row A14).
pub fn open_families(service: &Service) -> Vec<Warning> {
    let has = |ips: &[IpAddr], family| ips.iter().any(|ip| ip.family() == family);
    let is_open = |family: &Family| {
        has(&service.cluster_ips, *family)
            && has(&service.load_balancer_ips, *family)
            && !service.source_ranges.is_empty()
            && !service.source_ranges.iter().any(|range| range.family() == *family)
    };
    let families = Family::BOTH.into_iter().filter(is_open);
    families.map(|family| Warning::OpenToAll { service: service.key.clone(), family }).collect()
}

/// The same addresses as few prefixes without overlaps (an interval set refuses overlaps), IPv4 first, sorted.
pub fn aggregate(networks: impl IntoIterator<Item = IpNet>) -> Vec<IpNet> {
    let mut networks = IpNet::aggregate(&networks.into_iter().map(|network| network.trunc()).collect());
    networks.sort();
    networks
}
