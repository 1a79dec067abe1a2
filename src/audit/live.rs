//! The rules of this network namespace. nf_tables is asked itself; rules of iptables and virtual servers, where the kernel says
//! that there are some, are listed by the programs that they belong to.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::findings::{Finding, Kind};
use super::readers::ipvs_sets::is_address;
use super::readers::{self, Layout, Reading};
use super::xtables::tables::{unlisted, unlisted_table};
use super::xtables::{Table, Tables};
use crate::amounts::counted;
use crate::iptables::variant::{Variant, has_legacy_tables};
use crate::ipvs::names::DEVICE;
use crate::netlink::model::NfFamily;
use crate::netlink::route;
use crate::objects::{Family, Protocol};
use crate::tool::output_of;
use crate::trace::{Ruleset, TableRules};

/// Where the kernel lists virtual servers; not there without IPVS.
const SERVERS: &str = "/proc/thread-self/net/ip_vs";
/// Not there where nothing has used sets since the machine began: asking for them would bring the module in.
const SETS_MODULE: &str = "/sys/module/ip_set";
/// The tables that iptables has; kube-proxy has rules in the first two.
const TABLES: [&str; 5] = ["nat", "filter", "mangle", "raw", "security"];

/// Reads all that concerns Services, where `ruleset` is what nf_tables holds. What cannot be listed is a finding.
pub fn read(ruleset: Ruleset) -> Reading {
    let is_of_iptables = |table: &TableRules| TABLES.contains(&&*table.table.name);
    let families = |is_meant: &dyn Fn(&TableRules) -> bool| -> Vec<Family> {
        let has = |number: NfFamily| ruleset.tables().any(|table| table.table.family == number && is_meant(table));
        let both = [(Family::V4, NfFamily::IPV4), (Family::V6, NfFamily::IPV6)];
        both.into_iter().filter_map(|(family, number)| has(number).then_some(family)).collect()
    };
    let is_of_kube_proxy =
        |table: &TableRules| readers::tables_of_iptables(&ruleset).any(|(known, _)| std::ptr::eq(known, table));
    let (of_proxy, over_nft) = (families(&is_of_kube_proxy), families(&is_of_iptables));
    let legacy: Vec<Family> = Family::BOTH.into_iter().filter(|family| has_legacy_tables(*family, &TABLES)).collect();
    let mut reading = readers::of_ruleset(ruleset);
    let mut list = |variant, families: Vec<Family>| -> String {
        families.into_iter().map(|family| rules(variant, family, &mut reading)).collect()
    };
    let of_legacy = list(Variant::Legacy, legacy);
    // the kernel's own tables may be somebody else's; then those of the other make are of interest for the proxy's packets alone
    let in_legacy = has_services(&of_legacy);
    let of_nft = list(Variant::Nft, if in_legacy { over_nft } else { of_proxy });
    let in_nft = has_services(&of_nft);
    if in_legacy && in_nft {
        let what =
            "there are rules of kube-proxy in iptables-legacy and in iptables-nft; only one of them can be in charge";
        reading.findings.push(Finding { kind: Kind::Leftover, service: None, what: what.into() });
    }
    let mut own = Vec::new();
    let mut others = Vec::new();
    for (text, is_own) in [(of_nft, in_nft), (of_legacy, in_legacy)] {
        if is_own { own.push(text) } else { others.push(text) }
    }
    with_servers(&mut own, &mut reading);
    own.iter().for_each(|text| add(text, &mut reading));
    others.iter().for_each(|text| add_others(text, &mut reading));
    for layer in &mut reading.xtables.layers {
        layer.has_lines = false;
    }
    without_interface(&mut reading);
    reading
}

fn has_services(text: &str) -> bool {
    text.contains("\n:KUBE-SERVICES ")
}

/// Adds the virtual servers, to the rules that belong to them.
fn with_servers(own: &mut Vec<String>, reading: &mut Reading) {
    if !has_virtual_servers() {
        return;
    }
    let text = virtual_servers(reading);
    // without any of the sets, the servers are somebody else's
    if text.lines().any(|line| line.starts_with("create KUBE-")) {
        match own.first_mut() {
            Some(rules) => *rules += &text,
            None => own.push(text),
        }
    }
}

/// Tables without rules of kube-proxy: packets pass them as well.
fn add_others(text: &str, reading: &mut Reading) {
    let (tables, _) = Tables::read(text, |_| false);
    let count =
        |table: &Table| table.chains().iter().map(|chain| chain.rules.len() + usize::from(chain.drops)).sum::<usize>();
    let count: usize = tables.all().map(|(_, _, table)| count(table)).sum();
    if count == 0 {
        return;
    }
    match reading.layouts.as_slice() {
        [Layout::KubeProxyIptables | Layout::KubeProxyIpvs] => reading.xtables.layers.push(tables),
        [] => {}
        _ => reading.findings.push(Finding { kind: Kind::NotUnderstood, service: None, what: beside(count) }),
    }
}

