//! Whether the sets of kube-proxy's mode ipvs and its virtual servers fit each other, and what the rules say of ClusterIPs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::super::findings::{Finding, Kind};
use super::super::ports::Who;
use super::super::xtables::matches::{Match, Side};
use super::super::xtables::{Rule, Sets};
use super::Reading;
use crate::iptables::names::{MARK_MASQUERADE, MARK_OFF_CLUSTER, SERVICES};
use crate::ipvs::Set;
use crate::objects::{Family, FamilyOf, Protocol};

/// The sets that say what an address and port are.
const KINDS: [Set; 5] =
    [Set::ClusterIp, Set::ExternalIp, Set::ExternalIpLocal, Set::LoadBalancer, Set::LoadBalancerLocal];
/// As many are named.
const NAMED: usize = 3;

fn say(reading: &mut Reading, kind: Kind, all: &[String], what: &str) {
    let Some(first) = all.get(..NAMED.min(all.len())).filter(|first| !first.is_empty()) else { return };
    let more = all.len() - first.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    reading.findings.push(Finding { kind, service: None, what: format!("{}{more}: {what}", first.join(", ")) });
}

/// What does not fit.
pub fn check(reading: &mut Reading) {
    for family in Family::BOTH {
        let (sets, servers) = (&reading.xtables.sets, &reading.xtables.servers);
        let of_family = || servers.keys().copied().filter(|(_, to)| to.ip().family() == family);
        let is_in =
            |set: Set, (protocol, to): (Protocol, SocketAddr)| sets.has_address(&set.name(family), protocol, to);
        let text = |(protocol, to): (Protocol, SocketAddr)| format!("{to}/{protocol}");
        let is_address = |one: &(Protocol, SocketAddr)| is_address(sets, one.0, one.1);
        let is_known = |one: &(Protocol, SocketAddr)| is_address(one) || is_node_port(sets, family, *one);
        let ips = Set::IpvsIps.name(family);
        // others may have virtual servers of their own, on addresses of their own
        let known: BTreeSet<IpAddr> = of_family().filter(is_known).map(|(_, to)| to.ip()).collect();
        let is_own = |ip: IpAddr| known.contains(&ip) || sets.has_ip(&ips, ip);
        let without_set: Vec<String> =
            of_family().filter(|one| !is_known(one) && is_own(one.1.ip())).map(text).collect();
        let dropped = |one: &(Protocol, SocketAddr)| is_in(Set::Dropped, *one);
        let mut without_server = Vec::new();
        for set in KINDS {
            let all = sets.addresses(&set.name(family));
            without_server.extend(all.filter(|one| !servers.contains_key(one) && !dropped(one)));
        }
        without_server.sort();
        without_server.dedup();
        let without_server: Vec<String> = without_server.into_iter().map(text).collect();
        let unlisted = unlisted(reading, family);
        let mut parts: Vec<_> = [Set::LoadBalancerLocal, Set::LoadBalancerFw]
            .into_iter()
            .flat_map(|set| sets.addresses(&set.name(family)))
            .filter(|one| !is_in(Set::LoadBalancer, *one))
            .collect();
        parts.sort();
        parts.dedup();
        let parts: Vec<String> = parts.into_iter().map(text).collect();
        let sources = [Set::LoadBalancerSourceCidr, Set::LoadBalancerSourceIp];
        let with_sources = sources.into_iter().flat_map(|set| sets.addresses(&set.name(family)));
        let mut open: Vec<_> = with_sources.filter(|one| !is_in(Set::LoadBalancerFw, *one)).collect();
        open.sort();
        open.dedup();
        let open: Vec<String> = open.into_iter().map(text).collect();
        let whole = Set::LoadBalancer.name(family);
        say(
            reading,
            Kind::Missing,
            &without_set,
            "virtual servers that are in none of the sets that say what they are",
        );
        say(reading, Kind::Missing, &without_server, "in the sets, but there is no virtual server");
        say(reading, Kind::Missing, &unlisted, &format!("not in {ips}, so that their other ports are open"));
        let firewall = Set::LoadBalancerFw.name(family);
        say(
            reading,
            Kind::Missing,
            &open,
            &format!("has allowed sources, but is not in {firewall}, so that all may come"),
        );
        say(reading, Kind::Missing, &parts, &format!("in a set of some of {whole}, but not in that one"));
    }
}

/// Services' addresses that are not in the set of those whose other ports are refused. The node's own are not to be in it: their
/// other ports are for whoever listens there.
fn unlisted(reading: &Reading, family: Family) -> Vec<String> {
    let (sets, servers) = (&reading.xtables.sets, &reading.xtables.servers);
    let of_family = || servers.keys().copied().filter(|(_, to)| to.ip().family() == family);
    let is_address = |one: &(Protocol, SocketAddr)| is_address(sets, one.0, one.1);
    let of_node: BTreeSet<IpAddr> =
        of_family().filter(|one| !is_address(one) && is_node_port(sets, family, *one)).map(|(_, to)| to.ip()).collect();
    let ips = Set::IpvsIps.name(family);
    let is_open = |ip: &IpAddr| sets.has(&ips) && !sets.has_ip(&ips, *ip) && !of_node.contains(ip);
    let open: BTreeSet<IpAddr> = of_family().filter(is_address).map(|(_, to)| to.ip()).filter(is_open).collect();
    open.iter().map(ToString::to_string).collect()
}

/// Whether a set of addresses and ports has this one: whether it is a Service's address.
pub fn is_address(sets: &Sets, protocol: Protocol, to: SocketAddr) -> bool {
    let family = to.ip().family();
    KINDS.iter().any(|set| sets.has_address(&set.name(family), protocol, to))
}

/// Whether a virtual server's port is one of the node's.
pub fn is_node_port(sets: &Sets, family: Family, (protocol, to): (Protocol, SocketAddr)) -> bool {
    [Set::NodePort(protocol), Set::NodePortLocal(protocol)].into_iter().any(|set| {
        let name = set.name(family);
        sets.has_port(&name, to.port()) || sets.has_address(&name, protocol, to)
    })
}

/// What the rules do about sources off the cluster that go to ClusterIPs; and a finding where they do nothing.
pub fn off_cluster(reading: &mut Reading) -> BTreeMap<Family, Who> {
    let mut all = BTreeMap::new();
    for family in Family::BOTH {
        let mut tables = reading.xtables.layers.iter().filter_map(|layer| layer.table(family, "nat"));
        let Some(nat) = tables.rfind(|nat| nat.find(SERVICES).is_some()) else { continue };
        let name = Set::ClusterIp.name(family);
        match nat.rules(SERVICES).iter().find_map(|rule| whom(rule, &name)) {
            Some(who) => drop(all.insert(family, who)),
            None => {
                let what = format!("nat {SERVICES} marks nothing for masquerading that goes to {name}");
                reading.findings.push(Finding { kind: Kind::Missing, service: None, what });
            }
        }
    }
    all
}

/// Whose packets to a set a rule marks.
fn whom(rule: &Rule, set: &str) -> Option<Who> {
    let target = rule.target.as_deref()?;
    let sides = rule.more.iter().find_map(|one| match one {
        Match::Set(name, sides, false) if &**name == set => Some(sides),
        _ => None,
    })?;
    match target {
        MARK_OFF_CLUSTER => Some(Who::OffCluster),
        MARK_MASQUERADE if sides.first() == Some(&Side::Source) => Some(Who::Nobody),
        MARK_MASQUERADE if rule.asks_for_source() => Some(Who::OffCluster),
        MARK_MASQUERADE => Some(Who::Everybody),
        _ => None,
    }
}
