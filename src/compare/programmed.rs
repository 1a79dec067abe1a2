//! Modes of which the daemon's own programmer is measured: virtual servers of IPVS, and a process that carries each connection.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::backend::{Backend, Loaded};
use crate::dataplane::Dataplane;
use crate::lab::{Namespace, Spent, Stopwatch};
use crate::plan::{Plan, PlanChange};
use crate::{ipvs, userspace};

/// The programmer that `run --mode MODE` has. The programs that it starts, and its sockets, have to be in the namespace, too.
pub struct Programmed<'a, P> {
    namespace: &'a Namespace,
    programmer: P,
    loader: &'static str,
    made: fn(&P) -> BTreeMap<&'static str, usize>,
}

/// The one of `--mode ipvs`.
///
/// # Errors
/// The kernel has no IPVS or no sets, or a program is missing.
pub fn ipvs(namespace: &Namespace) -> Result<Programmed<'_, ipvs::Programmer>> {
    let open = || Ok(ipvs::Programmer::open(ipvs::Settings::default())?);
    let programmer = checked(namespace, open).context("IPVS")?;
    Ok(Programmed { namespace, programmer, loader: "netlink, ipset, iptables-restore", made: ipvs::Programmer::made })
}

/// The one of `--mode userspace`. Its threads are this process's: what carrying a connection takes them is not part of what the
/// connection costs the client.
///
/// # Errors
/// `nft` is missing, or threads cannot be started.
pub fn userspace(namespace: &Namespace) -> Result<Programmed<'_, userspace::Programmer>> {
    let open = || Ok(userspace::Programmer::open(None)?);
    let programmer = checked(namespace, open).context("Debian's package is nftables")?;
    Ok(Programmed { namespace, programmer, loader: "sockets, nft", made: userspace::Programmer::made })
}

fn checked<P: Dataplane + Send>(namespace: &Namespace, open: impl FnOnce() -> Result<P> + Send) -> Result<P> {
    namespace.run(|| {
        let mut programmer = open()?;
        programmer.check()?;
        Ok(programmer)
    })
}

impl<P: Dataplane + Send> Backend for Programmed<'_, P> {
    fn loader(&self) -> String {
        self.loader.into()
    }

    fn load(&mut self, plan: &Plan) -> Result<Loaded> {
        let (node, ports) = (plan.node.clone(), plan.ports.values().cloned().collect());
        let watch = Stopwatch::start()?;
        let applied = self.namespace.run(|| self.programmer.replace(node, ports))?;
        Ok(Loaded { objects: applied.added, bytes: applied.bytes, spent: watch.spent()? })
    }

    fn kinds(&mut self) -> Result<BTreeMap<&'static str, usize>> {
        Ok((self.made)(&self.programmer))
    }

    /// Working out what differs is part of it, and so is opening sockets.
    fn change(&mut self, change: PlanChange) -> Result<Spent> {
        let watch = Stopwatch::start()?;
        self.namespace.run(|| self.programmer.change(change))?;
        Ok(watch.spent()?)
    }
}
