//! Packets through what is hooked in at one hook: in order, chain by chain, rule by rule.

use std::cell::OnceCell;
use std::sync::Arc;

use super::assume::Assumptions;
use super::flight::{Flight, Tracking};
use super::hook::{Base, Hook, Hooked, Hooks, Manip, Rank};
use super::loads::confirm;
use super::node::Node;
use super::refusal::{Place, Refusal, RuleNumber, Unknown};
use super::rule::{RuleEnd, RuleRun};
use super::ruleset::{ChainRules, TableRules};
use super::share::Share;
use super::way::{Event, Learned, Outcome, Reject, Step};
use crate::netlink::model::Verdict;

/// The most ways that a trace has.
pub(super) const MOST_WAYS: usize = 1 << 20;
/// The most chains that a packet is in at a time, jumps and gotos together. The kernel allows for 16 jumps.
const DEEPEST: usize = 256;
/// Of more that have the same priority than this, not every order is tried.
const MOST_ORDERED: usize = 5;

/// A hook that packets come to.
pub(super) struct Walk<'a> {
    pub hooks: &'a Hooks<'a>,
    pub node: &'a Node,
    pub assumptions: &'a Assumptions,
    pub hook: Hook,
}

/// What became of packets at a hook.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// Those that go on.
    pub on: Vec<Flight>,
    /// Those that do not.
    pub ended: Vec<(Flight, Outcome)>,
}

/// How a chain ends for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ChainEnd {
    /// At its end, or with a `return`.
    Fell,
    Accepted,
    Dropped,
    Rejected(Reject),
}

/// What became of a packet.
#[derive(PartialEq)]
enum Became {
    On(Flight),
    Ended(Share, Vec<Learned>, Outcome),
}

impl Passed {
    fn take(&mut self, more: Passed) {
        self.on.extend(more.on);
        self.ended.extend(more.ended);
    }

    /// Whether the same became of them, whatever the steps. Of a packet that has come to its end, what it was by then is no
    /// matter any more.
    fn is_as(&self, other: &Passed) -> bool {
        let key = |passed: &Passed| {
            let on = passed.on.iter().map(|flight| Became::On(flight.without_steps()));
            let ended = passed.ended.iter();
            let ended = ended.map(|(flight, outcome)| Became::Ended(flight.share, flight.learned.clone(), *outcome));
            on.chain(ended).collect::<Vec<_>>()
        };
        let (mine, mut others) = (key(self), key(other));
        mine.len() == others.len()
            && mine.iter().all(|one| {
                let place = others.iter().position(|other| other == one);
                place.map(|place| others.swap_remove(place)).is_some()
            })
    }
}

