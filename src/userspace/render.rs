//! What a process would do, without one.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::table::Table;
use super::{Places, doors_of, refusal, text};
use crate::objects::{Family, FamilyOf};
use crate::plan::{Plan, PoolKind};

/// The port of the first door, where the range of ports says nothing.
const FIRST: u16 = 40_001;

/// Both families: which sockets there are and what lies behind each, and the table that leads to them. The kernel would choose
/// other ports; here they are counted from the first of the range.
pub fn render(plan: &Plan, first: Option<u16>) -> String {
    let mut places = Places::new();
    let mut counts: HashMap<(Family, crate::objects::Protocol), u16> = HashMap::new();
    let mut listening = [String::new(), String::new()];
    for port in plan.ports.values() {
        let family = port.id.family;
        let out = &mut listening[usize::from(family == Family::V6)];
        if let Some(why) = refusal(port) {
            let _ = writeln!(out, "# left out: {why}");
        }
        for door in doors_of(port) {
            let count = counts.entry((family, port.protocol)).or_default();
            let number = first.unwrap_or(FIRST).wrapping_add(*count);
            *count = count.wrapping_add(1);
            let place = SocketAddr::new(address(plan, family), number);
            let endpoints: Vec<String> = port.pool(door.pool).iter().map(ToString::to_string).collect();
            let whose = if door.pool == PoolKind::Local { ", endpoints of this node" } else { "" };
            let affinity = port.affinity.map(|seconds| format!(", a client keeps its endpoint for {seconds} s"));
            let (protocol, name) = (port.protocol, &port.id.name);
            let _ = writeln!(
                out,
                "# {place}/{protocol} {name}{whose}{}: {}",
                affinity.unwrap_or_default(),
                endpoints.join(" ")
            );
            places.insert(door, place);
        }
    }
    let mut out = String::new();
    for (family, listening) in Family::BOTH.into_iter().zip(listening) {
        let _ = writeln!(out, "# {family}: what is listened on, and for nft -f; svcmap run takes ports that are free");
        out.push_str(&listening);
        out.push_str(&text::whole(&Table::new(plan, family, &places)));
    }
    out
}

fn address(plan: &Plan, family: Family) -> IpAddr {
    let own = plan.node.node_ips.iter().find(|ip| ip.family() == family);
    own.copied().unwrap_or(match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    })
}
