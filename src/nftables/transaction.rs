//! A transaction in the making, and what is sent.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use ipnet::IpNet;

use super::element::Element;
use super::names::{Chain, Map, PerMap, TABLE};
use super::rule::{Rule, nf_family};
use super::{chains, lower, maps, ranges};
use crate::netlink::model::{self, ChainRef, Op, SetRef};
use crate::objects::Family;
use crate::plan::PortPlan;

/// The comment of the table.
pub const TABLE_COMMENT: &str = "svcmap: Kubernetes Services as maps";

/// Changes that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transaction {
    /// The changes, in the order in which they are sent.
    pub ops: Vec<Op>,
    /// Affinity maps whose entries get another timeout with it. Which they are only the kernel knows: they are read, and
    /// their replacement joins [`Transaction::ops`] when the transaction is sent.
    pub retime: Vec<Retime>,
    /// Maps whose learned entries have to be carried over, since the transaction makes their table again.
    pub carry: Vec<SetRef>,
    /// Sets whose counts have to be carried over, for the same reason.
    pub counts: Vec<SetRef>,
}

/// An affinity map of a Service port whose timeout was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retime {
    /// The map.
    pub set: SetRef,
    /// The new timeout in seconds.
    pub seconds: u32,
}

impl Transaction {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// This, and then another, in one transaction.
    pub fn then(mut self, next: Transaction) -> Transaction {
        let Transaction { ops, retime, carry, counts } = next;
        self.ops.extend(ops);
        self.retime.extend(retime);
        self.carry.extend(carry);
        self.counts.extend(counts);
        self
    }

    /// How many elements are added.
    pub fn elements_added(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Op::AddElements { .. })).map(Op::weight).sum()
    }

    /// How many elements are deleted.
    pub fn elements_deleted(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Op::DeleteElements { .. })).map(Op::weight).sum()
    }
}

/// Where a map's elements live on the wire.
pub fn set_ref(family: Family, map: Map) -> SetRef {
    SetRef { family: nf_family(family), table: TABLE.into(), name: map.name() }
}

fn chain_ref(family: Family, chain: Chain) -> ChainRef {
    ChainRef { family: nf_family(family), table: TABLE.into(), name: chain.name() }
}

fn add_chain(family: Family, chain: Chain) -> Op {
    let hook = match chain {
        Chain::Base(base) => Some(chains::hook(base)),
        _ => None,
    };
    Op::AddChain(model::Chain {
        family: nf_family(family),
        table: TABLE.into(),
        name: chain.name(),
        hook,
        is_bound: false,
        comment: None,
    })
}

/// Collects changes. Whatever the order of the calls: tables go first, then chains, maps and rules are made, then
/// elements are deleted, then added, and at the end what is unused goes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    dropped: Vec<Op>,
    made: Vec<Op>,
    /// Made on demand, in an order that does not depend on which Service port needed one first: a chain only sends
    /// packets to those before it.
    maps: BTreeMap<(Family, Map), Option<u32>>,
    chains: BTreeMap<(Family, Chain), Vec<Rule>>,
    deleted: [Elements; 2],
    added: [Elements; 2],
    unused: Vec<Op>,
    retime: Vec<Retime>,
    carry: Vec<SetRef>,
    counts: Vec<SetRef>,
    content: Content,
    /// The names of chains that elements lead to: few chains, many elements.
    names: HashMap<Chain, model::Name>,
}

/// Elements by map.
#[derive(Debug, Default)]
struct Elements {
    constant: PerMap<Vec<model::Element>>,
    /// Of maps that belong to one Service port.
    others: BTreeMap<Map, Vec<model::Element>>,
}

impl Elements {
    fn of(&mut self, map: Map) -> &mut Vec<model::Element> {
        match self.constant.get_mut(map) {
            Some(elements) => elements,
            None => self.others.entry(map).or_default(),
        }
    }

    /// The maps that there are elements of, in order.
    fn take(self) -> impl Iterator<Item = (Map, Vec<model::Element>)> {
        let constant = self.constant.into_pairs();
        self.others.into_iter().chain(constant).filter(|(_, elements)| !elements.is_empty())
    }
}

/// Which of the elements that are added a transaction takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    #[default]
    All,
    /// Those that verdicts lead to.
    WithoutVerdicts,
    /// Those that lead packets somewhere.
    Verdicts,
}

impl Content {
    fn admits(self, map: Map) -> bool {
        match self {
            Content::All => true,
            Content::WithoutVerdicts => !map.holds_verdicts(),
            Content::Verdicts => map.holds_verdicts(),
        }
    }
}

impl Draft {
    pub(super) fn of(content: Content) -> Draft {
        Draft { content, ..Draft::default() }
    }

    /// Whether verdicts come later.
    pub(super) fn has_no_verdicts(&self) -> bool {
        self.content == Content::WithoutVerdicts
    }

    pub(super) fn finish(self) -> Transaction {
        let mut ops = self.dropped;
        ops.extend(self.made);
        let made = self.maps.into_iter();
        ops.extend(made.map(|((family, map), size)| Op::AddSet(maps::to_wire(map, family, size))));
        for ((family, chain), rules) in self.chains {
            ops.push(add_chain(family, chain));
            // rules are appended, and somebody else may have made the chain at the same moment
            ops.push(Op::FlushChain(chain_ref(family, chain)));
            ops.extend(rules.iter().map(|rule| Op::AddRule(rule.to_wire(chain, family))));
        }
        for (family, deleted) in Family::BOTH.into_iter().zip(self.deleted) {
            let lists = deleted.take().map(|(map, elements)| (set_ref(family, map), elements));
            ops.extend(lists.map(|(set, elements)| Op::DeleteElements { set, elements }));
        }
        for (family, added) in Family::BOTH.into_iter().zip(self.added) {
            ops.extend(added.take().map(|(map, mut elements)| {
                if map == Map::Allowed {
                    // the kernel lists them in the order in which they came, and that is to be the text's
                    elements.sort_by(|a, b| (&a.key, &a.key_end).cmp(&(&b.key, &b.key_end)));
                }
                Op::AddElements { set: set_ref(family, map), elements }
            }));
        }
        ops.extend(self.unused);
        Transaction { ops, retime: self.retime, carry: self.carry, counts: self.counts }
    }

