//! The jumps by which the kernel's own chains lead to a proxy's.

use super::super::findings::Kind;
use super::expected::Mode;
use super::walk::Walker;
use crate::iptables::names;
use crate::ipvs::names as ipvs;
use crate::objects::Family;

type Jump = (&'static str, &'static str, &'static str);

/// Of both modes: the table, the kernel's chain, and what it leads to.
const COMMON: [Jump; 5] = [
    ("nat", "PREROUTING", names::SERVICES),
    ("nat", "OUTPUT", names::SERVICES),
    ("nat", "POSTROUTING", names::POSTROUTING),
    ("filter", "FORWARD", names::FORWARD),
    ("filter", "INPUT", names::PROXY_FIREWALL),
];

const IPTABLES: [Jump; 9] = [
    ("filter", "FORWARD", names::PROXY_FIREWALL),
    ("filter", "OUTPUT", names::PROXY_FIREWALL),
    ("filter", "FORWARD", names::SERVICES),
    ("filter", "OUTPUT", names::SERVICES),
    ("filter", "INPUT", names::EXTERNAL_SERVICES),
    ("filter", "FORWARD", names::EXTERNAL_SERVICES),
    ("filter", "INPUT", names::NODE_PORTS),
    ("filter", "INPUT", names::FIREWALL),
    ("filter", "OUTPUT", names::FIREWALL),
];

const IPVS: [Jump; 3] = [
    ("filter", "INPUT", ipvs::INPUT_FILTER),
    ("filter", "OUTPUT", ipvs::OUTPUT_FILTER),
    ("filter", "INPUT", ipvs::NODE_PORT),
];

/// A jump that is missing, in words.
pub fn missing(family: Family, (table, from, to): (&str, &str, &str)) -> String {
    let family = if family == Family::V4 { "ip" } else { "ip6" };
    format!("{family} {table} {from} does not lead to {to}")
}

/// The jumps that are not there, of those whose chains are.
pub fn all_missing(mode: Mode, walker: &Walker) -> Vec<(Kind, String)> {
    let own: &[Jump] = if mode == Mode::Iptables { &IPTABLES } else { &IPVS };
    let mut all = Vec::new();
    for (name, from, to) in COMMON.iter().chain(own) {
        let Some((_, table)) = walker.tables(name).find(|(_, table)| table.find(to).is_some()) else { continue };
        let leads = |rule: &super::Rule| rule.target.as_deref() == Some(to) && rule.matches_all();
        if !table.rules(from).iter().any(leads) {
            all.push((Kind::Missing, missing(walker.family(), (name, from, to))));
        }
    }
    all
}
