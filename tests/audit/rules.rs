//! Every rule counts: whichever rule of a ruleset is taken out or changed, an audit says so, or packets fare as before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use svcmap::audit::findings::findings;
use svcmap::audit::readers::svcmap::check_ranges;
use svcmap::audit::{Port, compare, readers};
use svcmap::explain::{Client, Surroundings};
use svcmap::listing;
use svcmap::netlink::model::{ChainRef, Data, Expr, Op, Rule, SetRef, Verdict, set_flags};
use svcmap::objects::{Family, FamilyOf, Protocol};
use svcmap::plan::{FrontendAddress, NodePlan, PortId};
use svcmap::trace::{Outcome, Ruleset, Tracer};

use crate::peers::{NFTABLES, SHARED_MAP};
use crate::{RULESETS, manifests, of_manifests, of_samples, sample, script, wanted};

/// What is done to a ruleset.
#[derive(Debug)]
enum Damage {
    Without,
    Before(Verdict),
    /// A number drawn of one less.
    OneLess,
}

const DAMAGES: [Damage; 5] = [
    Damage::Without,
    Damage::Before(Verdict::Return),
    Damage::Before(Verdict::Drop),
    Damage::Before(Verdict::Accept),
    Damage::OneLess,
];

/// The rules of a chain after the damage to one of them; none where it is no damage to this rule.
fn damaged(rules: &[Rule], at: usize, damage: &Damage) -> Option<Vec<Rule>> {
    let mut rules = rules.to_vec();
    match damage {
        Damage::Without => drop(rules.remove(at)),
        Damage::Before(verdict) => {
            let exprs = vec![Expr::Immediate { dreg: 0, data: Data::Verdict(verdict.clone()) }];
            rules.insert(at, Rule { exprs, ..rules[at].clone() });
        }
        Damage::OneLess => {
            let drawn = rules[at].exprs.iter_mut().find_map(|expr| match expr {
                Expr::Numgen { modulus, .. } => Some(modulus),
                _ => None,
            });
            *drawn.filter(|modulus| **modulus > 1)? -= 1;
        }
    }
    Some(rules)
}

/// Every damage, with what it is called.
fn all_damages(ruleset: &Ruleset) -> Vec<(String, Vec<Op>)> {
    let mut all = Vec::new();
    for table in ruleset.tables() {
        let (family, name) = (table.table.family, &table.table.name);
        for chain in table.chains.values() {
            let place = ChainRef { family, table: name.clone(), name: chain.chain.name.clone() };
            for at in 0..chain.rules.len() {
                for damage in &DAMAGES {
                    let Some(rules) = damaged(&chain.rules, at, damage) else { continue };
                    let what = format!("{} {} rule {}: {damage:?}", family.name(), place.name, at + 1);
                    let flush = Op::FlushChain(place.clone());
                    all.push((what, std::iter::once(flush).chain(rules.into_iter().map(Op::AddRule)).collect()));
                }
            }
        }
        for (set, there) in table.sets.iter().filter(|(_, there)| !there.elements.is_empty()) {
            if there.set.flags & (set_flags::EVAL | set_flags::ANONYMOUS) != 0 {
                continue; // clients that are remembered: nobody knows whether there were any
            }
            let place = SetRef { family, table: name.clone(), name: set.clone() };
            all.push((format!("{} set {set}: emptied", family.name()), vec![Op::FlushSet(place)]));
        }
    }
    all
}

/// A ruleset that is damaged, and what is known of it.
struct Ground {
    name: String,
    ruleset: Ruleset,
    wanted: BTreeMap<PortId, Port>,
    around: Surroundings,
    /// Endpoints of this node, which may reach themselves.
    own: BTreeSet<IpAddr>,
    /// What is planned for the node, where svcmap makes the rules.
    node: Option<NodePlan>,
}

impl Ground {
    fn new(name: &str, text: &str, wanted: BTreeMap<PortId, Port>, pods: &[&str], own: &[&str]) -> Ground {
        let mut around = Surroundings::with_addresses(&["192.168.0.2", "2001:db8::1"].map(|ip| ip.parse().unwrap()));
        around.pods = pods.iter().map(|net| net.parse().unwrap()).collect();
        let listing = listing::read(text).unwrap();
        assert!(listing.notes.is_empty(), "{name}: {:?}", listing.notes);
        let own = own.iter().map(|ip| ip.parse().unwrap()).collect();
        Ground { name: name.into(), ruleset: listing.ruleset, wanted, around, own, node: None }
    }

    /// Who connects: one of each kind, every endpoint, and two that source ranges tell apart.
    fn sources(&self, family: Family) -> BTreeSet<IpAddr> {
        let kinds = [Client::Pod, Client::Node, Client::Outside];
        let mut sources: BTreeSet<IpAddr> =
            kinds.into_iter().filter_map(|kind| self.around.example(kind, family)).collect();
        sources.extend(["198.51.100.77", "203.0.113.77"].map(|ip| ip.parse::<IpAddr>().unwrap()));
        sources.extend(&self.own);
        sources.retain(|ip| ip.family() == family);
        sources
    }

    /// Where to: every frontend, and what is none on the addresses of Services.
    fn destinations(&self, family: Family) -> BTreeSet<(u8, SocketAddr)> {
        let mut to = BTreeSet::new();
        for port in self.wanted.values().filter(|port| port.id.family == family) {
            for frontend in &port.frontends {
                let ip = frontend.address.ip().or(self.around.example(Client::Node, family)).unwrap();
                to.insert((port.protocol.number(), SocketAddr::new(ip, frontend.address.port())));
                if matches!(frontend.address, FrontendAddress::Cluster(..)) {
                    to.insert((Protocol::Tcp.number(), SocketAddr::new(ip, 9999)));
                }
            }
        }
        to
    }