impl Walk<'_> {
    /// Takes a packet through the hook.
    pub fn pass(&self, flight: Flight) -> Result<Passed, Refusal> {
        let ranks = self.hooks.ranks(flight.family, self.hook);
        let mut passed = self.through(ranks, flight, None)?;
        passed.on.iter_mut().for_each(|flight| confirm(flight, self.hook));
        Ok(passed)
    }

    /// With `until`, only as long as NAT has not decided.
    fn through(&self, ranks: &[Rank], flight: Flight, until: Option<Manip>) -> Result<Passed, Refusal> {
        let mut passed = Passed { on: vec![flight], ended: Vec::new() };
        for rank in ranks {
            let before = std::mem::take(&mut passed.on);
            for flight in before {
                let hooked: Vec<&Hooked> = rank.hooked.iter().collect();
                if !rank.unsure {
                    passed.take(self.in_order(&hooked, flight, until)?);
                    continue;
                }
                let result = self.in_order(&hooked, flight.clone(), until)?;
                if self.order_is_no_matter(&hooked, &flight, until, &result)? {
                    passed.take(result);
                } else {
                    passed.take(self.in_order(&self.assumed_order(&hooked)?, flight, until)?);
                }
            }
            if passed.on.len() + passed.ended.len() > MOST_WAYS {
                return Err(Refusal::without_place(Unknown::Ways(MOST_WAYS)));
            }
        }
        Ok(passed)
    }

    /// The order that is taken for granted of some of which nobody knows it.
    fn assumed_order<'b, 'c>(&self, hooked: &[&'b Hooked<'c>]) -> Result<Vec<&'b Hooked<'c>>, Refusal> {
        let list: Vec<String> = hooked.iter().map(|one| name(one)).collect();
        let names = format!("{}: {}", self.hook, list.join(", "));
        let mut all = if hooked.len() > MOST_ORDERED { Vec::new() } else { orders(hooked) };
        match self.assumptions.order(&names) {
            Some(order) if order < all.len() => Ok(all.swap_remove(order)),
            _ => Err(Refusal::without_place(Unknown::Order { names, orders: all.len() })),
        }
    }

    fn in_order(&self, hooked: &[&Hooked], flight: Flight, until: Option<Manip>) -> Result<Passed, Refusal> {
        let mut passed = Passed { on: vec![flight], ended: Vec::new() };
        for hooked in hooked {
            for flight in std::mem::take(&mut passed.on) {
                if until.is_some_and(|manip| flight.is_decided(manip)) {
                    passed.on.push(flight);
                } else {
                    passed.take(self.through_one(hooked, flight)?);
                }
            }
        }
        Ok(passed)
    }

    /// Whether the same becomes of the packet in every order.
    fn order_is_no_matter(
        &self,
        hooked: &[&Hooked],
        flight: &Flight,
        until: Option<Manip>,
        result: &Passed,
    ) -> Result<bool, Refusal> {
        let unchanged = Passed { on: vec![flight.clone()], ended: Vec::new() };
        let mut all_idle = true;
        for one in hooked {
            all_idle &= self.through_one(one, flight.clone())?.is_as(&unchanged);
        }
        if all_idle {
            return Ok(true);
        }
        if hooked.len() > MOST_ORDERED {
            return Ok(false);
        }
        for order in orders(hooked) {
            if !self.in_order(&order, flight.clone(), until)?.is_as(result) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn through_one(&self, hooked: &Hooked, mut flight: Flight) -> Result<Passed, Refusal> {
        match hooked {
            Hooked::Chain(base) => self.base_chain(base, flight),
            Hooked::Conntrack => {
                if flight.tracking == Tracking::NotYet {
                    flight.tracking = Tracking::New;
                }
                Ok(Passed { on: vec![flight], ended: Vec::new() })
            }
            Hooked::Nat(ranks) => {
                let manip = self.hook.manip();
                if flight.tracking != Tracking::New || flight.is_decided(manip) {
                    return Ok(Passed { on: vec![flight], ended: Vec::new() });
                }
                let mut passed = self.through(ranks, flight, Some(manip))?;
                // nf_nat_alloc_null_binding: not to translate is a decision as well
                passed.on.iter_mut().for_each(|flight| flight.decide(manip));
                Ok(passed)
            }
        }
    }

    fn base_chain(&self, base: &Base, flight: Flight) -> Result<Passed, Refusal> {
        let policy_drops = base.chain.chain.hook.as_ref().is_some_and(|hook| hook.policy == 0);
        let mut passed = Passed::default();
        for (mut flight, end) in self.chain(base.table, base.chain, flight, 0)? {
            match end {
                ChainEnd::Fell if policy_drops => {
                    let place = place(base.table, base.chain, None);
                    flight.steps.push(Step { hook: self.hook, place, event: Event::Verdict(Verdict::Drop) });
                    passed.ended.push((flight, Outcome::Dropped));
                }
                ChainEnd::Fell | ChainEnd::Accepted => passed.on.push(flight),
                ChainEnd::Dropped => passed.ended.push((flight, Outcome::Dropped)),
                ChainEnd::Rejected(reject) => passed.ended.push((flight, Outcome::Rejected(reject))),
            }
        }
        Ok(passed)
    }

    /// A chain of a table, and all that it leads to.
    fn chain(
        &self,
        table: &TableRules,
        chain: &ChainRules,
        flight: Flight,
        depth: usize,
    ) -> Result<Vec<(Flight, ChainEnd)>, Refusal> {
        let mut here = vec![flight];
        let mut ended = Vec::new();
        for (index, rule) in chain.rules.iter().enumerate() {
            let run = RuleRun { walk: self, table, chain, position: index + 1, rule, place: OnceCell::new() };
            for flight in std::mem::take(&mut here) {
                for (flight, end) in run.run(flight)? {
                    match end {
                        RuleEnd::Next => here.push(flight),
                        RuleEnd::Rejected(reject) => ended.push((flight, ChainEnd::Rejected(reject))),
                        RuleEnd::Verdict(verdict) => {
                            self.follow(&run, verdict, flight, depth, &mut here, &mut ended)?;
                        }
                    }
                }
            }
            if here.is_empty() {
                break;
            }
        }
        ended.extend(here.into_iter().map(|flight| (flight, ChainEnd::Fell)));
        Ok(ended)
    }

    fn follow(
        &self,
        run: &RuleRun,
        verdict: Verdict,
        flight: Flight,
        depth: usize,
        here: &mut Vec<Flight>,
        ended: &mut Vec<(Flight, ChainEnd)>,
    ) -> Result<(), Refusal> {
        let (target, comes_back) = match verdict {
            Verdict::Jump(target) => (target, true),
            Verdict::Goto(target) => (target, false),
            other => {
                match other {
                    Verdict::Accept => ended.push((flight, ChainEnd::Accepted)),
                    Verdict::Drop => ended.push((flight, ChainEnd::Dropped)),
                    Verdict::Return => ended.push((flight, ChainEnd::Fell)),
                    _ => here.push(flight),
                }
                return Ok(());
            }
        };
        let missing = || run.refusal(Unknown::Chain(target.clone()));
        let chain = run.table.chains.get(&target).filter(|_| depth < DEEPEST).ok_or_else(missing)?;
        for (flight, end) in self.chain(run.table, chain, flight, depth + 1)? {
            match end {
                ChainEnd::Fell if comes_back => here.push(flight),
                end => ended.push((flight, end)),
            }
        }
        Ok(())
    }
}

/// Where a rule is, or the policy of a chain.
pub(super) fn place(table: &TableRules, chain: &ChainRules, rule: Option<RuleNumber>) -> Arc<Place> {
    let table = &table.table;
    let (family, chain) = (table.family, chain.chain.name.clone());
    Arc::new(Place { family, table: table.name.clone(), chain, rule })
}

fn name(hooked: &Hooked) -> String {
    match hooked {
        Hooked::Chain(base) => place(base.table, base.chain, None).to_string(),
        Hooked::Conntrack => "connection tracking".into(),
        Hooked::Nat(_) => "NAT".into(),
    }
}

/// All orders, in which those of one table stay in theirs.
fn orders<'a, 'b>(hooked: &[&'b Hooked<'a>]) -> Vec<Vec<&'b Hooked<'a>>> {
    if hooked.is_empty() {
        return vec![Vec::new()];
    }
    let same_table = |a: &Hooked, b: &Hooked| match (a, b) {
        (Hooked::Chain(a), Hooked::Chain(b)) => std::ptr::eq(a.table, b.table),
        _ => false,
    };
    let mut all = Vec::new();
    for (at, first) in hooked.iter().enumerate() {
        if hooked[..at].iter().any(|earlier| same_table(earlier, first)) {
            continue;
        }
        let rest: Vec<&Hooked> = hooked.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, h)| *h).collect();
        all.extend(orders(&rest).into_iter().map(|order| [vec![*first], order].concat()));
    }
    all
}
