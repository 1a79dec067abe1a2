//! A reader for each layout: svcmap's own, the nftables and iptables modes of kube-proxy, its mode ipvs.

pub mod iptables_save;
pub mod ipvs;
pub(super) mod ipvs_sets;
pub mod kube_proxy_nftables;
pub(super) mod rule;
mod shared_map;
pub mod svcmap;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::findings::{Finding, Kind};
use super::ports::Port;
use super::xtables::World;
use crate::amounts::counted;
use crate::listing;
use crate::netlink::model::Name;
use crate::objects::ServiceKey;
use crate::plan::{PortId, PortName};
use crate::trace::{Ruleset, TableRules};
use crate::userspace::table::Set;

/// Who lays rules out so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// The tables `svcmap`.
    Svcmap,
    /// kube-proxy's nftables mode.
    KubeProxyNftables,
    /// kube-proxy's iptables mode, and what `svcmap render --mode iptables` prints.
    KubeProxyIptables,
    /// kube-proxy's mode ipvs.
    KubeProxyIpvs,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Svcmap => "svcmap",
            Layout::KubeProxyNftables => "kube-proxy (nftables)",
            Layout::KubeProxyIptables => "kube-proxy (iptables)",
            Layout::KubeProxyIpvs => "kube-proxy (ipvs)",
        })
    }
}

/// What was read.
#[derive(Debug, Default)]
pub struct Reading {
    /// The layouts that were found, in order.
    pub layouts: Vec<Layout>,
    /// All Service ports.
    pub ports: BTreeMap<PortId, Port>,
    /// The tables, where the reading was one of nftables.
    pub ruleset: Option<Ruleset>,
    /// Tables of iptables, and what belongs to them.
    pub xtables: World,
    /// What only the reader can tell to be wrong.
    pub findings: Vec<Finding>,
}

impl Reading {
    /// Adds all of another reading, as [`Reading::add`] does. The tables stay those of this one.
    pub fn merge(&mut self, other: Reading) {
        for layout in &other.layouts {
            self.add(*layout, []);
        }
        self.findings.extend(other.findings);
        self.xtables.merge(other.xtables);
        for (id, port) in other.ports {
            self.ports.entry(id).or_insert(port);
        }
    }

    /// Adds what a layout's reader found. Where two layouts have a Service port, the first one's stays.
    pub fn add(&mut self, layout: Layout, ports: impl IntoIterator<Item = Port>) {
        if let Some(first) = self.layouts.first().filter(|first| **first != layout) {
            let what = format!("there are rules of {first} and of {layout}; only one of them can be in charge");
            self.findings.push(Finding { kind: Kind::Leftover, service: None, what });
        }
        if !self.layouts.contains(&layout) {
            self.layouts.push(layout);
        }
        for port in ports {
            let port = port.normal();
            self.ports.entry(port.id.clone()).or_insert(port);
        }
    }
}

/// Reads what `nft list ruleset`, `nft -j list ruleset`, `iptables-save`, `ip6tables-save`, `ipvsadm -Sn` or `ipset save`
/// printed; several of the last four may follow each other.
///
/// # Errors
/// The text is none of these.
pub fn read(text: &str) -> Result<Reading, String> {
    if is_nft(text) { read_nft(text.into()) } else { read_others(text) }
}

/// As [`read`], of a text that may be long: it is let go of as soon as its tables are read.
///
/// # Errors
/// As before.
pub fn read_whole(text: String) -> Result<Reading, String> {
    if is_nft(&text) { read_nft(text.into()) } else { read_others(&text) }
}

fn is_nft(text: &str) -> bool {
    text.trim_start().starts_with('{') || text.lines().any(|line| line.trim_start().starts_with("table "))
}

fn read_nft(text: Cow<str>) -> Result<Reading, String> {
    let listing = listing::read(&text).map_err(|error| error.to_string())?;
    drop(text);
    let notes =
        listing.notes.iter().map(|note| Finding { kind: Kind::NotUnderstood, service: None, what: note.to_string() });
    let mut reading = of_ruleset(listing.ruleset);
    leftovers_of_iptables(&mut reading);
    reading.findings.extend(notes);
    Ok(reading)
}

fn read_others(text: &str) -> Result<Reading, String> {
    let lines = || text.lines().map(str::trim_start);
    let is_iptables = lines().any(|line| line.starts_with('*'));
    let is_ipvs = lines().any(ipvs::is_line);
    let mut reading = Reading::default();
    if is_iptables {
        iptables_save::read(text, &mut reading);
    }
    if is_ipvs {
        ipvs::read(text, &mut reading);
    }
    if !is_iptables && !is_ipvs && !text.trim().is_empty() {
        return Err("this is nothing that nft list ruleset, iptables-save, ipvsadm -Sn or ipset save prints".into());
    }
    Ok(reading)
}

/// Reads the tables of nftables.
pub fn of_ruleset(ruleset: Ruleset) -> Reading {
    let mut reading = Reading::default();
    svcmap::read(&ruleset, &mut reading);
    kube_proxy_nftables::read(&ruleset, &mut reading);
    userspace(&ruleset, &mut reading);
    reading.ruleset = Some(ruleset);
    reading
}

/// The tables of iptables-nft that have chains of kube-proxy's iptables mode or of its mode ipvs, and how many.
pub fn tables_of_iptables(ruleset: &Ruleset) -> impl Iterator<Item = (&TableRules, usize)> {
    let is_of_kube_proxy = |name: &&Name| name.starts_with("KUBE-SVC-") || *name == "KUBE-SERVICES";
    let count = move |table: &TableRules| table.chains.keys().filter(is_of_kube_proxy).count();
    ruleset.tables().map(move |table| (table, count(table))).filter(|(_, count)| *count > 0)
}

/// Of these tables, nft lists too little.
fn leftovers_of_iptables(reading: &mut Reading) {
    for (table, count) in reading.ruleset.iter().flat_map(tables_of_iptables) {
        let (family, name) = (table.table.family.name(), &table.table.name);
        let what = format!(
            "table {family} {name} has {} of kube-proxy's iptables mode; iptables-save lists what is in it for an audit",
            counted(count, "chain")
        );
        reading.findings.push(Finding { kind: Kind::Leftover, service: None, what });
    }
}

/// The tables of the mode userspace say which addresses lead to its process; the endpoints behind them are in no table.
fn userspace(ruleset: &Ruleset, reading: &mut Reading) {
    for table in ruleset.tables().filter(|table| table.table.name == crate::userspace::table::TABLE) {
        let sets = [Set::Listeners, Set::NodePortListeners];
        let elements = sets.into_iter().filter_map(|set| table.sets.get(set.name())).map(|set| set.elements.len());
        let (family, name, count) = (table.table.family.name(), &table.table.name, elements.sum::<usize>());
        let what = format!(
            "table {family} {name} leads {} of Services to svcmap run --mode userspace; which endpoints are behind is known \
             to that process alone",
            counted(count, "frontend")
        );
        reading.findings.push(Finding { kind: Kind::NotUnderstood, service: None, what });
    }
}

/// The name of a Service port that is written as `namespace/name:port`.
pub fn port_name(text: &str) -> PortName {
    let (service, port) = text.split_once(':').unwrap_or((text, ""));
    match service.split_once('/') {
        Some((namespace, name)) => PortName::new(&ServiceKey::new(namespace, name), port),
        None => PortName::parse(text),
    }
}
