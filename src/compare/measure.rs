//! One mode, measured.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::backend::{Backend, Loaded};
use super::iptables::Iptables;
use super::ipvs::Ipvs;
use super::nftables::Nftables;
use super::samples::{self, Targets};
use super::userspace::Userspace;
use super::{Connection, Mode, Row};
use crate::lab::{Namespace, Rounds, Spent};
use crate::plan::{Plan, PlanChange, PortPlan};

/// Services that are changed in each way; the median counts.
const CHANGES: usize = 5;

const ROUNDS: Rounds = Rounds { rounds: 15, connections: 200 };

/// Loads a plan in a mode, in a network namespace of its own, and measures. The process has to be in namespaces of its own
/// already, see [`lab::enter_network`](crate::lab::enter_network).
///
/// # Errors
/// This machine cannot run the mode, or not this plan in it.
pub fn measure(mode: Mode, plan: &Plan) -> Result<Row> {
    let namespace = Namespace::new(mode.name())?;
    let mut backend = open(mode, &namespace)?;
    ensure!(!plan.ports.is_empty(), "there are no Services");
    let Loaded { objects, bytes, spent: load } = backend.load(plan).context("loading")?;
    let [replace_endpoint, remove_service, add_service] = changes(plan, backend.as_mut())?;
    let connection = match Targets::choose(plan) {
        Some(targets) => Some(connections(&targets, &namespace, backend.as_mut())?),
        None => None,
    };
    let loader = backend.loader();
    Ok(Row { mode, loader, objects, bytes, load, add_service, remove_service, replace_endpoint, connection })
}

/// A mode in a namespace.
///
/// # Errors
/// This machine cannot run it.
pub fn open(mode: Mode, namespace: &Namespace) -> Result<Box<dyn Backend + '_>> {
    Ok(match mode {
        Mode::Nftables => Box::new(Nftables::open(namespace)?),
        Mode::Iptables => Box::new(Iptables::open(namespace, "")?),
        Mode::IptablesNft => Box::new(Iptables::open(namespace, "-nft")?),
        Mode::IptablesLegacy => Box::new(Iptables::open(namespace, "-legacy")?),
        Mode::Ipvs => Box::new(Ipvs::open(namespace)?),
        Mode::Userspace => Box::new(Userspace::open(namespace)?),
    })
}

/// One endpoint replaced, one Service removed, one added. Afterwards all is as it was.
fn changes(plan: &Plan, backend: &mut dyn Backend) -> Result<[Option<Spent>; 3]> {
    let [mut replaced, mut removed, mut added] = [const { Vec::new() }; 3];
    let changed = |changed: Vec<PortPlan>| PlanChange { changed, ..PlanChange::default() };
    for ports in samples::services(plan, CHANGES) {
        if let Some(other) = ports.iter().find_map(samples::with_another_endpoint) {
            replaced.push(backend.change(changed(vec![other])).context("replacing an endpoint")?);
            backend.change(changed(ports.clone()))?;
        }
        let gone = ports.iter().map(|port| port.id.clone()).collect();
        let gone = PlanChange { removed: gone, ..PlanChange::default() };
        removed.push(backend.change(gone).context("removing a Service")?);
        added.push(backend.change(changed(ports)).context("adding a Service")?);
    }
    Ok([replaced, removed, added].map(|samples| Spent::median(&samples)))
}

fn connections(targets: &Targets, namespace: &Namespace, backend: &mut dyn Backend) -> Result<Connection> {
    backend.change(PlanChange { changed: targets.ports.to_vec(), ..PlanChange::default() })?;
    let mut script = "link set lo up\n".to_owned();
    for address in targets.addresses() {
        let _ = writeln!(script, "route replace local {address}/32 dev lo");
    }
    namespace.ip(&script)?;
    let ports: BTreeSet<u16> = targets.endpoints().map(|endpoint| endpoint.port).collect();
    let pod = targets.endpoints().next().context("targets have endpoints")?;
    let [first, middle, last] = targets.frontends;
    let to = [SocketAddr::new(pod.ip, pod.port), first, middle, last];
    let costs = namespace.run(|| ROUNDS.costs(targets.client, to, ports));
    let [direct, first, middle, last] = costs.context("connections")?;
    Ok(Connection { direct, first, middle, last })
}
