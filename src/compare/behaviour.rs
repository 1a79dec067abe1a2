//! Whether connections fare the same in every mode: each frontend, by each kind of client, with packets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;

use super::measure::open;
use super::{Known, Mode, samples};
use crate::ipvs::state::planned_addresses;
use crate::lab::{Lab, Listen, Outcome, Place};
use crate::objects::{Family, FamilyOf};
use crate::plan::{Claim, Detector, Frontend, FrontendAddress, Plan, PoolKind, PortPlan};

/// Services that are tried at most, evenly spread over all.
const SERVICES: usize = 40;
/// Connections of one client to one frontend at most: as many as it takes to see whether they reach other nodes.
const TRIES: usize = 100;
/// After so long without an answer, a packet was dropped.
const PATIENCE: Duration = Duration::from_millis(1000);

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// A pod on the node.
    Pod,
    /// The node itself.
    Node,
    /// Somebody outside of the cluster, from where a Service may be asked.
    Outside,
    /// Somebody outside whom source ranges do not list.
    Blocked,
}

impl Client {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Client::Pod => "pod",
            Client::Node => "node",
            Client::Outside => "outside",
            Client::Blocked => "blocked",
        }
    }
}

/// A frontend and a client, and what became of the connections in each mode.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Observation {
    /// The Service port.
    pub service: String,
    /// The address, port and protocol.
    pub frontend: String,
    /// `cluster`, `external` or `node-port`.
    pub kind: &'static str,
    /// Whether only endpoints of this node are for ordinary clients.
    pub local: bool,
    /// Who connects.
    pub client: Client,
    /// In words, by mode.
    pub outcomes: BTreeMap<&'static str, String>,
    /// Why modes differ, where that is known; nothing where they do not, or nobody knows.
    pub known: Option<String>,
}

impl Observation {
    /// Whether it is the same in all modes.
    pub fn agrees(&self) -> bool {
        self.outcomes.values().collect::<BTreeSet<_>>().len() < 2
    }
}

/// One frontend and client.
struct Attempt<'a> {
    port: &'a PortPlan,
    frontend: &'a Frontend,
    client: Client,
    from: IpAddr,
    to: SocketAddr,
}

/// Tries the Services of a plan in each of the modes, each in a cluster of its own, and says which differences from the first
/// mode are known.
///
/// # Errors
/// A mode cannot be run, or a cluster not be built.
pub fn observe(modes: &[Mode], plan: &Plan, known: &Known) -> Result<Vec<Observation>> {
    let ports = samples::services(plan, SERVICES).into_iter().flatten();
    let plan = Plan::new(plan.node.clone(), ports);
    let attempts = attempts(&plan);
    let mut observations: Vec<Observation> = attempts.iter().map(Attempt::observation).collect();
    for mode in modes {
        let lab = build(&plan, &attempts).context("building a cluster")?;
        let _servers = serve(&lab, &plan, &attempts)?;
        let mut backend = open(*mode, lab.node())?;
        backend.load(&plan)?;
        for (attempt, observation) in attempts.iter().zip(&mut observations) {
            observation.outcomes.insert(mode.name(), attempt.look(&lab)?);
        }
    }
    observations.iter_mut().for_each(|observation| observation.known = known.why(modes[0], observation));
    Ok(observations)
}

fn attempts(plan: &Plan) -> Vec<Attempt<'_>> {
    let mut attempts = Vec::new();
    for port in plan.ports.values() {
        let family = port.id.family;
        let Some(node) = planned_addresses(&plan.node).into_iter().find(|ip| ip.family() == family) else { continue };
        for frontend in &port.frontends {
            let ip = frontend.address.ip().unwrap_or(node);
            let to = SocketAddr::new(ip, frontend.address.port());
            for (client, from) in clients(plan, frontend, family, node) {
                attempts.push(Attempt { port, frontend, client, from, to });
            }
        }
    }
    attempts
}

/// Who may come where there are source ranges comes from one of them.
fn clients(plan: &Plan, frontend: &Frontend, family: Family, node: IpAddr) -> Vec<(Client, IpAddr)> {
    let stranger = match family {
        Family::V4 => IpAddr::from(Ipv4Addr::new(192, 0, 2, 77)),
        Family::V6 => IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 0x77)),
    };
    let mut clients = vec![(Client::Pod, pod(plan, family)), (Client::Node, node)];
    match &frontend.sources {
        None => clients.push((Client::Outside, stranger)),
        Some(sources) => {
            let usable = |prefix: &&IpNet| prefix.prefix_len() < prefix.max_prefix_len() && !prefix.contains(&node);
            let allowed = sources.iter().find(usable).and_then(|prefix| prefix.hosts().next());
            clients.extend(allowed.map(|ip| (Client::Outside, ip)));
            let is_blocked = !sources.iter().any(|prefix| prefix.contains(&stranger));
            clients.extend(is_blocked.then_some((Client::Blocked, stranger)));
        }
    }
    clients
}

