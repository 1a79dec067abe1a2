//! The table that leads Services' clients to the doors, in one family.
//!
//! It is svcmap's nftables mode with another end: maps from where a client sends to to where it is translated to, here a
//! socket of this process. Nobody is masqueraded, since the endpoints see the node in any case. Verdicts where there is no
//! endpoint and source ranges are the same. A door itself is for nobody but those who were led there.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

use ipnet::IpNet;

use super::{Door, Places};
use crate::nftables::names::Map;
use crate::nftables::ranges::prefixes;
use crate::nftables::rule::ip_word;
use crate::objects::Family;
use crate::plan::{Detector, Frontend, FrontendAddress, InterfaceMatch, NodePlan, Plan, PoolKind, PortPlan, Verdict};

/// Its name, in both families.
pub const TABLE: &str = "svcmap-userspace";

/// The sets and maps that have elements of Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Set {
    /// Where ordinary clients go.
    Listeners,
    /// The same for node ports.
    NodePortListeners,
    /// Where pods and the node go, where that is somewhere else (behaviour rows C13, E7, E8).
    ShortCircuit,
    /// The same for node ports.
    NodePortShortCircuit,
    /// What becomes of those who have no endpoint (rows C12–C14).
    NoEndpoints,
    /// The same for node ports.
    NodePortNoEndpoints,
    /// Frontends with source ranges (rows F7–F10).
    Firewalled,
    /// These ranges.
    Allowed,
    /// The addresses of Services whose other ports are refused (row B8).
    ClusterIps,
    /// The doors.
    Doors,
}

impl Set {
    /// All of them.
    pub const ALL: [Set; 10] = [
        Set::Listeners,
        Set::NodePortListeners,
        Set::ShortCircuit,
        Set::NodePortShortCircuit,
        Set::NoEndpoints,
        Set::NodePortNoEndpoints,
        Set::Firewalled,
        Set::Allowed,
        Set::ClusterIps,
        Set::Doors,
    ];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Set::Listeners => "listeners",
            Set::NodePortListeners => "nodeport-listeners",
            Set::ShortCircuit => "short-circuit",
            Set::NodePortShortCircuit => "nodeport-short-circuit",
            Set::NoEndpoints => "no-endpoints",
            Set::NodePortNoEndpoints => "nodeport-no-endpoints",
            Set::Firewalled => "firewalled",
            Set::Allowed => "allowed",
            Set::ClusterIps => "cluster-ips",
            Set::Doors => "doors",
        }
    }

    /// Whether the kernel keeps as many elements as were added.
    pub fn is_counted(self) -> bool {
        self != Set::Allowed
    }

    /// `map` or `set`, and its type; `IP` stands for the family's word.
    fn kind(self) -> (&'static str, &'static str) {
        match self {
            Set::Listeners | Set::ShortCircuit => ("map", "IP daddr . meta l4proto . th dport : IP daddr . th dport"),
            Set::NodePortListeners | Set::NodePortShortCircuit => {
                ("map", "meta l4proto . th dport : IP daddr . th dport")
            }
            Set::NoEndpoints => ("map", "IP daddr . meta l4proto . th dport : verdict"),
            Set::NodePortNoEndpoints => ("map", "meta l4proto . th dport : verdict"),
            Set::Firewalled | Set::Doors => ("set", "IP daddr . meta l4proto . th dport"),
            Set::Allowed => ("set", "IP daddr . meta l4proto . th dport . IP saddr"),
            Set::ClusterIps => ("set", "IP daddr"),
        }
    }

    /// How it is declared, without the elements.
    pub fn declaration(self, family: Family) -> (&'static str, String) {
        let (kind, typeof_) = self.kind();
        let flags = if self == Set::Allowed { "\n\t\tflags interval" } else { "" };
        (kind, format!("\t\ttypeof {}{flags}\n", typeof_.replace("IP", ip_word(family))))
    }
}

/// The elements of a set: the key, and what stands behind it.
pub type Elements = BTreeMap<String, String>;

/// The table of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its family.
    pub family: Family,
    /// Sets of the node's, and all chains: what differs only where the node's part of the plan does.
    pub frame: String,
    /// How many rules the chains have.
    pub rules: usize,
    /// What stands in each set.
    pub elements: BTreeMap<Set, Elements>,
}

