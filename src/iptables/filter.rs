//! The table `filter`: connections that got no endpoint, and those that may not have one.

use super::matches::{comment, loopback, to_address, to_frontend};
use super::names::{self, PortChains};
use super::ruleset::Table;
use crate::objects::Family;
use crate::plan::{Frontend, FrontendAddress, NodePlan, PortPlan, Verdict};

/// The jumps from the kernel's own chains, of new connections unless the last is false, in the order that they stand in.
const JUMPS: [(&str, &str, &str, bool); 8] = [
    ("INPUT", names::PROXY_FIREWALL, "kubernetes load balancer firewall", true),
    ("OUTPUT", names::PROXY_FIREWALL, "kubernetes load balancer firewall", true),
    ("FORWARD", names::PROXY_FIREWALL, "kubernetes load balancer firewall", true),
    ("FORWARD", names::FORWARD, "kubernetes forwarding rules", false),
    ("FORWARD", names::SERVICES, "kubernetes service portals", true),
    ("OUTPUT", names::SERVICES, "kubernetes service portals", true),
    ("INPUT", names::EXTERNAL_SERVICES, "kubernetes externally-visible service portals", true),
    ("FORWARD", names::EXTERNAL_SERVICES, "kubernetes externally-visible service portals", true),
];

/// The table of one family.
pub fn table<'a>(node: &NodePlan, family: Family, ports: impl Iterator<Item = &'a PortPlan>) -> Table {
    let mut table = Table::new("filter");
    if node.serves_loopback(family) {
        let loopback = loopback(family);
        let known = "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT";
        let why = comment("block incoming localnet connections");
        table.rule(names::FIREWALL, format!("{why} -d {loopback} ! -s {loopback} {known} -j DROP"));
        for from in ["INPUT", "OUTPUT"] {
            table.hook(from, format!("-j {}", names::FIREWALL));
        }
    }
    for (from, to, why, only_new) in JUMPS {
        let new = if only_new { "-m conntrack --ctstate NEW " } else { "" };
        table.hook(from, format!("{new}{} -j {to}", comment(why)));
        table.chain(to);
    }
    forwarding(node, &mut table);
    for port in ports {
        for frontend in &port.frontends {
            verdict(node, port, frontend, &mut table);
            firewall(port, frontend, &mut table);
        }
    }
    table
}

/// Lets Service traffic through a host that forwards nothing by itself.
pub(crate) fn forwarding(node: &NodePlan, table: &mut Table) {
    let mark = node.masquerade_mark;
    table.rule(names::FORWARD, "-m conntrack --ctstate INVALID -j DROP".into());
    let why = comment("kubernetes forwarding rules");
    table.rule(names::FORWARD, format!("{why} -m mark --mark {mark:#x}/{mark:#x} -j ACCEPT"));
    let why = comment("kubernetes forwarding conntrack rule");
    table.rule(names::FORWARD, format!("{why} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"));
}

/// Behaviour rows C12–C14.
fn verdict(node: &NodePlan, port: &PortPlan, frontend: &Frontend, table: &mut Table) {
    let (what, target) = match frontend.no_endpoints {
        None | Some(Verdict::Pass) => return,
        Some(Verdict::Reject) => ("has no endpoints", "REJECT"),
        Some(Verdict::Drop) => ("has no local endpoints", "DROP"),
    };
    let chain = match frontend.address {
        FrontendAddress::Cluster(..) => names::SERVICES,
        FrontendAddress::External(..) | FrontendAddress::NodePort(_) => names::EXTERNAL_SERVICES,
    };
    let why = comment(&format!("{} {what}", port.id.name));
    for to in to_frontend(node, port, frontend.address) {
        table.rule(chain, format!("{why} {to} -j {target}"));
    }
}

/// Behaviour rows F7–F10. Who may come to endpoints does not have this destination any more; who may come where there is
/// no endpoint still does, and goes on to what is said there.
fn firewall(port: &PortPlan, frontend: &Frontend, table: &mut Table) {
    let (Some(sources), FrontendAddress::External(ip, number)) = (&frontend.sources, frontend.address) else { return };
    let to = to_address(port, ip, number);
    if frontend.no_endpoints.is_some() {
        for source in sources.iter() {
            table.rule(names::PROXY_FIREWALL, format!("{} {to} -s {source} -j RETURN", comment(port.id.name.as_str())));
        }
    }
    let why = comment(&format!("{} traffic not accepted by {}", port.id.name, PortChains::new(port).firewall()));
    table.rule(names::PROXY_FIREWALL, format!("{why} {to} -j DROP"));
}
