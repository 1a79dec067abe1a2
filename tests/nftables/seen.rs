//! svcmap's tables as they are in the kernel, and what of them means the same.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use svcmap::netlink::Connection;
use svcmap::netlink::model::{Bytes, Chain, Data, Element, Expr, NfFamily, Set, SetRef, set_flags};
use svcmap::nftables::names::TABLE;

/// Where a client is noted: the table's family, the map, and the client.
pub type Place = (NfFamily, String, Bytes);

/// A chain, map or set.
pub type At = (NfFamily, String);

/// svcmap's tables as they are in the kernel.
pub struct Seen {
    pub tables: Vec<NfFamily>,
    pub sets: BTreeMap<At, Set>,
    pub elements: BTreeMap<At, Vec<Element>>,
    pub chains: BTreeMap<At, (Chain, Vec<Vec<Expr>>)>,
}

impl Seen {
    pub fn read(connection: &mut Connection) -> Seen {
        let tables = connection.tables().unwrap().into_iter().filter(|table| table.name == TABLE);
        let mut seen = Seen {
            tables: tables.map(|table| table.family).collect(),
            sets: BTreeMap::new(),
            elements: BTreeMap::new(),
            chains: BTreeMap::new(),
        };
        seen.tables.sort();
        for family in seen.tables.clone() {
            for chain in connection.chains(family, TABLE).unwrap() {
                seen.chains.insert((family, chain.name.to_string()), (chain, Vec::new()));
            }
            for rule in connection.rules(family, TABLE).unwrap() {
                let (_, rules) = seen.chains.get_mut(&(family, rule.chain.to_string())).expect("the rule's chain");
                rules.push(rule.exprs);
            }
            for set in connection.sets(family, TABLE).unwrap() {
                let at = SetRef { family, table: TABLE.into(), name: set.name.clone() };
                let mut elements = connection.elements(&at).unwrap();
                elements.sort_by(|a, b| (&a.key, a.flags).cmp(&(&b.key, b.flags)));
                seen.elements.insert((family, set.name.to_string()), elements);
                seen.sets.insert((family, set.name.to_string()), set);
            }
        }
        seen
    }

    pub fn compare(&self, fresh: &Seen) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.tables, &fresh.tables, "tables");
        for (at, chain) in &fresh.chains {
            prop_assert_eq!(self.chains.get(at), Some(chain), "chain {:?}", at);
        }
        for (at, set) in &fresh.sets {
            prop_assert_eq!(self.sets.get(at), Some(set), "declaration of {:?}", at);
            if set.flags & set_flags::EVAL == 0 {
                let [lived, fresh] = [self, fresh].map(|seen| seen.canonical(at));
                prop_assert_eq!(lived?, fresh?, "elements of {:?}", at);
            }
        }
        Ok(())
    }

    /// The clients that are sent to an endpoint, and to which one. What is noted of others leads nowhere.
    pub fn clients(&self) -> impl Iterator<Item = (Place, Bytes)> + '_ {
        let learned = self.elements.iter().filter(|(at, _)| self.sets[*at].flags & set_flags::EVAL != 0);
        learned.flat_map(|((family, map), elements)| {
            let id = map.strip_prefix("affinity-").expect("rules fill nothing else");
            let led = elements.iter().filter_map(|element| {
                let pools = ["cluster", "local"].map(|pool| (*family, format!("members-{pool}-{id}")));
                let members = pools.iter().filter_map(|at| self.elements.get(at)).flatten();
                let member = members.into_iter().find(|member| value(element) == member.key)?;
                Some(((*family, map.clone(), element.key.clone()), value(member)))
            });
            led.collect::<Vec<_>>()
        })
    }

    /// The number of an endpoint of a Service port with session affinity.
    pub fn number(&self, (family, map, _): &Place, endpoint: &Bytes) -> Bytes {
        let id = map.strip_prefix("affinity-").expect("a map of clients");
        let pools = ["cluster", "local"].map(|pool| (*family, format!("members-{pool}-{id}")));
        let members = pools.iter().filter_map(|at| self.elements.get(at)).flatten();
        members.into_iter().find(|member| value(member) == *endpoint).expect("the endpoint's number").key.clone()
    }

    /// Elements without their slots and numbers, after a look at these.
    fn canonical(&self, at: &At) -> Result<Vec<Element>, TestCaseError> {
        let (family, map) = at;
        let elements = &self.elements[at];
        let mut canonical = match map.split_once('-') {
            _ if ["endpoints", "nodeport-endpoints"].contains(&map.as_str()) => return without_own_slots(elements),
            Some(("slots", rest)) => {
                let slots = elements.iter().map(|e| u32::from_ne_bytes(e.key[..].try_into().expect("four bytes")));
                prop_assert!(
                    slots.collect::<BTreeSet<_>>().into_iter().eq(0..elements.len() as u32),
                    "slots of {}",
                    map
                );
                let numbers: BTreeSet<Bytes> = elements.iter().map(value).collect();
                let members = &self.elements[&(*family, format!("members-{rest}"))];
                prop_assert_eq!(
                    numbers,
                    members.iter().map(|member| member.key.clone()).collect(),
                    "members of {}",
                    map
                );
                elements.iter().map(|element| Element { data: Data::None, ..element.clone() }).collect()
            }
            Some(("members", _)) => {
                elements.iter().map(|element| Element { key: Bytes::new(), ..element.clone() }).collect()
            }
            _ => elements.clone(),
        };
        canonical.sort_by_key(|element| (element.key.clone(), element.flags, format!("{:?}", element.data)));
        Ok(canonical)
    }
}

