//! The rules of this network namespace. nf_tables is asked itself; rules of iptables and virtual servers, where the kernel says
//! that there are some, are listed by the programs that they belong to.

use std::path::Path;

use super::findings::{Finding, Kind};
use super::readers::{self, Reading};
use crate::iptables::variant::{Variant, has_legacy_tables};
use crate::netlink::model::NfFamily;
use crate::objects::Family;
use crate::tool::output_of;
use crate::trace::Ruleset;

/// Where the kernel lists virtual servers; not there without IPVS.
const SERVERS: &str = "/proc/thread-self/net/ip_vs";
/// Not there where nothing has used sets since the machine began: asking for them would bring the module in.
const SETS_MODULE: &str = "/sys/module/ip_set";
/// The tables that kube-proxy's iptables mode has rules in.
const TABLES: [&str; 2] = ["nat", "filter"];

/// Reads all that concerns Services, where `ruleset` is what nf_tables holds. What cannot be listed is a finding.
pub fn read(ruleset: Ruleset) -> Reading {
    let has_nft_tables =
        |family: NfFamily| readers::tables_of_iptables(&ruleset).any(|(table, _)| table.table.family == family);
    let over_nft: Vec<Family> = [(Family::V4, NfFamily::IPV4), (Family::V6, NfFamily::IPV6)]
        .into_iter()
        .filter_map(|(family, number)| has_nft_tables(number).then_some(family))
        .collect();
    let legacy: Vec<Family> = Family::BOTH.into_iter().filter(|family| has_legacy_tables(*family, &TABLES)).collect();
    let mut reading = readers::of_ruleset(ruleset);
    let mut found = Vec::new();
    for (variant, families) in [(Variant::Nft, over_nft), (Variant::Legacy, legacy)] {
        let text: String = families.into_iter().map(|family| rules(variant, family, &mut reading)).collect();
        // the kernel's own tables may be somebody else's
        if text.contains("\n:KUBE-SERVICES ") {
            add(&text, &mut reading);
            found.push(variant);
        }
    }
    if found.len() > 1 {
        let what =
            "there are rules of kube-proxy in iptables-legacy and in iptables-nft; only one of them can be in charge";
        reading.findings.push(Finding { kind: Kind::Leftover, service: None, what: what.into() });
    }
    if has_virtual_servers() {
        let text = virtual_servers(&mut reading);
        // without any of the sets, the servers are somebody else's
        if text.lines().any(|line| line.starts_with("create KUBE-")) {
            add(&text, &mut reading);
        }
    }
    reading
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
        Ok(Some(text)) => format!("# {program}\n{text}\n"),
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
