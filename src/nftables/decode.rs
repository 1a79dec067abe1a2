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
use crate::objects::{Family, Protocol};
use crate::plan::{
    Endpoint, Frontend, FrontendAddress, Masquerade, PoolKind, PortId, PortName, PortPlan, Verdict, assign,
};

/// Reads Service ports out of all elements of one family. `timeouts` are the seconds that the rules of affinity
/// chains name.
pub fn ports(family: Family, elements: &[Element], timeouts: &BTreeMap<AffinityId, u32>) -> Vec<PortPlan> {
    let index = Index::new(elements);
    let mut ports: BTreeMap<&PortName, PortPlan> = BTreeMap::new();
    for (place, name) in &index.frontends {
        let Some(&verdicts) = index.verdicts.get(place) else { continue };
        let port = ports.entry(name).or_insert_with(|| PortPlan {
            id: PortId { name: (*name).clone(), family },
            protocol: place.protocol(),
            frontends: Vec::new(),
            cluster: Vec::new(),
            local: Vec::new(),
            affinity: None,
            counted: false,
        });
        if port.protocol != place.protocol() {
            continue;
        }
        port.frontends.push(index.frontend(*place, verdicts));
        port.counted |= index.counted.contains(place);
        match verdicts.service {
            Some(Value::Goto(Chain::Sticky(id, _))) if id == AffinityId::new(name, port.protocol) => {
                port.affinity = timeouts.get(&id).copied();
                index.members(id, port);
            }
            _ => index.pools(*place, port),
        }
    }
    ports.into_values().collect()
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
    none: Option<Value>,
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

    /// Gives a port with session affinity the pools that its own maps hold.
    fn members(&self, id: AffinityId, port: &mut PortPlan) {
        let pool = |kind: PoolKind| {
            let numbers = self.numbers.get(&(id, kind)).into_iter().flat_map(BTreeMap::values);
            let places = numbers.filter_map(|number| self.members.get(&(id, kind, *number)));
            assign(
                &[],
                places.map(|&(ip, port)| Endpoint {
                    ip,
                    port,
                    local: kind == PoolKind::Local || self.local.contains(&ip),
                }),
            )
        };
        port.cluster = pool(PoolKind::Cluster);
        port.local = pool(PoolKind::Local);
    }

    /// Gives the port the pools that this frontend shows and that no other has shown yet.
    fn pools(&self, place: Place, port: &mut PortPlan) {
        let Some(slots) = self.slots.get(&place) else { return };
        let pool = |from: u32, to: u32, here: bool| {
            let endpoint = |&(ip, port): &(IpAddr, u16)| Endpoint { ip, port, local: here || self.local.contains(&ip) };
            assign(&[], slots.range(from..to).map(|(_, place)| endpoint(place)))
        };
        if port.cluster.is_empty() {
            port.cluster = pool(0, LOCAL_SLOTS, false);
        }
        if port.local.is_empty() {
            port.local = pool(LOCAL_SLOTS, u32::MAX, true);
        }
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
