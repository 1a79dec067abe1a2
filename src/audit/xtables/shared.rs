//! What the chains do that all Services share, and endpoints that reach themselves.

use std::net::{IpAddr, SocketAddr};

use super::super::findings::Kind;
use super::check::Check;
use super::expected::Mode;
use super::walk::{Fate, Packet};
use crate::explain::Client;
use crate::iptables::names::{FIREWALL, FORWARD, MARK_MASQUERADE, SERVICES};
use crate::ipvs::names::{INPUT_FILTER, OUTPUT_FILTER, Set};
use crate::objects::{Family, Protocol};
use crate::plan::FrontendAddress;

/// A port that no Service has, as far as Services go: discard.
const UNUSED: u16 = 9;
/// As many endpoints of a set are followed: one rule looks all of them up.
const FEW: usize = 4;

/// All of it.
pub fn check(check: &mut Check) {
    forwarding(check);
    match check.mode {
        Mode::Iptables => hairpins(check),
        Mode::Ipvs => hairpins_of_sets(check),
    }
    // what nobody is to get may be ended by anybody
    let before = check.walker.doubts();
    match check.mode {
        Mode::Iptables => loopback(check),
        Mode::Ipvs => unused_ports(check),
    }
    check.walker.forget_doubts_but(before);
}

/// An example of a packet from an endpoint, as far as any is known.
fn example(check: &Check) -> Option<(SocketAddr, Protocol)> {
    let family = check.walker.family();
    let ports = check.reading.ports.values().filter(|port| port.id.family == family);
    ports.flat_map(|port| port.cluster.iter().chain(&port.local).map(|one| (one.socket(), port.protocol))).next()
}

/// Marked packets and answers get through a host that forwards nothing by itself.
fn forwarding(check: &mut Check) {
    let Some((endpoint, protocol)) = example(check) else { return };
    let Some(outside) = check.clients.outside(&[]) else { return };
    let mark = check.walker.tables("nat").find_map(|(_, nat)| {
        nat.rules(MARK_MASQUERADE).iter().find_map(|rule| match rule.action {
            super::Action::Mark { value, .. } => Some(value),
            _ => None,
        })
    });
    for (number, filter) in check.walker.tables("filter") {
        let (Some(chain), Some(mark)) = (filter.find(FORWARD), mark) else { continue };
        let packet = check.clients.packet_from(outside, protocol, endpoint);
        if !check.walker.accepts(&packet, number, chain, mark) {
            let what = format!("filter {FORWARD} does not let marked packets through");
            check.groups.note((Kind::Damaged, what));
        }
    }
    let mut answer = check.clients.packet_from(endpoint.ip(), protocol, SocketAddr::new(outside, 40_000));
    answer.is_answer = true;
    for way in check.walker.answers(&answer) {
        if let Some(cause) = check.causes().of_end(&way) {
            check.groups.add(cause, None, || format!("answers of {endpoint}"));
        }
    }
}

/// Each endpoint that reaches itself is masqueraded (row E1).
fn hairpins(check: &mut Check) {
    let Some((number, nat)) = check.walker.tables("nat").find(|(_, nat)| nat.find(SERVICES).is_some()) else { return };
    for chain in nat.chains().iter().filter(|chain| chain.name.starts_with("KUBE-SEP-")) {
        let destination = chain.rules.iter().find_map(|rule| rule.to_destination().map(|to| (to, rule.protocol)));
        let (Some((to, protocol)), Some(at)) = (destination, nat.find(&chain.name)) else { continue };
        let packet = check.clients.packet_from(to.ip(), protocol.unwrap_or(Protocol::Tcp), to);
        for way in check.walker.ways_from(&packet, number, at) {
            // what stays on the node does not come to where sources are replaced
            let reaches_itself =
                way.fate == Fate::Delivered && way.destination == to && !check.clients.is_local(to.ip());
            if !reaches_itself || way.masqueraded.is_some() {
                continue;
            }
            let marked = nat.find(MARK_MASQUERADE).is_some_and(|mark| way.trail.to.contains(&mark));
            let cause = match marked {
                true => check.causes().of_no_masquerade(&way),
                false => (Kind::Damaged, format!("endpoints that reach themselves are not led to {MARK_MASQUERADE}")),
            };
            check.groups.add(cause, None, || format!("{to} in nat {}", chain.name));
        }
    }
}

/// Where node ports are served on loopback addresses, others must not get to these.
fn loopback(check: &mut Check) {
    if check.walker.family() == Family::V6 {
        return;
    }
    let node_port = check.reading.ports.values().find_map(|port| {
        let is_served = |one: &&super::super::ports::Frontend| {
            matches!(one.address, FrontendAddress::NodePort(_)) && one.no_endpoints.is_none()
        };
        let found = port.frontends.iter().find(is_served).filter(|_| port.id.family == Family::V4);
        found.map(|one| (port.protocol, one.address.port()))
    });
    let Some((protocol, number)) = node_port else { return };
    let localhost = IpAddr::V4([127, 0, 0, 1].into());
    let packet = check.clients.packet(Client::Node, protocol, SocketAddr::new(localhost, number));
    let is_served = packet.is_some_and(|packet| check.walker.ways(&packet).iter().any(|way| way.translated.is_some()));
    let guarded = check.clients.packet(Client::Outside, protocol, SocketAddr::new(localhost, UNUSED));
    let (true, Some(packet)) = (is_served, guarded) else { return };
    if check.walker.ways(&packet).iter().any(|way| way.fate == Fate::Delivered) {
        let what =
            format!("filter {FIREWALL} does not keep others from loopback addresses, where node ports are served");
        check.groups.note((Kind::Damaged, what));
    }
}

/// The same as [`hairpins`], by the set of them.
fn hairpins_of_sets(check: &mut Check) {
    let set = Set::LoopBack.name(check.walker.family());
    let all: Vec<_> = check.reading.xtables.sets.triples(&set).take(FEW).collect();
    for one in all {
        let mut packet = check.clients.packet_from(one.source, one.protocol, one.destination);
        packet.from = Client::Pod;
        for way in check.walker.leaving(&packet) {
            if way.masqueraded.is_none() {
                let what = format!("endpoints in {set} that reach themselves are not masqueraded");
                check.groups.add((Kind::Damaged, what), None, || one.destination.to_string());
            }
        }
    }
}

/// What no virtual server has is refused, or who listens on all of the node's addresses would answer.
fn unused_ports(check: &mut Check) {
    let family = check.walker.family();
    let cluster_ip = check.reading.ports.values().filter(|port| port.id.family == family).find_map(|port| {
        port.frontends.iter().find_map(|one| match one.address {
            FrontendAddress::Cluster(ip, _) => Some(ip),
            _ => None,
        })
    });
    let Some(ip) = cluster_ip else { return };
    for (from, chain) in [(Client::Outside, INPUT_FILTER), (Client::Node, OUTPUT_FILTER)] {
        let has_chain = check.walker.tables("filter").any(|(_, filter)| filter.find(chain).is_some());
        let packet: Option<Packet> = check.clients.packet(from, Protocol::Tcp, SocketAddr::new(ip, UNUSED));
        let (true, Some(packet)) = (has_chain, packet) else { continue };
        if check.walker.ways(&packet).iter().any(|way| way.fate == Fate::Delivered) {
            let what = format!("filter {chain} does not refuse what no virtual server has");
            check.groups.add((Kind::Damaged, what), None, || format!("from {from} to {ip}:{UNUSED}"));
        }
    }
}