    /// An operation that comes before the elements.
    pub(super) fn op(&mut self, op: Op) {
        self.made.push(op);
    }

    /// An operation that comes after everything else.
    pub(super) fn last(&mut self, op: Op) {
        self.unused.push(op);
    }

    pub(super) fn delete_table(&mut self, family: Family) {
        self.dropped.push(Op::DeleteTable { family: nf_family(family), name: TABLE.into() });
    }

    pub(super) fn make_table(&mut self, family: Family) {
        self.made.push(Op::AddTable(model::Table {
            family: nf_family(family),
            name: TABLE.into(),
            flags: 0,
            comment: Some(TABLE_COMMENT.into()),
        }));
    }

    /// Makes a chain that every ruleset has; its rules come later.
    pub(super) fn make_chain(&mut self, family: Family, chain: Chain) {
        self.made.push(add_chain(family, chain));
    }

    /// Makes a chain on demand.
    pub(super) fn need_chain(&mut self, family: Family, chain: Chain, rules: Vec<Rule>) {
        self.chains.insert((family, chain), rules);
    }

    /// Makes a map on demand.
    pub(super) fn need_map(&mut self, family: Family, map: Map, size: Option<u32>) {
        self.maps.insert((family, map), size);
    }

    /// Makes a map again, with another size. The chains that use it have to be empty.
    pub(super) fn remake_map(&mut self, family: Family, map: Map, size: Option<u32>) {
        self.carry(family, map);
        self.made.push(Op::DeleteSet(set_ref(family, map)));
        self.need_map(family, map, size);
    }

    /// Takes the rules out of a chain until [`Draft::need_chain`] gives it others.
    pub(super) fn empty_chain(&mut self, family: Family, chain: Chain) {
        self.made.push(Op::FlushChain(chain_ref(family, chain)));
    }

    /// Gives a chain its rules, in the place of those that it has: rules are appended, and a chain that is new may have been made
    /// by somebody else at the same moment.
    pub(super) fn set_rules(&mut self, family: Family, chain: Chain, rules: Vec<Rule>) {
        self.made.push(Op::FlushChain(chain_ref(family, chain)));
        self.made.extend(rules.iter().map(|rule| Op::AddRule(rule.to_wire(chain, family))));
    }

    pub(super) fn make_map(&mut self, family: Family, map: Map, size: Option<u32>) {
        self.made.push(Op::AddSet(maps::to_wire(map, family, size)));
    }

    /// Takes everything out of a map.
    pub(super) fn empty_map(&mut self, family: Family, map: Map) {
        self.made.push(Op::FlushSet(set_ref(family, map)));
    }

    /// Fills a set of prefixes; `replace` where it may hold some.
    pub(super) fn fill_ranges(&mut self, family: Family, map: Map, prefixes: &[IpNet], replace: bool) {
        let set = set_ref(family, map);
        if replace {
            self.made.push(Op::FlushSet(set.clone()));
        }
        if !prefixes.is_empty() {
            self.made.push(Op::AddElements { set, elements: ranges::to_wire(prefixes) });
        }
    }

    /// Makes room for the elements of Service ports that are new.
    pub(super) fn reserve<'a>(&mut self, ports: impl Iterator<Item = &'a PortPlan>) {
        let mut counts: [PerMap<isize>; 2] = Default::default();
        ports.for_each(|port| lower::count(port, 1, &mut counts[port.id.family as usize]));
        for (added, counts) in self.added.iter_mut().zip(&counts) {
            for ((map, elements), (_, count)) in added.constant.iter_mut().zip(counts.iter()) {
                if self.content.admits(map) {
                    elements.reserve_exact(count.unsigned_abs());
                }
            }
        }
    }

    pub(super) fn delete_element(&mut self, family: Family, element: Element) {
        self.deleted[family as usize].of(element.map).push(element.to_wire(Chain::name));
    }

    pub(super) fn add_element(&mut self, family: Family, element: Element) {
        if !self.content.admits(element.map) {
            return;
        }
        let names = &mut self.names;
        let wire = element.to_wire(|chain| names.entry(chain).or_insert_with(|| chain.name()).clone());
        self.added[family as usize].of(element.map).push(wire);
    }

    /// Chains may send packets to each other: all of them are emptied before the first is deleted.
    pub(super) fn delete_chains(&mut self, family: Family, chains: &[Chain]) {
        self.unused.extend(chains.iter().map(|chain| Op::FlushChain(chain_ref(family, *chain))));
        self.unused.extend(chains.iter().map(|chain| Op::DeleteChain(chain_ref(family, *chain))));
    }

    pub(super) fn delete_map(&mut self, family: Family, map: Map) {
        self.unused.push(Op::DeleteSet(set_ref(family, map)));
    }

    pub(super) fn retime(&mut self, family: Family, map: Map, seconds: u32) {
        self.retime.push(Retime { set: set_ref(family, map), seconds });
    }

    pub(super) fn carry(&mut self, family: Family, map: Map) {
        self.carry.push(set_ref(family, map));
    }

    pub(super) fn carry_counts(&mut self, family: Family, map: Map) {
        self.counts.push(set_ref(family, map));
    }
}
