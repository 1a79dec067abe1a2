//! A process that carries each connection.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::backend::{Backend, Loaded};
use crate::dataplane::Dataplane;
use crate::lab::{Namespace, Spent, Stopwatch};
use crate::plan::{Plan, PlanChange};
use crate::userspace::Programmer;

/// The programmer that `run --mode userspace` has, with its listening sockets. Its threads are this process's: what carrying
/// a connection takes them is not part of what the connection costs the client.
pub struct Userspace<'a> {
    namespace: &'a Namespace,
    programmer: Programmer,
}

impl Userspace<'_> {
    /// One for a namespace.
    ///
    /// # Errors
    /// `nft` is missing, or threads cannot be started.
    pub fn open(namespace: &Namespace) -> Result<Userspace<'_>> {
        let programmer = namespace.run(|| -> Result<Programmer> {
            let mut programmer = Programmer::open(None)?;
            programmer.check()?;
            Ok(programmer)
        });
        Ok(Userspace { namespace, programmer: programmer.context("Debian's package is nftables")? })
    }
}

impl Backend for Userspace<'_> {
    fn loader(&self) -> String {
        "sockets, nft".into()
    }

    fn load(&mut self, plan: &Plan) -> Result<Loaded> {
        let (node, ports) = (plan.node.clone(), plan.ports.values().cloned().collect());
        let watch = Stopwatch::start()?;
        let applied = self.namespace.run(|| self.programmer.replace(node, ports))?;
        Ok(Loaded { objects: applied.added, bytes: applied.bytes, spent: watch.spent()? })
    }

    fn kinds(&mut self) -> Result<BTreeMap<&'static str, usize>> {
        Ok(self.programmer.made())
    }

    /// Opening sockets and working out what differs are part of it.
    fn change(&mut self, change: PlanChange) -> Result<Spent> {
        let watch = Stopwatch::start()?;
        self.namespace.run(|| self.programmer.change(change))?;
        Ok(watch.spent()?)
    }
}
