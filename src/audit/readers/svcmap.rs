//! svcmap's own tables.

use std::collections::BTreeMap;

use super::super::findings::{Finding, Kind};
use super::super::ports::{Port, Who};
use super::{Layout, Reading, rule};
use crate::netlink::model::Expr;
use crate::nftables::chains;
use crate::nftables::decode;
use crate::nftables::element::Element;
use crate::nftables::lower;
use crate::nftables::names::{AffinityId, Chain, Map, TABLE};
use crate::nftables::numbers::Numbers;
use crate::nftables::ranges::RANGE_SETS;
use crate::nftables::read::typed_element;
use crate::nftables::rule::nf_family;
use crate::objects::Family;
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

struct Own<'a> {
    family: Family,
    table: &'a TableRules,
}

impl Own<'_> {
    fn read(&self, reading: &mut Reading) {
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
        let ports = decode::ports(self.family, &elements, &self.timeouts());
        self.check_elements(elements, &ports, reading);
        self.check_chains(reading);
        let off_cluster = self.off_cluster();
        reading.add(Layout::Svcmap, ports.iter().map(|port| Port::of_masqueraded(off_cluster, port)));
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
