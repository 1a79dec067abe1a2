//! Elements of the maps as Service ports' plans: the way back from [`super::lower`].
//!
//! Whatever the elements say, a plan comes out. Whether it says the same is found by lowering it again: what is in
//! excess then belongs to no Service port, what is missing was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use ipnet::IpNet;

use super::chains::LOCAL_SLOTS;
use super::element::{Element, Key, Value};
use super::names::{AffinityId, Chain, Map, Stickiness};
use super::numbers::{Number, Numbers};
use super::slots::{Shares, Slots};
use crate::netlink::model::Expr;
use crate::objects::{Family, Protocol};
use crate::plan::{
    Endpoint, Frontend, FrontendAddress, Masquerade, PoolKind, PortId, PortName, PortPlan, Verdict, assign,
};

/// What the rules of chains of Service ports with session affinity say.
#[derive(Debug, Default)]
pub struct AffinityFound(BTreeMap<AffinityId, OneAffinity>);

#[derive(Clone, Copy, Debug, Default)]
struct OneAffinity {
    /// After how many seconds a client is forgotten.
    seconds: Option<u32>,
    /// How many slots of each pool are drawn from.
    cluster: Option<u32>,
    local: Option<u32>,
}

impl AffinityFound {
    /// Takes in a rule.
    pub fn rule(&mut self, chain: Chain, exprs: &[Expr]) {
        let Chain::Sticky(id, how) = chain else { return };
        let found = self.0.entry(id).or_default();
        for expr in exprs {
            match (how, expr) {
                (_, Expr::Dynset { timeout_ms: Some(ms), .. }) => found.seconds = u32::try_from(ms / 1000).ok(),
                (Stickiness::Draw(PoolKind::Cluster), Expr::Numgen { modulus, .. }) => found.cluster = Some(*modulus),
                (Stickiness::Draw(PoolKind::Local), Expr::Numgen { modulus, .. }) => found.local = Some(*modulus),
                _ => {}
            }
        }
    }

    fn of(&self, id: AffinityId) -> OneAffinity {
        self.0.get(&id).copied().unwrap_or_default()
    }
}

/// A Service port as it was read.
#[derive(Debug)]
pub struct Decoded {
    /// Its plan. Where a slot has lost its endpoint, another one stands in its place a second time.
    pub plan: PortPlan,
    /// How often the endpoints of the cluster's pool are drawn, where slots have lost theirs.
    pub cluster: Option<Shares>,
    /// The same of the local pool.
    pub local: Option<Shares>,
}

/// Reads Service ports out of all elements of one family.
pub fn ports(family: Family, elements: &[Element], affinity: &AffinityFound) -> Vec<PortPlan> {
    decoded(family, elements, affinity).into_iter().map(|decoded| decoded.plan).collect()
}

/// The same, with how often endpoints are drawn.
pub fn decoded(family: Family, elements: &[Element], affinity: &AffinityFound) -> Vec<Decoded> {
    let index = Index::new(elements);
    let mut ports: BTreeMap<&PortName, Port> = BTreeMap::new();
    for (place, name) in &index.frontends {
        let Some(&verdicts) = index.verdicts.get(place) else { continue };
        let Port { plan, slots } = ports.entry(name).or_insert_with(|| Port::new(name, family, place.protocol()));
        if plan.protocol != place.protocol() {
            continue;
        }
        plan.frontends.push(index.frontend(*place, verdicts));
        plan.counted |= index.counted.contains(place);
        match verdicts.service {
            Some(Value::Goto(Chain::Sticky(id, _))) if id == AffinityId::new(name, plan.protocol) => {
                plan.affinity = affinity.of(id).seconds;
                index.members(id, affinity.of(id), slots);
            }
            _ => index.slots(*place, verdicts, slots),
        }
    }
    ports.into_values().map(|port| index.finish(port)).collect()
}

