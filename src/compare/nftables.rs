//! Maps of nftables.

use anyhow::{Context, Result};

use super::backend::{Backend, Loaded};
use crate::lab::{Namespace, Spent, Stopwatch};
use crate::netlink::CodecKind;
use crate::nftables::program::Programmer;
use crate::plan::{Plan, PlanChange};

/// The programmer that `run` has.
pub struct Nftables(Programmer);

impl Nftables {
    /// One for a namespace.
    pub fn open(namespace: &Namespace) -> Result<Nftables> {
        let mut programmer = namespace.run(|| Programmer::open(CodecKind::default())).context("nf_tables")?;
        programmer.check()?;
        Ok(Nftables(programmer))
    }
}

impl Backend for Nftables {
    fn loader(&self) -> String {
        "netlink".into()
    }

    fn load(&mut self, plan: &Plan) -> Result<Loaded> {
        let (node, ports) = (plan.node.clone(), plan.ports.values().cloned().collect());
        let watch = Stopwatch::start()?;
        let applied = self.0.replace(node, ports)?;
        Ok(Loaded { objects: applied.added, bytes: applied.bytes, spent: watch.spent()? })
    }

    /// Making the transaction is part of it.
    fn change(&mut self, change: PlanChange) -> Result<Spent> {
        let watch = Stopwatch::start()?;
        self.0.change(change)?;
        Ok(watch.spent()?)
    }
}
