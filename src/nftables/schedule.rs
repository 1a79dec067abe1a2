//! In which transactions a change is sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::cut::{self, Limits, Parts};
use super::state::State;
use super::transaction::{Content, Draft, Transaction};
use crate::objects::Family;
use crate::plan::PlanChange;

/// The transactions of a change, made one at a time: each moves the state on. The change is cut where it is too large
/// for one, between Service ports.
///
/// A cold start sends what verdicts lead to first, then the verdicts, and at last the rules of the base chains that lead
/// packets to them. Each transaction with a verdict makes the kernel walk over all verdicts that a base chain leads to, in
/// search of loops: as long as none does there is nothing to walk over, and so it is done once.
pub struct Schedule<'a> {
    state: &'a mut State,
    limits: Limits,
    parts: Parts,
    verdicts: Verdicts,
    /// The families whose tables are made by it, and whose rules wait.
    shut: Vec<Family>,
    /// What has been made and not been taken yet.
    ready: VecDeque<Transaction>,
    time: Duration,
}

/// When verdicts are sent.
enum Verdicts {
    /// With what they lead to.
    Along,
    /// It is a cold start, and not known yet whether there is more than one part.
    Open,
    /// After everything else; so many positions of the state's Service ports are done.
    Last(usize),
}

impl<'a> Schedule<'a> {
    /// The transactions that bring the change in, none larger than the limits say.
    pub fn new(state: &'a mut State, change: PlanChange, limits: Limits) -> Schedule<'a> {
        let started = Instant::now();
        // what is made in the place of an unknown table goes into force at once
        let in_one = state.ports.is_empty() && !state.remade.is_empty();
        let verdicts = if state.ports.is_empty() && !in_one { Verdicts::Open } else { Verdicts::Along };
        state.make_room(change.changed.iter());
        let is_new = |family: &Family| !state.tables(*family).exists;
        let shut = Family::BOTH.into_iter().filter(is_new).collect();
        // a Service port has about one
        let limits = if in_one { limits.without_cuts() } else { limits.beside_walks(state.ports.len()) };
        let parts = Parts::new(state, change, limits);
        Schedule { state, limits, parts, verdicts, shut, ready: VecDeque::new(), time: started.elapsed() }
    }

    /// The next one.
    pub fn next(&mut self) -> Option<Transaction> {
        let started = Instant::now();
        let ready = self.ready.pop_front();
        let transaction = ready.or_else(|| self.part()).or_else(|| self.verdicts()).or_else(|| self.open());
        self.time += started.elapsed();
        transaction
    }

    /// The time that it took to make them.
    pub fn time(&self) -> Duration {
        self.time
    }

    fn part(&mut self) -> Option<Transaction> {
        let part = self.parts.next(self.state)?;
        let is_first = matches!(self.verdicts, Verdicts::Open);
        if is_first {
            self.verdicts = if self.parts.is_empty() { Verdicts::Along } else { Verdicts::Last(0) };
        }
        let content = match self.verdicts {
            Verdicts::Along | Verdicts::Open => Content::All,
            Verdicts::Last(_) => Content::WithoutVerdicts,
        };
        let transaction = self.state.advance_in_room(part, Draft::of(content));
        if is_first && content == Content::WithoutVerdicts {
            self.ready = cut::by_buckets(transaction);
            return self.ready.pop_front();
        }
        Some(transaction)
    }

    /// The verdicts that wait. Where the kernel walks over them each time, there should be few times.
    fn verdicts(&mut self) -> Option<Transaction> {
        let Verdicts::Last(position) = &mut self.verdicts else { return None };
        let walks = self.shut.len() < Family::BOTH.len();
        let limit = if walks { 3 * self.limits.elements() } else { self.limits.elements() };
        let transaction = self.state.verdicts(position, limit);
        (!transaction.is_empty()).then_some(transaction)
    }

    /// The rules that wait.
    fn open(&mut self) -> Option<Transaction> {
        let Verdicts::Last(_) = self.verdicts else { return None };
        let transaction = self.state.open(&std::mem::take(&mut self.shut));
        (!transaction.is_empty()).then_some(transaction)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chains::leads_to_verdicts;
    use super::super::fill::Fill;
    use super::super::names::Map;
    use super::*;
    use crate::config::ProxyConfig;
    use crate::netlink::model::Op;
    use crate::source::generate::{self, Options};
    use crate::tracker::Tracker;

    /// What brings so many Services in, and the state before it.
    fn cold_start(services: usize) -> (State, PlanChange) {
        let snapshot = generate::generate(&Options { services, ..Options::default() }).unwrap();
        let mut tracker = Tracker::new(ProxyConfig { node_name: "n1".into(), ..ProxyConfig::default() });
        tracker.replace(snapshot);
        (State::default(), tracker.take().0)
    }

    fn elements(transaction: &Transaction, of: fn(Map) -> bool) -> usize {
        let of = |op: &&Op| match op {
            Op::AddElements { set, .. } => set.name.parse().is_ok_and(of),
            _ => false,
        };
        transaction.ops.iter().filter(of).map(Op::weight).sum()
    }

    fn opens(transaction: &Transaction) -> usize {
        let is_gate = |op: &&Op| matches!(op, Op::AddRule(rule) if rule.chain.parse().is_ok_and(leads_to_verdicts));
        transaction.ops.iter().filter(is_gate).count()
    }

    /// As long as no base chain leads to verdicts, the kernel has nothing to walk over.
    #[test]
    fn of_a_cold_start_the_rules_that_lead_to_verdicts_come_last() {
        let (mut state, change) = cold_start(1000);
        let whole = State::default().advance(change.clone());
        let mut schedule = Schedule::new(&mut state, change, Limits::new(64 << 10));
        let transactions: Vec<Transaction> = std::iter::from_fn(|| schedule.next()).collect();
        let (last, before) = transactions.split_last().unwrap();
        assert!(before.len() > 10, "{} transactions", before.len());
        assert_eq!(last.elements_added(), 0);
        let flushes = last.ops.iter().filter(|op| matches!(op, Op::FlushChain(_))).count();
        assert_eq!((opens(last), last.ops.len()), (opens(&whole), opens(&whole) + flushes));
        assert!(before.iter().all(|transaction| opens(transaction) == 0));
        let verdicts: Vec<usize> = before.iter().map(|t| elements(t, Map::holds_verdicts)).collect();
        let first = verdicts.iter().position(|count| *count > 0).unwrap();
        assert!(verdicts[first..].iter().all(|count| (1..=512).contains(count)), "{verdicts:?}");
        let added = |transactions: &[Transaction]| transactions.iter().map(Transaction::elements_added).sum::<usize>();
        assert_eq!(added(&transactions), added(&[whole]));
    }

    /// A million endpoints: no transaction makes other maps beside theirs.
    #[test]
    fn large_maps_are_made_one_by_one() {
        const LARGE: u32 = 3 << 19;
        let (mut state, change) = cold_start(1000);
        let endpoints = state.tables_mut(Family::V4).fill.get_mut(Map::Endpoints).unwrap();
        *endpoints = Fill { used: 0, size: LARGE };
        let mut schedule = Schedule::new(&mut state, change, Limits::new(64 << 10));
        let transactions: Vec<Transaction> = std::iter::from_fn(|| schedule.next()).collect();
        let size = |op: &Op| match op {
            Op::AddSet(set) => set.size,
            _ => None,
        };
        let sizes = |t: &Transaction| t.ops.iter().filter_map(size).collect::<Vec<_>>();
        let made: Vec<Vec<u32>> = transactions.iter().map(sizes).filter(|sizes| !sizes.is_empty()).collect();
        assert_eq!(made.iter().filter(|sizes| sizes.contains(&LARGE)).collect::<Vec<_>>(), [&vec![LARGE]], "{made:?}");
        assert!(made.len() == 3, "{made:?}");
    }

    #[test]
    fn what_fits_into_one_transaction_is_one() {
        let (mut state, change) = cold_start(10);
        let whole = State::default().advance(change.clone());
        let mut schedule = Schedule::new(&mut state, change, Limits::new(1 << 20));
        let only = schedule.next().unwrap();
        assert_eq!((opens(&only), only.elements_added()), (opens(&whole), whole.elements_added()));
        assert!(opens(&only) > 0 && schedule.next().is_none());
    }
}
