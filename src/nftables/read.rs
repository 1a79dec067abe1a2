//! The kernel's tables as a [`State`], and what is wrong with them: what a restart adopts (row D6).

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use super::chains::{self, Chains};
use super::decode::AffinityFound;
use super::element::{Element, Key, Value};
use super::fill::Fill;
use super::names::{AffinityId, Chain, Map, Side, TABLE};
use super::numbers::Numbers;
use super::rule::nf_family;
use super::seek::{self, Slots};
use super::state::{State, Tables};
use super::transaction::{Draft, Transaction, set_ref};
use super::{decode, lower, maps, ranges};
use crate::netlink::model::{self, ChainRef, Expr, Op, SetRef, set_flags, table_flags};
use crate::netlink::{Connection, ReadError, Sink};
use crate::objects::Family;
use crate::plan::{NodePlan, PortName, PortPlan};

/// What was found in the kernel.
#[derive(Debug, Default)]
pub struct Reading {
    /// The Service ports and whatever else of the tables is as it should be, once `repairs` is committed.
    pub state: State,
    /// What has to be done first: rules and elements that are not what they should be under the node's plan, or a
    /// table that has to be made again because it was made by something else.
    pub repairs: Transaction,
    /// What has to be done last, and alone: the kernel takes no base chains in a transaction that switches their table on.
    pub wake: Transaction,
}

/// Reads both tables and compares everything that follows from the node's plan and from the Service ports found.
///
/// # Errors
/// Those of the socket. Tables that are not there are no error, and neither is anything that they hold.
pub fn read(connection: &mut Connection, node: &NodePlan) -> Result<Reading, ReadError> {
    let mut reading = Reading { state: State { node: node.clone(), ..State::default() }, ..Reading::default() };
    let (mut draft, mut wake) = (Draft::default(), Draft::default());
    for family in Family::BOTH {
        let Some(found) = Found::read(connection, family)? else { continue };
        reading.state.last_number = first_number();
        match found.structure() {
            Some(structure) => {
                if found.dormant {
                    wake.make_table(family); // over the one that is there, this sets the flags
                }
                structure.adopt(node, found, &mut reading.state, &mut draft);
            }
            // such as one whose making was broken off: nothing is served by it
            None if found.is_bare() => draft.delete_table(family),
            None => found.give_up(&mut reading.state),
        }
    }
    (reading.repairs, reading.wake) = (draft.finish(), wake.finish());
    Ok(reading)
}

/// One family's table as the kernel lists it.
struct Found {
    family: Family,
    /// Whether somebody has switched the table off: its chains are there, and not hooked.
    dormant: bool,
    chains: Vec<model::Chain>,
    rules: HashMap<model::Name, Vec<Vec<Expr>>>,
    sets: Vec<model::Set>,
    /// The elements that are Service ports' or could be.
    elements: Vec<Element>,
    /// Those that are no such elements, by map.
    alien: Vec<(Map, Vec<model::Element>)>,
    /// The elements of sets of prefixes.
    ranges: HashMap<Map, Vec<model::Element>>,
}

