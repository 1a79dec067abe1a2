//! Sets of prefixes that come from the configuration: pods, Services, node ports.

use std::net::IpAddr;

use ipnet::IpNet;

use super::element::{prefix_between, push_ip};
use super::names::Map;
use crate::netlink::model::{self, Bytes, element_flags};
use crate::objects::{Family, FamilyOf};
use crate::plan::{Detector, NodePlan};

/// The sets that hold prefixes.
pub const RANGE_SETS: [Map; 3] = [Map::PodCidrs, Map::ServiceCidrs, Map::NodePortIps];

/// What one of [`RANGE_SETS`] holds, merged and sorted.
pub fn prefixes(map: Map, family: Family, node: &NodePlan) -> Vec<IpNet> {
    let all: &[IpNet] = match map {
        Map::PodCidrs => match node.detector(family) {
            Detector::Sources(sources) => sources,
            Detector::None | Detector::Interface(_) => &[],
        },
        Map::ServiceCidrs => &node.service_cidrs,
        Map::NodePortIps => &node.node_port_addresses,
        _ => &[],
    };
    let of_family: Vec<IpNet> = all.iter().filter(|n| n.family() == family).copied().collect();
    let mut merged = IpNet::aggregate(&of_family);
    merged.sort_unstable();
    merged
}

/// The prefixes as the kernel keeps them: the first key of each range, and the first key behind it.
pub fn to_wire(prefixes: &[IpNet]) -> Vec<model::Element> {
    let mut elements = Vec::with_capacity(2 * prefixes.len());
    for prefix in prefixes {
        elements.push(model::Element { key: key(prefix.network()), ..model::Element::default() });
        if let Some(next) = successor(prefix.broadcast()) {
            let flags = element_flags::INTERVAL_END;
            elements.push(model::Element { key: key(next), flags, ..model::Element::default() });
        }
    }
    elements
}

/// Reads the ranges back; none where they are not prefixes, which are all that svcmap writes.
pub fn from_wire(family: Family, elements: &[model::Element]) -> Option<Vec<IpNet>> {
    let mut bounds: Vec<(IpAddr, bool)> = Vec::with_capacity(elements.len());
    for element in elements {
        bounds.push((address(family, &element.key)?, element.flags & element_flags::INTERVAL_END != 0));
    }
    // where one range ends at the first key of the next, the end comes first
    bounds.sort_unstable_by_key(|&(ip, is_end)| (ip, !is_end));
    let mut prefixes = Vec::new();
    let mut open: Option<IpAddr> = None;
    for (ip, is_end) in bounds {
        match (open, is_end) {
            (None, false) => open = Some(ip),
            // nft marks the space before the first range with an end of its own
            (None, true) => {}
            (Some(first), true) => {
                prefixes.push(prefix_between(first, predecessor(ip)?)?);
                open = None;
            }
            (Some(_), false) => return None,
        }
    }
    if let Some(first) = open {
        let last = match family {
            Family::V4 => IpAddr::from([255; 4]),
            Family::V6 => IpAddr::from([255; 16]),
        };
        prefixes.push(prefix_between(first, last)?);
    }
    Some(prefixes)
}

fn key(ip: IpAddr) -> Bytes {
    let mut bytes = Bytes::new();
    push_ip(&mut bytes, ip);
    bytes
}

fn address(family: Family, key: &[u8]) -> Option<IpAddr> {
    match family {
        Family::V4 => <[u8; 4]>::try_from(key).ok().map(IpAddr::from),
        Family::V6 => <[u8; 16]>::try_from(key).ok().map(IpAddr::from),
    }
}

fn successor(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(ip) => ip.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

fn predecessor(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().checked_sub(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(ip) => ip.to_bits().checked_sub(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_back_as_what_they_were_written_from() {
        for list in [
            &[][..],
            &["10.0.0.0/8"],
            &["0.0.0.0/0"],
            &["10.0.0.0/8", "11.0.0.0/9"],
            &["10.0.0.1/32", "240.0.0.0/4"],
            &["::/0"],
            &["fd00::/64", "ff00::/8"],
        ] {
            let prefixes: Vec<IpNet> = list.iter().map(|text| text.parse().unwrap()).collect();
            let family = prefixes.first().map_or(Family::V4, FamilyOf::family);
            let mut wire = to_wire(&prefixes);
            wire.reverse();
            assert_eq!(from_wire(family, &wire), Some(prefixes), "{list:?}");
        }
    }

    #[test]
    fn neighbours_are_merged() {
        let node = NodePlan {
            service_cidrs: ["10.1.0.0/16", "10.0.0.0/16", "fd00::/64", "10.0.3.0/24"]
                .map(|n| n.parse().unwrap())
                .to_vec(),
            ..NodePlan::default()
        };
        let texts =
            |family| prefixes(Map::ServiceCidrs, family, &node).iter().map(IpNet::to_string).collect::<Vec<_>>();
        assert_eq!(texts(Family::V4), ["10.0.0.0/15"]);
        assert_eq!(texts(Family::V6), ["fd00::/64"]);
    }
}
