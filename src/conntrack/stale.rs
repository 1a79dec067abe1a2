//! Which flows are stale.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hashbrown::{HashMap, HashSet};

use crate::netlink::conntrack::{Flow, Selection};
use crate::netlink::model::NfFamily;
use crate::objects::{Family, FamilyOf, Protocol};
use crate::plan::Claim;
use crate::policy::flows::Serving;

/// So many ports are asked for one by one: the kernel walks its whole table each time, which for a small one takes
/// longer than to list all UDP flows.
const FEW: usize = 2;

/// By which flows are found to be stale: some UDP frontends, and for each where its flows may stay.
///
/// A flow is told by where its client sends to (behaviour row H3). It may stay if its answers come from an endpoint
/// that serves, by address and port (row H4). So it may not where the endpoint is gone or has another port now, where
/// nothing serves (row H5), where nobody has the frontend any more (row H6), and where it began before there was a
/// Service, and its answers would come from the very address that it was sent to. Flows to anything else are nobody's
/// business (row H7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Criteria {
    /// Where flows to a frontend may stay: anywhere, where it says nothing.
    serving: HashMap<Claim, Option<Serving>>,
    /// The node's addresses: node ports are ports of these.
    own: HashSet<IpAddr>,
}

impl Criteria {
    /// From what may stay where, and the node's own addresses if there are node ports.
    pub fn new(serving: HashMap<Claim, Serving>, own: impl IntoIterator<Item = IpAddr>) -> Criteria {
        let serving = serving.into_iter().map(|(claim, serving)| (claim, Some(serving))).collect();
        Criteria { serving, own: own.into_iter().collect() }
    }

    /// Has flows to some frontends stay where somebody else says.
    pub fn answered_by(&mut self, answers_for: impl Fn(&Claim) -> Option<Vec<SocketAddr>>) {
        for (claim, serving) in &mut self.serving {
            if let Some(places) = answers_for(claim) {
                let mut places: Vec<_> = places.iter().map(|place| (place.ip(), place.port())).collect();
                places.sort_unstable();
                *serving = Some(places.into());
            }
        }
    }

    /// Whether no flow is stale.
    pub fn is_empty(&self) -> bool {
        self.serving.is_empty()
    }

    /// Whether a UDP flow is stale.
    ///
    /// Node ports are looked for on the node's own addresses only, all of them: a pod may talk to the same port number
    /// of another node, or of anybody.
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let (ip, port) = (flow.destination.ip(), flow.destination.port());
        let serving = self.serving.get(&Claim::address(ip, Protocol::Udp, port)).or_else(|| {
            let node_port = self.serving.get(&Claim::node_port(ip.family(), Protocol::Udp, port))?;
            self.own.contains(&ip).then_some(node_port)
        });
        let answerer = (flow.answerer.ip(), flow.answerer.port());
        serving.and_then(Option::as_ref).is_some_and(|serving| serving.binary_search(&answerer).is_err())
    }

    /// What the kernel is to be asked for, so that all stale flows are in the answer.
    pub fn selections(&self) -> Vec<Selection> {
        let mut selections = Vec::new();
        for (family, nf_family) in [(Family::V4, NfFamily::IPV4), (Family::V6, NfFamily::IPV6)] {
            let wanted = self.serving.iter().filter(|(claim, serving)| claim.family() == family && serving.is_some());
            let mut ports: BTreeMap<u16, Vec<&Claim>> = BTreeMap::new();
            wanted.for_each(|(claim, _)| ports.entry(claim.port()).or_default().push(claim));
            if ports.len() > FEW {
                selections.push(Selection { family: nf_family, port: None, address: None });
                continue;
            }
            selections.extend(ports.into_iter().map(|(port, claims)| {
                let address = match claims[..] {
                    [claim] => v4(claim),
                    _ => None,
                };
                Selection { family: nf_family, port: Some(port), address }
            }));
        }
        selections
    }

    /// Adds newer criteria, which hold where both have some.
    pub fn merge(&mut self, newer: Criteria) {
        self.serving.extend(newer.serving);
        self.own.extend(newer.own);
    }

    /// Leaves out some frontends: none of their flows is stale any more, also where an address of theirs is one of the
    /// node's and the port is a node port.
    pub fn exempt<'a>(&mut self, claims: impl IntoIterator<Item = &'a Claim>) {
        if self.is_empty() {
            return;
        }
        self.serving.extend(claims.into_iter().map(|claim| (*claim, None)));
        if self.serving.values().all(Option::is_none) {
            *self = Criteria::default();
        }
    }
}

