//! The operations of a transaction as people read them, grouped by Service.

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use ipnet::IpNet;
use serde::Serialize;

use super::names::Map;
use super::owner::Owners;
use super::program::Preview;
use super::ranges::{self, RANGE_SETS};
use super::read::typed_element;
use super::rule::{family_of, nf_family};
use super::state::State;
use super::{chains, element, lower, maps};
use crate::netlink::model::{Chain, Element, NfFamily, Op, Set, SetRef, Table};
use crate::objects::Family;

/// One difference between what is wanted and what the kernel holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// The Service port that it belongs to, `namespace/name:port`; none for what all Services share.
    pub service: Option<String>,
    /// `ip` or `ip6`.
    pub family: &'static str,
    /// `+` is missing in the kernel, `-` is too much there, `~` is there with another value.
    pub sign: char,
    /// The object.
    pub what: String,
}

/// What a preview comes to. `after` is the state with the plan applied.
pub fn of(preview: &Preview, after: &State) -> Vec<Difference> {
    let mut elements = Elements::new();
    let mut differences = Vec::new();
    // the families whose tables are made again, with larger maps
    let mut remade = Vec::new();
    let hooked = rehooked(&preview.ops);
    let aside = Aside {
        deleted: chains_of(&preview.ops, |op| matches!(op, Op::DeleteChain(_))),
        made: chains_of(&preview.ops, |op| matches!(op, Op::AddChain(_))),
        unused: unused(after),
    };
    let owners = [&preview.before, after].map(Owners::of);
    let rewritten: Vec<&SetRef> = preview.ops.iter().filter_map(flushed).collect();
    differences.extend(rewritten.iter().map(|set| of_flushed(set, &preview.ops)));
    for op in &preview.ops {
        if chain_of(op).is_some_and(|chain| hooked.contains(&chain)) || aside.holds(op) {
            continue;
        }
        if let Some(family) = remade_by(op, &preview.before) {
            remade.push(family);
            add_old(&preview.before, family, &mut elements);
        }
        let (set, list, added) = match op {
            Op::AddElements { set, elements } => (set, elements, true),
            Op::DeleteElements { set, elements } => (set, elements, false),
            other => {
                differences.extend(of_object(other, &preview.before, &remade));
                continue;
            }
        };
        let (Ok(map), Some(family)) = (set.name.parse::<Map>(), family_of(set.family)) else { continue };
        if RANGE_SETS.contains(&map) {
            if rewritten.contains(&set) {
                continue;
            }
            let kept = |prefix: &IpNet| {
                remade.contains(&family) && ranges::prefixes(map, family, preview.before.node()).contains(prefix)
            };
            differences
                .extend(of_prefixes(map, family, list, added).filter(|(prefix, _)| !kept(prefix)).map(|(_, d)| d));
            continue;
        }
        for element in list {
            let text = typed_element(map, family, element).map(|typed| typed.to_string());
            let change = elements.entry((set.family, map, element.key.to_vec())).or_default();
            let owner = owners[usize::from(added)].of_element(family, map, element);
            change.owner = owner.map(|name| name.to_string());
            let text = text.unwrap_or_else(|| format!("{:02x?}", element.key));
            change.note(text, added);
        }
    }
    differences.extend(elements.into_iter().filter_map(|((family, map, _), change)| change.difference(family, map)));
    differences.extend(hooked.into_iter().map(|(family, name)| {
        let what = format!("chain {name}: is hooked in another way");
        Difference { service: None, family: family.name(), sign: '~', what }
    }));
    differences.sort();
    differences.dedup();
    differences
}

/// The set that is emptied.
fn flushed(op: &Op) -> Option<&SetRef> {
    match op {
        Op::FlushSet(set) => Some(set),
        _ => None,
    }
}

