//! The ways that a packet may take, and what becomes of it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::hook::Hook;
use super::refusal::Place;
use super::share::Share;
use crate::netlink::model::{Element, Name, NfFamily, SetRef, Verdict};

/// Everything that may become of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The ways that it may take. Their shares add up to all.
    pub ways: Vec<Way>,
}

impl Trace {
    /// The outcomes in a few words; with shares, where there are several.
    pub fn summary(&self) -> String {
        let outcomes = self.outcomes();
        let words = outcomes.iter().map(|(outcome, share)| match outcomes.len() {
            1 => outcome.to_string(),
            _ => format!("{share} {outcome}"),
        });
        words.collect::<Vec<_>>().join("; ")
    }

    /// Whether the same becomes of the packet, and the same is learned of it, however it gets there.
    pub(super) fn ends_as(&self, other: &Trace) -> bool {
        let learned = |trace: &Trace| trace.ways.iter().map(|way| way.learned.clone()).collect::<Vec<_>>();
        self.outcomes() == other.outcomes() && learned(self) == learned(other)
    }

    /// What becomes of the packet, however it gets there, and how often.
    pub fn outcomes(&self) -> BTreeMap<Outcome, Share> {
        let mut outcomes = BTreeMap::new();
        for way in &self.ways {
            let share = outcomes.entry(way.outcome).or_insert(Share::NONE);
            *share = share.checked_add(way.share).expect("the shares of one whole");
        }
        outcomes
    }
}

/// One way through the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// How often it is taken.
    pub share: Share,
    /// What happens on it, in order.
    pub steps: Vec<Step>,
    /// Where it ends.
    pub outcome: Outcome,
    /// What rules on it put into sets, or take out of them.
    pub learned: Vec<Learned>,
}

/// One thing that a rule does. Rules that do not match leave no step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// At which hook.
    pub hook: Hook,
    /// The rule.
    pub place: Arc<Place>,
    /// What it does.
    pub event: Event,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A number was drawn.
    Drawn {
        /// The number, from the expression's offset on.
        number: u32,
        /// How many numbers there are.
        of: u32,
    },
    /// An element of a set or map matches.
    Matched {
        /// The set.
        set: Name,
        /// The element, as the set holds it.
        element: Element,
    },
    /// No element of a set matches, which is what the rule wants.
    Missed {
        /// The set.
        set: Name,
    },
    /// The packet's mark is another one now.
    Mark(u32),
    /// The connection's mark is another one now.
    ConnectionMark(u32),
    /// Connection tracking passes the packet over.
    Untracked,
    /// An element is put into a set, or refreshed there, or taken out.
    Learned(Learned),
    /// The destination is another one now.
    Destination(SocketAddr),
    /// The source is another one now.
    Source(Source),
    /// The packet is refused.
    Rejected(Reject),
    /// A verdict, of a rule or of a chain's policy.
    Verdict(Verdict),
}

/// What a rule does to a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// The set.
    pub set: SetRef,
    /// The element; only its key matters where it is taken out.
    pub element: Element,
    /// Whether it is taken out.
    pub forgotten: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It goes where it was sent, as it was sent.
    Untouched,
    /// It is translated.
    Delivered {
        /// Where it goes.
        to: SocketAddr,
        /// Whom it comes from, as the receiver sees it.
        source: Source,
    },
    /// It is dropped.
    Dropped,
    /// It is refused.
    Rejected(Reject),
}

/// Whom a packet comes from, as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The sender.
    Kept,
    /// The node, with the address that it has towards the receiver.
    Masqueraded,
    /// This address.
    Address(IpAddr),
}

/// How a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reject {
    /// With this code of ICMP's (or ICMPv6's) "destination unreachable".
    Unreachable(u8),
    /// With a TCP reset.
    Reset,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Untouched => f.write_str("untouched"),
            Outcome::Delivered { to, source: Source::Kept } => write!(f, "{to}"),
            Outcome::Delivered { to, source } => write!(f, "{to}, {source}"),
            Outcome::Dropped => f.write_str("dropped"),
            Outcome::Rejected(reject) => write!(f, "{reject}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Kept => f.write_str("from the sender"),
            Source::Masqueraded => f.write_str("masqueraded"),
            Source::Address(ip) => write!(f, "from {ip}"),
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reject::Unreachable(code) => write!(f, "rejected with ICMP unreachable {code}"),
            Reject::Reset => f.write_str("rejected with TCP reset"),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of all: {}", self.share, self.outcome)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.hook, self.place, self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Drawn { number, of } => write!(f, "draws {number} of {of}"),
            Event::Matched { set, element } => write!(f, "element {} of {set}", element_text(element)),
            Event::Missed { set } => write!(f, "not in {set}"),
            Event::Mark(mark) => write!(f, "mark 0x{mark:08x}"),
            Event::ConnectionMark(mark) => write!(f, "connection mark 0x{mark:08x}"),
            Event::Untracked => f.write_str("untracked"),
            Event::Learned(Learned { set, element, forgotten }) => {
                let verb = if *forgotten { "takes" } else { "puts" };
                let into = if *forgotten { "out of" } else { "into" };
                write!(f, "{verb} {} {into} {}", element_text(element), set.name)
            }
            Event::Destination(to) => write!(f, "to {to}"),
            Event::Source(source) => write!(f, "{source}"),
            Event::Rejected(reject) => write!(f, "{reject}"),
            Event::Verdict(verdict) => f.write_str(&verdict_text(verdict)),
        }
    }
}

/// An element by its comment, else by its key in hexadecimal digits.
pub(super) fn element_text(element: &Element) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match &element.comment {
        Some(comment) => format!("{comment:?}"),
        None if element.key.is_empty() => String::from("*"),
        None => hex(&element.key),
    }
}

/// A verdict as `nft` writes it.
pub fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "accept".into(),
        Verdict::Drop => "drop".into(),
        Verdict::Continue => "continue".into(),
        Verdict::Break => "break".into(),
        Verdict::Return => "return".into(),
        Verdict::Jump(chain) => format!("jump {chain}"),
        Verdict::Goto(chain) => format!("goto {chain}"),
        Verdict::Other(code) => format!("verdict {code}"),
    }
}

impl Learned {
    /// Whether it is about this set.
    pub(super) fn is_of(&self, family: NfFamily, table: &str, set: &str) -> bool {
        self.set.family == family && self.set.table == table && self.set.name == set
    }
}
