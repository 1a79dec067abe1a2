//! What the kernel's tables hold, and how a change of the plan changes them: by what changed, and no more (rows J3, J7).
//!
//! The state is the plan as it was last programmed, with what several Service ports share counted. Everything else
//! (elements, rules) follows from it, so that it is small: a plan's worth of memory, not a copy of the kernel's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::chains::{self, AffinityRules, Chains};
use super::element::{Element, Shared};
use super::fill::{Fill, MIN_SIZE};
use super::lower;
use super::names::{AffinityId, Chain, Map, PerMap};
use super::numbers::Numbers;
use super::ports::Ports;
use super::transaction::{Content, Draft, Transaction};
use super::{maps, ranges};
use crate::objects::{Family, Protocol};
use crate::plan::{NodePlan, PlanChange, PortId, PortPlan, assign};

/// What is programmed, in both families.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(super) node: NodePlan,
    pub(super) ports: Ports,
    /// The numbers of the endpoints of Service ports with session affinity.
    pub(super) numbers: HashMap<PortId, Numbers>,
    /// Numbers of endpoints that were found in the kernel without a Service port that they could be told to be of.
    pub(super) found_numbers: BTreeMap<(Family, AffinityId), Numbers>,
    /// Numbers that clients may remember without anybody knowing whose they were: new ones come after this one.
    pub(super) last_number: u32,
    pub(super) v4: Tables,
    pub(super) v6: Tables,
    /// The families whose tables have to be made again by the next transaction: a map has no room for what is coming, or
    /// the kernel's table is laid out in another way.
    pub(super) remade: BTreeSet<Family>,
}

/// What one family's table holds beside the Service ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Whether the table is there.
    pub(super) exists: bool,
    /// The chains that are there, and how many elements send packets to each.
    pub(super) chains: BTreeMap<Chain, usize>,
    /// The affinity maps that are there.
    pub(super) affinity: BTreeMap<AffinityId, AffinityTables>,
    /// The elements that several Service ports may need, and how many do.
    pub(super) shared: HashMap<Shared, u32>,
    /// How many elements a map holds, and may hold.
    pub(super) fill: PerMap<Fill>,
}

/// The affinity maps of a Service port, and what its chains' rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityTables {
    pub(super) rules: AffinityRules,
    pub(super) maps: BTreeSet<Map>,
}

impl State {
    /// The Service ports as they are programmed, endpoints in slot order.
    pub fn ports(&self) -> impl Iterator<Item = &PortPlan> {
        self.ports.iter()
    }

    /// One Service port as it is programmed.
    pub fn port(&self, id: &PortId) -> Option<&PortPlan> {
        self.ports.get(id)
    }

