//! Maps of nftables.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::backend::{Backend, Loaded};
use crate::lab::{Namespace, Spent, Stopwatch};
use crate::netlink::{CodecKind, Connection};
use crate::nftables::names::TABLE;
use crate::nftables::program::Programmer;
use crate::nftables::rule::nf_family;
use crate::plan::{Plan, PlanChange};

/// The programmer that `run` has.
pub struct Nftables<'a> {
    namespace: &'a Namespace,
    programmer: Programmer,
    elements: usize,
}

impl Nftables<'_> {
    /// One for a namespace.
    pub fn open(namespace: &Namespace) -> Result<Nftables<'_>> {
        let mut programmer = namespace.run(|| Programmer::open(CodecKind::default())).context("nf_tables")?;
        programmer.check()?;
        Ok(Nftables { namespace, programmer, elements: 0 })
    }
}

impl Backend for Nftables<'_> {
    fn loader(&self) -> String {
        "netlink".into()
    }

    fn load(&mut self, plan: &Plan) -> Result<Loaded> {
        let (node, ports) = (plan.node.clone(), plan.ports.values().cloned().collect());
        let watch = Stopwatch::start()?;
        let applied = self.programmer.replace(node, ports)?;
        self.elements = applied.added;
        Ok(Loaded { objects: applied.added, bytes: applied.bytes, spent: watch.spent()? })
    }

    fn kinds(&mut self) -> Result<BTreeMap<&'static str, usize>> {
        let mut connection = self.namespace.run(|| Connection::open(CodecKind::default()))?;
        let mut kinds = BTreeMap::from([("elements", self.elements)]);
        for family in self.programmer.state().families().map(nf_family) {
            for (kind, count) in [
                ("maps and sets", connection.sets(family, TABLE)?.len()),
                ("chains", connection.chains(family, TABLE)?.len()),
                ("rules", connection.rules(family, TABLE)?.len()),
            ] {
                *kinds.entry(kind).or_default() += count;
            }
        }
        Ok(kinds)
    }

    /// Making the transaction is part of it.
    fn change(&mut self, change: PlanChange) -> Result<Spent> {
        let watch = Stopwatch::start()?;
        self.programmer.change(change)?;
        Ok(watch.spent()?)
    }
}
