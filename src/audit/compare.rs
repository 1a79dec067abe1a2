//! Where two readings differ.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashMap;

use serde::Serialize;

use super::ports::{Drawn, Frontend, Port};
use super::readers::Layout;
use super::write::{frontend_text, policy};
use crate::objects::Family;
use crate::plan::{Claim, FrontendAddress, PoolKind, PortId, PortName, Verdict};

/// One difference between a ruleset and what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// The Service port, `namespace/name:port`.
    pub service: String,
    /// `ip` or `ip6`.
    pub family: &'static str,
    /// `+` is missing in the ruleset, `-` is too much there, `~` is there otherwise.
    pub sign: char,
    /// What.
    pub what: String,
}

/// Compares a reading with what is wanted, Service port by Service port. A port whose layout does not tell names is that
/// of the other side that has one of its frontends.
pub fn compare(found: &BTreeMap<PortId, Port>, wanted: &BTreeMap<PortId, Port>) -> Vec<Difference> {
    let found = named_alike(found, wanted);
    let wanted = named_alike(wanted, &found);
    let mut differences = Vec::new();
    for (id, there) in found.iter() {
        match wanted.get(id) {
            Some(port) => of_port(there, port, &mut differences),
            None => {
                let frontends = there.frontends.iter();
                differences.extend(frontends.map(|frontend| difference(there, '-', frontend_text(there, frontend))));
            }
        }
    }
    for port in wanted.values().filter(|port| !found.contains_key(&port.id)) {
        let frontends = port.frontends.iter();
        differences.extend(frontends.map(|frontend| difference(port, '+', frontend_text(port, frontend))));
    }
    differences.sort();
    differences
}

/// What is wanted, in these layouts: iptables and IPVS have no rule by which connections pass that find no endpoint, and
/// so nothing at all of a frontend that nobody gets one at.
pub fn in_layouts(
    layouts: &[Layout],
    found: &BTreeMap<PortId, Port>,
    mut wanted: BTreeMap<PortId, Port>,
) -> BTreeMap<PortId, Port> {
    if !matches!(layouts, [Layout::KubeProxyIptables | Layout::KubeProxyIpvs]) {
        return wanted;
    }
    let is_there = |id: &PortId, address: FrontendAddress| {
        found.get(id).is_some_and(|port| port.frontends.iter().any(|one| one.address == address))
    };
    let passes = |one: &Frontend| one.no_endpoints == Some(Verdict::Pass);
    for (id, port) in wanted.iter_mut().filter(|(_, port)| port.frontends.iter().any(passes)) {
        port.frontends.retain(|one| !passes(one) || is_there(id, one.address));
        *port = port.clone().normal();
    }
    wanted.retain(|_, port| !port.frontends.is_empty());
    wanted
}

/// A name that a layout without names gives: that of the frontend.
pub const NAMELESS: &str = "?/";

fn named_alike<'a>(
    ports: &'a BTreeMap<PortId, Port>,
    names: &BTreeMap<PortId, Port>,
) -> Cow<'a, BTreeMap<PortId, Port>> {
    let is_nameless = |id: &PortId| id.name.as_str().starts_with(NAMELESS);
    if !ports.keys().any(is_nameless) {
        return Cow::Borrowed(ports);
    }
    let owners: HashMap<Claim, &PortId> = names
        .values()
        .flat_map(|port| port.frontends.iter().map(|frontend| (port.claim(frontend), &port.id)))
        .collect();
    let mut named: BTreeMap<PortId, Port> = BTreeMap::new();
    for port in ports.values() {
        let owner = || port.frontends.iter().find_map(|frontend| owners.get(&port.claim(frontend)));
        let id = if is_nameless(&port.id) { owner().map_or(&port.id, |id| id).clone() } else { port.id.clone() };
        match named.get_mut(&id) {
            Some(there) => {
                there.frontends.extend(port.frontends.iter().cloned());
                for (pool, more) in [(&mut there.cluster, &port.cluster), (&mut there.local, &port.local)] {
                    let new = more.iter().filter(|new| !pool.iter().any(|old| old.socket() == new.socket()));
                    let new: Vec<Drawn> = new.copied().collect();
                    pool.extend(new);
                }
            }
            None => drop(named.insert(id.clone(), Port { id, ..port.clone() })),
        }
    }
    Cow::Owned(named.into_iter().map(|(id, port)| (id, port.normal())).collect())
}

fn difference(port: &Port, sign: char, what: String) -> Difference {
    let family = if port.id.family == Family::V4 { "ip" } else { "ip6" };
    Difference { service: PortName::as_str(&port.id.name).to_owned(), family, sign, what }
}

fn of_port(there: &Port, wanted: &Port, differences: &mut Vec<Difference>) {
    if there.means_the_same(wanted) {
        return;
    }
    let mut say = |sign, what| differences.push(difference(wanted, sign, what));
    for frontend in &there.frontends {
        match wanted.frontends.iter().find(|other| other.address == frontend.address) {
            Some(other) if other == frontend => {}
            Some(other) => say('~', changed(there, frontend, other)),
            None => say('-', frontend_text(there, frontend)),
        }
    }
    for frontend in &wanted.frontends {
        if !there.frontends.iter().any(|other| other.address == frontend.address) {
            say('+', frontend_text(wanted, frontend));
        }
    }
    for pool in [PoolKind::Cluster, PoolKind::Local] {
        let name = if pool == PoolKind::Local { "endpoint of this node" } else { "endpoint" };
        let has = |port: &Port, one: &Drawn| port.pool(pool).iter().any(|other| other.socket() == one.socket());
        for one in there.pool(pool).iter().filter(|one| !has(wanted, one)) {
            say('-', format!("{name} {}", one.socket()));
        }
        for one in wanted.pool(pool).iter().filter(|one| !has(there, one)) {
            say('+', format!("{name} {}", one.socket()));
        }
    }
    if there.affinity != wanted.affinity {
        let text = |affinity: Option<u32>| affinity.map_or("none".to_owned(), |seconds| format!("{seconds} s"));
        say('~', format!("session affinity: {}, wanted {}", text(there.affinity), text(wanted.affinity)));
    }
}

/// What a frontend does otherwise.
fn changed(port: &Port, there: &Frontend, wanted: &Frontend) -> String {
    let mut what = Vec::new();
    if policy(there) != policy(wanted) {
        what.push(format!("policy {}, wanted {}", policy(there), policy(wanted)));
    }
    if there.masquerade != wanted.masquerade {
        what.push(format!("masquerade {}, wanted {}", there.masquerade, wanted.masquerade));
    }
    if there.no_endpoints != wanted.no_endpoints {
        let text = |frontend: &Frontend| {
            frontend.no_endpoints.map_or("endpoints".to_owned(), |verdict| format!("{verdict:?}").to_lowercase())
        };
        what.push(format!("{}, wanted {}", text(there), text(wanted)));
    }
    if there.sources != wanted.sources {
        let text = |frontend: &Frontend| match &frontend.sources {
            None => "all".to_owned(),
            Some(sources) => sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        };
        what.push(format!("sources {}, wanted {}", text(there), text(wanted)));
    }
    format!("{}: {}", port.claim(there), what.join("; "))
}