    /// The families whose tables are there.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        Family::BOTH.into_iter().filter(|family| self.tables(*family).exists)
    }

    /// The node's plan as it is programmed.
    pub fn node(&self) -> &NodePlan {
        &self.node
    }

    /// The numbers of a Service port's endpoints; none where it has no session affinity.
    pub(super) fn numbers_of(&self, port: &PortPlan) -> &Numbers {
        static NONE: LazyLock<Numbers> = LazyLock::new(Numbers::default);
        self.numbers.get(&port.id).unwrap_or(&NONE)
    }

    pub(super) fn tables(&self, family: Family) -> &Tables {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    pub(super) fn tables_mut(&mut self, family: Family) -> &mut Tables {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// Takes over a change of the plan and returns the transaction that makes the kernel follow.
    ///
    /// The state counts on the transaction being committed: where it is not, the state has to be read from the
    /// kernel again.
    pub fn advance(&mut self, change: PlanChange) -> Transaction {
        self.make_room(change.changed.iter());
        self.advance_in_room(change, Draft::default())
    }

    /// The verdicts of Service ports that were programmed without them: of those from a position on, which moves on,
    /// until there are as many as the limit says.
    pub(super) fn verdicts(&self, position: &mut usize, limit: usize) -> Transaction {
        let mut used = 0;
        let mut ports = Vec::new();
        for (at, port) in self.ports.iter_from(*position) {
            lower::for_each_verdict(port, &mut |_| used += 1);
            if used > limit && !ports.is_empty() {
                break;
            }
            *position = at + 1;
            ports.push(port);
        }
        let mut draft = Draft::of(Content::Verdicts);
        draft.reserve(ports.iter().copied());
        for port in ports {
            lower::for_each_verdict(port, &mut |element| draft.add_element(port.id.family, element));
        }
        draft.finish()
    }

    /// The rules of base chains that lead packets to verdicts, of tables that were made without them.
    pub(super) fn open(&self, families: &[Family]) -> Transaction {
        let mut draft = Draft::default();
        for &family in families {
            let writer = Chains { family, node: &self.node };
            for chain in Chain::constant().filter(|chain| chains::leads_to_verdicts(*chain)) {
                draft.set_rules(family, chain, writer.rules(chain, None));
            }
        }
        draft.finish()
    }

    /// Whether a Service port is not programmed like this; its endpoints get the slots that they have.
    pub(super) fn differs(&self, port: &mut PortPlan) -> bool {
        let Some(old) = self.port(&port.id) else { return true };
        port.cluster = assign(&old.cluster, std::mem::take(&mut port.cluster));
        port.local = assign(&old.local, std::mem::take(&mut port.local));
        old != port
    }

    /// As [`State::advance`], for a part of a change that [`State::make_room`] has seen as a whole.
    pub(super) fn advance_in_room(&mut self, change: PlanChange, mut draft: Draft) -> Transaction {
        let old_node = std::mem::take(&mut self.node);
        let node = change.node.unwrap_or_else(|| old_node.clone());
        let remade = std::mem::take(&mut self.remade);
        for family in Family::BOTH {
            if remade.contains(&family) {
                self.tables_mut(family).clear(family, &mut draft);
            }
            if self.tables(family).exists {
                self.tables_mut(family).change_node(family, &old_node, &node, &mut draft);
            } else {
                self.tables_mut(family).make(family, &node, &mut draft);
            }
        }
        draft.reserve(change.changed.iter());
        let mut touched = HashSet::new();
        for id in change.removed {
            let Some(old) = self.ports.remove(&id) else { continue };
            if !remade.contains(&id.family) {
                self.replace_port(&node, Some(&old), None, &mut draft);
            }
        }
        for mut port in change.changed {
            let old = self.ports.remove(&port.id);
            if let Some(old) = &old {
                port.cluster = assign(&old.cluster, port.cluster);
                port.local = assign(&old.local, port.local);
            }
            if remade.contains(&port.id.family) {
                touched.insert(port.id.clone());
                self.replace_port(&node, None, Some(&port), &mut draft);
            } else if old.as_ref() != Some(&port) {
                self.replace_port(&node, old.as_ref(), Some(&port), &mut draft);
            }
            self.ports.insert(port);
        }
        if !remade.is_empty() {
            let ports = std::mem::take(&mut self.ports);
            for port in ports.iter().filter(|p| remade.contains(&p.id.family) && !touched.contains(&p.id)) {
                self.replace_port(&node, None, Some(port), &mut draft);
            }
            self.ports = ports;
        }
        self.node = node;
        draft.finish()
    }

    /// Replaces a Service port by its successor; both are of the same family.
    fn replace_port(&mut self, node: &NodePlan, old: Option<&PortPlan>, new: Option<&PortPlan>, draft: &mut Draft) {
        let Some(family) = old.or(new).map(|port| port.id.family) else { return };
        let before = old.map(|port| lower::own_elements(port, self.numbers_of(port))).unwrap_or_default();
        self.number(old, new);
        let numbers = new.map(|port| self.numbers_of(port).clone()).unwrap_or_default();
        let tables = self.tables_mut(family);
        let writer = Chains { family, node };
        let affinity = new.and_then(lower::affinity);
        if let Some((id, rules)) = affinity {
            tables.change_affinity(id, rules, &writer, draft);
        }
        // a port with another protocol has other maps
        if let Some((id, _)) =
            old.and_then(lower::affinity).filter(|(id, _)| affinity.is_none_or(|(new, _)| new != *id))
        {
            tables.forget_all_clients(family, id, draft);
        }
        let rules = affinity.map(|(_, rules)| rules);
        match (old, new) {
            (None, Some(new)) => lower::for_each_own_element(new, &numbers, &mut |element| {
                tables.add_element(element, rules, &writer, draft);
            }),
            _ => {
                let after = new.map(|port| lower::own_elements(port, &numbers)).unwrap_or_default();
                let (deleted, added) = difference(before, after);
                for element in deleted {
                    tables.count_element(&element, false);
                    draft.delete_element(family, element);
                }
                added.into_iter().for_each(|element| tables.add_element(element, rules, &writer, draft));
            }
        }
        tables.replace_shared(family, old, new, draft);
    }

    /// Of a Service port that had none so far. Where the kernel has clients of it, those that were found there, or others
    /// than anybody may remember.
    fn fresh_numbers(&mut self, port: &PortPlan) -> Numbers {
        let (family, Some((id, _))) = (port.id.family, lower::affinity(port)) else { return Numbers::default() };
        let has_clients = self.tables(family).affinity.contains_key(&id);
        let found = self.found_numbers.remove(&(family, id));
        found.unwrap_or_else(|| Numbers::after(if has_clients { self.last_number } else { 0 }))
    }

    /// Numbers the endpoints of a Service port with session affinity. One with another protocol has no clients yet.
    fn number(&mut self, old: Option<&PortPlan>, new: Option<&PortPlan>) {
        match new.filter(|port| port.affinity.is_some()) {
            Some(new) => {
                let mut numbers = self.numbers.remove(&new.id).unwrap_or_else(|| self.fresh_numbers(new));
                numbers.follow(new);
                self.numbers.insert(new.id.clone(), numbers);
            }
            None => drop(old.and_then(|port| self.numbers.remove(&port.id))),
        }
    }

    /// Sees to it that every map has room for what is coming, before anything of it is sent: a map that has not is to
    /// be made again with twice the room that is needed, and its whole table with it, by the next transaction.
    pub(super) fn make_room<'a>(&mut self, coming: impl Iterator<Item = &'a PortPlan> + Clone) {
        // growing step by step would take the memory twice
        self.ports.reserve(coming.clone().filter(|port| self.ports.get(&port.id).is_none()).count());
        for family in Family::BOTH {
            let mut more = PerMap::default();
            let tables = self.tables(family);
            for port in coming.clone().filter(|port| port.id.family == family) {
                lower::count(port, 1, &mut more);
                if let Some(old) = self.ports.get(&port.id) {
                    lower::count(old, -1, &mut more);
                }
                // ports that share an element count it more than once here: there is room for that
                lower::for_each_shared(port, &mut |shared| {
                    if !tables.shared.contains_key(&shared)
                        && let Some(count) = more.get_mut(Element::from(shared).map)
                    {
                        *count += 1;
                    }
                });
            }
            let tables = self.tables_mut(family);
            let fresh = [Map::ClusterIps, Map::Hairpin].iter().filter_map(|map| more.get(*map)).sum::<isize>();
            tables.shared.reserve(fresh.unsigned_abs());
            let mut grown = false;
            for ((map, fill), (_, more)) in tables.fill.iter_mut().zip(more.iter()) {
                grown |= maps::is_sized(map) && fill.grow(*more);
            }
            if grown && tables.exists {
                self.remade.insert(family);
            }
        }
    }
}