    /// What becomes of every connection, and of a second one.
    fn fares(&self, ruleset: &Ruleset) -> Vec<String> {
        let tracer = Tracer::new(ruleset, &self.around.node);
        let mut fares = Vec::new();
        for family in Family::BOTH {
            let destinations = self.destinations(family);
            for from in self.sources(family) {
                for (protocol, to) in &destinations {
                    let packet = self.around.packet(from, *to, Protocol::from_number(*protocol).unwrap(), None);
                    for possibility in tracer.possibilities(&packet) {
                        let Ok(trace) = possibility.trace else {
                            fares.push(format!("{from} {to}: {:?}", possibility.trace));
                            continue;
                        };
                        fares.push(format!("{from} {to}: {}", trace.summary()));
                        for way in trace.ways.iter().filter(|way| matches!(way.outcome, Outcome::Delivered { .. })) {
                            let again = tracer.possibilities_after(&packet, &way.learned);
                            let again = again[0].trace.as_ref().map(|trace| trace.summary());
                            fares.push(format!("{from} {to}: {}, then {again:?}", way.outcome));
                        }
                    }
                }
            }
        }
        fares
    }

    /// What an audit says without the input, and what it says with it.
    fn audit(&self, ruleset: Ruleset) -> (String, String) {
        let reading = readers::of_ruleset(ruleset);
        let found = findings(&reading, &self.around).iter().map(|one| format!("{one}\n")).collect();
        let mut differences: String =
            compare(&reading.ports, &self.wanted).iter().map(|one| format!("{one:?}\n")).collect();
        if let (Some(node), Some(ruleset)) = (&self.node, &reading.ruleset) {
            differences.extend(check_ranges(ruleset, node).iter().map(|one| format!("{one}\n")));
        }
        (found, differences)
    }

    /// What cannot be called wrong. kube-proxy 1.29 drops connections of the node to addresses whose policy is Local, before it
    /// looks for an endpoint elsewhere; without that rule, it leads them there. And one family alone may have no addresses
    /// that node ports are served on, which only svcmap's own configuration can deny.
    fn is_no_matter(&self, what: &str) -> bool {
        (self.name.as_str(), what) == ("kube-proxy-1.29.nft", "ip filter-output rule 1: Without")
            || (self.node.is_none() && what.ends_with("set nodeport-ips: emptied"))
    }

    /// Does everything to it; what is overlooked.
    fn check(&self) -> String {
        let before = self.fares(&self.ruleset);
        let (found, differences) = self.audit(self.ruleset.clone());
        assert_eq!(found + &differences, "", "{}", self.name);
        let (mut wrong, mut counts) = (String::new(), [0; 3]);
        for (what, ops) in all_damages(&self.ruleset) {
            let mut ruleset = self.ruleset.clone();
            ruleset.apply(&ops).unwrap();
            let (found, differences) = self.audit(ruleset.clone());
            let which = if !found.is_empty() {
                0
            } else if !differences.is_empty() {
                1
            } else {
                2
            };
            counts[which] += 1;
            if std::env::var_os("SHOW").is_some() {
                println!("{}: {what}\n{found}{differences}", self.name);
            }
            if which == 2 && !self.is_no_matter(&what) {
                let after = self.fares(&ruleset);
                if after == before {
                    continue;
                }
                let first = before.iter().zip(&after).find(|(before, after)| before != after);
                wrong += &format!("{}: {what}: {first:?}\n", self.name);
            }
        }
        println!("{}: {counts:?} found without the input, with it, no matter", self.name);
        wrong
    }
}

#[test]
fn no_rule_of_kube_proxy_can_be_missing_unnoticed() {
    let own = ["10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"];
    let names = NFTABLES.into_iter().chain([SHARED_MAP[0]]);
    let wrong: String =
        names.map(|name| Ground::new(name, &sample(name), of_samples(), &["10.244.0.0/16"], &own).check()).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// The real one's rules of 1.36, in both families.
#[test]
fn no_rule_of_a_real_kube_proxy_can_be_missing_unnoticed() {
    let wanted = readers::read(&sample("kube-proxy-real.nft")).unwrap().ports;
    let own = ["10.244.1.2", "10.244.1.5", "10.244.1.11", "10.244.1.13"];
    let pods = ["10.244.0.0/16", "fd00:10:244::/48"];
    let wrong = Ground::new("kube-proxy-real.nft", &sample("kube-proxy-real.nft"), wanted, &pods, &own).check();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn no_rule_of_svcmap_can_be_missing_unnoticed() {
    let wrong: String = manifests()
        .iter()
        .chain([&Path::new(RULESETS).join("services.yaml")])
        .map(|path| {
            let world = of_manifests(path);
            let endpoints = world.state.ports().flat_map(|port| port.cluster.iter().chain(&port.local));
            let own: BTreeSet<String> = endpoints.filter(|one| one.local).map(|one| one.ip.to_string()).collect();
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            let name = path.display().to_string();
            let pods = ["10.128.0.0/14", "fd10::/48"];
            let mut ground = Ground::new(&name, &script(&world), wanted(&world), &pods, &own);
            ground.node = Some(world.state.node().clone());
            ground.check()
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}
