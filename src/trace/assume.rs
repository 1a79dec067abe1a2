//! Both possibilities, where it is not known whether a rule matches.

use super::refusal::{Place, Refusal, Unknown};
use super::way::Trace;

/// The most rules that are in doubt for one packet; each doubles the number of possibilities.
const MOST_DOUBTS: usize = 5;

/// What is taken for granted of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// The rule.
    pub place: Place,
    /// Why it is not known whether it matches.
    pub why: Unknown,
    /// Whether it is taken to match. What is known of it has to hold all the same.
    pub matches: bool,
}

/// What is taken for granted of rules of which it is not known whether they match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assumptions(Vec<Assumption>);

impl Assumptions {
    /// Whether a rule is taken to match, if anything is.
    pub fn of(&self, place: &Place) -> Option<bool> {
        self.0.iter().find(|assumption| assumption.place == *place).map(|assumption| assumption.matches)
    }

    /// All of them, in the order in which the packet met the rules.
    pub fn all(&self) -> &[Assumption] {
        &self.0
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
    let mut found = Vec::new();
    explore_under(&mut found, Assumptions::default(), trace);
    found
}

fn explore_under(
    found: &mut Vec<Possibility>,
    assumptions: Assumptions,
    trace: &impl Fn(&Assumptions) -> Result<Trace, Refusal>,
) {
    match trace(&assumptions) {
        Err(Refusal { place: Some(place), what, doubt: true, .. }) if assumptions.0.len() < MOST_DOUBTS => {
            for matches in [false, true] {
                let mut assumptions = assumptions.clone();
                assumptions.0.push(Assumption { place: (*place).clone(), why: what.clone(), matches });
                explore_under(found, assumptions, trace);
            }
        }
        trace => found.push(Possibility { assumptions, trace }),
    }
}