impl Found {
    /// Nothing where there is no table.
    fn read(connection: &mut Connection, family: Family) -> Result<Option<Found>, ReadError> {
        let nf = nf_family(family);
        let tables = connection.tables()?;
        let Some(table) = tables.iter().find(|table| table.family == nf && table.name == TABLE) else {
            return Ok(None);
        };
        let dormant = table.flags & table_flags::DORMANT != 0;
        let sets = match connection.sets(nf, TABLE) {
            Ok(sets) => sets,
            Err(ReadError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let chains = connection.chains(nf, TABLE)?;
        let mut rules: HashMap<model::Name, Vec<Vec<Expr>>> = HashMap::new();
        for rule in connection.rules(nf, TABLE)? {
            rules.entry(rule.chain).or_default().push(rule.exprs);
        }
        let mut found = Found {
            family,
            dormant,
            chains,
            rules,
            sets,
            elements: Vec::new(),
            alien: Vec::new(),
            ranges: HashMap::new(),
        };
        let maps: Vec<Map> = found.sets.iter().filter_map(|set| set.name.parse().ok()).collect();
        // the verdicts say which endpoints there should be
        let (endpoints, others): (Vec<Map>, Vec<Map>) =
            maps.into_iter().partition(|map| Side::of_endpoints(*map).is_some());
        for map in others.into_iter().chain(endpoints) {
            found.read_elements(connection, map)?;
        }
        Ok(Some(found))
    }

    /// Reads the elements of a map, except of those that rules fill.
    fn read_elements(&mut self, connection: &mut Connection, map: Map) -> Result<(), ReadError> {
        let set = set_ref(self.family, map);
        if ranges::RANGE_SETS.contains(&map) {
            self.ranges.insert(map, connection.elements(&set)?);
        } else if !matches!(map, Map::Affinity(_)) {
            let sought = self.slots_of_large(connection, map)?;
            let begin = self.elements.len();
            let mut typing = Typing { map, family: self.family, typed: &mut self.elements, begin, alien: Vec::new() };
            let is_read = match sought {
                Some((side, slots)) => seek::endpoints(connection, (self.family, side), &slots, &mut typing)?,
                None => false,
            };
            if !is_read {
                connection.for_each_element(&set, &mut typing)?;
            }
            let alien = typing.alien;
            if !alien.is_empty() {
                self.alien.push((map, alien));
            }
        }
        Ok(())
    }

    /// Of a map with so many endpoints that they are better found one by one: where they should be.
    fn slots_of_large(&self, connection: &mut Connection, map: Map) -> Result<Option<(Side, Slots)>, ReadError> {
        let Some(side) = Side::of_endpoints(map) else { return Ok(None) };
        let is_map = |set: &&model::Set| set.name == map.name();
        if !self.sets.iter().find(is_map).is_some_and(|set| self.is_declared_right(map, set)) {
            return Ok(None);
        }
        let count = connection.element_count(&set_ref(self.family, map))?;
        Ok(count.filter(|count| *count >= seek::LARGE).map(|_| (side, Slots::of(side, &self.elements))))
    }

    /// The chains and maps, if all maps are there and declared as they should be. What is known by name and differs
    /// otherwise, and whatever else there is, can be put right in place.
    fn structure(&self) -> Option<Structure> {
        let mut structure = Structure::default();
        for set in self.sets.iter().filter(|set| set.flags & set_flags::ANONYMOUS == 0) {
            match set.name.parse() {
                Ok(map) if self.is_declared_right(map, set) => _ = structure.maps.insert(map, set.size),
                Ok(_) => return None,
                Err(_) => structure.foreign_sets.push(set.name.clone()),
            }
        }
        for chain in self.chains.iter().filter(|chain| !chain.is_bound) {
            match chain.name.parse() {
                Ok(Chain::Base(base)) if chain.hook == Some(chains::hook(base)) => {
                    structure.chains.insert(Chain::Base(base));
                }
                Ok(name) if chain.hook.is_none() && !matches!(name, Chain::Base(_)) => {
                    _ = structure.chains.insert(name)
                }
                // a base chain that is hooked in another way; nothing leads to it, so it can be made again
                Ok(Chain::Base(_)) if chain.hook.is_some() => structure.foreign_chains.push(chain.name.clone()),
                Ok(_) => return None,
                Err(_) => structure.foreign_chains.push(chain.name.clone()),
            }
        }
        let whole = Map::CONSTANT.iter().all(|map| structure.maps.contains_key(map));
        let rooted = structure.chains.iter().all(|chain| {
            chains::references(*chain).iter().all(|needed| structure.chains.contains(needed))
                && chains::affinity_maps_of(*chain).iter().all(|map| structure.maps.contains_key(map))
        });
        (whole && rooted).then_some(structure)
    }

    fn is_declared_right(&self, map: Map, set: &model::Set) -> bool {
        let wanted = maps::to_wire(map, self.family, set.size);
        let found = model::Set { data_len: wanted.data_len, ..set.clone() };
        maps::is_sized(map) && found == wanted || model::Set { timeout_ms: None, ..found } == wanted
    }

    /// Whether it has no elements at all, and no clients that are to be remembered.
    fn is_bare(&self) -> bool {
        let remembers = |set: &model::Set| matches!(set.name.parse(), Ok(Map::Affinity(_)));
        self.elements.is_empty() && self.alien.is_empty() && !self.sets.iter().any(remembers)
    }

    /// Has the table made again, in the transaction of the next change, with the Service ports that can be told from its
    /// elements. What its affinity maps hold is carried over.
    fn give_up(self, state: &mut State) {
        let ports = decode::ports(self.family, &self.elements, &self.affinity());
        take_numbers(self.family, &self.elements, &ports, state);
        let mut tables = Tables { exists: true, ..Tables::default() };
        for set in &self.sets {
            if let Ok(map @ Map::Affinity(id)) = set.name.parse()
                && self.is_declared_right(map, set)
            {
                tables.note_affinity(id, map);
            }
        }
        for port in &ports {
            let mut count = |element: Element| tables.count_element(&element, true);
            lower::for_each_own_element(port, state.numbers_of(port), &mut count);
            lower::for_each_shared(port, &mut |shared| count(shared.into()));
        }
        tables.fill.iter_mut().for_each(|(_, fill)| fill.fit());
        *state.tables_mut(self.family) = tables;
        state.remade.insert(self.family);
        state.ports.extend(ports);
    }

    /// The rules of a chain as they are.
    fn rules_of(&self, chain: Chain) -> &[Vec<Expr>] {
        self.rules.get(&chain.name()).map_or(&[], Vec::as_slice)
    }

    /// What the rules of affinity chains say.
    fn affinity(&self) -> AffinityFound {
        let mut affinity = AffinityFound::default();
        for chain in self.chains.iter().filter_map(|chain| chain.name.parse().ok()) {
            self.rules_of(chain).iter().for_each(|rule| affinity.rule(chain, rule));
        }
        affinity
    }
}

/// A table of this version, and what else is in it.
#[derive(Debug, Default)]
struct Structure {
    chains: BTreeSet<Chain>,
    maps: BTreeMap<Map, Option<u32>>,
    /// Chains that are not svcmap's, or that are hooked in another way.
    foreign_chains: Vec<model::Name>,
    foreign_sets: Vec<model::Name>,
}

impl Structure {
    /// Takes the table over into the state; what is not as it should be goes into the draft.
    fn adopt(&self, node: &NodePlan, mut found: Found, state: &mut State, draft: &mut Draft) {
        let family = found.family;
        self.remove_foreign(&mut found, draft);
        let elements = std::mem::take(&mut found.elements);
        for (map, elements) in found.alien.drain(..) {
            draft.op(Op::DeleteElements { set: set_ref(family, map), elements });
        }
        let ports = decode::ports(family, &elements, &found.affinity());
        take_numbers(family, &elements, &ports, state);
        let mut tables = Tables { exists: true, ..Tables::default() };
        tables.chains = self.chains.iter().map(|chain| (*chain, 0)).collect();
        for chain in Chain::constant().filter(|chain| !self.chains.contains(chain)) {
            tables.chains.insert(chain, 0);
            draft.make_chain(family, chain);
        }
        for (&map, &size) in &self.maps {
            if let Map::Affinity(id) | Map::Slots(id, _) | Map::Members(id, _) = map {
                tables.note_affinity(id, map);
            } else if let Some(fill) = tables.fill.get_mut(map).filter(|_| maps::is_sized(map)) {
                *fill = Fill { used: 0, size: size.unwrap_or(u32::MAX) };
            }
        }
        let mut expected = Vec::with_capacity(elements.len());
        for port in &ports {
            if let Some((id, rules)) = lower::affinity(port)
                && let Some(affinity) = tables.affinity.get_mut(&id)
            {
                affinity.rules = rules;
            }
            expected.extend(lower::own_elements(port, state.numbers_of(port)));
            lower::for_each_shared(port, &mut |shared| {
                let users = tables.shared.entry(shared).or_default();
                *users += 1;
                if *users == 1 {
                    expected.push(shared.into());
                }
            });
        }
        let writer = Chains { family, node };
        for element in &expected {
            let affinity = element.value.chain().and_then(|chain| tables.affinity_rules(chain));
            tables.make_needed_chains(element, affinity, &writer, draft);
            tables.count_element(element, true);
        }
        tables.make_node_chains(&writer, draft);
        let other_size = self.affinity_of_other_size(node, &tables);
        tables.resize_affinity(&other_size, &writer, draft);
        self.repair_rules(node, &found, &tables, &other_size, draft);
        repair_ranges(node, &found, draft);
        let (excess, missing) = super::state::difference(elements, expected);
        excess.into_iter().for_each(|element| draft.delete_element(family, element));
        missing.into_iter().for_each(|element| draft.add_element(family, element));
        *state.tables_mut(family) = tables;
        state.ports.extend(ports);
    }

    fn has_foreign(&self) -> bool {
        !self.foreign_chains.is_empty() || !self.foreign_sets.is_empty()
    }

    /// Foreign chains may send packets to each other, and svcmap's rules and elements to them. The former are emptied at
    /// the beginning, the latter are put right; at the end nothing needs them any more.
    fn remove_foreign(&self, found: &mut Found, draft: &mut Draft) {
        let (family, table) = (nf_family(found.family), TABLE);
        for name in &self.foreign_chains {
            found.rules.remove(name);
            let chain = ChainRef { family, table: table.into(), name: name.clone() };
            draft.op(Op::FlushChain(chain.clone()));
            if name.parse::<Chain>().is_ok() {
                draft.op(Op::DeleteChain(chain));
            }
        }
        // their elements may lead to the chains
        for name in &self.foreign_sets {
            draft.last(Op::DeleteSet(SetRef { family, table: table.into(), name: name.clone() }));
        }
        for name in self.foreign_chains.iter().filter(|name| name.parse::<Chain>().is_err()) {
            draft.last(Op::DeleteChain(ChainRef { family, table: table.into(), name: name.clone() }));
        }
    }

    /// The Service ports in use whose affinity maps hold another number of clients than the plan says.
    fn affinity_of_other_size(&self, node: &NodePlan, tables: &Tables) -> BTreeSet<AffinityId> {
        let declared = maps::affinity_size;
        let differs = |id: AffinityId| {
            let size = self.maps.get(&Map::Affinity(id));
            size.is_some_and(|size| declared(*size) != declared(node.affinity_clients))
        };
        let in_use = tables.affinity.iter().filter(|(_, affinity)| affinity.rules.seconds > 0);
        in_use.map(|(id, _)| *id).filter(|id| differs(*id)).collect()
    }

    /// Rules that are not as they should be, but for those that are made again with the maps that they use.
    fn repair_rules(
        &self,
        node: &NodePlan,
        found: &Found,
        tables: &Tables,
        remade: &BTreeSet<AffinityId>,
        draft: &mut Draft,
    ) {
        let writer = Chains { family: found.family, node };
        for &chain in tables.chains.keys().filter(|chain| self.chains.contains(chain) || chain.is_constant()) {
            let affinity = tables.affinity_rules(chain);
            let id = decode::affinity_id(chain);
            let is_remade = id.is_some_and(|id| remade.contains(&id)) && !chains::affinity_maps_of(chain).is_empty();
            // what nothing leads to may say anything: it is put right when something does
            let is_unused = id.is_some() && affinity.is_none_or(|rules| rules.seconds == 0);
            if is_unused && self.has_foreign() {
                // but it must not need what has to go
                draft.empty_chain(found.family, chain);
            }
            if is_unused || is_remade {
                continue;
            }
            let wanted = writer.rules(chain, affinity);
            let canonical = |exprs: &[Expr]| exprs.iter().cloned().map(Expr::canonical).collect::<Vec<_>>();
            let same =
                wanted.iter().map(|rule| canonical(&rule.exprs)).eq(found.rules_of(chain).iter().map(|r| canonical(r)));
            if !same {
                draft.set_rules(found.family, chain, wanted);
            }
        }
    }
}

/// Takes over the numbers of endpoints: of the Service ports that were found, and of those that are only known by what
/// clients remember of them.
fn take_numbers(family: Family, elements: &[Element], ports: &[PortPlan], state: &mut State) {
    let mut found = decode::numbers(elements, state.last_number);
    for port in ports {
        let Some((id, _)) = lower::affinity(port) else { continue };
        let numbers = found.remove(&id).unwrap_or_else(|| Numbers::after(state.last_number));
        state.numbers.insert(port.id.clone(), numbers);
    }
    state.found_numbers.extend(found.into_iter().map(|(id, numbers)| ((family, id), numbers)));
}

/// From where numbers of endpoints go on. Which ones were given before only the one who gave them knew, and clients may
/// remember any of them: seconds pass more quickly than endpoints come.
fn first_number() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs() as u32)
}

