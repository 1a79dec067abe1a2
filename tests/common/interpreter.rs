//! What a plan means: the outcome of one new connection, said in the words of `svcmap::plan` and nothing else. What an
//! emitter writes must have the same outcome.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use svcmap::objects::{FamilyOf, Protocol};
use svcmap::plan::{
    Detector, Endpoint, Frontend, FrontendAddress, InterfaceMatch, Masquerade, NodePlan, Plan, PoolKind, PortPlan,
    Verdict,
};

use super::cases::{Home, OUTSIDE_INTERFACE, Outcome, POD_INTERFACE};

/// The first packet of a connection as the node sees it.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where that is, seen from the node.
    pub home: Home,
    /// Where it goes to.
    pub to: SocketAddr,
    /// Its protocol.
    pub protocol: Protocol,
}

impl Packet {
    /// The interface it comes in through; none where the node itself sends it.
    fn interface(&self) -> Option<&'static str> {
        match self.home {
            Home::Pod => Some(POD_INTERFACE),
            Home::Node => None,
            Home::Elsewhere | Home::Outside => Some(OUTSIDE_INTERFACE),
        }
    }
}

/// What becomes of a packet on a node that has the addresses `local`, besides loopback.
pub fn outcome(plan: &Plan, local: &[IpAddr], packet: &Packet) -> Outcome {
    let Some((port, frontend)) = find(plan, local, packet) else { return elsewhere(plan, packet) };
    if frontend.sources.as_ref().is_some_and(|sources| !sources.iter().any(|net| net.contains(&packet.source))) {
        return Outcome::Drop;
    }
    let is_pod = detects(plan.node.detector(packet.to.ip().family()), packet);
    let is_node = packet.home == Home::Node;
    let short = frontend.short_circuit && (is_pod || is_node);
    let pool = port.pool(if short { PoolKind::Cluster } else { frontend.pool });
    if pool.is_empty() {
        return match frontend.no_endpoints.expect("an empty pool has a verdict") {
            Verdict::Reject => Outcome::Reject,
            Verdict::Drop => Outcome::Drop,
            Verdict::Pass => Outcome::Untouched,
        };
    }
    let masqueraded = match frontend.masquerade {
        Masquerade::OffCluster => off_cluster(&plan.node, packet, is_pod),
        Masquerade::Always => true,
        Masquerade::Never => short && is_node && !is_pod,
    };
    let is_hairpin = |endpoint: &Endpoint| endpoint.local && endpoint.ip == packet.source;
    let answer =
        |endpoint: &Endpoint| (SocketAddr::new(endpoint.ip, endpoint.port), masqueraded || is_hairpin(endpoint));
    Outcome::Endpoints(pool.iter().map(answer).collect::<BTreeMap<_, _>>())
}

fn off_cluster(node: &NodePlan, packet: &Packet, is_pod: bool) -> bool {
    let can_tell = *node.detector(packet.to.ip().family()) != Detector::None;
    node.masquerade_all || (can_tell && !is_pod)
}

fn find<'a>(plan: &'a Plan, local: &[IpAddr], packet: &Packet) -> Option<(&'a PortPlan, &'a Frontend)> {
    let family = packet.to.ip().family();
    let is_node_port = local.contains(&packet.to.ip())
        && !packet.to.ip().is_loopback()
        && plan.node.node_port_addresses.iter().any(|network| network.contains(&packet.to.ip()));
    let find = |wanted: &dyn Fn(FrontendAddress) -> bool| {
        let ports = plan.ports.values().filter(|port| port.id.family == family && port.protocol == packet.protocol);
        ports.flat_map(|port| port.frontends.iter().map(move |f| (port, f))).find(|(_, f)| wanted(f.address))
    };
    find(&|address| address.ip() == Some(packet.to.ip()) && address.port() == packet.to.port())
        .or_else(|| find(&|address| is_node_port && address == FrontendAddress::NodePort(packet.to.port())))
}

/// What becomes of a packet that goes to no frontend (rows B8, B9).
fn elsewhere(plan: &Plan, packet: &Packet) -> Outcome {
    let to = packet.to.ip();
    let frontends = plan.ports.values().flat_map(|port| &port.frontends);
    if frontends.into_iter().any(|f| matches!(f.address, FrontendAddress::Cluster(ip, _) if ip == to)) {
        Outcome::Reject
    } else if plan.node.service_cidrs.iter().any(|network| network.contains(&to)) {
        Outcome::Drop
    } else {
        Outcome::Untouched
    }
}

fn detects(detector: &Detector, packet: &Packet) -> bool {
    match (detector, packet.interface()) {
        (Detector::None, _) | (Detector::Interface(_), None) => false,
        (Detector::Sources(networks), _) => networks.iter().any(|network| network.contains(&packet.source)),
        (Detector::Interface(InterfaceMatch::Exact(name)), Some(interface)) => name == interface,
        (Detector::Interface(InterfaceMatch::Prefix(prefix)), Some(interface)) => interface.starts_with(prefix),
    }
}
