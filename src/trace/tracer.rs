//! Many packets through one ruleset.

use super::assume::{Assumptions, Possibility, explore, explore_beyond};
use super::hook::Hooks;
use super::node::{Node, Packet};
use super::path::follow;
use super::refusal::{Refusal, Unknown};
use super::ruleset::Ruleset;
use super::way::{Learned, Trace};
use crate::netlink::model::Table;

/// A ruleset and a node. What is hooked in where is looked up once, however many packets follow.
#[derive(Debug)]
pub struct Tracer<'a> {
    node: &'a Node,
    hooks: Hooks<'a>,
}

impl<'a> Tracer<'a> {
    /// All tables of a ruleset.
    pub fn new(ruleset: &'a Ruleset, node: &'a Node) -> Tracer<'a> {
        Tracer::of_tables(ruleset, node, |_| true)
    }

    /// Some tables of a ruleset, as if the others were not there.
    pub fn of_tables(ruleset: &'a Ruleset, node: &'a Node, is_wanted: impl Fn(&Table) -> bool) -> Tracer<'a> {
        Tracer { node, hooks: Hooks::new(ruleset, is_wanted) }
    }

    /// What becomes of a packet where it is taken for granted of some rules whether they match.
    ///
    /// # Errors
    /// When it comes to something else of which it is not known what it does; see [`Refusal`].
    pub fn trace(&self, packet: &Packet, assumptions: &Assumptions) -> Result<Trace, Refusal> {
        self.trace_after(packet, &[], assumptions)
    }

    /// Where it matters at a hook which chain is first, the packet is followed on in every order: in the end the same may become
    /// of it.
    fn trace_after(&self, packet: &Packet, learned: &[Learned], assumptions: &Assumptions) -> Result<Trace, Refusal> {
        let refusal = match follow(&self.hooks, self.node, packet, learned, assumptions) {
            Err(refusal) => refusal,
            trace => return trace,
        };
        let Unknown::Order { names, orders } = &refusal.what else { return Err(refusal) };
        let mut all: Option<Trace> = None;
        for order in 0..*orders {
            let Some(assumptions) = assumptions.with_order(names, order) else { return Err(refusal) };
            match (self.trace_after(packet, learned, &assumptions), &all) {
                (Err(other), _) if other.doubt => return Err(other),
                (Ok(trace), None) => all = Some(trace),
                (Ok(trace), Some(first)) if trace.ends_as(first) => {}
                _ => return Err(refusal),
            }
        }
        all.ok_or(refusal)
    }

    /// Everything that may become of a packet: one possibility where the rules are understood, two for each rule of which
    /// it is not known whether it matches.
    pub fn possibilities(&self, packet: &Packet) -> Vec<Possibility> {
        explore(&|assumptions| self.trace(packet, assumptions))
    }

    /// The same, and for each rule of which it is not known what it does, also what comes behind it if it does nothing.
    pub fn possibilities_beyond(&self, packet: &Packet) -> Vec<Possibility> {
        explore_beyond(&|assumptions| self.trace(packet, assumptions))
    }

    /// The same as [`Tracer::possibilities`], after rules learned these elements of packets before.
    pub fn possibilities_after(&self, packet: &Packet, learned: &[Learned]) -> Vec<Possibility> {
        explore(&|assumptions| self.trace_after(packet, learned, assumptions))
    }
}

/// What becomes of a packet in a node's rules.
///
/// # Errors
/// When it comes to something of which it is not known what it does; see [`Refusal`].
pub fn trace(ruleset: &Ruleset, node: &Node, packet: &Packet) -> Result<Trace, Refusal> {
    Tracer::new(ruleset, node).trace(packet, &Assumptions::default())
}

/// Everything that may become of a packet, as [`Tracer::possibilities`].
pub fn possibilities(ruleset: &Ruleset, node: &Node, packet: &Packet) -> Vec<Possibility> {
    Tracer::new(ruleset, node).possibilities(packet)
}
