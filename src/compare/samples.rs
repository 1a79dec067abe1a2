//! Which Services are changed, and which are connected to.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use crate::objects::{Family, Protocol};
use crate::plan::{Claim, Detector, Endpoint, FrontendAddress, Plan, PortPlan};

/// Endpoints that no Service has: addresses for documentation.
const NEW_ENDPOINTS: [&str; 2] = ["203.0.113.1", "2001:db8::1"];

/// Service ports of up to `count` Services, evenly spread over all.
pub fn services(plan: &Plan, count: usize) -> Vec<Vec<PortPlan>> {
    let names: BTreeSet<&str> = plan.ports.keys().map(|id| id.name.service()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let count = count.min(names.len());
    let chosen = (0..count).map(|at| names[at * names.len() / count]);
    chosen.map(|name| plan.ports.values().filter(|port| port.id.name.service() == name).cloned().collect()).collect()
}

/// The Service port with another endpoint in the place of its first one; none where it has none.
pub fn with_another_endpoint(port: &PortPlan) -> Option<PortPlan> {
    let mut port = port.clone();
    let old = port.cluster.first().or(port.local.first()).copied()?;
    let ip = NEW_ENDPOINTS[port.id.family as usize].parse().expect("an address");
    for endpoint in port.cluster.iter_mut().chain(&mut port.local).filter(|endpoint| **endpoint == old) {
        endpoint.ip = ip;
    }
    Some(port)
}

/// What connections are made to.
pub struct Targets {
    /// The first, the middle and the last Service, each with a UDP port at its ClusterIP alone.
    pub ports: [PortPlan; 3],
    /// Where they answer.
    pub frontends: [SocketAddr; 3],
    /// A pod of no Service.
    pub client: IpAddr,
}

impl Targets {
    /// Chooses among the IPv4 Services that have a ClusterIP and endpoints; none where there are none.
    pub fn choose(plan: &Plan) -> Option<Targets> {
        let taken: HashSet<Claim> = plan.ports.values().flat_map(PortPlan::claims).collect();
        let all: Vec<_> = plan.ports.values().filter_map(|port| as_target(port, &taken)).collect();
        let at = |at: usize| all.get(at).cloned();
        let chosen = [at(0)?, at(all.len() / 2)?, at(all.len().checked_sub(1)?)?];
        Some(Targets {
            frontends: chosen.each_ref().map(|(_, to)| *to),
            ports: chosen.map(|(port, _)| port),
            client: client(plan),
        })
    }

    /// The endpoints behind them.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.ports.iter().flat_map(|port| port.cluster.iter().chain(&port.local))
    }

    /// All addresses that connections come from or go to.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let endpoints = self.endpoints().map(|endpoint| endpoint.ip);
        endpoints.chain(self.frontends.map(|to| to.ip())).chain([self.client]).collect()
    }
}

fn as_target(port: &PortPlan, taken: &HashSet<Claim>) -> Option<(PortPlan, SocketAddr)> {
    let is_cluster_ip = |address| matches!(address, FrontendAddress::Cluster(IpAddr::V4(_), _));
    let frontend = port.frontends.iter().find(|frontend| is_cluster_ip(frontend.address))?;
    let claim = Claim::new(Family::V4, Protocol::Udp, frontend.address);
    if port.pool(frontend.pool).is_empty() || (port.protocol != Protocol::Udp && taken.contains(&claim)) {
        return None;
    }
    let to = SocketAddr::new(frontend.address.ip()?, frontend.address.port());
    let frontends = vec![frontend.clone()];
    Some((PortPlan { protocol: Protocol::Udp, frontends, affinity: None, ..port.clone() }, to))
}

/// The last address of the first range of pods, which is not masqueraded; else any.
fn client(plan: &Plan) -> IpAddr {
    if let Detector::Sources(prefixes) = &plan.node.detector_v4
        && let Some(IpNet::V4(pods)) = prefixes.first()
    {
        return Ipv4Addr::from_bits(pods.broadcast().to_bits().saturating_sub(1)).into();
    }
    Ipv4Addr::new(198, 18, 255, 254).into()
}
