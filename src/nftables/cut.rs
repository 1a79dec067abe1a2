//! Cuts what is too large for one transaction into several that are each consistent.
//!
//! A commit holds the kernel's nftables lock, and other users wait: none should take longer than about 50 ms. Without
//! privilege over the initial user namespace the send buffer is short as well.

use std::borrow::Cow;
use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use super::lower;
use super::names::{Map, PerMap};
use super::state::State;
use super::transaction::Transaction;
use crate::netlink::model::{Element, Op, Set, SetRef};
use crate::netlink::{BATCH_BYTES, batch_bytes};
use crate::plan::{Claim, PlanChange, PortId, PortPlan};

/// The most elements in one transaction: under 5 ms of the kernel's time, and 1 MiB of memory while it is made. Larger
/// ones save no time.
const ELEMENTS: usize = 4_000;
/// More than an element of any map takes on the wire, comment included, on average.
const ELEMENT_BYTES: usize = 128;

/// How much fits into one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    elements: usize,
    bytes: usize,
}

impl Limits {
    /// Limits for a send buffer that holds so many bytes.
    pub fn new(max_batch_bytes: usize) -> Limits {
        let bytes = max_batch_bytes.saturating_sub(BATCH_BYTES).max(4096);
        Limits { elements: ELEMENTS.min(bytes / ELEMENT_BYTES), bytes }
    }

    /// Whether all of these operations fit into one transaction.
    pub fn hold<const N: usize>(self, ops: [&[Op]; N]) -> bool {
        ops.into_iter().map(bytes).sum::<usize>() <= self.bytes
            && ops.into_iter().map(elements).sum::<usize>() <= self.elements
    }

    /// As many elements in one transaction as there are.
    pub fn without_cuts(self) -> Limits {
        Limits { elements: usize::MAX, ..self }
    }

    /// Larger transactions, where each makes the kernel walk over so many verdicts: fewer of them then cost less, and the walk
    /// takes about as long as the rest of one.
    pub fn beside_walks(self, verdicts: usize) -> Limits {
        let most = (3 * self.elements).min(self.bytes / ELEMENT_BYTES).max(self.elements);
        Limits { elements: (verdicts / 4).clamp(self.elements, most), ..self }
    }

    /// The most elements in one transaction.
    pub fn elements(self) -> usize {
        self.elements
    }
}

/// Cuts a change between Service ports, part by part. A frontend that moves from one to another does so in one part.
#[derive(Debug)]
pub struct Parts {
    limit: usize,
    /// Whether there was nothing before.
    cold: bool,
    first: Option<PlanChange>,
    removed: Vec<PortId>,
    changed: Vec<PortPlan>,
}

impl Parts {
    /// The parts of a change, each of which fits into one transaction.
    pub fn new(state: &State, change: PlanChange, limits: Limits) -> Parts {
        let movers = movers(state, &change);
        let mut first = PlanChange { node: change.node, ..PlanChange::default() };
        let (mut removed, mut changed) = (change.removed, change.changed);
        if !movers.is_empty() {
            first.removed = removed.extract_if(.., |id| movers.contains(id)).collect();
            first.changed = changed.extract_if(.., |port| movers.contains(&port.id)).collect();
        }
        Parts { limit: limits.elements, cold: state.ports.is_empty(), first: Some(first), removed, changed }
    }

    /// Whether there is no part any more.
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.removed.is_empty() && self.changed.is_empty()
    }

    /// The next part.
    pub fn next(&mut self, state: &State) -> Option<PlanChange> {
        let first = self.first.take();
        let is_first = first.is_some();
        let mut part = first.unwrap_or_default();
        let cold = self.cold;
        let weight_before = |id: &PortId| if cold { 0 } else { state.port(id).map_or(0, weight) };
        let mut used: usize = part.removed.iter().map(weight_before).sum::<usize>()
            + part.changed.iter().map(|port| weight_before(&port.id) + weight(port)).sum::<usize>();
        while used < self.limit
            && let Some(id) = self.removed.pop()
        {
            used += weight_before(&id);
            part.removed.push(id);
        }
        let mut fits = |port: &mut PortPlan| {
            let cost = weight_before(&port.id) + weight(port);
            let fits = used == 0 || used + cost <= self.limit;
            used += if fits { cost } else { 0 };
            fits
        };
        while let Some(port) = self.changed.pop_if(&mut fits) {
            part.changed.push(port);
        }
        // what was taken is going to be held by the state: the memory is needed there
        self.changed.shrink_to_fit();
        (is_first || !part.is_empty()).then_some(part)
    }
}

