//! svcmap's own tables.

use std::collections::BTreeMap;

use super::super::findings::{Finding, Kind};
use super::super::ports::{Port, Who};
use super::{Layout, Reading, rule};
use crate::amounts::counted;
use crate::netlink::model::Expr;
use crate::nftables::chains::{self, AffinityRules, Chains};
use crate::nftables::decode;
use crate::nftables::element::Element;
use crate::nftables::lower;
use crate::nftables::names::{AffinityId, Chain, Map, TABLE};
use crate::nftables::numbers::Numbers;
use crate::nftables::ranges::{self, RANGE_SETS};
use crate::nftables::read::typed_element;
use crate::nftables::rule::nf_family;
use crate::objects::Family;
use crate::plan::NodePlan;
use crate::trace::{Ruleset, TableRules};

/// Reads the tables, if they are there.
pub fn read(ruleset: &Ruleset, reading: &mut Reading) {
    for family in Family::BOTH {
        let table = ruleset.tables().find(|table| table.table.family == nf_family(family) && table.table.name == TABLE);
        if let Some(table) = table {
            Own { family, table }.read(reading);
        }
    }
}

/// What of rules, of base chains and of sets of prefixes is not as the node's plan has it. The tables have to come from the
/// kernel: a listing has the same rules in other expressions.
pub fn check_against(ruleset: &Ruleset, node: &NodePlan) -> Vec<Finding> {
    let mut reading = Reading::default();
    for family in Family::BOTH {
        let table = ruleset.tables().find(|table| table.table.family == nf_family(family) && table.table.name == TABLE);
        if let Some(table) = table {
            Own { family, table }.check_against(node, &mut reading);
        }
    }
    reading.findings
}

struct Own<'a> {
    family: Family,
    table: &'a TableRules,
}

impl Own<'_> {
    fn read(&self, reading: &mut Reading) {
        let elements = self.elements(reading);
        let ports = decode::ports(self.family, &elements, &self.timeouts());
        self.check_elements(elements, &ports, reading);
        self.check_chains(reading);
        let off_cluster = self.off_cluster();
        reading.add(Layout::Svcmap, ports.iter().map(|port| Port::of_masqueraded(off_cluster, port)));
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
        let ports = decode::ports(self.family, &elements, &self.timeouts());
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

    /// The seconds that the rules of affinity chains name.
    fn timeouts(&self) -> BTreeMap<AffinityId, u32> {
        let mut timeouts = BTreeMap::new();
        for (name, chain) in &self.table.chains {
            let Some(id) = name.parse::<Chain>().ok().and_then(decode::affinity_id) else { continue };
            let seconds = chain.rules.iter().flat_map(|rule| &rule.exprs).find_map(|expr| match expr {
                Expr::Dynset { timeout_ms: Some(ms), .. } => u32::try_from(ms / 1000).ok(),
                _ => None,
            });
            timeouts.extend(seconds.map(|seconds| (id, seconds)));
        }
        timeouts
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
    fn check_elements(&self, elements: Vec<Element>, ports: &[crate::plan::PortPlan], reading: &mut Reading) {
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
        let mut say = |kind, verb: &str, element: &Element| {
            let (family, map) = (nf_family(self.family).name(), element.map);
            let what = format!("{family} {TABLE}: {verb} {map} {{ {element} }}");
            let service = element.owner.as_ref().map(|owner| owner.as_str().to_owned());
            reading.findings.push(Finding { kind, service, what });
        };
        excess.iter().for_each(|element| say(Kind::Stale, "belongs to no frontend:", element));
        missing.iter().for_each(|element| say(Kind::Missing, "is missing:", element));
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

fn name_is_cluster(name: &str) -> bool {
    name.starts_with("cluster-") || name.starts_with("sticky-cluster-")
}
