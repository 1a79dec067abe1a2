//! A Service port's plan as elements of the maps.

use hashbrown::HashSet;

use super::chains::{AffinityRules, LOCAL_SLOTS};
use super::element::{Element, Key, Shared, Value};
use super::names::{AffinityId, Chain, Map, PerMap, Side, Stickiness};
use super::numbers::Numbers;
use super::shapes;
use crate::plan::{Endpoint, Frontend, FrontendAddress, Masquerade, PoolKind, PortPlan, Verdict};

/// The elements that belong to one Service port alone. `numbers` are those of its endpoints, where it has session affinity.
pub fn own_elements(port: &PortPlan, numbers: &Numbers) -> Vec<Element> {
    let mut elements = Vec::with_capacity(port.frontends.len() * (2 + port.cluster.len() + port.local.len()));
    for_each_own_element(port, numbers, &mut |element| elements.push(element));
    elements
}

/// Calls `each` with every one of [`own_elements`].
pub fn for_each_own_element(port: &PortPlan, numbers: &Numbers, each: &mut dyn FnMut(Element)) {
    let mut lowering = Lowering { port, each };
    match affinity(port) {
        Some((id, _)) => lowering.members(id, numbers),
        None => port.frontends.iter().for_each(|frontend| lowering.endpoints(frontend)),
    }
    for frontend in &port.frontends {
        lowering.verdicts(frontend);
        lowering.counter(frontend);
        lowering.sources(frontend);
    }
}

/// Calls `each` with those of [`own_elements`] that lead packets somewhere.
pub fn for_each_verdict(port: &PortPlan, each: &mut dyn FnMut(Element)) {
    let mut lowering = Lowering { port, each };
    port.frontends.iter().for_each(|frontend| lowering.verdicts(frontend));
}

/// Calls `each` with the elements that other Service ports may need as well: its ClusterIPs, and its
/// endpoints on this node, which can be their own clients (behaviour row E1). Each comes once.
pub fn for_each_shared(port: &PortPlan, each: &mut dyn FnMut(Shared)) {
    let mut cluster_ips = port.frontends.iter().filter_map(|frontend| match frontend.address {
        FrontendAddress::Cluster(ip, _) => Some(ip),
        _ => None,
    });
    // a Service has one ClusterIP of a family
    if let Some(ip) = cluster_ips.next() {
        each(Shared::ClusterIp(ip));
    }
    let mut local: Vec<_> = port.cluster.iter().chain(&port.local).filter(|e| e.local).map(|e| e.ip).collect();
    local.sort_unstable();
    local.dedup();
    local.into_iter().for_each(|ip| each(Shared::Hairpin(ip)));
}

/// Adds `sign` times the number of [`own_elements`] per map, without making them; but for maps of one Service port.
pub fn count(port: &PortPlan, sign: isize, counts: &mut PerMap<isize>) {
    let (cluster, local) = (port.cluster.len(), port.local.len());
    let mut add = |map, number: usize| {
        if let Some(count) = counts.get_mut(map) {
            *count += sign * number as isize;
        }
    };
    for frontend in &port.frontends {
        let maps = maps_of(frontend.address).1;
        let uses_cluster = frontend.pool == PoolKind::Cluster || frontend.short_circuit;
        let endpoints =
            if uses_cluster { cluster } else { 0 } + if frontend.pool == PoolKind::Local { local } else { 0 };
        let shared = usize::from(port.affinity.is_none());
        add(maps.endpoints, shared * endpoints);
        add(maps.services, usize::from(endpoints > 0));
        add(maps.short_circuit, shared * usize::from(frontend.short_circuit && cluster > 0));
        add(maps.no_endpoints, usize::from(frontend.no_endpoints.is_some()));
        add(maps.connections, usize::from(port.counted));
        if let (Some(_), Side::Address) = (&frontend.sources, maps_of(frontend.address).0) {
            add(Map::Firewalled, 1);
        }
    }
}

/// What the affinity chains of a Service port need to know of it; none where it has no affinity.
pub fn affinity(port: &PortPlan) -> Option<(AffinityId, AffinityRules)> {
    let seconds = port.affinity?;
    let id = AffinityId::new(&port.id.name, port.protocol);
    let [cluster, local] = [&port.cluster, &port.local].map(|pool| pool.len() as u32);
    Some((id, AffinityRules { protocol: port.protocol, seconds, cluster, local }))
}

/// How many elements a Service port has in maps of its own.
pub fn members(port: &PortPlan) -> usize {
    if port.affinity.is_some() { 2 * (port.cluster.len() + port.local.len()) } else { 0 }
}

struct Lowering<'a> {
    port: &'a PortPlan,
    each: &'a mut dyn FnMut(Element),
}

/// The maps of one side.
struct Maps {
    services: Map,
    endpoints: Map,
    short_circuit: Map,
    no_endpoints: Map,
    connections: Map,
}

static BY_ADDRESS: Maps = Maps {
    services: Map::Services,
    endpoints: Map::Endpoints,
    short_circuit: Map::ShortCircuit,
    no_endpoints: Map::NoEndpoints,
    connections: Map::Connections,
};

static BY_NODE_PORT: Maps = Maps {
    services: Map::NodePorts,
    endpoints: Map::NodePortEndpoints,
    short_circuit: Map::NodePortShortCircuit,
    no_endpoints: Map::NodePortNoEndpoints,
    connections: Map::NodePortConnections,
};