fn v4(claim: &Claim) -> Option<Ipv4Addr> {
    match claim.ip() {
        Some(IpAddr::V4(ip)) => Some(ip),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(address: &str) -> Claim {
        match address.parse::<std::net::SocketAddr>() {
            Ok(address) => Claim::address(address.ip(), Protocol::Udp, address.port()),
            Err(_) => Claim::node_port(Family::V4, Protocol::Udp, address.parse().expect("a port")),
        }
    }

    fn criteria(of: &[(&str, &[&str])]) -> Criteria {
        let place = |text: &&str| -> (IpAddr, u16) {
            let address: std::net::SocketAddr = text.parse().unwrap();
            (address.ip(), address.port())
        };
        let serving = of.iter().map(|(address, places)| (claim(address), places.iter().map(place).collect()));
        Criteria::new(serving.collect(), ["192.168.0.2".parse().unwrap()])
    }

    fn is_stale(criteria: &Criteria, destination: &str, answerer: &str) -> bool {
        criteria.is_stale(&Flow { destination: destination.parse().unwrap(), answerer: answerer.parse().unwrap() })
    }

    const VIP: &str = "172.30.0.1:30080";
    const NODE: &str = "192.168.0.2:30080";

    #[test]
    fn what_is_about_to_change_is_not_judged_by_what_was() {
        let mut old = criteria(&[(VIP, &["10.0.0.1:1"]), ("30080", &["10.0.0.1:1"])]);
        assert!(is_stale(&old, VIP, "10.0.0.2:1") && is_stale(&old, NODE, "10.0.0.2:1"));
        // the last one begins to be an external address, where a node port of another Service was alone so far
        old.exempt(&[claim(VIP), claim(NODE)]);
        assert!(!is_stale(&old, VIP, "10.0.0.2:1") && !is_stale(&old, NODE, "10.0.0.2:1"));
        assert!(!old.is_empty(), "the node port on other addresses is still to be checked");
        old.exempt(&[claim("30080")]);
        assert_eq!(old, Criteria::default(), "nothing is left to check");
    }

    #[test]
    fn newer_criteria_hold() {
        let mut old = criteria(&[(VIP, &["10.0.0.1:1"]), ("172.30.0.2:53", &[])]);
        old.exempt(&[claim("172.30.0.2:53")]);
        old.merge(criteria(&[(VIP, &["10.0.0.2:1"]), ("172.30.0.2:53", &["10.0.0.3:1"])]));
        assert!(is_stale(&old, VIP, "10.0.0.1:1") && !is_stale(&old, VIP, "10.0.0.2:1"));
        assert!(is_stale(&old, "172.30.0.2:53", "10.0.0.4:1") && !is_stale(&old, "172.30.0.2:53", "10.0.0.3:1"));
    }

    #[test]
    fn the_kernel_is_asked_for_little() {
        let v4 = |port, address: Option<&str>| Selection {
            family: NfFamily::IPV4,
            port,
            address: address.map(|address| address.parse().unwrap()),
        };
        let v6 = |port| Selection { family: NfFamily::IPV6, port, address: None };
        for (claims, selections) in [
            (&[][..], vec![]),
            (&["172.30.0.1:53"], vec![v4(Some(53), Some("172.30.0.1"))]),
            (&["172.30.0.1:53", "172.30.0.2:53"], vec![v4(Some(53), None)]),
            (&["172.30.0.1:53", "30053"], vec![v4(Some(53), Some("172.30.0.1")), v4(Some(30053), None)]),
            (&["172.30.0.1:1", "172.30.0.1:2", "172.30.0.1:3"], vec![v4(None, None)]),
            (&["[fd00::1]:53"], vec![v6(Some(53))]),
            (&["172.30.0.1:53", "[fd00::1]:53"], vec![v4(Some(53), Some("172.30.0.1")), v6(Some(53))]),
        ] {
            let of: Vec<(&str, &[&str])> = claims.iter().map(|claim| (*claim, &[][..])).collect();
            assert_eq!(criteria(&of).selections(), selections, "{claims:?}");
        }
    }
}
