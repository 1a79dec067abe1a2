//! The ruleset as an `nft` script.
//!
//! The script replaces the tables as a whole, in one transaction. Loaded by `nft -f`, it makes the same tables,
//! element for element and expression for expression, as svcmap makes through netlink.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::chains::{self, Chains};
use super::element::Element;
use super::names::{Chain, Map, TABLE};
use super::rule::ip_word;
use super::state::State;
use super::transaction::TABLE_COMMENT;
use super::{lower, maps, ranges};
use crate::objects::Family;

/// Writes the script that makes what the state says.
///
/// # Errors
/// Those of the writer.
pub fn write(state: &State, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "#!/usr/sbin/nft -f")?;
    for family in Family::BOTH {
        if state.tables(family).exists {
            let ip = ip_word(family);
            writeln!(out, "add table {ip} {TABLE}\ndelete table {ip} {TABLE}")?;
            write_table(state, family, out)?;
        }
    }
    Ok(())
}

/// Writes one family's table as `nft list` does.
fn write_table(state: &State, family: Family, out: &mut impl Write) -> io::Result<()> {
    let tables = state.tables(family);
    let mut elements = elements(state, family);
    writeln!(out, "table {} {TABLE} {{\n\tcomment \"{TABLE_COMMENT}\"", ip_word(family))?;
    let affinity: BTreeSet<Map> = tables.affinity.values().flat_map(|affinity| affinity.maps.iter().copied()).collect();
    for map in Map::CONSTANT.into_iter().chain(affinity) {
        writeln!(out, "\n\t{} {map} {{", maps::keyword(map))?;
        let size = match map {
            Map::Affinity(_) => state.node.affinity_clients,
            _ => tables.fill.get(map).map(|fill| fill.size).filter(|_| maps::is_sized(map)),
        };
        for line in maps::to_text(map, family, size) {
            writeln!(out, "\t\t{line}")?;
        }
        let mut lines: Vec<String> = Vec::new();
        if ranges::RANGE_SETS.contains(&map) {
            lines.extend(ranges::prefixes(map, family, &state.node).iter().map(range_text));
        }
        let mut own = elements.remove(&map).unwrap_or_default();
        own.sort_unstable_by_key(|element| element.key);
        lines.extend(own.iter().map(Element::to_string));
        write_elements(&lines, out)?;
        writeln!(out, "\t}}")?;
    }
    let writer = Chains { family, node: &state.node };
    let on_demand = tables.chains.keys().copied().filter(|chain| !chain.is_constant());
    for chain in Chain::constant().chain(on_demand) {
        writeln!(out, "\n\tchain {chain} {{")?;
        if let Chain::Base(base) = chain {
            writeln!(out, "\t\t{}", chains::hook_text(base))?;
        }
        for rule in writer.rules(chain, tables.affinity_rules(chain)) {
            writeln!(out, "\t\t{}", rule.text)?;
        }
        writeln!(out, "\t}}")?;
    }
    writeln!(out, "}}")
}

/// All elements of a family that follow from Service ports.
fn elements(state: &State, family: Family) -> BTreeMap<Map, Vec<Element>> {
    let mut all: BTreeMap<Map, Vec<Element>> = BTreeMap::new();
    for port in state.ports().filter(|port| port.id.family == family) {
        for element in lower::own_elements(port, state.numbers_of(port)) {
            all.entry(element.map).or_default().push(element);
        }
    }
    for &shared in state.tables(family).shared.keys() {
        let element = Element::from(shared);
        all.entry(element.map).or_default().push(element);
    }
    all
}

fn write_elements(lines: &[String], out: &mut impl Write) -> io::Result<()> {
    let Some((last, others)) = lines.split_last() else { return Ok(()) };
    let mut lead = "\t\telements = { ";
    for line in others {
        writeln!(out, "{lead}{line},")?;
        lead = "\t\t\t     ";
    }
    writeln!(out, "{lead}{last} }}")
}

/// A prefix as nft lists it: a single address without its length.
fn range_text(prefix: &ipnet::IpNet) -> String {
    if prefix.prefix_len() == prefix.max_prefix_len() { prefix.addr().to_string() } else { prefix.to_string() }
}
