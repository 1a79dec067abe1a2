//! What `nft list ruleset` and `nft -j list ruleset` print, as a [`Ruleset`] to trace through and to audit.
//!
//! `text` and `json` read the two forms into the same `ast`, a table, set or rule at a time; `compile` and `rules` make the
//! expressions of it that the kernel would run, as far as svcmap's tables, kube-proxy's and most others' use them. What is
//! not understood stays in its rule as it was written, so that the [tracer](crate::trace) stops there and names it; and it
//! is noted with its line.

mod ast;
mod bytes;
mod compile;
mod expression;
mod fields;
mod json;
mod rules;
mod statement;
mod text;
mod token;

use std::fmt;

use crate::trace::Ruleset;

/// A ruleset that was read from a listing.
#[derive(Debug, Default)]
pub struct Listing {
    /// The tables.
    pub ruleset: Ruleset,
    /// What was not understood, in the listing's order.
    pub notes: Vec<Note>,
}

/// Something that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line, from 1; in JSON, the number of the object.
    pub line: usize,
    /// What.
    pub what: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// What is said of a flowtable.
const FLOWTABLE: &str = "a flowtable: its packets pass the rules by";

/// Why a text is no listing.
pub type NoListing = Note;

/// Reads a listing of either form.
///
/// # Errors
/// The text is none: neither JSON of `nft -j`, nor what `nft list ruleset` prints.
pub fn read(text: &str) -> Result<Listing, NoListing> {
    let mut compiler = compile::Compiler::default();
    if text.trim_start().starts_with('{') {
        json::read(text, &mut compiler)?;
    } else {
        text::read(text, &mut compiler)?;
    }
    Ok(compiler.finish())
}
