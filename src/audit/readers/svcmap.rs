//! svcmap's own tables.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use super::super::findings::{Finding, Kind};
use super::super::ports::{self, Drawn, Port, Who};
use super::{Layout, Reading, rule};
use crate::amounts::counted;
use crate::netlink::model::Expr;
use crate::nftables::chains::{self, AffinityRules, Chains, LOCAL_SLOTS};
use crate::nftables::decode::{self, AffinityFound, Decoded};
use crate::nftables::element::Element;
use crate::nftables::lower;
use crate::nftables::names::{AffinityId, Chain, Map, TABLE};
use crate::nftables::numbers::Numbers;
use crate::nftables::ranges::{self, RANGE_SETS};
use crate::nftables::read::typed_element;
use crate::nftables::rule::nf_family;
use crate::objects::Family;
use crate::plan::{Claim, FrontendAddress, Masquerade, NodePlan, PortName, PortPlan};
use crate::trace::{Ruleset, TableRules};

/// Reads the tables, if they are there.
pub fn read(ruleset: &Ruleset, reading: &mut Reading) {
    for own in tables(ruleset) {
        own.read(reading);
    }
    // one family alone may have no addresses that node ports are served on
    let serves_nowhere = |own: Own| own.is_empty(Map::NodePortIps);
    let mut frontends = reading.ports.values().flat_map(|port| &port.frontends);
    let is_node_port = |frontend: &ports::Frontend| matches!(frontend.address, FrontendAddress::NodePort(_));
    if reading.layouts == [Layout::Svcmap] && frontends.any(is_node_port) && tables(ruleset).all(serves_nowhere) {
        let what = format!("{TABLE}: {} is empty, and there are node ports", Map::NodePortIps);
        reading.findings.push(Finding { kind: Kind::Missing, service: None, what });
    }
}

/// What of rules and of base chains is not as the node's plan has it. The tables have to come from the
/// kernel: a listing has the same rules in other expressions.
pub fn check_against(ruleset: &Ruleset, node: &NodePlan) -> Vec<Finding> {
    let mut reading = Reading::default();
    for own in tables(ruleset) {
        own.check_against(node, &mut reading);
    }
    reading.findings
}

/// Which sets of prefixes are not as the node's plan has them, and which family has no table at all. The tables may come from
/// a listing.
pub fn check_ranges(ruleset: &Ruleset, node: &NodePlan) -> Vec<Finding> {
    let mut reading = Reading::default();
    let tables: Vec<Own> = tables(ruleset).collect();
    tables.iter().for_each(|own| own.check_ranges(node, &mut reading));
    if let [own] = tables.as_slice() {
        let other = if own.family == Family::V4 { Family::V6 } else { Family::V4 };
        let what = format!("there is no table {} {TABLE}", nf_family(other).name());
        reading.findings.push(Finding { kind: Kind::Missing, service: None, what });
    }
    reading.findings
}

fn tables(ruleset: &Ruleset) -> impl Iterator<Item = Own<'_>> {
    Family::BOTH.into_iter().filter_map(|family| {
        let is_own = |table: &&TableRules| table.table.family == nf_family(family) && table.table.name == TABLE;
        Some(Own { family, table: ruleset.tables().find(is_own)? })
    })
}

struct Own<'a> {
    family: Family,
    table: &'a TableRules,
}