/// The last address but one of the first range of pods.
fn pod(plan: &Plan, family: Family) -> IpAddr {
    match (plan.node.detector(family), family) {
        (Detector::Sources(prefixes), Family::V4) if let Some(IpNet::V4(pods)) = prefixes.first() => {
            Ipv4Addr::from_bits(pods.broadcast().to_bits().saturating_sub(1)).into()
        }
        (Detector::Sources(prefixes), Family::V6) if let Some(IpNet::V6(pods)) = prefixes.first() => {
            Ipv6Addr::from_bits(pods.broadcast().to_bits().saturating_sub(1)).into()
        }
        (_, Family::V4) => Ipv4Addr::new(198, 18, 255, 254).into(),
        (_, Family::V6) => Ipv6Addr::new(0xfd00, 0xffff, 0, 0, 0, 0, 0, 2).into(),
    }
}

fn build(plan: &Plan, attempts: &[Attempt]) -> Result<Lab> {
    let own = planned_addresses(&plan.node);
    let mut lab = Lab::new(&own)?;
    let mut places: BTreeMap<IpAddr, Place> = BTreeMap::new();
    for endpoint in plan.ports.values().flat_map(|port| port.cluster.iter().chain(&port.local)) {
        places.insert(endpoint.ip, if endpoint.local { Place::Pod } else { Place::Elsewhere });
    }
    for attempt in attempts {
        match attempt.client {
            Client::Pod => places.insert(attempt.from, Place::Pod),
            Client::Outside | Client::Blocked => places.insert(attempt.from, Place::Outside),
            Client::Node => None,
        };
    }
    places.retain(|ip, _| !own.contains(ip));
    lab.place(&places.into_iter().collect::<Vec<_>>())?;
    Ok(lab)
}

/// The endpoints answer; and so does the rest of the world where a frontend is passed on untouched.
fn serve(lab: &Lab, plan: &Plan, attempts: &[Attempt]) -> Result<Vec<crate::lab::Server>> {
    let mut listens = BTreeSet::new();
    for port in plan.ports.values() {
        let endpoints = port.cluster.iter().chain(&port.local);
        listens.extend(
            endpoints.map(|endpoint| Listen {
                protocol: port.protocol,
                address: SocketAddr::new(endpoint.ip, endpoint.port),
            }),
        );
    }
    let outside = attempts.iter().filter(|attempt| lab.place_of(attempt.to.ip()) == Place::World);
    listens.extend(outside.map(|attempt| Listen { protocol: attempt.port.protocol, address: attempt.to }));
    lab.serve(&listens.into_iter().collect::<Vec<_>>())
}

impl Attempt<'_> {
    fn observation(&self) -> Observation {
        let kind = match self.frontend.address {
            FrontendAddress::Cluster(..) => "cluster",
            FrontendAddress::External(..) => "external",
            FrontendAddress::NodePort(_) => "node-port",
        };
        Observation {
            service: self.port.id.name.to_string(),
            frontend: Claim::new(self.port.id.family, self.port.protocol, self.frontend.address).to_string(),
            kind,
            local: self.frontend.pool == PoolKind::Local,
            client: self.client,
            outcomes: BTreeMap::new(),
            known: None,
        }
    }

    fn is_local(&self, by: SocketAddr) -> Option<bool> {
        let endpoints = self.port.cluster.iter().chain(&self.port.local);
        endpoints
            .filter(|endpoint| endpoint.ip == by.ip() && endpoint.port == by.port())
            .map(|endpoint| endpoint.local)
            .next()
    }

    /// What becomes of its connections, in words.
    fn look(&self, lab: &Lab) -> Result<String> {
        // a client that sticks to an endpoint says nothing of the others
        let tries = if self.port.affinity.is_some() { 1 } else { TRIES };
        let (mut is_elsewhere, mut masqueraded, mut other) = (false, BTreeSet::new(), None);
        let mut count = 0;
        lab.probe_while(self.from, self.port.protocol, self.to, PATIENCE, |outcome| {
            count += 1;
            match outcome {
                Outcome::Answered(answer) => match self.is_local(answer.by) {
                    Some(is_local) => {
                        is_elsewhere |= !is_local;
                        masqueraded.insert(answer.seen.ip() != self.from);
                    }
                    None => other = Some("passed on".to_owned()),
                },
                outcome => other = Some(outcome.to_string()),
            }
            count < tries && !is_elsewhere && other.is_none()
        })?;
        if let Some(other) = other {
            return Ok(other);
        }
        let whose = match (tries, is_elsewhere) {
            (1, _) => "an endpoint",
            (_, true) => "endpoints of all nodes",
            (_, false) => "endpoints of this node",
        };
        let source = if masqueraded.contains(&true) { "masqueraded" } else { "source kept" };
        Ok(format!("{whose}, {source}"))
    }
}
