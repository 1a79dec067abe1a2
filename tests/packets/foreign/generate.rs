//! Random rulesets, as small as people write them and as crooked as none would.

use std::fmt::Write;

use svcmap::objects::Family;

use crate::common::cases::in_family;
use crate::random::Random;

/// Who sends: a pod, a client outside, the node.
pub const CLIENTS: [&str; 3] = ["10.0.0.2", "203.0.113.2", "192.168.0.2"];
/// Where to: a pod on the node, one elsewhere, addresses that nobody has, the node's own.
pub const TARGETS: [&str; 6] = ["10.180.0.1", "10.180.0.2", "172.30.0.41", "172.30.0.42", "192.168.0.2", "192.168.1.2"];
/// To which port.
pub const PORTS: [u16; 3] = [80, 81, 8080];
/// Sources that packets are given: one that nobody has, and one of the node's.
const MADE_UP: [&str; 2] = ["198.51.100.7", "192.168.1.2"];

const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];
const FILTER_PRIORITIES: [i32; 7] = [-150, -110, -100, -50, 0, 0, 110];
const NAT_PRIORITIES: [i32; 4] = [-100, 0, 50, 100];

/// What kind of base chain a chain is called from: that decides over what its rules may say.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    hook: &'static str,
    nat: bool,
}

struct Writer<'a> {
    random: &'a mut Random,
    family: Family,
    /// Whether the table is of both families.
    inet: bool,
    /// The protocol that the rule at hand is about; `nft` takes no rule about two.
    protocol: &'static str,
}

/// A script for `nft` with one or two tables.
pub fn script(random: &mut Random, family: Family) -> String {
    let tables = 1 + usize::from(random.once_in(3));
    let mut text = String::new();
    for table in 0..tables {
        let inet = random.once_in(3);
        let kind = match (inet, family) {
            (true, _) => "inet",
            (false, Family::V4) => "ip",
            (false, Family::V6) => "ip6",
        };
        let mut writer = Writer { random, family, inet, protocol: "tcp" };
        let _ = write!(text, "table {kind} t{table} {{\n{}}}\n", writer.table());
    }
    text
}