impl Own<'_> {
    fn read(&self, reading: &mut Reading) {
        let elements = self.elements(reading);
        let decoded = decode::decoded(self.family, &elements, &self.affinity());
        let off_cluster = self.off_cluster();
        reading.add(Layout::Svcmap, decoded.iter().map(|decoded| port(off_cluster, decoded)));
        let ports: Vec<PortPlan> = decoded.into_iter().map(|decoded| decoded.plan).collect();
        self.check_elements(elements, &ports, reading);
        self.check_chains(reading);
        self.check_sets(&ports, reading);
    }

    /// The elements that are Service ports' or could be.
    fn elements(&self, reading: &mut Reading) -> Vec<Element> {
        let mut elements = Vec::new();
        for (name, set) in &self.table.sets {
            let Ok(map) = name.parse::<Map>() else {
                self.find(reading, Kind::Foreign, format!("set {name} is none of svcmap's"));
                continue;
            };
            if RANGE_SETS.contains(&map) || matches!(map, Map::Affinity(_)) {
                continue;
            }
            for element in set.elements.iter() {
                match typed_element(map, self.family, element) {
                    Some(element) => elements.push(element),
                    None => self.find(reading, Kind::Foreign, format!("{map} has an element that is none of svcmap's")),
                }
            }
        }
        elements
    }

    fn check_against(&self, node: &NodePlan, reading: &mut Reading) {
        let elements = self.elements(&mut Reading::default());
        let ports = decode::ports(self.family, &elements, &self.affinity());
        let affinity: BTreeMap<AffinityId, AffinityRules> = ports.iter().filter_map(lower::affinity).collect();
        let writer = Chains { family: self.family, node };
        for (name, found) in &self.table.chains {
            let Ok(chain) = name.parse::<Chain>() else { continue };
            let rules = match decode::affinity_id(chain).map(|id| affinity.get(&id)) {
                // nothing leads to it
                Some(None) => continue,
                Some(rules) => rules.copied(),
                None => None,
            };
            let wanted = writer.rules(chain, rules);
            let canonical = |exprs: &[Expr]| exprs.iter().cloned().map(Expr::canonical).collect::<Vec<_>>();
            let same = wanted
                .iter()
                .zip(&found.rules)
                .take_while(|(one, other)| canonical(&one.exprs) == canonical(&other.exprs))
                .count();
            if same < wanted.len().max(found.rules.len()) {
                let (here, there) = (counted(found.rules.len(), "rule"), wanted.len());
                let what = format!(
                    "chain {name}: {here} where this configuration makes {there}; rule {} differs first",
                    same + 1
                );
                self.find(reading, Kind::Damaged, what);
            }
        }
        for base in chains::bases_of(self.family, node) {
            let name = Chain::Base(*base).name();
            if !self.table.chains.contains_key(&name) {
                self.find(reading, Kind::Missing, format!("there is no chain {name}"));
            }
        }
    }

    fn check_ranges(&self, node: &NodePlan, reading: &mut Reading) {
        for map in RANGE_SETS {
            let set = self.table.sets.get(&map.name());
            let there: Vec<_> = set.iter().flat_map(|set| set.elements.iter()).cloned().collect();
            if ranges::from_wire(self.family, &there).as_ref() != Some(&ranges::prefixes(map, self.family, node)) {
                self.find(reading, Kind::Damaged, format!("{map} holds other prefixes than the configuration has"));
            }
        }
    }

    fn find(&self, reading: &mut Reading, kind: Kind, what: String) {
        let what = format!("{} {TABLE}: {what}", nf_family(self.family).name());
        reading.findings.push(Finding { kind, service: None, what });
    }

    /// What the rules of affinity chains say.
    fn affinity(&self) -> AffinityFound {
        let mut affinity = AffinityFound::default();
        for (name, chain) in &self.table.chains {
            if let Ok(name) = name.parse() {
                chain.rules.iter().for_each(|rule| affinity.rule(name, &rule.exprs));
            }
        }
        affinity
    }

    /// Whose source address chains for ClusterIPs replace: all such chains do the same.
    fn off_cluster(&self) -> Who {
        let named = |name: &str| matches!(name.parse::<Chain>(), Ok(Chain::Cluster(..) | Chain::Sticky(..)));
        for (_, chain) in self.table.chains.iter().filter(|(name, _)| named(name)) {
            if !chain.rules.iter().any(rule::marks) {
                continue;
            }
            let asks = chain.rules.iter().take_while(|rule| !rule::marks(rule)).any(rule::asks_for_source);
            let asks = asks || chain.rules.iter().any(|one| rule::marks(one) && rule::asks_for_source(one));
            // a chain of external addresses marks everything as well
            if asks || name_is_cluster(&chain.chain.name) {
                return if asks { Who::OffCluster } else { Who::Everybody };
            }
        }
        Who::Nobody
    }

    /// Elements that follow from no Service port, and those that are missing for one.
    fn check_elements(&self, elements: Vec<Element>, ports: &[PortPlan], reading: &mut Reading) {
        let numbers = decode::numbers(&elements, 0);
        let none = Numbers::default();
        let numbers_of = |port| lower::affinity(port).and_then(|(id, _)| numbers.get(&id)).unwrap_or(&none);
        let mut expected: Vec<Element> =
            ports.iter().flat_map(|port| lower::own_elements(port, numbers_of(port))).collect();
        let mut shared = std::collections::BTreeSet::new();
        for port in ports {
            lower::for_each_shared(port, &mut |one| {
                shared.insert(one);
            });
        }
        expected.extend(shared.into_iter().map(Element::from));
        let (excess, missing) = crate::nftables::state::difference(elements, expected);
        let gaps: HashSet<(&PortName, u32)> = ports.iter().flat_map(gaps).collect();
        let is_gap = |element: &Element| match (&element.owner, element.key.slot()) {
            (Some(owner), Some(slot)) => gaps.contains(&(owner, slot)),
            _ => false,
        };
        let mut say = |kind, verb: &str, element: &Element| {
            let (family, map) = (nf_family(self.family).name(), element.map);
            let is_known = kind != Kind::Missing || !is_gap(element);
            let element_text = if is_known { element.to_string() } else { element.key.to_string() };
            let what = format!("{family} {TABLE}: {verb} {map} {{ {element_text} }}");
            let service = element.owner.as_ref().map(|owner| owner.as_str().to_owned());
            reading.findings.push(Finding { kind, service, what });
        };
        excess.iter().for_each(|element| say(Kind::Stale, "belongs to no frontend:", element));
        missing.iter().for_each(|element| say(Kind::Missing, "is missing:", element));
    }

    fn is_empty(&self, map: Map) -> bool {
        self.table.sets.get(&map.name()).is_none_or(|set| set.elements.is_empty())
    }

    /// Sets that hold nothing, although rules or elements need what is in them.
    fn check_sets(&self, ports: &[PortPlan], reading: &mut Reading) {
        let looks_up = |map: Map| {
            let rules = self.table.chains.values().flat_map(|chain| &chain.rules);
            rules.flat_map(rule::lookups).any(|(set, _)| *set == map.name())
        };
        if self.is_empty(Map::PodCidrs) && looks_up(Map::PodCidrs) {
            self.find(reading, Kind::Missing, format!("{} is empty, and rules tell pods by it", Map::PodCidrs));
        }
        let frontends = || ports.iter().flat_map(|port| port.frontends.iter().map(move |frontend| (port, frontend)));
        for (port, frontend) in frontends() {
            let name = || Some(port.id.name.as_str().to_owned());
            let (family, claim) =
                (nf_family(self.family).name(), Claim::new(self.family, port.protocol, frontend.address));
            if frontend.sources.as_ref().is_some_and(|sources| sources.is_empty()) {
                let what = format!("{family} {TABLE}: is missing: the sources of {claim} in {}", Map::Allowed);
                reading.findings.push(Finding { kind: Kind::Missing, service: name(), what });
            }
            // external addresses have chains of other names
            if let (FrontendAddress::External(ip, _), Masquerade::OffCluster) = (frontend.address, frontend.masquerade)
            {
                let what = format!("{family} {TABLE}: is missing: {} {{ {ip} }}", Map::ClusterIps);
                reading.findings.push(Finding { kind: Kind::Missing, service: name(), what });
            }
        }
    }

    fn check_chains(&self, reading: &mut Reading) {
        for (name, chain) in &self.table.chains {
            match name.parse::<Chain>() {
                Err(_) => self.find(reading, Kind::Foreign, format!("chain {name} is none of svcmap's")),
                Ok(Chain::Base(base)) if chain.chain.hook.as_ref() != Some(&chains::hook(base)) => {
                    self.find(reading, Kind::Damaged, format!("chain {name} is not hooked in where it should be"));
                }
                Ok(_) if chain.rules.is_empty() => {
                    self.find(reading, Kind::Damaged, format!("chain {name} has no rules"));
                }
                Ok(_) => {}
            }
        }
        for chain in Chain::constant().filter(|chain| !self.table.chains.contains_key(&chain.name())) {
            self.find(reading, Kind::Damaged, format!("chain {chain} is not there"));
        }
        if self.table.is_dormant() {
            self.find(reading, Kind::Damaged, "the table is dormant: no packet meets it".into());
        }
    }
}