impl Tables {
    /// Makes the table of one family with all that every ruleset has; but for the rules that lead packets to verdicts, where
    /// these come later.
    fn make(&mut self, family: Family, node: &NodePlan, draft: &mut Draft) {
        draft.make_table(family);
        self.exists = true;
        for chain in Chain::constant() {
            self.chains.insert(chain, 0);
            draft.make_chain(family, chain);
        }
        for map in Map::CONSTANT {
            let size = self.fill.get_mut(map).filter(|_| maps::is_sized(map)).map(|fill| {
                *fill = Fill { used: 0, size: fill.size.max(MIN_SIZE) };
                fill.size
            });
            draft.make_map(family, map, size);
        }
        for map in ranges::RANGE_SETS {
            draft.fill_ranges(family, map, &ranges::prefixes(map, family, node), false);
        }
        let writer = Chains { family, node };
        let shut = draft.has_no_verdicts();
        let waits = |chain: &Chain| shut && chains::leads_to_verdicts(*chain);
        for chain in Chain::constant().filter(|chain| !waits(chain)) {
            draft.set_rules(family, chain, writer.rules(chain, None));
        }
        self.make_node_chains(&writer, draft);
    }

    /// Makes the base chains that the node's plan asks for.
    pub(super) fn make_node_chains(&mut self, writer: &Chains<'_>, draft: &mut Draft) {
        for base in chains::bases_of(writer.family, writer.node) {
            self.make_chain(Chain::Base(*base), None, writer, draft);
        }
    }

    /// Deletes the table. What rules learned and counted is carried over to the one that is made in its place.
    fn clear(&mut self, family: Family, draft: &mut Draft) {
        for map in self.affinity.values().flat_map(|affinity| &affinity.maps).filter(|m| matches!(m, Map::Affinity(_)))
        {
            draft.carry(family, *map);
        }
        for map in Map::CONSTANT.into_iter().filter(|map| maps::counts(*map)) {
            draft.carry_counts(family, map);
        }
        draft.delete_table(family);
        *self = Tables { fill: std::mem::take(&mut self.fill), ..Tables::default() };
    }

