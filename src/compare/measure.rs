//! One mode, measured.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::backend::{Backend, Loaded};
use super::iptables::Iptables;
use super::nftables::Nftables;
use super::programmed;
use super::samples::{self, Targets};
use super::{Mode, PerTarget, Row};
use crate::lab::{Namespace, Rounds, Spent, Stopwatch, settled_kernel_memory};
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
    // nobody could listen at an address of it
    namespace.ip("link set lo up\n")?;
    let mut backend = open(mode, &namespace)?;
    ensure!(!plan.ports.is_empty(), "there are no Services");
    let before = settled_kernel_memory()?;
    let Loaded { objects, bytes, spent: load } = backend.load(plan).context("loading")?;
    let kernel_memory = settled_kernel_memory()? - before;
    let kinds = backend.kinds().context("counting")?;
    let Changes { replaced, whole, removed, added } = changes(plan, backend.as_mut())?;
    let (connection, packet) = match Targets::choose(plan) {
        Some(targets) => {
            let (connection, packet) = connections(&targets, &namespace, backend.as_mut())?;
            (Some(connection), Some(packet))
        }
        None => (None, None),
    };
    Ok(Row {
        services: plan.ports.keys().map(|id| id.name.service()).collect::<BTreeSet<_>>().len(),
        endpoints: plan.ports.values().map(|port| port.cluster.len().max(port.local.len())).sum(),
        mode,
        loader: backend.loader(),
        objects,
        kinds,
        bytes,
        kernel_memory,
        load,
        add_service: Spent::median(&added),
        remove_service: Spent::median(&removed),
        replace_endpoint: Spent::median(&replaced),
        control_plane: Spent::median(&whole),
        connection,
        packet,
    })
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
        Mode::Ipvs => Box::new(programmed::ipvs(namespace)?),
        Mode::Userspace => Box::new(programmed::userspace(namespace)?),
    })
}

/// What changes took.
#[derive(Default)]
struct Changes {
    /// From the text or the plan on.
    replaced: Vec<Spent>,
    /// The same changes with all that comes before.
    whole: Vec<Spent>,
    removed: Vec<Spent>,
    added: Vec<Spent>,
}

/// One endpoint replaced, one Service removed, one added. Afterwards all is as it was.
fn changes(plan: &Plan, backend: &mut dyn Backend) -> Result<Changes> {
    let mut changes = Changes::default();
    let changed = |changed: Vec<PortPlan>| PlanChange { changed, ..PlanChange::default() };
    for ports in samples::services(plan, CHANGES) {
        if let Some(other) = ports.iter().find_map(samples::with_another_endpoint) {
            let watch = Stopwatch::start()?;
            changes.replaced.push(backend.change(changed(vec![other])).context("replacing an endpoint")?);
            changes.whole.push(watch.spent()?);
            backend.change(changed(ports.clone()))?;
        }
        let gone = ports.iter().map(|port| port.id.clone()).collect();
        let gone = PlanChange { removed: gone, ..PlanChange::default() };
        changes.removed.push(backend.change(gone).context("removing a Service")?);
        changes.added.push(backend.change(changed(ports)).context("adding a Service")?);
    }
    Ok(changes)
}

/// New connections, and packets on established ones.
fn connections(targets: &Targets, namespace: &Namespace, backend: &mut dyn Backend) -> Result<(PerTarget, PerTarget)> {
    backend.change(PlanChange { changed: targets.ports.to_vec(), ..PlanChange::default() })?;
    let mut script = String::new();
    for address in targets.addresses() {
        let _ = writeln!(script, "route replace local {address}/32 dev lo");
    }
    namespace.ip(&script)?;
    let ports: BTreeSet<u16> = targets.endpoints().map(|endpoint| endpoint.port).collect();
    let pod = targets.endpoints().next().context("targets have endpoints")?;
    let [first, middle, last] = targets.frontends;
    let to = [SocketAddr::new(pod.ip, pod.port), first, middle, last];
    let named = |[direct, first, middle, last]: [f64; 4]| PerTarget { direct, first, middle, last };
    let costs = namespace.run(|| ROUNDS.costs(targets.client, to, ports)).context("connections")?;
    let pods = targets.endpoints().map(|pod| SocketAddr::new(pod.ip, pod.port)).collect::<BTreeSet<_>>();
    let established = namespace.run(|| ROUNDS.established_costs(targets.client, to, pods));
    Ok((named(costs), named(established.context("established connections")?)))
}
