//! One new connection explained: hook by hook through a ruleset, and how it would have been for other clients.
//!
//! [`surroundings`] says what is known of the node beside its rules and who its clients are, [`explanation`] follows the
//! connection and compares clients, [`mod@write`] says it for people. The rules are [`trace`](crate::trace)'s, read from the kernel
//! or from a listing, or made of a plan and never sent.

pub mod explanation;
mod merge;
pub mod surroundings;
pub mod write;

pub use explanation::{Explanation, explain};
pub use surroundings::{Client, Surroundings};
