//! Follows one packet through a ruleset, as the kernel would: which chains and rules it comes to, which elements match,
//! and what becomes of it.
//!
//! A [`Ruleset`] holds all tables of a network namespace, read from the kernel or made in memory of the messages that
//! would be sent to it. [`trace`] takes the first packet of a new connection through it, on a [`Node`] with these
//! addresses, interfaces and routes. Where a rule draws a number there are several ways, each with its exact share.
//!
//! Nothing is guessed. A rule whose expressions are not all understood is no matter as long as the packet does not come
//! to it, or what is known of it says that it does not match, or it does nothing to the packet; else the trace is
//! refused, and the [`Refusal`] names the rule and the expression. What routing does beside the rules (policy routing,
//! reverse path filters, packets without a route) is not looked at.

mod assume;
mod describe;
mod elements;
mod flight;
mod headers;
mod hook;
mod loads;
mod nat;
mod node;
mod path;
mod raw;
mod refusal;
mod registers;
mod rule;
mod ruleset;
mod sets;
mod share;
mod text;
mod tracer;
mod walk;
mod way;

pub use assume::{Assumption, Assumptions, Possibility};
pub use elements::Elements;
pub use hook::Hook;
pub use node::{Interface, LOOPBACK, Node, Origin, Packet, Route};
pub use raw::{LISTED, LISTED_CONDITION};
pub use refusal::{Place, Refusal, RuleNumber, Unknown};
pub use ruleset::{ApplyError, ChainRules, Ruleset, SetElements, TableRules};
pub use share::Share;
pub use tracer::{Tracer, possibilities, trace};
pub use way::{Event, Learned, Outcome, Reject, Source, Step, Trace, Way, verdict_text};
