//! Virtual servers of IPVS.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::backend::{Backend, Loaded};
use crate::dataplane::Dataplane;
use crate::ipvs::{Programmer, Settings};
use crate::lab::{Namespace, Spent, Stopwatch};
use crate::plan::{Plan, PlanChange};

/// The programmer that `run --mode ipvs` has. The programs that it starts have to be in the namespace, too.
pub struct Ipvs<'a> {
    namespace: &'a Namespace,
    programmer: Programmer,
}

impl Ipvs<'_> {
    /// One for a namespace.
    ///
    /// # Errors
    /// The kernel has no IPVS or no sets, or a program is missing.
    pub fn open(namespace: &Namespace) -> Result<Ipvs<'_>> {
        let programmer = namespace.run(|| {
            let mut programmer = Programmer::open(Settings::default())?;
            programmer.check().map(|()| programmer)
        });
        Ok(Ipvs { namespace, programmer: programmer.context("IPVS")? })
    }
}

impl Backend for Ipvs<'_> {
    fn loader(&self) -> String {
        "netlink, ipset, iptables-restore".into()
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

    /// Working out what differs is part of it.
    fn change(&mut self, change: PlanChange) -> Result<Spent> {
        let watch = Stopwatch::start()?;
        self.namespace.run(|| self.programmer.change(change))?;
        Ok(watch.spent()?)
    }
}
