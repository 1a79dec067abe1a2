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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::NodePlan;
    use crate::policy::frontends::tests::service;

    /// Rows F7, F8, A14.
    #[test]
    fn the_sources_of_a_family_are_its_ranges_and_perhaps_the_addresses_themselves() {
        let context = Context {
            node: NodePlan { node_ips: vec!["192.168.0.2".parse().unwrap()], ..NodePlan::default() },
            ..Context::default()
        };
        for (ranges, v4, v6) in [
            (&[][..], None, None),
            (&["203.0.113.0/25"], Some(&["203.0.113.0/25"][..]), None),
            (&["203.0.113.0/25", "203.0.113.0/24", "203.0.113.7/32"], Some(&["203.0.113.0/24"]), None),
            (&["192.168.0.0/24"], Some(&["1.2.3.4/32", "5.6.7.8/32", "192.168.0.0/24"]), None),
            (&["0.0.0.0/0", "fd00::/16"], Some(&["0.0.0.0/0"]), Some(&["fd00::/16"][..])),
            (&["2001:db8::/32"], None, Some(&["2001:db8::/32"])),
        ] {
            let mut service = service(&["172.30.0.1", "fd00::1"]);
            service.load_balancer_ips = ["1.2.3.4", "2001:db8::4", "5.6.7.8"].map(|ip| ip.parse().unwrap()).to_vec();
            service.source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
            for (family, expected) in [(Family::V4, v4), (Family::V6, v6)] {
                let seen = allowed(&context, &service, family)
                    .map(|sources| sources.iter().map(|source| source.to_string()).collect::<Vec<_>>());
                let expected = expected.map(|sources| sources.iter().map(|s| s.to_string()).collect::<Vec<_>>());
                assert_eq!(seen, expected, "{ranges:?} in {family}");
            }
            let open = open_families(&service).iter().map(Warning::to_string).collect::<Vec<_>>();
            let one_family = !ranges.is_empty() && v4.is_some() != v6.is_some();
            assert_eq!(open.len(), usize::from(one_family), "{ranges:?}: {open:?}");
            service.load_balancer_ips.clear();
            assert_eq!(allowed(&context, &service, Family::V4), None, "no address, no range");
        }
    }
}