    /// Rewrites the chains and sets that say something else under another node plan.
    fn change_node(&mut self, family: Family, old: &NodePlan, new: &NodePlan, draft: &mut Draft) {
        if old == new {
            return;
        }
        for map in ranges::RANGE_SETS {
            let wanted = ranges::prefixes(map, family, new);
            if wanted != ranges::prefixes(map, family, old) {
                draft.fill_ranges(family, map, &wanted, true);
            }
        }
        let (before, after) = (Chains { family, node: old }, Chains { family, node: new });
        let resized = old.affinity_clients != new.affinity_clients;
        if resized {
            self.resize_affinity(&self.affinity.keys().copied().collect(), &after, draft);
        }
        let is_remade = |chain: Chain| resized && !chains::affinity_maps_of(chain).is_empty();
        for &chain in self.chains.keys().filter(|chain| !is_remade(**chain)) {
            let affinity = self.affinity_rules(chain);
            let wanted = after.rules(chain, affinity);
            if wanted != before.rules(chain, affinity) {
                draft.set_rules(family, chain, wanted);
            }
        }
        self.make_node_chains(&after, draft);
    }

    /// Makes the maps of these Service ports again, with the size that the plan says now. Clients are carried over.
    pub(super) fn resize_affinity(&self, ids: &BTreeSet<AffinityId>, writer: &Chains<'_>, draft: &mut Draft) {
        let family = writer.family;
        let of_ids = |map: &Map| matches!(map, Map::Affinity(id) if ids.contains(id));
        let users = |chain: &&Chain| chains::affinity_maps_of(**chain).iter().any(of_ids);
        let users: Vec<Chain> = self.chains.keys().filter(users).copied().collect();
        users.iter().for_each(|chain| draft.empty_chain(family, *chain));
        for map in self.affinity.values().flat_map(|affinity| &affinity.maps).copied().filter(of_ids) {
            draft.remake_map(family, map, writer.node.affinity_clients);
        }
        for chain in users {
            draft.need_chain(family, chain, writer.rules(chain, self.affinity_rules(chain)));
        }
    }

    /// Notes an affinity map that is there, of a Service port of which nothing else is known yet.
    pub(super) fn note_affinity(&mut self, id: AffinityId, map: Map) {
        let rules = AffinityRules { protocol: Protocol::Tcp, seconds: 0, cluster: 0, local: 0 };
        let of_port = || AffinityTables { rules, maps: BTreeSet::new() };
        self.affinity.entry(id).or_insert_with(of_port).maps.insert(map);
    }

    /// What the rules of an affinity chain follow from.
    pub(super) fn affinity_rules(&self, chain: Chain) -> Option<AffinityRules> {
        match chain {
            Chain::Sticky(id, _) => self.affinity.get(&id).map(|affinity| affinity.rules),
            _ => None,
        }
    }

    /// Rewrites those chains of a Service port that say something else now. Where its timeout was edited, what was learned
    /// lives for as long as it would if it had been learned under the new one (behaviour row D8); but maps that may hold
    /// very many clients are not read for that. Nor is one whose former timeout nobody knows: the Service port was found
    /// without endpoints, so that what its clients remember leads nowhere.
    fn change_affinity(&mut self, id: AffinityId, rules: AffinityRules, writer: &Chains<'_>, draft: &mut Draft) {
        let Some(affinity) = self.affinity.get_mut(&id) else { return };
        let before = std::mem::replace(&mut affinity.rules, rules);
        if before == rules {
            return;
        }
        let is_edited = before.seconds != 0 && before.seconds != rules.seconds;
        let is_readable = maps::affinity_size(writer.node.affinity_clients) <= maps::AFFINITY_CLIENTS;
        if is_edited && is_readable && affinity.maps.contains(&Map::Affinity(id)) {
            draft.retime(writer.family, Map::Affinity(id), rules.seconds);
        }
        for &chain in self.chains.keys().filter(|chain| matches!(chain, Chain::Sticky(of, _) if *of == id)) {
            let wanted = writer.rules(chain, Some(rules));
            // as long as no timeout is known, nothing led there, and nobody looked at what the chain says
            if before.seconds == 0 || wanted != writer.rules(chain, Some(before)) {
                draft.set_rules(writer.family, chain, wanted);
            }
        }
    }