/// About how many elements a Service port has.
fn weight(port: &PortPlan) -> usize {
    let mut counts = PerMap::default();
    lower::count(port, 1, &mut counts);
    1 + lower::members(port) + counts.iter().map(|(_, count)| count.unsigned_abs()).sum::<usize>()
}

/// The Service ports that give a frontend to another one, and those that take one.
fn movers(state: &State, change: &PlanChange) -> HashSet<PortId> {
    let mut released: HashMap<Claim, PortId> = HashMap::new();
    if state.ports.is_empty() {
        return HashSet::new();
    }
    for id in change.removed.iter().chain(change.changed.iter().map(|port| &port.id)) {
        released.extend(state.port(id).into_iter().flat_map(PortPlan::claims).map(|claim| (claim, id.clone())));
    }
    let mut movers = HashSet::new();
    for port in &change.changed {
        for giver in port.claims().filter_map(|claim| released.get(&claim)).filter(|giver| **giver != port.id) {
            movers.extend([giver.clone(), port.id.clone()]);
        }
    }
    movers
}

/// Cuts what puts a table right where somebody has changed very much of it.
pub fn repairs(transaction: Transaction, limits: Limits) -> VecDeque<Transaction> {
    let Transaction { ops, retime, carry, counts } = transaction;
    // what is carried over is read when the transaction is sent: it has to be there until then
    let limits = if carry.is_empty() && counts.is_empty() { limits } else { limits.without_cuts() };
    let pieces = pieces(&ops, limits).into_iter().map(Cow::into_owned);
    let mut pieces: VecDeque<_> = pieces.map(|ops| Transaction { ops, ..Transaction::default() }).collect();
    if let Some(last) = pieces.back_mut() {
        *last = Transaction { ops: std::mem::take(&mut last.ops), retime, carry, counts };
    }
    pieces
}

/// Cuts operations that do not fit into one transaction. Objects are made first; then endpoints come that nothing
/// leads to yet, then verdicts change, then endpoints go that nothing leads to any more. A key that is deleted and
/// added is so in one transaction.
pub fn pieces(ops: &[Op], limits: Limits) -> Vec<Cow<'_, [Op]>> {
    if limits.hold([ops]) {
        return if ops.is_empty() { Vec::new() } else { vec![Cow::Borrowed(ops)] };
    }
    let mut stages: [Vec<Op>; 5] = Default::default();
    let replaced = Replaced::new(ops);
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::DeleteChain(_) | Op::DeleteSet(_) if is_made_again(op, &ops[at..]) => stages[0].push(op.clone()),
            Op::DeleteChain(_) | Op::DeleteSet(_) => stages[4].push(op.clone()),
            Op::AddElements { set, elements } if is_verdict(set) => {
                stages[2].extend(replaced.pairs(set, elements));
                stages[2].extend(replaced.fresh(set, elements));
            }
            Op::AddElements { set, elements } => {
                stages[1].extend(replaced.fresh(set, elements));
                stages[1].extend(replaced.pairs(set, elements));
            }
            Op::DeleteElements { set, elements } if is_verdict(set) => stages[2].extend(replaced.gone(set, elements)),
            Op::DeleteElements { set, elements } => stages[3].extend(replaced.gone(set, elements)),
            _ => stages[0].push(op.clone()),
        }
    }
    let mut pieces: Vec<Cow<'_, [Op]>> = Vec::new();
    let mut piece: Vec<Op> = Vec::new();
    let mut used = (0, 0);
    let mut group: Vec<Op> = Vec::new();
    for op in stages.into_iter().flatten() {
        let opens_pair = matches!(&op, Op::DeleteElements { set, elements } if replaced.is_pair(set, elements));
        group.push(op);
        if opens_pair {
            continue;
        }
        let size = (bytes(&group), elements(&group));
        let is_full = used.0 + size.0 > limits.bytes || used.1 + size.1 > limits.elements;
        if is_full && !piece.is_empty() {
            pieces.push(Cow::Owned(std::mem::take(&mut piece)));
            used = (0, 0);
        }
        used = (used.0 + size.0, used.1 + size.1);
        piece.append(&mut group);
    }
    if !piece.is_empty() {
        pieces.push(Cow::Owned(piece));
    }
    pieces
}