impl Table {
    /// What a plan comes to, with the doors where they are. A frontend whose door is not open leads nowhere.
    pub fn new(plan: &Plan, family: Family, places: &Places) -> Table {
        let elements = Set::ALL.map(|set| (set, Elements::new())).into();
        let chains = chains(&plan.node, family);
        let rules = chains.iter().flat_map(|(_, rules)| rules).filter(|rule| !rule.starts_with("type ")).count();
        let mut table = Table { family, frame: frame(&plan.node, family, &chains), rules, elements };
        for port in plan.ports.values().filter(|port| port.id.family == family) {
            Port { port, places }.write(&mut table);
        }
        table
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.elements.values().map(Elements::len).sum()
    }

    /// Whether no Service has anything in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add(&mut self, set: Set, key: String, rest: String) {
        self.elements.entry(set).or_default().insert(key, rest);
    }
}

struct Port<'a> {
    port: &'a PortPlan,
    places: &'a Places,
}

impl Port<'_> {
    fn write(&self, table: &mut Table) {
        for frontend in &self.port.frontends {
            self.frontend(frontend, table);
            self.sources(frontend, table);
        }
        for pool in [PoolKind::Cluster, PoolKind::Local] {
            if let Some(place) = self.place(pool) {
                let key = self.key(FrontendAddress::External(place.ip(), place.port()));
                table.add(Set::Doors, key, self.comment());
            }
        }
    }

    fn place(&self, pool: PoolKind) -> Option<SocketAddr> {
        self.places.get(&Door { port: self.port.id.clone(), pool }).copied()
    }

    fn key(&self, address: FrontendAddress) -> String {
        let (protocol, number) = (self.port.protocol, address.port());
        match address.ip() {
            Some(ip) => format!("{ip} . {protocol} . {number}"),
            None => format!("{protocol} . {number}"),
        }
    }

    fn comment(&self) -> String {
        let clean = |c: &char| *c != '"' && !c.is_control();
        format!(" comment \"{}\"", self.port.id.name.as_str().chars().filter(clean).collect::<String>())
    }

    fn frontend(&self, frontend: &Frontend, table: &mut Table) {
        let is_node_port = frontend.address.ip().is_none();
        let of = |set, of_node_ports| if is_node_port { of_node_ports } else { set };
        let (key, comment) = (self.key(frontend.address), self.comment());
        let to = |place: SocketAddr| format!("{comment} : {} . {}", place.ip(), place.port());
        if let FrontendAddress::Cluster(ip, _) = frontend.address {
            table.add(Set::ClusterIps, ip.to_string(), String::new());
        }
        if frontend.short_circuit
            && let Some(place) = self.place(PoolKind::Cluster)
        {
            table.add(of(Set::ShortCircuit, Set::NodePortShortCircuit), key.clone(), to(place));
        }
        let verdict = match frontend.no_endpoints {
            Some(Verdict::Reject) => "goto refuse",
            Some(Verdict::Drop) => "drop",
            Some(Verdict::Pass) => "return",
            None => {
                if let Some(place) = self.place(frontend.pool) {
                    table.add(of(Set::Listeners, Set::NodePortListeners), key, to(place));
                }
                return;
            }
        };
        table.add(of(Set::NoEndpoints, Set::NodePortNoEndpoints), key, format!("{comment} : {verdict}"));
    }

    fn sources(&self, frontend: &Frontend, table: &mut Table) {
        let Some(sources) = frontend.sources.as_ref().filter(|_| frontend.address.ip().is_some()) else { return };
        let key = self.key(frontend.address);
        for source in IpNet::aggregate(&sources.to_vec()) {
            table.add(Set::Allowed, format!("{key} . {source}"), self.comment());
        }
        table.add(Set::Firewalled, key, self.comment());
    }
}