    /// Forgets all clients of a Service port that has no affinity any more (behaviour row D7): the map stays for a while,
    /// and numbers begin again.
    fn forget_all_clients(&self, family: Family, id: AffinityId, draft: &mut Draft) {
        if self.affinity.get(&id).is_some_and(|affinity| affinity.maps.contains(&Map::Affinity(id))) {
            draft.empty_map(family, Map::Affinity(id));
        }
    }

    /// Makes the chains that an element needs, those first that others refer to.
    pub(super) fn make_needed_chains(
        &mut self,
        element: &Element,
        affinity: Option<AffinityRules>,
        writer: &Chains<'_>,
        draft: &mut Draft,
    ) {
        for base in chains::bases_for(element.map) {
            self.make_chain(Chain::Base(*base), None, writer, draft);
        }
        if let Some(chain) = element.value.chain() {
            self.make_chain(chain, affinity, writer, draft);
        }
    }

    fn make_chain(&mut self, chain: Chain, affinity: Option<AffinityRules>, writer: &Chains<'_>, draft: &mut Draft) {
        if self.chains.contains_key(&chain) {
            return;
        }
        for needed in chains::references(chain) {
            self.make_chain(needed, affinity, writer, draft);
        }
        if let (Chain::Sticky(id, _), Some(rules)) = (chain, affinity) {
            let tables = self.affinity.entry(id).or_insert(AffinityTables { rules, maps: BTreeSet::new() });
            for map in chains::affinity_maps_of(chain) {
                if tables.maps.insert(map) {
                    draft.need_map(
                        writer.family,
                        map,
                        writer.node.affinity_clients.filter(|_| map == Map::Affinity(id)),
                    );
                }
            }
        }
        self.chains.insert(chain, 0);
        draft.need_chain(writer.family, chain, writer.rules(chain, affinity));
    }

    fn add_element(
        &mut self,
        element: Element,
        affinity: Option<AffinityRules>,
        writer: &Chains<'_>,
        draft: &mut Draft,
    ) {
        self.make_needed_chains(&element, affinity, writer, draft);
        self.count_element(&element, true);
        draft.add_element(writer.family, element);
    }

    pub(super) fn count_element(&mut self, element: &Element, added: bool) {
        let step = |count: &mut usize| if added { *count += 1 } else { *count = count.saturating_sub(1) };
        if let Some(fill) = self.fill.get_mut(element.map) {
            step(&mut fill.used);
        }
        if let Some(count) = element.value.chain().and_then(|chain| self.chains.get_mut(&chain)) {
            step(count);
        }
    }

    /// Adds what the new port is the first to need, deletes what the old one was the last to need.
    fn replace_shared(&mut self, family: Family, old: Option<&PortPlan>, new: Option<&PortPlan>, draft: &mut Draft) {
        let list = |port: Option<&PortPlan>| {
            let mut list = SmallVec::<[Shared; 4]>::new();
            port.into_iter().for_each(|port| lower::for_each_shared(port, &mut |shared| list.push(shared)));
            list
        };
        for shared in list(new) {
            let users = self.shared.entry(shared).or_default();
            *users += 1;
            if *users == 1 {
                self.count_element(&shared.into(), true);
                draft.add_element(family, shared.into());
            }
        }
        for shared in list(old) {
            let users = self.shared.entry(shared).or_default();
            *users = users.saturating_sub(1);
            if *users == 0 {
                self.shared.remove(&shared);
                self.count_element(&shared.into(), false);
                draft.delete_element(family, shared.into());
            }
        }
    }
}

/// What to delete and what to add so that the one list becomes the other. An element whose value differs is in both.
pub fn difference(mut old: Vec<Element>, mut new: Vec<Element>) -> (Vec<Element>, Vec<Element>) {
    if old.is_empty() || new.is_empty() {
        return (old, new);
    }
    let place = |element: &Element| (element.map, element.key);
    old.sort_unstable_by_key(place);
    new.sort_unstable_by_key(place);
    let (mut deleted, mut added) = (Vec::new(), Vec::new());
    let mut new = new.into_iter().peekable();
    for element in old {
        while let Some(before) = new.next_if(|next| place(next) < place(&element)) {
            added.push(before);
        }
        match new.next_if(|next| place(next) == place(&element)) {
            Some(same) if same == element => {}
            Some(changed) => {
                deleted.push(element);
                added.push(changed);
            }
            None => deleted.push(element),
        }
    }
    added.extend(new);
    (deleted, added)
}
