//! Both possibilities, where it is not known whether a rule matches.

use super::refusal::{Place, Refusal, Unknown};
use super::way::Trace;

/// The most rules that are in doubt for one packet; each doubles the number of possibilities.
const MOST_DOUBTS: usize = 5;

/// The most rules that are gone beyond. From [`MOST_DOUBTS`] on those in doubt are taken not to match.
const MOST_BEYOND: usize = 32;

/// The most places at which all orders of chains with the same priority are tried.
const MOST_ORDERS: usize = 2;

/// What is taken for granted of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// The rule.
    pub place: Place,
    /// Why it is not known whether it matches.
    pub why: Unknown,
    /// Whether it is taken to match. What is known of it has to hold all the same. A rule of which it is not known what it does
    /// is taken not to.
    pub matches: bool,
}

/// What is taken for granted of rules of which it is not known whether they match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assumptions {
    rules: Vec<Assumption>,
    /// Of chains with the same priority, in which order they are gone through.
    orders: Vec<(String, usize)>,
}

impl Assumptions {
    /// Whether a rule is taken to match, if anything is.
    pub fn of(&self, place: &Place) -> Option<bool> {
        self.rules.iter().find(|assumption| assumption.place == *place).map(|assumption| assumption.matches)
    }

    fn with(&self, place: &Place, why: &Unknown, matches: bool) -> Assumptions {
        let mut all = self.clone();
        all.rules.push(Assumption { place: place.clone(), why: why.clone(), matches });
        all
    }

    /// In which of their orders chains with the same priority are gone through, if anything is known of it.
    pub(super) fn order(&self, names: &str) -> Option<usize> {
        self.orders.iter().find(|(of, _)| of == names).map(|(_, order)| *order)
    }

    /// The same, with such an order; none where that of too many is taken for granted already.
    pub(super) fn with_order(&self, names: &str, order: usize) -> Option<Assumptions> {
        let mut all = self.clone();
        all.orders.push((names.to_owned(), order));
        (all.orders.len() <= MOST_ORDERS).then_some(all)
    }

    /// All of them, in the order in which the packet met the rules.
    pub fn all(&self) -> &[Assumption] {
        &self.rules
    }
}

/// What becomes of a packet under some assumptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Possibility {
    /// The assumptions; none where everything is known.
    pub assumptions: Assumptions,
    /// The trace; a refusal where it is not known what a rule does, rather than whether it matches.
    pub trace: Result<Trace, Refusal>,
}

/// Tries both for each rule of which it is not known whether it matches.
pub(super) fn explore(trace: &impl Fn(&Assumptions) -> Result<Trace, Refusal>) -> Vec<Possibility> {
    let mut exploration = Exploration { found: Vec::new(), goes_beyond: false, trace };
    exploration.under(Assumptions::default());
    exploration.found
}

/// The same, and goes on behind each rule of which it is not known what it does, as if it did nothing.
pub(super) fn explore_beyond(trace: &impl Fn(&Assumptions) -> Result<Trace, Refusal>) -> Vec<Possibility> {
    let mut exploration = Exploration { found: Vec::new(), goes_beyond: true, trace };
    exploration.under(Assumptions::default());
    exploration.found
}

struct Exploration<'a, F> {
    found: Vec<Possibility>,
    goes_beyond: bool,
    trace: &'a F,
}

impl<F: Fn(&Assumptions) -> Result<Trace, Refusal>> Exploration<'_, F> {
    fn under(&mut self, assumptions: Assumptions) {
        let trace = (self.trace)(&assumptions);
        let assumed = assumptions.rules.len();
        match &trace {
            Err(Refusal { place: Some(place), what, doubt: true, .. }) if assumed < MOST_DOUBTS => {
                for matches in [false, true] {
                    self.under(assumptions.with(place, what, matches));
                }
                return;
            }
            Err(Refusal { place: Some(place), what, doubt, .. })
                if self.goes_beyond && assumed < MOST_BEYOND && assumptions.of(place).is_none() =>
            {
                let (beyond, doubt) = (assumptions.with(place, what, false), *doubt);
                // too many rules may match for all to be tried; what it is not known what it does is said
                if !doubt {
                    self.found.push(Possibility { assumptions, trace });
                }
                return self.under(beyond);
            }
            _ => {}
        }
        self.found.push(Possibility { assumptions, trace });
    }
}