fn value(element: &Element) -> Bytes {
    let Data::Value(data) = &element.data else { panic!("{element:?}") };
    data.clone()
}

/// Endpoints without their slots, which are the first ones of their pool.
fn without_own_slots(elements: &[Element]) -> Result<Vec<Element>, TestCaseError> {
    const LOCAL: u32 = 1_000_000;
    let mut slots: BTreeMap<(Bytes, bool), BTreeSet<u32>> = BTreeMap::new();
    let mut canonical = Vec::new();
    for element in elements {
        let (key, slot) = element.key.split_at(element.key.len() - 4);
        let slot = u32::from_ne_bytes(slot.try_into().expect("four bytes"));
        let (is_local, slot) = if slot >= LOCAL { (true, slot - LOCAL) } else { (false, slot) };
        let pool = (Bytes::from_slice(key), is_local);
        prop_assert!(slots.entry(pool).or_default().insert(slot), "a slot twice: {:?}", element);
        let key = Bytes::from_iter(key.iter().copied().chain([u8::from(is_local)]));
        canonical.push(Element { key, ..element.clone() });
    }
    for (pool, slots) in slots {
        prop_assert!(slots.iter().copied().eq(0..slots.len() as u32), "the slots of {:?} are {:?}", pool, slots);
    }
    canonical.sort_by_key(|element| (element.key.clone(), format!("{:?}", element.data)));
    Ok(canonical)
}

/// The listing, with endpoints in no order: the slot is left out, but for whether it is a local one, and so are numbers.
pub fn without_slots(listing: &str) -> String {
    let (mut text, mut has_slots, mut has_numbers) = (String::new(), false, false);
    for line in listing.lines() {
        if line.starts_with("\tmap ") {
            has_slots = line.ends_with("endpoints {") && !line.contains("no-endpoints");
            has_numbers = ["\tmap slots-", "\tmap members-"].iter().any(|head| line.starts_with(head));
        } else if line == "\t}" {
            // the last map may stand before the chains, whose rules have numbers, too
            (has_slots, has_numbers) = (false, false);
        }
        match line.split_once(" : ").and_then(|(key, value)| Some((key.rsplit_once(" . ")?, value))) {
            Some(((key, slot), value)) if has_slots && slot.parse::<u32>().is_ok() => {
                let pool = if slot.len() < 7 { "cluster" } else { "local" };
                text += &format!("{key} . {pool} : {value}\n");
            }
            _ if has_numbers => {
                let is_number = |word: &&str| word.starts_with("73") && word.contains(':');
                let words = line.split(' ').map(|word| match word.trim_end_matches(',') {
                    number if is_number(&number) => word.replace(number, "number"),
                    _ => word.to_string(),
                });
                text += &(words.collect::<Vec<_>>().join(" ") + "\n");
            }
            _ => text += &format!("{line}\n"),
        }
    }
    text
}