fn beside(count: usize) -> String {
    format!(
        "packets also pass {} of iptables-legacy, which are not followed (iptables-legacy-save and ip6tables-legacy-save list them)",
        counted(count, "rule")
    )
}

/// What is said where packets are followed through nf_tables alone and there are rules of iptables-legacy, too.
pub fn legacy_rules() -> Option<String> {
    let families = Family::BOTH.into_iter().filter(|family| has_legacy_tables(*family, &TABLES));
    let mut reading = Reading::default();
    let text: String = families.map(|family| rules(Variant::Legacy, family, &mut reading)).collect();
    if let Some(trouble) = reading.findings.into_iter().next() {
        return Some(trouble.what);
    }
    let drops = |line: &&str| line.starts_with(':') && line.contains(" DROP ");
    let count = text.lines().filter(|line| line.starts_with("-A ") || drops(line)).count();
    (count > 0).then(|| beside(count))
}

/// Addresses of Services that no interface has: in the mode ipvs the node takes no packets to them then.
fn without_interface(reading: &mut Reading) {
    if !reading.layouts.contains(&Layout::KubeProxyIpvs) {
        return;
    }
    let own: BTreeSet<IpAddr> = match route::links() {
        Ok(links) => links.into_iter().flat_map(|link| link.addresses).collect(),
        Err(error) => return not_listed(format!("addresses of interfaces cannot be read: {error}"), reading),
    };
    let ports = reading.ports.values();
    let addresses = ports.flat_map(|port| {
        port.frontends
            .iter()
            .filter_map(|one| Some((port.protocol, SocketAddr::new(one.address.ip()?, one.address.port()))))
    });
    // others may have virtual servers of their own
    let is_own = |one: &(Protocol, SocketAddr)| is_address(&reading.xtables.sets, one.0, one.1);
    let wanted: BTreeSet<IpAddr> = addresses.filter(is_own).map(|(_, to)| to.ip()).collect();
    let missing: Vec<String> = wanted.difference(&own).map(ToString::to_string).collect();
    if let Some(first) = missing.first() {
        let more = if missing.len() > 1 { format!(" and {} more", missing.len() - 1) } else { String::new() };
        let what =
            format!("{first}{more}: on no interface ({DEVICE} should have it), so that packets to it go elsewhere");
        reading.findings.push(Finding { kind: Kind::Missing, service: None, what });
    }
}

fn add(text: &str, reading: &mut Reading) {
    match readers::read(text) {
        Ok(more) => reading.merge(more),
        Err(error) => not_listed(error, reading),
    }
}

fn not_listed(what: String, reading: &mut Reading) {
    reading.findings.push(Finding { kind: Kind::NotUnderstood, service: None, what });
}

/// What `iptables-save` prints of one family, under a heading that names the family.
fn rules(variant: Variant, family: Family, reading: &mut Reading) -> String {
    let program = if family == Family::V4 { "iptables" } else { "ip6tables" };
    let listed = variant.programs(family).and_then(|programs| match programs {
        Some((save, _)) => output_of(&save, &[], ""),
        None => Ok(None),
    });
    match listed {
        Ok(Some(text)) => {
            let (without, listed): (Vec<&str>, Vec<&str>) =
                text.lines().partition(|line| unlisted_table(line).is_some());
            for table in without.into_iter().filter_map(unlisted_table) {
                not_listed(unlisted(program, table), reading);
            }
            format!("# {program}\n{}\n", listed.join("\n"))
        }
        Ok(None) => {
            not_listed(
                format!("there are rules of {program}, and {program}-save is not installed to list them"),
                reading,
            );
            String::new()
        }
        Err(trouble) => {
            not_listed(trouble, reading);
            String::new()
        }
    }
}

fn has_virtual_servers() -> bool {
    let listed = std::fs::read_to_string(SERVERS).unwrap_or_default();
    listed.lines().any(|line| ["TCP", "UDP", "SCTP"].iter().any(|protocol| line.starts_with(protocol)))
}

/// What `ipvsadm -Sn` and `ipset save` print.
fn virtual_servers(reading: &mut Reading) -> String {
    let mut listed = |program: &str, args: &[&str], what: &str| match output_of(program, args, "") {
        Ok(Some(text)) => text,
        Ok(None) => {
            not_listed(format!("there are {what}, and {program} is not installed to list them"), reading);
            String::new()
        }
        Err(trouble) => {
            not_listed(trouble, reading);
            String::new()
        }
    };
    let mut text = listed("ipvsadm", &["-S", "-n"], "virtual servers of IPVS");
    if Path::new(SETS_MODULE).exists() {
        text += "\n";
        text += &listed("ipset", &["save"], "sets of kube-proxy's mode ipvs");
    }
    text
}