/// The slots in which the same endpoint stands more than once: what stood there before is not known.
fn gaps(port: &PortPlan) -> impl Iterator<Item = (&PortName, u32)> {
    let without_affinity = u32::from(port.affinity.is_none());
    let pools = [(0, &port.cluster), (without_affinity * LOCAL_SLOTS, &port.local)];
    pools.into_iter().flat_map(move |(first, pool)| {
        let mut times: HashMap<(IpAddr, u16), usize> = HashMap::new();
        pool.iter().for_each(|endpoint| *times.entry((endpoint.ip, endpoint.port)).or_default() += 1);
        let again = (first..).zip(pool).filter(move |(_, endpoint)| times[&(endpoint.ip, endpoint.port)] > 1);
        again.map(|(slot, _)| (&port.id.name, slot))
    })
}

/// A Service port with the shares that it really draws.
fn port(off_cluster: Who, decoded: &Decoded) -> Port {
    let mut port = Port::of_masqueraded(off_cluster, &decoded.plan);
    for (pool, shares) in [(&mut port.cluster, &decoded.cluster), (&mut port.local, &decoded.local)] {
        if let Some(shares) = shares.as_ref().filter(|_| !pool.is_empty()) {
            let drawn = |(&(ip, port), &share): (&(IpAddr, u16), &f64)| Drawn { ip, port, share };
            *pool = shares.iter().map(drawn).collect();
        }
    }
    port
}

fn name_is_cluster(name: &str) -> bool {
    name.starts_with("cluster-") || name.starts_with("sticky-cluster-")
}