/// Reads elements as they come in.
struct Typing<'a> {
    map: Map,
    family: Family,
    typed: &'a mut Vec<Element>,
    begin: usize,
    alien: Vec<model::Element>,
}

impl Sink for Typing<'_> {
    type Item = model::Element;

    fn push(&mut self, element: model::Element) {
        match typed_element(self.map, self.family, &element) {
            Some(element) => self.typed.push(element),
            None => self.alien.push(element),
        }
    }

    fn reset(&mut self) {
        self.typed.truncate(self.begin);
        self.alien.clear();
    }
}

/// One element, if it can be read as one of the map's.
pub fn typed_element(map: Map, family: Family, element: &model::Element) -> Option<Element> {
    Some(Element {
        map,
        key: Key::from_bytes(map, family, &element.key, element.key_end.as_deref().map(|end| &end[..]))?,
        value: Value::from_wire(map, family, &element.data)?,
        owner: element.comment.as_deref().map(PortName::parse),
    })
}

fn repair_ranges(node: &NodePlan, found: &Found, draft: &mut Draft) {
    for map in ranges::RANGE_SETS {
        let wanted = ranges::prefixes(map, found.family, node);
        let there = found.ranges.get(&map).map_or(&[][..], Vec::as_slice);
        if ranges::from_wire(found.family, there).as_ref() != Some(&wanted) {
            draft.fill_ranges(found.family, map, &wanted, true);
        }
    }
}
