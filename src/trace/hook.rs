//! The hooks of the kernel's IP stack, and in which order what is hooked in runs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use super::loads::meta_key;
use super::raw::{Raw, raw};
use super::ruleset::{ChainRules, Ruleset, TableRules};
use crate::netlink::model::{Data, Expr, NfFamily, Table, Verdict};

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
/// Families whose rules are not those of the IP stack: `netdev` and `bridge`.
const NETDEV: NfFamily = NfFamily(5);
const BRIDGE: NfFamily = NfFamily(7);
/// `NF_INET_INGRESS`.
const INGRESS: u32 = 5;
/// All hooks, by their numbers.
const HOOKS: [Hook; 5] = [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting];

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

/// All that is hooked in, sorted once for all packets.
#[derive(Debug)]
pub(super) struct Hooks<'a> {
    v4: [Vec<Rank<'a>>; 5],
    v6: [Vec<Rank<'a>>; 5],
    /// A chain that sees packets before those of IP do, and does not just let all of them on.
    pub ingress: Option<Base<'a>>,
    /// The same of packets of bridges.
    pub bridge: Option<Base<'a>>,
}

impl<'a> Hooks<'a> {
    /// What tables hook in, as long as they are wanted.
    pub fn new(ruleset: &'a Ruleset, is_wanted: impl Fn(&Table) -> bool) -> Hooks<'a> {
        let awake = ruleset.tables.iter().filter(|table| !table.is_dormant() && is_wanted(&table.table));
        let bases: Vec<Base<'a>> = awake
            .flat_map(|table| table.chains.values().map(move |chain| Base { table, chain }))
            .filter(|base| hook_of(base).is_some())
            .collect();
        let all = |family| HOOKS.map(|hook| ranks(ruleset, &bases, family, hook));
        let find = |wanted: fn(&Base<'a>) -> bool| bases.iter().copied().find(wanted);
        Hooks {
            v4: all(NfFamily::IPV4),
            v6: all(NfFamily::IPV6),
            ingress: find(|base| match base.table.table.family {
                NETDEV => may_matter(base),
                NfFamily::INET => hook_of(base).is_some_and(|hook| hook.number == INGRESS) && may_matter(base),
                _ => false,
            }),
            bridge: find(|base| base.table.table.family == BRIDGE && may_matter(base)),
        }
    }

    /// What is hooked in at a hook of a family, in the order in which it runs.
    pub fn ranks(&self, family: NfFamily, hook: Hook) -> &[Rank<'a>] {
        let of_family = if family == NfFamily::IPV4 { &self.v4 } else { &self.v6 };
        &of_family[hook as usize]
    }
}

/// Of two with the same priority, the one that was hooked in later comes first (`nf_hook_entries_grow` of
/// `net/netfilter/core.c`).
fn ranks<'a>(ruleset: &Ruleset, bases: &[Base<'a>], family: NfFamily, hook: Hook) -> Vec<Rank<'a>> {
    let sees = |base: &&Base<'a>| [family, NfFamily::INET].contains(&base.table.table.family);
    let mut entries: Vec<(i32, u64, Hooked)> = Vec::new();
    for base in bases.iter().filter(sees).filter(|base| !is_nat(base)) {
        if let Some(at) = hook_of(base).filter(|at| at.number == hook as u32) {
            entries.push((at.priority, base.chain.hooked, Hooked::Chain(*base)));
        }
    }
    if hook.has_conntrack() {
        entries.push((CONNTRACK_PRIORITY, 0, Hooked::Conntrack));
    }
    // as soon as there is one nat chain, NAT is hooked in at all four hooks
    let nat = || bases.iter().filter(sees).filter(|base| is_nat(base));
    let first_nat = nat().map(|base| base.chain.hooked).min();
    if let (Some(hooked), true) = (first_nat, hook != Hook::Forward) {
        let chains = nat().filter_map(|base| {
            let at = hook_of(base).filter(|at| at.number == hook as u32)?;
            Some((at.priority, base.chain.hooked, Hooked::Chain(*base)))
        });
        entries.push((hook.nat_priority(), hooked, Hooked::Nat(in_order(ruleset, chains.collect()))));
    }
    in_order(ruleset, entries)
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

fn hook_of<'a>(base: &Base<'a>) -> Option<&'a crate::netlink::model::Hook> {
    base.chain.chain.hook.as_ref()
}

/// Whether a packet may be another one behind a chain and all that it leads to, or may not come there at all.
fn may_matter(base: &Base) -> bool {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut next = vec![base.chain];
    let policy_drops = hook_of(base).is_some_and(|hook| hook.policy == 0);
    while let Some(chain) = next.pop() {
        if !seen.insert(&chain.chain.name) {
            continue;
        }
        for expr in chain.rules.iter().flat_map(|rule| &rule.exprs) {
            let verdict = |verdict: &Verdict| match verdict {
                Verdict::Accept | Verdict::Continue | Verdict::Break | Verdict::Return => Some(None),
                Verdict::Jump(chain) | Verdict::Goto(chain) => base.table.chains.get(chain).map(Some),
                Verdict::Drop | Verdict::Other(_) => None,
            };
            let led: Option<Vec<_>> = match expr {
                Expr::Immediate { data: Data::Verdict(one), .. } => verdict(one).map(|led| vec![led]),
                Expr::Lookup { set, dreg: Some(0), .. } => base.table.sets.get(set).and_then(|set| {
                    let verdicts = set.elements.iter().map(|element| match &element.data {
                        Data::Verdict(one) => verdict(one),
                        _ => None,
                    });
                    verdicts.collect()
                }),
                Expr::Masq { .. } | Expr::Nat { .. } | Expr::Redir { .. } | Expr::Reject { .. } => None,
                Expr::MetaSet { key, .. } if *key != meta_key::NFTRACE => None,
                Expr::Raw { name, data } => {
                    matches!(raw(name, data), Raw::Harmless | Raw::Condition { .. } | Raw::Range { .. }).then(Vec::new)
                }
                _ => Some(Vec::new()),
            };
            let Some(led) = led else { return true };
            next.extend(led.into_iter().flatten());
        }
    }
    policy_drops
}

fn is_nat(base: &Base) -> bool {
    hook_of(base).is_some_and(|hook| hook.kind == "nat")
}
