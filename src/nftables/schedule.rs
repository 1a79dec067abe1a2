//! In which transactions a change is sent.

use std::time::{Duration, Instant};

use super::cut::{Limits, Parts};
use super::state::State;
use super::transaction::{Content, Draft, Transaction};
use crate::plan::PlanChange;

/// The transactions of a change, made one at a time: each moves the state on. The change is cut where it is too large
/// for one, between Service ports.
///
/// A cold start sends what verdicts lead to first, and then the verdicts in as few transactions as can be: each
/// of those makes the kernel walk over all verdicts there are, in search of loops.
pub struct Schedule<'a> {
    state: &'a mut State,
    limits: Limits,
    parts: Parts,
    verdicts: Verdicts,
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
        let limits = if in_one { limits.without_cuts() } else { limits };
        let parts = Parts::new(state, change, limits);
        Schedule { state, limits, parts, verdicts, time: started.elapsed() }
    }

    /// The next one.
    pub fn next(&mut self) -> Option<Transaction> {
        let started = Instant::now();
        let transaction = self.part().or_else(|| self.verdicts());
        self.time += started.elapsed();
        transaction
    }

    /// The time that it took to make them.
    pub fn time(&self) -> Duration {
        self.time
    }

    fn part(&mut self) -> Option<Transaction> {
        let part = self.parts.next(self.state)?;
        if let Verdicts::Open = self.verdicts {
            self.verdicts = if self.parts.is_empty() { Verdicts::Along } else { Verdicts::Last(0) };
        }
        let content = match self.verdicts {
            Verdicts::Along | Verdicts::Open => Content::All,
            Verdicts::Last(_) => Content::WithoutVerdicts,
        };
        Some(self.state.advance_in_room(part, Draft::of(content)))
    }

    fn verdicts(&mut self) -> Option<Transaction> {
        let Verdicts::Last(position) = &mut self.verdicts else { return None };
        let transaction = self.state.verdicts(position, self.limits.verdicts());
        (!transaction.is_empty()).then_some(transaction)
    }
}
