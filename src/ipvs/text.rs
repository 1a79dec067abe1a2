//! Everything as text for the tools that load it.

use std::fmt::Write;
use std::net::IpAddr;

use super::companions::companions;
use super::names::{DEVICE, Set};
use super::settings::Settings;
use super::state::{Key, Server, State, planned_addresses};
use crate::objects::{Family, Protocol};
use crate::plan::Plan;

/// The entries that a set has room for if nothing else is said; a larger one is declared so.
const ROOM: usize = 65_536;

/// A part of the whole, and which program reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// For `ip -batch -`: the interface and its addresses.
    Addresses,
    /// For `ipset restore`.
    Ipset,
    /// For `iptables-restore`.
    Iptables,
    /// For `ip6tables-restore`.
    Ip6tables,
    /// For `ipvsadm --restore`.
    Ipvsadm,
}

impl Part {
    /// All, in the order in which they can be loaded.
    pub const ALL: [Part; 5] = [Part::Addresses, Part::Ipset, Part::Iptables, Part::Ip6tables, Part::Ipvsadm];

    fn heading(self) -> &'static str {
        match self {
            Part::Addresses => "the addresses of Services: for ip -batch -",
            Part::Ipset => "the sets: for ipset restore",
            Part::Iptables => "IPv4: for iptables-restore, which replaces the tables nat and filter",
            Part::Ip6tables => "IPv6: for ip6tables-restore, which replaces the tables nat and filter",
            Part::Ipvsadm => "the virtual servers: for ipvsadm --restore",
        }
    }
}

/// One part, or all of them under headings. What is read by a program alone has none: `ipvsadm` knows no comments.
pub fn render(plan: &Plan, settings: &Settings, part: Option<Part>) -> String {
    let own = planned_addresses(&plan.node);
    let states = Family::BOTH.map(|family| State::new(plan, family, &own, settings));
    let text = |part| match part {
        Part::Addresses => addresses(&states),
        Part::Ipset => states.iter().map(sets).collect(),
        Part::Iptables => companions(&plan.node, Family::V4).text(),
        Part::Ip6tables => companions(&plan.node, Family::V6).text(),
        Part::Ipvsadm => states.iter().map(servers).collect(),
    };
    match part {
        Some(part) => text(part),
        None => Part::ALL.map(|part| format!("# {}\n{}", part.heading(), text(part))).concat(),
    }
}

fn addresses(states: &[State]) -> String {
    let mut out = format!("link add {DEVICE} type dummy\n");
    for address in states.iter().flat_map(|state| &state.addresses) {
        let (length, flags) = if address.is_ipv4() { (32, "") } else { (128, " nodad preferred_lft 0") };
        let _ = writeln!(out, "address add {address}/{length} dev {DEVICE}{flags}");
    }
    out
}

fn sets(state: &State) -> String {
    let mut out = String::new();
    for (set, entries) in &state.sets {
        let name = set.name(state.family);
        let _ = writeln!(out, "{}", declaration(*set, &name, state.family, room(entries.len())));
        for entry in entries {
            let _ = writeln!(out, "add {name} {entry}");
        }
    }
    out
}

/// How many entries a set that now has so many is declared for.
pub fn room(entries: usize) -> usize {
    ROOM.max((2 * entries).next_power_of_two())
}

/// The line that makes a set.
pub fn declaration(set: Set, name: &str, family: Family, room: usize) -> String {
    match (set.kind(), family) {
        ("bitmap:port", _) => format!("create {name} bitmap:port range 0-65535"),
        (kind, Family::V4) => format!("create {name} {kind} family inet hashsize 1024 maxelem {room}"),
        (kind, Family::V6) => format!("create {name} {kind} family inet6 hashsize 1024 maxelem {room}"),
    }
}

fn servers(state: &State) -> String {
    let mut out = String::new();
    for (Key { protocol, address }, server) in &state.servers {
        let service = match protocol {
            Protocol::Tcp => format!("-t {address}"),
            Protocol::Udp => format!("-u {address}"),
            Protocol::Sctp => format!("--sctp-service {address}"),
        };
        let _ = writeln!(out, "-A {service} {}", options(server, address.ip()));
        for destination in &server.destinations {
            let _ = writeln!(out, "-a {service} -r {destination} -m -w 1");
        }
    }
    out
}

fn options(server: &Server, address: IpAddr) -> String {
    let mut options = format!("-s {}", server.scheduler);
    if let Some(seconds) = server.persistence {
        let _ = write!(options, " -p {seconds}");
        if address.is_ipv6() {
            options.push_str(" -M 128");
        }
    }
    if server.flags != 0 {
        options.push_str(" -b mh-fallback,mh-port");
    }
    options
}
