//! What a trace stops at rather than to guess.

use std::fmt;
use std::sync::Arc;

use super::way::Step;
use crate::netlink::model::{Name, NfFamily};

/// A rule, or a chain where no rule decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The table's family.
    pub family: NfFamily,
    /// The table's name.
    pub table: Name,
    /// The chain's name.
    pub chain: Name,
    /// Which rule of the chain; none for the chain's policy.
    pub rule: Option<RuleNumber>,
}

/// Which rule of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleNumber {
    /// Its position; the first is 1.
    pub position: usize,
    /// The kernel's handle; 0 for a rule that is not in the kernel.
    pub handle: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family.name(), self.table, self.chain)?;
        match self.rule {
            Some(RuleNumber { position, handle: 0 }) => write!(f, ", rule {position}"),
            Some(RuleNumber { position, handle }) => write!(f, ", rule {position} (handle {handle})"),
            None => Ok(()),
        }
    }
}

/// Why a trace cannot be told: the packet reaches something whose effect on it is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", before(place.as_deref()))]
pub struct Refusal {
    /// Where; none where it is no matter of rules.
    pub place: Option<Arc<Place>>,
    /// What.
    pub what: Unknown,
    /// Whether all that is not known is whether the rule matches: then the trace can go on under either
    /// [assumption](super::Assumptions).
    pub doubt: bool,
    /// What happened to the packet before, in order.
    pub steps: Vec<Step>,
}

/// A chain as a whole is what the sentence is about.
fn before(place: Option<&Place>) -> String {
    match place {
        None => String::new(),
        Some(place) if place.rule.is_none() => format!("{place} "),
        Some(place) => format!("{place}: "),
    }
}

/// What is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// An expression of which it cannot be told what it does, or what it loads.
    #[error("{0} is not understood")]
    Expression(String),
    /// An element that holds more than was read of it.
    #[error("the element {element} of {set} is not understood")]
    Element {
        /// The set's name.
        set: Name,
        /// The element, by its comment or its key in hexadecimal digits.
        element: String,
    },
    /// A set whose elements do something to the packet, or that is not there.
    #[error("the set {0} is not understood")]
    Set(Name),
    /// A chain that is not there.
    #[error("there is no chain {0}")]
    Chain(Name),
    /// Chains that are hooked in with the same priority, and what becomes of the packet depends on which one is first.
    #[error("{names} have the same priority, and it matters which one is first")]
    Order {
        /// The hook and the chains.
        names: String,
        /// How many orders there are; 0 for too many.
        orders: usize,
    },
    /// The way through the node.
    #[error("{0}")]
    Routing(String),
    /// More ways than can be told.
    #[error("there are more than {0} ways")]
    Ways(usize),
}

impl Refusal {
    /// A refusal that is no matter of rules.
    pub(super) fn routing(why: impl Into<String>) -> Refusal {
        Refusal::without_place(Unknown::Routing(why.into()))
    }

    /// What is not known of the packet's way as a whole.
    pub(super) fn without_place(what: Unknown) -> Refusal {
        Refusal { place: None, what, doubt: false, steps: Vec::new() }
    }

    /// What is not known, at a place.
    pub(super) fn at(place: &Arc<Place>, what: Unknown) -> Refusal {
        Refusal { place: Some(place.clone()), ..Refusal::without_place(what) }
    }

    /// The same, behind what happened to the packet before.
    pub(super) fn after(self, steps: &[Step]) -> Refusal {
        if self.steps.is_empty() { Refusal { steps: steps.to_vec(), ..self } } else { self }
    }
}