/// Whether an endpoint stands in the place of one that was lost; then the plan of those that are left.
pub fn without_gaps(port: &PortPlan) -> Option<PortPlan> {
    let [cluster, local] = [&port.cluster, &port.local].map(|pool| assign(&[], pool.iter().copied()));
    let is_whole = cluster.len() == port.cluster.len() && local.len() == port.local.len();
    (!is_whole).then(|| PortPlan { cluster, local, ..port.clone() })
}

/// The numbers of endpoints, by Service port. New ones come after `last`.
pub fn numbers(elements: &[Element], last: u32) -> BTreeMap<AffinityId, Numbers> {
    let mut numbers: BTreeMap<AffinityId, Numbers> = BTreeMap::new();
    for element in elements {
        if let (Map::Members(id, _), Key::Number(number), Value::Endpoint(ip, port)) =
            (element.map, element.key, element.value)
        {
            numbers.entry(id).or_insert_with(|| Numbers::after(last)).found(ip, port, number);
        }
    }
    numbers
}

/// A Service port while it is read.
struct Port {
    plan: PortPlan,
    /// Those of the cluster's pool, and of the local one.
    slots: [Slots; 2],
}

impl Port {
    fn new(name: &PortName, family: Family, protocol: Protocol) -> Port {
        let plan = PortPlan {
            id: PortId { name: name.clone(), family },
            protocol,
            frontends: Vec::new(),
            cluster: Vec::new(),
            local: Vec::new(),
            affinity: None,
            counted: false,
        };
        Port { plan, slots: Default::default() }
    }
}

/// A frontend without its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Address(IpAddr, Protocol, u16),
    NodePort(Protocol, u16),
}

impl Place {
    fn of(key: Key) -> Option<(Place, Option<u32>)> {
        match key {
            Key::Frontend(ip, protocol, port) => Some((Place::Address(ip, protocol, port), None)),
            Key::FrontendSlot(ip, protocol, port, slot) => Some((Place::Address(ip, protocol, port), Some(slot))),
            Key::NodePort(protocol, port) => Some((Place::NodePort(protocol, port), None)),
            Key::NodePortSlot(protocol, port, slot) => Some((Place::NodePort(protocol, port), Some(slot))),
            Key::Address(_) | Key::Pair(_) | Key::Source(..) | Key::Slot(_) | Key::Number(_) => None,
        }
    }

    fn protocol(self) -> Protocol {
        match self {
            Place::Address(_, protocol, _) | Place::NodePort(protocol, _) => protocol,
        }
    }
}

/// What the verdict maps say of a frontend.
#[derive(Clone, Copy, Debug, Default)]
struct Verdicts {
    service: Option<Value>,
    short_circuit: Option<Value>,
    none: Option<Value>,
}

impl Verdicts {
    /// How many slots of each pool are drawn from.
    fn drawn(self) -> [Option<u32>; 2] {
        let drawn = |value: Option<Value>| match value {
            Some(Value::Goto(Chain::Cluster(pool, n) | Chain::Pick(_, pool, n))) => Some((pool, n)),
            Some(Value::Goto(Chain::External(_, n))) => Some((PoolKind::Cluster, n)),
            Some(Value::Goto(Chain::Local(_, n))) => Some((PoolKind::Local, n)),
            _ => None,
        };
        let mut found = [None, None];
        for (pool, n) in [self.service, self.short_circuit].into_iter().filter_map(drawn) {
            found[usize::from(pool == PoolKind::Local)].get_or_insert(n);
        }
        found
    }
}

struct Index<'a> {
    /// Which Service port a frontend belongs to.
    frontends: BTreeMap<Place, &'a PortName>,
    verdicts: HashMap<Place, Verdicts>,
    /// Endpoints by slot.
    slots: HashMap<Place, BTreeMap<u32, (IpAddr, u16)>>,
    /// Numbers by slot, of Service ports with session affinity.
    numbers: HashMap<(AffinityId, PoolKind), BTreeMap<u32, Number>>,
    /// Endpoints by number.
    members: HashMap<(AffinityId, PoolKind, Number), (IpAddr, u16)>,
    sources: HashMap<Place, BTreeSet<IpNet>>,
    firewalled: HashSet<Place>,
    counted: HashSet<Place>,
    cluster_ips: HashSet<IpAddr>,
    local: HashSet<IpAddr>,
}

