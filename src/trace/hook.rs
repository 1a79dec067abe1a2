//! The hooks of the kernel's IP stack, and in which order what is hooked in runs.

use std::cmp::Reverse;
use std::fmt;

use super::ruleset::{ChainRules, Ruleset, TableRules};
use crate::netlink::model::NfFamily;

/// A hook, by its number (`NF_INET_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// Whatever comes in, before it is known where it goes.
    Prerouting = 0,
    /// What goes to the node itself.
    Input = 1,
    /// What goes on to others.
    Forward = 2,
    /// What the node itself sends.
    Output = 3,
    /// Whatever goes out.
    Postrouting = 4,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
        })
    }
}

/// Which address a nat chain at a hook decides on (`HOOK2MANIP` of the kernel's `nf_nat.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manip {
    Source,
    Destination,
}

impl Hook {
    pub(super) fn manip(self) -> Manip {
        match self {
            Hook::Prerouting | Hook::Output => Manip::Destination,
            _ => Manip::Source,
        }
    }

    /// Where connection tracking meets new packets (`NF_IP_PRI_CONNTRACK`).
    fn has_conntrack(self) -> bool {
        matches!(self, Hook::Prerouting | Hook::Output)
    }

    /// The priority at which NAT is decided, whatever the priorities of nat chains are, which only order them
    /// (`NF_IP_PRI_NAT_DST`, `NF_IP_PRI_NAT_SRC`).
    fn nat_priority(self) -> i32 {
        match self.manip() {
            Manip::Source => 100,
            Manip::Destination => -100,
        }
    }
}

const CONNTRACK_PRIORITY: i32 = -200;

/// A base chain with its table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base<'a> {
    pub table: &'a TableRules,
    pub chain: &'a ChainRules,
}

/// Something that is hooked in.
#[derive(Clone, Debug)]
pub(super) enum Hooked<'a> {
    Chain(Base<'a>),
    /// Connection tracking takes notice of the packet.
    Conntrack,
    /// NAT is decided: by these chains, in order, the first decision is the one.
    Nat(Vec<Rank<'a>>),
}

/// Some that are hooked in with the same priority, in their order.
#[derive(Clone, Debug)]
pub(super) struct Rank<'a> {
    pub hooked: Vec<Hooked<'a>>,
    /// Whether the order is only supposed to be so.
    pub unsure: bool,
}

/// What is hooked in at a hook of a family, in the order in which it runs. Of two with the same priority, the one that
/// was hooked in later comes first (`nf_hook_entries_grow` of `net/netfilter/core.c`).
pub(super) fn ranks<'a>(ruleset: &'a Ruleset, family: NfFamily, hook: Hook) -> Vec<Rank<'a>> {
    let mut entries: Vec<(i32, u64, Hooked)> = Vec::new();
    for base in bases(ruleset, family).filter(|base| !is_nat(base)) {
        if let Some(at) = hook_of(&base).filter(|at| at.number == hook as u32) {
            entries.push((at.priority, base.chain.hooked, Hooked::Chain(base)));
        }
    }
    if hook.has_conntrack() {
        entries.push((CONNTRACK_PRIORITY, 0, Hooked::Conntrack));
    }
    // as soon as there is one nat chain, NAT is hooked in at all four hooks
    let first_nat = bases(ruleset, family).filter(is_nat).map(|base| base.chain.hooked).min();
    if let (Some(hooked), true) = (first_nat, hook != Hook::Forward) {
        entries.push((hook.nat_priority(), hooked, Hooked::Nat(nat_chains(ruleset, family, hook))));
    }
    in_order(ruleset, entries)
}

fn nat_chains(ruleset: &Ruleset, family: NfFamily, hook: Hook) -> Vec<Rank<'_>> {
    let chains = bases(ruleset, family).filter(is_nat).filter_map(|base| {
        let at = hook_of(&base).filter(|at| at.number == hook as u32)?;
        Some((at.priority, base.chain.hooked, Hooked::Chain(base)))
    });
    in_order(ruleset, chains.collect())
}

/// Sorts by priority; the later comes first.
fn in_order<'a>(ruleset: &Ruleset, mut entries: Vec<(i32, u64, Hooked<'a>)>) -> Vec<Rank<'a>> {
    entries.sort_by_key(|(priority, hooked, _)| (*priority, Reverse(*hooked)));
    let rank = |same: &[(i32, u64, Hooked<'a>)]| Rank {
        unsure: same.windows(2).any(|pair| unsure(ruleset, &pair[0].2, &pair[1].2)),
        hooked: same.iter().map(|(.., hooked)| hooked.clone()).collect(),
    };
    entries.chunk_by(|a, b| a.0 == b.0).map(rank).collect()
}

/// Whether nobody says which of the two was hooked in first: chains of different tables that were read from the kernel,
/// and what is not a chain at all.
fn unsure(ruleset: &Ruleset, a: &Hooked, b: &Hooked) -> bool {
    match (a, b) {
        (Hooked::Conntrack, _) | (_, Hooked::Conntrack) => true,
        (Hooked::Chain(a), Hooked::Chain(b)) => ruleset.read && !std::ptr::eq(a.table, b.table),
        _ => ruleset.read,
    }
}

/// All base chains that see the family's packets.
fn bases(ruleset: &Ruleset, family: NfFamily) -> impl Iterator<Item = Base<'_>> {
    let sees = move |table: &&TableRules| !table.is_dormant() && [family, NfFamily::INET].contains(&table.table.family);
    let tables = ruleset.tables.iter().filter(sees);
    tables
        .flat_map(|table| table.chains.values().map(move |chain| Base { table, chain }))
        .filter(|base| hook_of(base).is_some())
}

fn hook_of<'a>(base: &Base<'a>) -> Option<&'a crate::netlink::model::Hook> {
    base.chain.chain.hook.as_ref()
}

fn is_nat(base: &Base) -> bool {
    hook_of(base).is_some_and(|hook| hook.kind == "nat")
}