/// The buckets that one transaction makes, at most, unless a single map has more.
const BUCKETS: u64 = 1 << 19;

/// Cuts the making of a table behind maps with many buckets, which the kernel makes at once and empty, eight bytes each: it may
/// have to ask a hypervisor for every page of them. Each piece stands on those before it alone.
pub fn by_buckets(transaction: Transaction) -> VecDeque<Transaction> {
    let mut pieces = VecDeque::new();
    let (mut piece, mut made) = (Vec::new(), 0);
    let Transaction { ops, retime, carry, counts } = transaction;
    for op in ops {
        let buckets = match &op {
            Op::AddSet(Set { size: Some(size), .. }) => u64::from(*size) * 4 / 3,
            _ => 0,
        };
        if buckets > 0 && made + buckets > BUCKETS && made > 0 {
            pieces.push_back(Transaction { ops: std::mem::take(&mut piece), ..Transaction::default() });
            made = 0;
        }
        made += buckets;
        piece.push(op);
    }
    pieces.push_back(Transaction { ops: piece, retime, carry, counts });
    pieces
}

fn bytes(ops: &[Op]) -> usize {
    ops.iter().map(batch_bytes).sum()
}

fn elements(ops: &[Op]) -> usize {
    let elements = |op: &&Op| matches!(op, Op::AddElements { .. } | Op::DeleteElements { .. });
    ops.iter().filter(elements).map(Op::weight).sum()
}

/// Whether one of the operations makes what this one deletes.
fn is_made_again(deletion: &Op, ops: &[Op]) -> bool {
    ops.iter().any(|op| match (deletion, op) {
        (Op::DeleteChain(old), Op::AddChain(new)) => (old.family, &old.name) == (new.family, &new.name),
        (Op::DeleteSet(old), Op::AddSet(new)) => (old.family, &old.name) == (new.family, &new.name),
        _ => false,
    })
}

/// Source ranges are verdicts, too.
fn is_verdict(set: &SetRef) -> bool {
    set.name.parse().is_ok_and(|map: Map| map.holds_verdicts() || map == Map::Firewalled)
}

/// Elements per operation when operations are cut.
const STEP: usize = 256;

/// The keys that are deleted and added again.
struct Replaced<'a> {
    deleted: HashMap<&'a SetRef, HashMap<&'a [u8], &'a Element>>,
    added: HashMap<&'a SetRef, HashSet<&'a [u8]>>,
}

impl<'a> Replaced<'a> {
    fn new(ops: &'a [Op]) -> Replaced<'a> {
        let mut replaced = Replaced { deleted: HashMap::new(), added: HashMap::new() };
        for op in ops {
            match op {
                Op::DeleteElements { set, elements } => {
                    let deleted = replaced.deleted.entry(set).or_default();
                    deleted.extend(elements.iter().map(|element| (element.key.as_slice(), element)));
                }
                Op::AddElements { set, elements } => {
                    let added = replaced.added.entry(set).or_default();
                    added.extend(elements.iter().map(|element| element.key.as_slice()));
                }
                _ => {}
            }
        }
        replaced
    }

    fn was_there(&self, set: &SetRef, element: &Element) -> Option<&'a Element> {
        self.deleted.get(set).and_then(|keys| keys.get(element.key.as_slice())).copied()
    }