impl<'a> Index<'a> {
    fn new(elements: &'a [Element]) -> Index<'a> {
        let mut index = Index {
            frontends: BTreeMap::new(),
            verdicts: HashMap::new(),
            slots: HashMap::new(),
            numbers: HashMap::new(),
            members: HashMap::new(),
            sources: HashMap::new(),
            firewalled: HashSet::new(),
            counted: HashSet::new(),
            cluster_ips: HashSet::new(),
            local: HashSet::new(),
        };
        for element in elements {
            index.add(element);
        }
        index
    }

    fn add(&mut self, element: &'a Element) {
        match element.key {
            Key::Address(ip) => drop(self.cluster_ips.insert(ip)),
            Key::Pair(ip) => drop(self.local.insert(ip)),
            Key::Source(ip, protocol, port, source) => {
                self.sources.entry(Place::Address(ip, protocol, port)).or_default().insert(source);
            }
            Key::Slot(slot) => {
                if let (Map::Slots(id, pool), Value::Number(number)) = (element.map, element.value) {
                    self.numbers.entry((id, pool)).or_default().insert(slot, number);
                }
            }
            Key::Number(number) => {
                if let (Map::Members(id, pool), Value::Endpoint(ip, port)) = (element.map, element.value) {
                    self.members.insert((id, pool, number), (ip, port));
                }
            }
            key => match (Place::of(key), element.value) {
                (Some((place, Some(slot))), Value::Endpoint(ip, port)) => {
                    self.slots.entry(place).or_default().insert(slot, (ip, port));
                }
                (Some((place, None)), value) => self.add_verdict(place, element, value),
                _ => {}
            },
        }
    }

    fn add_verdict(&mut self, place: Place, element: &'a Element, value: Value) {
        let verdicts = self.verdicts.entry(place).or_default();
        match element.map {
            Map::Services | Map::NodePorts => verdicts.service = Some(value),
            Map::NoEndpoints | Map::NodePortNoEndpoints => verdicts.none = Some(value),
            Map::ShortCircuit | Map::NodePortShortCircuit => verdicts.short_circuit = Some(value),
            Map::Firewalled => drop(self.firewalled.insert(place)),
            Map::Connections | Map::NodePortConnections => drop(self.counted.insert(place)),
            _ => return,
        }
        // Services and no-endpoints say whose frontend it is; source ranges alone make none
        let names = matches!(element.map, Map::Services | Map::NodePorts | Map::NoEndpoints | Map::NodePortNoEndpoints);
        if let (true, Some(owner)) = (names, &element.owner) {
            self.frontends.entry(place).or_insert(owner);
        }
    }

    fn frontend(&self, place: Place, verdicts: Verdicts) -> Frontend {
        let address = match place {
            Place::Address(ip, _, port) if self.cluster_ips.contains(&ip) => FrontendAddress::Cluster(ip, port),
            Place::Address(ip, _, port) => FrontendAddress::External(ip, port),
            Place::NodePort(_, port) => FrontendAddress::NodePort(port),
        };
        let internal = matches!(address, FrontendAddress::Cluster(..));
        let (pool, short_circuit, masquerade) = match (verdicts.service, verdicts.none) {
            (Some(Value::Goto(Chain::Sticky(_, how))), _) => way_of(how),
            (Some(Value::Goto(Chain::Cluster(pool, _))), _) => (pool, false, Masquerade::OffCluster),
            (Some(Value::Goto(Chain::External(..))), _) => (PoolKind::Cluster, false, Masquerade::Always),
            (Some(Value::Goto(Chain::Local(..))), _) => (PoolKind::Local, true, Masquerade::Never),
            (Some(Value::Goto(Chain::Pick(_, pool, _))), _) => (pool, false, Masquerade::Never),
            (_, Some(Value::Drop)) if internal => (PoolKind::Local, false, Masquerade::OffCluster),
            (_, Some(Value::Drop)) => (PoolKind::Local, true, Masquerade::Never),
            _ if internal => (PoolKind::Cluster, false, Masquerade::OffCluster),
            _ => (PoolKind::Cluster, false, Masquerade::Always),
        };
        let no_endpoints = verdicts.none.map(|value| match value {
            Value::Drop => Verdict::Drop,
            Value::Accept => Verdict::Pass,
            _ => Verdict::Reject,
        });
        let sources = self.firewalled.contains(&place).then(|| {
            let sources = self.sources.get(&place).into_iter().flatten().copied();
            sources.collect::<Arc<[IpNet]>>()
        });
        Frontend { address, pool, short_circuit, masquerade, no_endpoints, sources }
    }

    /// Notes what the maps of a port with session affinity hold.
    fn members(&self, id: AffinityId, affinity: OneAffinity, slots: &mut [Slots; 2]) {
        let pools = [(PoolKind::Cluster, affinity.cluster), (PoolKind::Local, affinity.local)];
        for ((pool, drawn), slots) in pools.into_iter().zip(slots) {
            let Some(numbers) = self.numbers.get(&(id, pool)).filter(|_| slots.is_empty()) else { continue };
            let endpoint = |(slot, number): (&u32, &Number)| Some((*slot, *self.members.get(&(id, pool, *number))?));
            let there: BTreeMap<u32, (IpAddr, u16)> = numbers.iter().filter_map(endpoint).collect();
            slots.of_affinity(drawn.unwrap_or(there.len() as u32), there);
        }
    }

    /// Notes what a frontend draws from.
    fn slots(&self, place: Place, verdicts: Verdicts, slots: &mut [Slots; 2]) {
        let Some(there) = self.slots.get(&place) else { return };
        for ((first, drawn), slots) in [0, LOCAL_SLOTS].into_iter().zip(verdicts.drawn()).zip(slots) {
            let Some(drawn) = drawn else { continue };
            let of_pool = there.range(first..first.saturating_add(LOCAL_SLOTS));
            slots.of_frontend(drawn, of_pool.map(|(slot, endpoint)| (slot - first, *endpoint)).collect());
        }
    }

    fn finish(&self, port: Port) -> Decoded {
        let Port { mut plan, slots } = port;
        let [(cluster, of_cluster), (local, of_local)] = slots.map(|slots| slots.endpoints());
        let pool = |endpoints: Vec<(IpAddr, u16)>, here: bool| {
            let endpoint = |(ip, port)| Endpoint { ip, port, local: here || self.local.contains(&ip) };
            endpoints.into_iter().map(endpoint).collect()
        };
        (plan.cluster, plan.local) = (pool(cluster, false), pool(local, true));
        Decoded { plan, cluster: of_cluster, local: of_local }
    }
}

/// The pool, the short circuit and the masquerading that a chain of a Service port with session affinity stands for.
fn way_of(stickiness: Stickiness) -> (PoolKind, bool, Masquerade) {
    match stickiness {
        Stickiness::Pool(pool) | Stickiness::Draw(pool) => (pool, false, Masquerade::Never),
        Stickiness::Cluster(pool) => (pool, false, Masquerade::OffCluster),
        Stickiness::External => (PoolKind::Cluster, false, Masquerade::Always),
        Stickiness::ShortCircuit => (PoolKind::Local, true, Masquerade::Never),
    }
}

/// The Service port with session affinity that a chain belongs to.
pub fn affinity_id(chain: Chain) -> Option<AffinityId> {
    match chain {
        Chain::Sticky(id, _) => Some(id),
        _ => None,
    }
}