/// The chain of a frontend with session affinity.
fn sticky(id: AffinityId, frontend: &Frontend) -> Chain {
    let stickiness = match frontend.masquerade {
        _ if frontend.short_circuit => Stickiness::ShortCircuit,
        Masquerade::Always => Stickiness::External,
        Masquerade::OffCluster => Stickiness::Cluster(frontend.pool),
        Masquerade::Never => Stickiness::Pool(frontend.pool),
    };
    Chain::Sticky(id, stickiness)
}

fn maps_of(address: FrontendAddress) -> (Side, &'static Maps) {
    match address {
        FrontendAddress::NodePort(_) => (Side::NodePort, &BY_NODE_PORT),
        FrontendAddress::Cluster(..) | FrontendAddress::External(..) => (Side::Address, &BY_ADDRESS),
    }
}

impl Lowering<'_> {
    /// Where the frontend's connections go.
    fn verdicts(&mut self, frontend: &Frontend) {
        let (side, maps) = maps_of(frontend.address);
        let key = self.key(frontend.address, None);
        let affinity = affinity(self.port);
        if let Some(chain) = self.way_to_endpoints(frontend, side) {
            let chain = affinity.map_or(chain, |(id, _)| sticky(id, frontend));
            self.push(maps.services, key, Value::Goto(chain));
        }
        if affinity.is_none() && frontend.short_circuit && !self.port.cluster.is_empty() {
            let chain = Chain::Pick(side, PoolKind::Cluster, self.size(PoolKind::Cluster));
            self.push(maps.short_circuit, key, Value::Goto(chain));
        }
        if let Some(verdict) = frontend.no_endpoints {
            let value = match verdict {
                Verdict::Reject => Value::Goto(Chain::Refuse),
                Verdict::Drop => Value::Drop,
                Verdict::Pass => Value::Accept,
            };
            self.push(maps.no_endpoints, key, value);
        }
    }

    /// Every pool that the frontend uses, each from its own first slot on.
    fn endpoints(&mut self, frontend: &Frontend) {
        let map = maps_of(frontend.address).1.endpoints;
        let uses_cluster = frontend.pool == PoolKind::Cluster || frontend.short_circuit;
        let cluster: &[Endpoint] = if uses_cluster { &self.port.cluster } else { &[] };
        let local: &[Endpoint] = if frontend.pool == PoolKind::Local { &self.port.local } else { &[] };
        for (first, endpoints) in [(0, cluster), (LOCAL_SLOTS, local)] {
            for (slot, endpoint) in (first..).zip(endpoints) {
                let key = self.key(frontend.address, Some(slot));
                self.push(map, key, Value::Endpoint(endpoint.ip, endpoint.port));
            }
        }
    }

    /// The endpoints of a Service port with session affinity, in maps of its own: by number, and which numbers a client
    /// without an endpoint may get.
    fn members(&mut self, id: AffinityId, numbers: &Numbers) {
        let port = self.port;
        for pool in [PoolKind::Cluster, PoolKind::Local] {
            let numbered = port.pool(pool).iter().filter_map(|e| Some((e, numbers.of(e.ip, e.port)?)));
            let mut pushed = HashSet::new();
            for (slot, (endpoint, number)) in (0..).zip(numbered) {
                self.push(Map::Slots(id, pool), Key::Slot(slot), Value::Number(number));
                // as it was found, a pool may have an endpoint twice
                if pushed.insert(number) {
                    self.push(Map::Members(id, pool), Key::Number(number), Value::Endpoint(endpoint.ip, endpoint.port));
                }
            }
        }
    }

    /// The shape of a pool.
    fn size(&self, pool: PoolKind) -> u32 {
        shapes::size(self.port.pool(pool).len() as u32)
    }

    /// The chain that leads to the endpoints, where there are any that someone may use.
    fn way_to_endpoints(&self, frontend: &Frontend, side: Side) -> Option<Chain> {
        let size = self.size(frontend.pool);
        if frontend.short_circuit {
            return (size > 0 || !self.port.cluster.is_empty()).then_some(Chain::Local(side, size));
        }
        (size > 0).then_some(match frontend.masquerade {
            Masquerade::Always => Chain::External(side, size),
            Masquerade::OffCluster => Chain::Cluster(frontend.pool, size),
            Masquerade::Never => Chain::Pick(side, frontend.pool, size),
        })
    }

    fn counter(&mut self, frontend: &Frontend) {
        if self.port.counted {
            let key = self.key(frontend.address, None);
            self.push(maps_of(frontend.address).1.connections, key, Value::None);
        }
    }

    /// Source ranges hold for addresses only (behaviour row F7).
    fn sources(&mut self, frontend: &Frontend) {
        let key = self.key(frontend.address, None);
        let (Some(sources), Key::Frontend(ip, protocol, port)) = (&frontend.sources, key) else { return };
        self.push(Map::Firewalled, key, Value::None);
        for source in sources.iter() {
            self.push(Map::Allowed, Key::Source(ip, protocol, port, *source), Value::None);
        }
    }

    fn key(&self, address: FrontendAddress, slot: Option<u32>) -> Key {
        let protocol = self.port.protocol;
        match (address, slot) {
            (FrontendAddress::Cluster(ip, port) | FrontendAddress::External(ip, port), None) => {
                Key::Frontend(ip, protocol, port)
            }
            (FrontendAddress::Cluster(ip, port) | FrontendAddress::External(ip, port), Some(slot)) => {
                Key::FrontendSlot(ip, protocol, port, slot)
            }
            (FrontendAddress::NodePort(port), None) => Key::NodePort(protocol, port),
            (FrontendAddress::NodePort(port), Some(slot)) => Key::NodePortSlot(protocol, port, slot),
        }
    }

    fn push(&mut self, map: Map, key: Key, value: Value) {
        (self.each)(Element { map, key, value, owner: Some(self.port.id.name.clone()) });
    }
}
