//! The rules of iptables beside the virtual servers: the same for any Services, since they look sets up.

use super::names::{self, Set};
use crate::iptables::filter::forwarding;
use crate::iptables::matches::{comment, from_pods, loopback};
use crate::iptables::names::{FORWARD, MARK_MASQUERADE, MARK_OFF_CLUSTER, POSTROUTING, PROXY_FIREWALL, SERVICES};
use crate::iptables::nat::masquerading;
use crate::iptables::{Ruleset, Table};
use crate::objects::{Family, Protocol};
use crate::plan::NodePlan;

const NEW: &str = "-m conntrack --ctstate NEW";
const FROM_NODE: &str = "-m addrtype --src-type LOCAL";
const ADDRESS_AND_PORT: &str = "dst,dst";

/// Both tables of a family.
pub fn companions(node: &NodePlan, family: Family) -> Ruleset {
    Ruleset::of([nat(node, family), filter(node, family)])
}

/// Packets to what stands in a set.
fn to(set: Set, family: Family) -> String {
    let parts = match set.kind() {
        "bitmap:port" | "hash:ip" => "dst",
        _ => ADDRESS_AND_PORT,
    };
    format!("-m set --match-set {} {parts}", set.name(family))
}

/// Whose source is replaced.
fn nat(node: &NodePlan, family: Family) -> Table {
    let mut table = Table::new("nat");
    for from in ["PREROUTING", "OUTPUT"] {
        table.hook(from, format!("{} -j {SERVICES}", comment("kubernetes service portals")));
    }
    table.hook("POSTROUTING", format!("{} -j {POSTROUTING}", comment("kubernetes postrouting rules")));
    table.rule(SERVICES, format!("-s {} -j RETURN", loopback(family)));
    table.rule(SERVICES, format!("{} -j {}", to(Set::LoadBalancer, family), names::LOAD_BALANCER));
    cluster_ips(node, family, &mut table);
    table.rule(SERVICES, format!("{} -j {MARK_MASQUERADE}", to(Set::ExternalIp, family)));
    table.rule(SERVICES, format!("{} {FROM_NODE} -j {MARK_MASQUERADE}", to(Set::ExternalIpLocal, family)));
    // Before node ports: the addresses of Services are the node's own, too, and their ports may have numbers of node ports.
    for set in [Set::ClusterIp, Set::LoadBalancer, Set::ExternalIp, Set::ExternalIpLocal] {
        table.rule(SERVICES, format!("{} -j ACCEPT", to(set, family)));
    }
    table.rule(SERVICES, format!("-m addrtype --dst-type LOCAL -j {}", names::NODE_PORT));
    let local = to(Set::LoadBalancerLocal, family);
    table.rule(names::LOAD_BALANCER, format!("{local} {FROM_NODE} -j {MARK_MASQUERADE}"));
    table.rule(names::LOAD_BALANCER, format!("{local} -j RETURN"));
    table.rule(names::LOAD_BALANCER, format!("-j {MARK_MASQUERADE}"));
    for protocol in Protocol::ALL {
        let local = format!("-p {protocol} {}", to(Set::NodePortLocal(protocol), family));
        table.rule(names::NODE_PORT, format!("{local} {FROM_NODE} -j {MARK_MASQUERADE}"));
        table.rule(names::NODE_PORT, format!("{local} -j RETURN"));
        let other = to(Set::NodePort(protocol), family);
        table.rule(names::NODE_PORT, format!("-p {protocol} {other} -j {MARK_MASQUERADE}"));
    }
    let itself = format!("-m set --match-set {} dst,dst,src", Set::LoopBack.name(family));
    let why = comment("Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose");
    table.rule(POSTROUTING, format!("{why} {itself} -j MASQUERADE"));
    masquerading(node, family, &mut table);
    table
}

/// Behaviour rows E2–E4. Without a way to tell pods the node itself is masqueraded still, which sends from the Service's own
/// address, as that is one of its own.
fn cluster_ips(node: &NodePlan, family: Family, table: &mut Table) {
    let name = Set::ClusterIp.name(family);
    let (from, target) = match (node.masquerade_all, from_pods(node, family).as_slice()) {
        (true, _) => (String::new(), MARK_MASQUERADE),
        (false, [pods]) => (format!(" ! {pods}"), MARK_MASQUERADE),
        (false, []) => {
            table.rule(SERVICES, format!("-m set --match-set {name} src,dst -j {MARK_MASQUERADE}"));
            return;
        }
        (false, _) => (String::new(), MARK_OFF_CLUSTER),
    };
    table.rule(SERVICES, format!("{}{from} -j {target}", to(Set::ClusterIp, family)));
}

/// What may not come, and what finds nothing.
fn filter(node: &NodePlan, family: Family) -> Table {
    let mut table = Table::new("filter");
    for (from, chain, why) in [
        ("INPUT", PROXY_FIREWALL, "kube-proxy firewall rules"),
        ("INPUT", names::INPUT_FILTER, "kubernetes ipvs access filter"),
        ("FORWARD", FORWARD, "kubernetes forwarding rules"),
        ("OUTPUT", names::OUTPUT_FILTER, "kubernetes ipvs access filter"),
    ] {
        table.hook(from, format!("{} -j {chain}", comment(why)));
    }
    table.rule(PROXY_FIREWALL, format!("{} -j {}", to(Set::LoadBalancerFw, family), names::SOURCE_RANGES));
    for set in [Set::LoadBalancerSourceCidr, Set::LoadBalancerSourceIp] {
        let allowed = format!("-m set --match-set {} dst,dst,src", set.name(family));
        table.rule(names::SOURCE_RANGES, format!("{allowed} -j RETURN"));
    }
    table.rule(names::SOURCE_RANGES, "-j DROP".into());
    dropped(node, family, &mut table);
    let sets = [Set::LoadBalancer, Set::ClusterIp, Set::ExternalIp, Set::ExternalIpLocal];
    let node_ports = Protocol::ALL.into_iter().flat_map(|protocol| {
        [Set::NodePort(protocol), Set::NodePortLocal(protocol)].map(|set| format!("-p {protocol} {}", to(set, family)))
    });
    for known in sets.map(|set| to(set, family)).into_iter().chain(node_ports) {
        table.rule(names::INPUT_FILTER, format!("{known} -j RETURN"));
    }
    for chain in [names::INPUT_FILTER, names::OUTPUT_FILTER] {
        table.rule(chain, format!("{NEW} {} -j REJECT", to(Set::IpvsIps, family)));
    }
    forwarding(node, &mut table);
    table
}

/// Behaviour rows C12 and C13.
fn dropped(node: &NodePlan, family: Family, table: &mut Table) {
    for chain in [names::INPUT_FILTER, names::OUTPUT_FILTER] {
        table.rule(chain, format!("{NEW} {} -j DROP", to(Set::Dropped, family)));
    }
    let outside = to(Set::DroppedOutside, family);
    for from in from_pods(node, family).iter().map(String::as_str).chain([FROM_NODE]) {
        table.rule(names::INPUT_FILTER, format!("{outside} {from} -j RETURN"));
    }
    table.rule(names::INPUT_FILTER, format!("{NEW} {outside} -j DROP"));
}