    /// Additions of keys that were not there.
    fn fresh(&self, set: &SetRef, elements: &[Element]) -> Vec<Op> {
        let fresh: Vec<Element> = elements.iter().filter(|e| self.was_there(set, e).is_none()).cloned().collect();
        fresh.chunks(STEP).map(|chunk| Op::AddElements { set: set.clone(), elements: chunk.to_vec() }).collect()
    }

    /// Deletions and additions of keys that were there, each deletion followed by its addition.
    fn pairs(&self, set: &SetRef, elements: &[Element]) -> Vec<Op> {
        let pairs: Vec<(Element, Element)> =
            elements.iter().filter_map(|e| Some((self.was_there(set, e)?.clone(), e.clone()))).collect();
        let ops = pairs.chunks(STEP).flat_map(|chunk| {
            let (old, new): (Vec<_>, Vec<_>) = chunk.iter().cloned().unzip();
            [
                Op::DeleteElements { set: set.clone(), elements: old },
                Op::AddElements { set: set.clone(), elements: new },
            ]
        });
        ops.collect()
    }

    /// Deletions of keys that do not come again.
    fn gone(&self, set: &SetRef, elements: &[Element]) -> Vec<Op> {
        let comes_again =
            |element: &&Element| self.added.get(set).is_some_and(|keys| keys.contains(element.key.as_slice()));
        let gone: Vec<Element> = elements.iter().filter(|e| !comes_again(e)).cloned().collect();
        gone.chunks(STEP).map(|chunk| Op::DeleteElements { set: set.clone(), elements: chunk.to_vec() }).collect()
    }

    /// Whether a deletion's keys come again.
    fn is_pair(&self, set: &SetRef, elements: &[Element]) -> bool {
        let first = elements.first().map(|element| element.key.as_slice());
        first.is_some_and(|key| self.added.get(set).is_some_and(|keys| keys.contains(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::model::{Chain, ChainRef, NfFamily};

    #[test]
    fn repairs_are_cut_by_elements_and_what_is_made_again_is_deleted_first() {
        let (family, table) = (NfFamily::IPV4, "t");
        let chain = ChainRef { family, table: table.into(), name: "filter-input".into() };
        let made =
            Chain { family, table: table.into(), name: chain.name.clone(), hook: None, is_bound: false, comment: None };
        let set = SetRef { family, table: table.into(), name: "endpoints".into() };
        let element = |key: u32| Element { key: key.to_be_bytes().as_slice().into(), ..Element::default() };
        let ops = vec![
            Op::DeleteChain(chain),
            Op::AddChain(made),
            Op::DeleteElements { set, elements: (0..9_000).map(element).collect() },
        ];
        let all = Transaction { ops: ops.clone(), ..Transaction::default() };
        let pieces = repairs(all, Limits::new(64 << 20));
        assert_eq!(pieces[0].ops[..2], ops[..2]);
        let sizes: Vec<usize> = pieces.iter().map(Transaction::elements_deleted).collect();
        assert!(sizes.iter().all(|size| *size <= ELEMENTS) && sizes.iter().sum::<usize>() == 9_000, "{sizes:?}");
        // what is read when it is sent must still be there
        let carried = Transaction {
            ops,
            carry: vec![SetRef { family, table: "t".into(), name: "a".into() }],
            ..Transaction::default()
        };
        assert_eq!(repairs(carried, Limits::new(64 << 20)).len(), 1);
    }

    #[test]
    fn transactions_are_larger_where_each_costs_a_long_walk() {
        let limits = Limits::new(64 << 20);
        let of = |verdicts| limits.beside_walks(verdicts).elements();
        assert_eq!((of(0), of(16_000), of(45_000), of(1_000_000)), (4_000, 4_000, 11_250, 12_000));
        // what does not fit into the send buffer is never more
        let small = Limits::new(256 << 10);
        assert_eq!(small.beside_walks(1_000_000).elements(), small.elements());
    }
}