/// A set of prefixes that is filled anew, or a map whose clients are forgotten.
fn of_flushed(set: &SetRef, ops: &[Op]) -> Difference {
    let map = set.name.parse::<Map>().ok().filter(|map| RANGE_SETS.contains(map));
    let wanted = |op: &Op| match (op, family_of(set.family)) {
        (Op::AddElements { set: of, elements }, Some(family)) if of == set => ranges::from_wire(family, elements),
        _ => None,
    };
    let what = match map {
        Some(_) => {
            let prefixes: Vec<String> =
                ops.iter().filter_map(wanted).flatten().map(|prefix| prefix.to_string()).collect();
            format!("set {}: other prefixes, wanted {{ {} }}", set.name, prefixes.join(", "))
        }
        None => format!("map {}: clients that are to be forgotten", set.name),
    };
    Difference { service: None, family: set.family.name(), sign: '~', what }
}

/// Chains of which not every operation says what is different.
struct Aside<'a> {
    /// They are gone in the end: what else happens to them is no difference.
    deleted: BTreeSet<(NfFamily, &'a str)>,
    /// They are new.
    made: BTreeSet<(NfFamily, &'a str)>,
    /// See [`unused`].
    unused: BTreeSet<(NfFamily, CompactString)>,
}

impl Aside<'_> {
    fn holds(&self, op: &Op) -> bool {
        match op {
            Op::DeleteChain(_) => false,
            Op::AddChain(chain) if self.unused.contains(&(chain.family, chain.name.clone())) => true,
            Op::AddChain(chain) => self.deleted.contains(&(chain.family, &chain.name)),
            _ => chain_of(op).is_some_and(|chain| self.deleted.contains(&chain) || self.made.contains(&chain)),
        }
    }
}

/// The chains that nothing uses once all is done: that some of them are made on the way is no difference.
fn unused(after: &State) -> BTreeSet<(NfFamily, CompactString)> {
    let of = |family: Family| {
        let chains = after.tables(family).unused_chains(chains::bases_of(family, after.node()));
        chains.into_iter().map(move |chain| (nf_family(family), chain.name()))
    };
    Family::BOTH.into_iter().flat_map(of).collect()
}

/// The chain that an operation is about.
fn chain_of(op: &Op) -> Option<(NfFamily, &str)> {
    match op {
        Op::AddChain(chain) => Some((chain.family, &chain.name)),
        Op::DeleteChain(chain) | Op::FlushChain(chain) | Op::DeleteRule { chain, .. } => {
            Some((chain.family, &chain.name))
        }
        _ => None,
    }
}

/// The chains that are deleted and made again: where a chain is hooked cannot be changed.
fn rehooked(ops: &[Op]) -> BTreeSet<(NfFamily, &str)> {
    let deleted = chains_of(ops, |op| matches!(op, Op::DeleteChain(_)));
    deleted.intersection(&chains_of(ops, |op| matches!(op, Op::AddChain(_)))).copied().collect()
}

/// The chains that such operations are about.
fn chains_of(ops: &[Op], wanted: fn(&Op) -> bool) -> BTreeSet<(NfFamily, &str)> {
    ops.iter().filter(|op| wanted(op)).filter_map(chain_of).collect()
}

/// By family, map and key.
type Elements = BTreeMap<(NfFamily, Map, Vec<u8>), Change>;

#[derive(Default)]
struct Change {
    owner: Option<String>,
    old: Option<String>,
    new: Option<String>,
}

impl Change {
    fn note(&mut self, text: String, added: bool) {
        match added {
            true => self.new = Some(text),
            // what repairs add, the change may take away again
            false if self.new.take().is_none() => drop(self.old.get_or_insert(text)),
            false => {}
        }
    }

    fn difference(self, family: NfFamily, map: Map) -> Option<Difference> {
        let (sign, text) = match (self.old, self.new) {
            (Some(old), Some(new)) if old == new => return None,
            (Some(old), Some(new)) => ('~', format!("{old}, wanted {new}")),
            (None, Some(new)) => ('+', new),
            (Some(old), None) => ('-', old),
            (None, None) => return None,
        };
        Some(Difference { service: self.owner, family: family.name(), sign, what: format!("{map} {{ {text} }}") })
    }
}

