//! What is wrong with a ruleset, beside where it differs from what is wanted.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::diverted::{TRACED, diverted};
use super::follow::follow;
use super::ports::{Drawn, Port};
use super::readers::{Layout, Reading};
use super::xtables;
use crate::explain::Surroundings;
use crate::netlink::model::set_flags;
use crate::nftables::names::TABLE;
use crate::plan::{FrontendAddress, PoolKind};
use crate::trace::Ruleset;

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An endpoint that is drawn and is not there.
    Dead,
    /// Something that nothing leads to any more.
    Stale,
    /// Something that is referred to, or follows from a Service port, and is not there.
    Missing,
    /// Rules or chains that are not as their maker left them.
    Damaged,
    /// Something in a proxy's table that is none of its own.
    Foreign,
    /// Connections of which the rules make something else than their elements say.
    Astray,
    /// Endpoints that are drawn more often than others.
    Uneven,
    /// A node port that another frontend takes connections from.
    Shadowed,
    /// A rule of another table that drops or diverts connections to a Service.
    Diverted,
    /// Rules of another proxy.
    Leftover,
    /// A set that holds nearly as much as it may.
    NearlyFull,
    /// Something that was not understood.
    NotUnderstood,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Of which kind.
    pub kind: Kind,
    /// The Service port that it belongs to, where it belongs to one.
    pub service: Option<String>,
    /// What.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Dead => "dead endpoint",
            Kind::Stale => "stale",
            Kind::Missing => "missing",
            Kind::Damaged => "damaged",
            Kind::Foreign => "foreign",
            Kind::Astray => "astray",
            Kind::Uneven => "uneven",
            Kind::Shadowed => "shadowed",
            Kind::Diverted => "diverted",
            Kind::Leftover => "leftover",
            Kind::NearlyFull => "nearly full",
            Kind::NotUnderstood => "not understood",
        };
        write!(f, "{kind}: ")?;
        if let Some(service) = &self.service {
            write!(f, "{service}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// The largest share by the smallest, above which endpoints are not drawn alike.
const EVEN: f64 = 1.1;

/// Everything that is wrong with a reading, on a node of which this is known.
pub fn findings(reading: &Reading, surroundings: &Surroundings) -> Vec<Finding> {
    let mut findings = reading.findings.clone();
    for port in reading.ports.values() {
        uneven(port, &mut findings);
    }
    shadowed(reading, surroundings, &mut findings);
    if let Some(ruleset) = &reading.ruleset {
        nearly_full(ruleset, &mut findings);
        findings.extend(follow(reading, ruleset, surroundings));
        if can_be_followed(reading) {
            findings.extend(diverted(reading, ruleset, surroundings));
        }
    }
    findings.extend(xtables::check(reading, surroundings));
    findings.sort();
    findings.dedup();
    findings
}

fn find(findings: &mut Vec<Finding>, kind: Kind, port: Option<&Port>, what: String) {
    findings.push(Finding { kind, service: port.map(|port| port.id.name.as_str().to_owned()), what });
}

fn uneven(port: &Port, findings: &mut Vec<Finding>) {
    for kind in [PoolKind::Cluster, PoolKind::Local] {
        let pool = port.pool(kind);
        let by_share = |a: &&Drawn, b: &&Drawn| a.share.total_cmp(&b.share);
        let (Some(least), Some(most)) = (pool.iter().min_by(by_share), pool.iter().max_by(by_share)) else { continue };
        if most.share > least.share * EVEN {
            let percent = |one: &Drawn| format!("{} {:.1} %", one.socket(), one.share * 100.0);
            find(findings, Kind::Uneven, Some(port), format!("{}, but {}", percent(most), percent(least)));
        }
    }
}

/// Node ports on addresses of the node on which another frontend has the same port.
fn shadowed(reading: &Reading, surroundings: &Surroundings, findings: &mut Vec<Finding>) {
    let own = |ip: IpAddr| surroundings.node.is_local(ip);
    let mut taken: BTreeMap<_, (&Port, IpAddr)> = BTreeMap::new();
    for port in reading.ports.values() {
        for frontend in &port.frontends {
            if let FrontendAddress::External(ip, number) = frontend.address
                && own(ip)
            {
                taken.insert((port.id.family, port.protocol, number), (port, ip));
            }
        }
    }
    for port in reading.ports.values() {
        for frontend in &port.frontends {
            let FrontendAddress::NodePort(number) = frontend.address else { continue };
            let Some((other, ip)) = taken.get(&(port.id.family, port.protocol, number)) else { continue };
            let name = &other.id.name;
            let to = SocketAddr::new(*ip, number);
            find(findings, Kind::Shadowed, Some(port), format!("node port {number}: at {to} there is {name}"));
        }
    }
}

/// Sets that say how much they hold. svcmap's own maps are made again before they are full.
fn nearly_full(ruleset: &Ruleset, findings: &mut Vec<Finding>) {
    for table in ruleset.tables() {
        for (name, set) in &table.sets {
            let Some(most) = set.set.size.filter(|_| set.set.flags & set_flags::ANONYMOUS == 0) else { continue };
            if table.table.name == TABLE && set.set.flags & set_flags::EVAL == 0 {
                continue;
            }
            let held = set.elements.len();
            if held * 10 >= most as usize * 9 {
                let (family, table) = (table.table.family.name(), &table.table.name);
                let what = format!("{family} {table}: set {name} holds {held} of at most {most} elements");
                find(findings, Kind::NearlyFull, None, what);
            }
        }
    }
}

/// Whether packets can be followed through the proxy's rules among those of nftables: those of iptables and IPVS are followed
/// by themselves.
fn can_be_followed(reading: &Reading) -> bool {
    reading.layouts.iter().all(|layout| matches!(layout, Layout::Svcmap | Layout::KubeProxyNftables))
}

/// What [`findings`] does not look for in a reading.
pub fn limits(reading: &Reading) -> Vec<String> {
    let mut limits = Vec::new();
    if !can_be_followed(reading) {
        limits.extend(xtables::limits(reading));
    } else if reading.ports.len() > TRACED {
        let ports = reading.ports.len();
        limits.push(format!(
            "rules of others that drop or divert connections, but on the way to {TRACED} of {ports} Service ports and to those \
             whose addresses they name"
        ));
    }
    limits
}