/// The sets that hold ranges of the node's, and the chains.
fn frame(node: &NodePlan, family: Family, chains: &[Chain]) -> String {
    let ip = ip_word(family);
    let mut out = String::new();
    for (map, name, field) in [
        (Map::PodCidrs, "pod-cidrs", "saddr"),
        (Map::ServiceCidrs, "service-cidrs", "daddr"),
        (Map::NodePortIps, "nodeport-ips", "daddr"),
    ] {
        let ranges: Vec<String> = prefixes(map, family, node).iter().map(ToString::to_string).collect();
        let _ = write!(out, "\n\tset {name} {{\n\t\ttypeof {ip} {field}\n\t\tflags interval\n");
        if !ranges.is_empty() {
            let _ = writeln!(out, "\t\telements = {{ {} }}", ranges.join(", "));
        }
        out.push_str("\t}\n");
    }
    for (name, rules) in chains {
        let _ = write!(out, "\n\tchain {name} {{\n");
        for rule in rules {
            let _ = writeln!(out, "\t\t{rule}");
        }
        out.push_str("\t}\n");
    }
    out
}

/// A chain's name and lines, the first of which says where it is hooked in.
type Chain = (&'static str, Vec<String>);

fn chains(node: &NodePlan, family: Family) -> Vec<Chain> {
    let ip = ip_word(family);
    let key = format!("{ip} daddr . meta l4proto . th dport");
    let loopback = match family {
        _ if node.serves_loopback(family) => "",
        Family::V4 => "ip daddr != 127.0.0.0/8 ",
        Family::V6 => "ip6 daddr != ::1 ",
    };
    let node_port = format!("{ip} daddr @nodeport-ips {loopback}fib daddr type local");
    let base = |hook, priority, rule: &str| {
        let kind = if matches!(priority, "dstnat" | "-100") { "nat" } else { "filter" };
        vec![format!("type {kind} hook {hook} priority {priority}; policy accept;"), rule.to_owned()]
    };
    let firewall = format!("ct state new {key} @firewalled {key} . {ip} saddr != @allowed drop");
    let mut translate = to_doors(node, family, &key, "");
    translate.push(format!("{node_port} jump nodeports"));
    let door = format!("{key} @doors ct status ! dnat reject");
    let mut input = base("input", "filter", "ct state new ct status ! dnat jump nodeport-verdicts");
    input.push(door);
    let new = "ct state new ct status ! dnat jump verdicts";
    vec![
        ("refuse", vec!["reject".to_owned()]),
        ("nodeports", to_doors(node, family, "meta l4proto . th dport", "nodeport-")),
        ("translate", translate),
        (
            "verdicts",
            vec![
                format!("{key} vmap @no-endpoints"),
                format!("{ip} daddr @cluster-ips reject"),
                format!("{ip} daddr @service-cidrs drop"),
            ],
        ),
        (
            "nodeport-verdicts",
            vec![
                format!("{node_port} meta l4proto . th dport vmap @nodeport-no-endpoints"),
                "goto verdicts".to_owned(),
            ],
        ),
        // as in the nftables mode (rows G1–G4)
        ("firewall-prerouting", base("prerouting", "dstnat - 10", &firewall)),
        ("firewall-output", base("output", "-110", &firewall)),
        ("nat-prerouting", base("prerouting", "dstnat", "jump translate")),
        ("nat-output", base("output", "-100", "jump translate")),
        ("filter-input", input),
        ("filter-forward", base("forward", "filter", new)),
        ("filter-output", base("output", "filter", new)),
    ]
}

/// Rules that look a destination up: first for pods and the node (row E12), then for anybody.
fn to_doors(node: &NodePlan, family: Family, key: &str, of: &str) -> Vec<String> {
    let ip = ip_word(family);
    let pods = match node.detector(family) {
        Detector::None => None,
        Detector::Sources(_) => Some(format!("{ip} saddr @pod-cidrs ")),
        Detector::Interface(InterfaceMatch::Exact(name)) => Some(format!("iifname \"{name}\" ")),
        Detector::Interface(InterfaceMatch::Prefix(prefix)) => Some(format!("iifname \"{prefix}*\" ")),
    };
    let who = pods.into_iter().chain(["fib saddr type local ".to_owned()]);
    let short = who.map(|who| format!("{who}dnat {ip} to {key} map @{of}short-circuit"));
    short.chain([format!("dnat {ip} to {key} map @{of}listeners")]).collect()
}