/// The family whose table, one of this version, is made again by this and what follows.
fn remade_by(op: &Op, before: &State) -> Option<Family> {
    match op {
        Op::DeleteTable { family, .. } => family_of(*family).filter(|family| before.tables(*family).exists),
        _ => None,
    }
}

/// Notes what a table holds that is going to be made again: most of it comes back.
fn add_old(before: &State, family: Family, elements: &mut Elements) {
    let nf = nf_family(family);
    let mut add = |element: element::Element| {
        let change = elements.entry((nf, element.map, element.key.to_bytes().0.to_vec())).or_default();
        change.owner = element.owner.as_ref().map(ToString::to_string);
        change.old = Some(element.to_string());
    };
    for port in before.ports().filter(|port| port.id.family == family) {
        lower::for_each_own_element(port, before.numbers_of(port), &mut add);
    }
    before.tables(family).shared.keys().for_each(|shared| add((*shared).into()));
}

/// Elements of sets of prefixes come two for each.
fn of_prefixes(
    map: Map,
    family: Family,
    elements: &[Element],
    added: bool,
) -> impl Iterator<Item = (IpNet, Difference)> {
    let sign = if added { '+' } else { '-' };
    let prefixes = ranges::from_wire(family, elements).unwrap_or_default();
    prefixes.into_iter().map(move |prefix| {
        let what = format!("{map} {{ {prefix} }}");
        (prefix, Difference { service: None, family: nf_family(family).name(), sign, what })
    })
}

/// Chains whose rules differ are emptied first: the flush stands for all of it.
fn of_object(op: &Op, before: &State, remade: &[Family]) -> Option<Difference> {
    let is_remade = |family: NfFamily| family_of(family).is_some_and(|family| remade.contains(&family));
    let had = |chain: &Chain| {
        let tables = family_of(chain.family).map(|family| before.tables(family));
        chain.name.parse().is_ok_and(|name| tables.is_some_and(|tables| tables.chains.contains_key(&name)))
    };
    let (family, sign, what) = match op {
        Op::AddTable(Table { family, .. }) | Op::AddSet(Set { family, .. }) if is_remade(*family) => return None,
        Op::AddChain(chain) if is_remade(chain.family) && had(chain) => return None,
        Op::DeleteTable { family, name } if is_remade(*family) => {
            let outgrown = family_of(*family).is_some_and(|family| !before.remade.contains(&family));
            let why = if outgrown { "larger maps" } else { "is not laid out as by this version" };
            (*family, '~', format!("table {name}: {why}"))
        }
        Op::AddTable(table) if family_of(table.family).is_some_and(|family| before.tables(family).exists) => {
            (table.family, '~', format!("table {}: is dormant", table.name))
        }
        Op::AddTable(table) => (table.family, '+', format!("table {}", table.name)),
        Op::DeleteTable { family, name } => (*family, '-', format!("table {name}")),
        Op::AddChain(chain) => (chain.family, '+', format!("chain {}", chain.name)),
        Op::DeleteChain(chain) => (chain.family, '-', format!("chain {}", chain.name)),
        Op::FlushChain(chain) => (chain.family, '~', format!("chain {}: other rules", chain.name)),
        Op::AddSet(set) => (set.family, '+', format!("{} {}", keyword(&set.name), set.name)),
        Op::DeleteSet(set) => (set.family, '-', format!("{} {}", keyword(&set.name), set.name)),
        Op::DeleteRule { chain, .. } => (chain.family, '~', format!("chain {}: other rules", chain.name)),
        // said elsewhere
        Op::AddRule(_) | Op::AddElements { .. } | Op::DeleteElements { .. } | Op::FlushSet(_) => return None,
    };
    Some(Difference { service: None, family: family.name(), sign, what })
}

/// What nft calls it; a foreign one may be either.
fn keyword(name: &str) -> &'static str {
    name.parse().map_or("set", maps::keyword)
}