impl Writer<'_> {
    fn ip(&self) -> &'static str {
        if self.family == Family::V4 { "ip" } else { "ip6" }
    }

    fn address(&mut self, from: &[&str]) -> String {
        in_family(self.random.pick(from), self.family)
    }

    fn target(&mut self) -> String {
        self.address(&TARGETS)
    }

    fn port(&mut self) -> u16 {
        PORTS[self.random.below(PORTS.len())]
    }

    fn table(&mut self) -> String {
        let mut text = self.sets();
        for base in 0..3 + self.random.below(4) {
            let nat = self.random.once_in(2);
            let mut hook = *self.random.pick(&HOOKS.each_ref());
            if nat && hook == "forward" {
                hook = "prerouting";
            }
            let place = Place { hook, nat };
            // those that are led to come first
            for sub in (0..2).rev() {
                let rules = self.rules(place, base, sub + 1);
                let _ = write!(text, "  chain s{base}-{sub} {{\n{rules}  }}\n");
            }
            text += &self.base_chain(place, base);
        }
        text
    }

    fn sets(&mut self) -> String {
        let kind = if self.family == Family::V4 { "ipv4_addr" } else { "ipv6_addr" };
        let (some, other) = (self.target(), self.target());
        let (port, prefix) = (self.port(), if self.family == Family::V4 { 31 } else { 127 });
        let single = if some == other { some.clone() } else { format!("{some}, {other}") };
        let range = format!("{}/{prefix}", in_family("172.30.0.40", self.family));
        format!(
            "  set some {{ type {kind}; elements = {{ {single} }} }}\n  \
               set ranges {{ type {kind}; flags interval; elements = {{ {range} }} }}\n  \
               set pairs {{ type {kind} . inet_service; elements = {{ {other} . {port} }} }}\n  \
               set seen {{ type {kind}; flags dynamic; size 100; }}\n"
        )
    }

    fn base_chain(&mut self, place: Place, base: usize) -> String {
        let Place { hook, nat } = place;
        let kind = if nat { "nat" } else { "filter" };
        let priority = match nat {
            true => NAT_PRIORITIES[self.random.below(NAT_PRIORITIES.len())],
            false => FILTER_PRIORITIES[self.random.below(FILTER_PRIORITIES.len())],
        };
        let policy = if !nat && self.random.once_in(8) { "drop" } else { "accept" };
        let mut text = format!("  chain b{base} {{ type {kind} hook {hook} priority {priority}; policy {policy};\n");
        if !nat {
            // only the first packet is traced; and IPv6 needs its neighbours
            text += "    ct state established,related accept\n    meta l4proto { icmp, ipv6-icmp } accept\n";
        }
        text += &self.rules(place, base, 0);
        text + "  }\n"
    }

    /// The rules of a chain, which may lead to the chains of its base chain from `from` on.
    fn rules(&mut self, place: Place, base: usize, from: usize) -> String {
        let count = 1 + self.random.below(4);
        (0..count).map(|_| format!("    {}\n", self.rule(place, base, from))).collect()
    }

    fn rule(&mut self, place: Place, base: usize, from: usize) -> String {
        self.protocol = if self.random.once_in(3) { "udp" } else { "tcp" };
        let mut parts: Vec<String> = Vec::new();
        for _ in 0..self.random.below(3) {
            parts.push(self.condition(place));
        }
        parts.push(self.action(place, base, from));
        parts.join(" ")
    }

    fn condition(&mut self, place: Place) -> String {
        let (ip, protocol) = (self.ip(), self.protocol);
        let not = if self.random.once_in(4) { "!= " } else { "" };
        match self.random.below(19) {
            0 => format!("{ip} daddr {not}{}", self.target()),
            1 => format!("{ip} saddr {not}{}", self.address(&CLIENTS)),
            2 | 3 => format!("{protocol} dport {not}{}", self.port()),
            4 => format!("meta l4proto {protocol} th dport {not}{}", self.port()),
            5 => format!("meta l4proto {protocol}"),
            6 => format!("iifname {not}\"{}\"", self.random.pick(&["pod0", "eth*", "lo", "eth0"])),
            7 => format!("oifname {not}\"{}\"", self.random.pick(&["pod*", "eth0", "lo", "eth2"])),
            8 => String::from(self.random.pick(&["ct state new", "ct state { new, invalid }", "ct status dnat"])),
            9 => format!("meta mark {not}{}", self.random.below(3)),
            10 if ["prerouting", "input", "output"].contains(&place.hook) => format!("fib daddr type {not}local"),
            11 => format!("{ip} daddr {not}@some"),
            12 => format!("{ip} daddr {not}@ranges"),
            13 => format!("{ip} daddr . {protocol} dport {not}@pairs"),
            14 => format!("ct original {ip} daddr {not}{}", self.target()),
            15 => format!("{protocol} dport {not}70-80"),
            16 if protocol == "tcp" => String::from("tcp flags & (syn | ack) == syn"),
            17 => format!("ct mark {not}{}", self.random.below(3)),
            _ => format!("{ip} saddr {not}@seen"),
        }
    }

    fn action(&mut self, place: Place, base: usize, from: usize) -> String {
        let sub = from + self.random.below(2);
        let leads_on = sub < 2;
        match self.random.below(20) {
            0 => "accept".into(),
            1 => "drop".into(),
            2 if !place.nat && place.hook != "postrouting" => {
                let reset = self.protocol == "tcp" && self.random.once_in(2);
                if reset { "meta l4proto tcp reject with tcp reset" } else { "reject" }.into()
            }
            3 => "return".into(),
            4 | 5 if leads_on => format!("jump s{base}-{sub}"),
            6 if leads_on => format!("goto s{base}-{sub}"),
            7 => format!("meta mark set {}", self.random.below(3)),
            8 => "meta mark set meta mark xor 1".into(),
            9 => format!("ct mark set {}", self.random.below(3)),
            10 if leads_on => {
                let ip = self.ip();
                format!("{ip} daddr vmap {{ {} : jump s{base}-{sub} }}", self.target())
            }
            11 => {
                let port = self.port();
                let (protocol, verdict) = (self.protocol, self.verdict());
                format!("{protocol} dport vmap {{ {port} : {verdict} }}")
            }
            12 => format!("numgen random mod 3 vmap {{ 0 : {}, 1 : continue }}", self.verdict()),
            13 => format!("add @seen {{ {} saddr }}", self.ip()),
            14 => "limit rate 1000000/second burst 1000000 packets".into(),
            15 if self.random.once_in(4) => "limit rate 1000000/second burst 1000000 packets accept".into(),
            _ if place.nat => self.translation(place),
            _ => "counter".into(),
        }
    }

    fn verdict(&mut self) -> &'static str {
        self.random.pick(&["accept", "drop", "return"])
    }

    fn translation(&mut self, place: Place) -> String {
        let word = if self.inet { format!(" {}", self.ip()) } else { String::new() };
        // of one family's addresses only that family's packets may hear
        let source_nat = ["input", "postrouting"].contains(&place.hook);
        let with_port =
            |ip: &str, port: u16| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
        match (source_nat, self.random.below(5)) {
            (true, 0 | 1) => format!("snat{word} to {}", self.address(&MADE_UP)),
            (true, _) if place.hook == "postrouting" => "masquerade".into(),
            (true, _) => "counter".into(),
            (false, 0) if place.hook == "output" => format!("meta l4proto {} redirect", self.protocol),
            (false, 0) => "counter".into(),
            (false, 1) => {
                let (a, b) = (self.target(), self.target());
                format!("dnat{word} to numgen random mod 2 map {{ 0 : {a}, 1 : {b} }}")
            }
            (false, 2) => format!("dnat{word} to {}", self.target()),
            (false, _) => {
                let (ip, port) = (self.target(), self.port());
                format!("meta l4proto {} dnat{word} to {}", self.protocol, with_port(&ip, port))
            }
        }
    }
}
