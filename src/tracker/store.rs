//! The objects, held compactly: a large cluster has a million endpoints.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use slab::Slab;
use smallvec::SmallVec;

use super::Counts;
use crate::objects::{EndpointSlice, Service, ServiceKey, SliceKey, Target};
use crate::policy::selection;

/// A Service that is held, or one that only slices name so far. It stays the same until [`Store::prune`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceId(u32);

impl ServiceId {
    /// Its number: those that are given are dense.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slice that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceId(u32);

/// Services and the slices of each, found by their keys.
///
/// The entries stand in two slabs, and the indices hold nothing but positions, so that a Service costs little more
/// than its own fields.
#[derive(Default)]
pub struct Store {
    services: Slab<Entry>,
    slices: Slab<EndpointSlice>,
    service_index: HashTable<u32>,
    slice_index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    counts: Counts,
}

struct Entry {
    held: Held,
    slices: SmallVec<[u32; 4]>,
}

enum Held {
    Service(Service),
    Missing(ServiceKey),
}

impl Entry {
    fn key(&self) -> &ServiceKey {
        match &self.held {
            Held::Service(service) => &service.key,
            Held::Missing(key) => key,
        }
    }
}

impl Store {
    /// The Service of this key, which need not exist yet.
    pub fn service_id(&mut self, key: &ServiceKey) -> ServiceId {
        match self.find_service(key) {
            Some(id) => id,
            None => self.add(Held::Missing(key.clone())),
        }
    }

    /// Holds a Service of whose key nothing is known yet.
    pub fn add_service(&mut self, service: Service) -> ServiceId {
        debug_assert!(self.find_service(&service.key).is_none());
        self.count(&service);
        self.add(Held::Service(service))
    }

    /// Makes room for this many Services and slices in all. Growing step by step moves everything several times.
    pub fn make_room(&mut self, services: usize, slices: usize) {
        let services = services.saturating_sub(self.services.len());
        let slices = slices.saturating_sub(self.slices.len());
        self.services.reserve_exact(services);
        self.slices.reserve_exact(slices);
        let hasher = &self.hasher;
        self.service_index.reserve(services, |at| hasher.hash_one(self.services[*at as usize].key()));
        self.slice_index.reserve(slices, |at| hasher.hash_one(&self.slices[*at as usize].key));
    }

    fn add(&mut self, held: Held) -> ServiceId {
        let entry = Entry { held, slices: SmallVec::new() };
        let hash = self.hasher.hash_one(entry.key());
        let at = self.services.insert(entry) as u32;
        let (services, hasher) = (&self.services, &self.hasher);
        self.service_index.insert_unique(hash, at, |at| hasher.hash_one(services[*at as usize].key()));
        ServiceId(at)
    }

    /// The Service of this key, if it or a slice of it is held.
    pub fn find_service(&self, key: &ServiceKey) -> Option<ServiceId> {
        let hash = self.hasher.hash_one(key);
        self.service_index.find(hash, |at| self.services[*at as usize].key() == key).copied().map(ServiceId)
    }

    /// The key of a Service.
    pub fn key(&self, id: ServiceId) -> &ServiceKey {
        self.services[id.0 as usize].key()
    }

    /// The Service, if it is held.
    pub fn service(&self, id: ServiceId) -> Option<&Service> {
        match &self.services[id.0 as usize].held {
            Held::Service(service) => Some(service),
            Held::Missing(_) => None,
        }
    }

    /// Orders Services by age, the oldest first: by creation, those that nobody has created yet last, then by name.
    pub fn age(&self, id: ServiceId) -> (bool, Option<i64>, &ServiceKey) {
        let created = self.service(id).and_then(|service| service.created);
        (created.is_none(), created, self.key(id))
    }

    /// How much is held.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a Service that is about to be held into the counts.
    fn count(&mut self, service: &Service) {
        self.counts.services += 1;
        self.counts.proxied += usize::from(selection::is_proxied(service));
    }

    /// Takes a Service that is held out of the counts.
    fn discount(&mut self, id: ServiceId) {
        if let Some(service) = self.service(id) {
            let proxied = selection::is_proxied(service);
            self.counts.services -= 1;
            self.counts.proxied -= usize::from(proxied);
        }
    }

    /// Holds the Service, which must have the key of `id`.
    pub fn set_service(&mut self, id: ServiceId, service: Service) {
        debug_assert_eq!(self.key(id), &service.key);
        self.discount(id);
        self.count(&service);
        self.services[id.0 as usize].held = Held::Service(service);
    }

    /// Forgets the Service; its slices stay.
    pub fn clear_service(&mut self, id: ServiceId) {
        self.discount(id);
        let key = self.key(id).clone();
        self.services[id.0 as usize].held = Held::Missing(key);
    }

    /// The slices of a Service, by name.
    pub fn slices(&self, id: ServiceId) -> SmallVec<[&EndpointSlice; 4]> {
        let mut slices: SmallVec<[&EndpointSlice; 4]> =
            self.services[id.0 as usize].slices.iter().map(|at| &self.slices[*at as usize]).collect();
        slices.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        slices
    }

    /// The slice of this key, if it is held.
    pub fn find_slice(&self, key: &SliceKey) -> Option<SliceId> {
        let hash = self.hasher.hash_one(key);
        self.slice_index.find(hash, |at| &self.slices[*at as usize].key == key).copied().map(SliceId)
    }

    /// A slice.
    pub fn slice(&self, id: SliceId) -> &EndpointSlice {
        &self.slices[id.0 as usize]
    }

    /// Holds a slice of the Service, in place of the one of the same key that `known` is.
    pub fn set_slice(&mut self, known: Option<SliceId>, service: ServiceId, slice: EndpointSlice) -> SliceId {
        self.counts.endpoints += slice.endpoints.len();
        let Some(id) = known else {
            self.counts.slices += 1;
            let hash = self.hasher.hash_one(&slice.key);
            let at = self.slices.insert(slice) as u32;
            let (slices, hasher) = (&self.slices, &self.hasher);
            self.slice_index.insert_unique(hash, at, |at| hasher.hash_one(&slices[*at as usize].key));
            self.services[service.0 as usize].slices.push(at);
            return SliceId(at);
        };
        self.counts.endpoints -= self.slice(id).endpoints.len();
        let held = self.slice(id);
        if held.service != slice.service {
            if let Some(before) = self.find_service(&held.service_key()) {
                self.services[before.0 as usize].slices.retain(|at| *at != id.0);
            }
            self.services[service.0 as usize].slices.push(id.0);
        }
        self.slices[id.0 as usize] = slice;
        id
    }

    /// Forgets a slice of the Service.
    pub fn remove_slice(&mut self, id: SliceId, service: ServiceId) {
        let slice = self.slices.remove(id.0 as usize);
        self.counts.slices -= 1;
        self.counts.endpoints -= slice.endpoints.len();
        self.services[service.0 as usize].slices.retain(|held| *held != id.0);
        if let Ok(entry) = self.slice_index.find_entry(self.hasher.hash_one(&slice.key), |at| *at == id.0) {
            entry.remove();
        }
    }

    /// Forgets the key of a Service that is neither held nor named by a slice.
    pub fn prune(&mut self, id: ServiceId) {
        let entry = &self.services[id.0 as usize];
        if !matches!(entry.held, Held::Missing(_)) || !entry.slices.is_empty() {
            return;
        }
        let hash = self.hasher.hash_one(entry.key());
        if let Ok(found) = self.service_index.find_entry(hash, |at| *at == id.0) {
            found.remove();
        }
        self.services.remove(id.0 as usize);
    }

    /// All Services, those included that only slices name.
    pub fn service_ids(&self) -> impl Iterator<Item = ServiceId> + '_ {
        self.services.iter().map(|(at, _)| ServiceId(at as u32))
    }

    /// All slices.
    pub fn slice_ids(&self) -> impl Iterator<Item = SliceId> + '_ {
        self.slices.iter().map(|(at, _)| SliceId(at as u32))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} services, {} slices)", self.services.len(), self.slices.len())
    }
}

/// The Service without what only matters for making endpoints, and without spare room.
pub fn compact_service(mut service: Service) -> Service {
    service.selector = Vec::new();
    service.publish_not_ready = false;
    service.cluster_ips.shrink_to_fit();
    service.external_ips.shrink_to_fit();
    service.load_balancer_ips.shrink_to_fit();
    service.source_ranges.shrink_to_fit();
    service.ports.shrink_to_fit();
    for port in &mut service.ports {
        port.target = Target::Number(0);
    }
    service
}

/// The slice without spare room, and with no other node's name than the own one: it only matters which endpoints are
/// local (row A10).
pub fn compact_slice(mut slice: EndpointSlice, own_node: &Arc<str>) -> EndpointSlice {
    slice.ports.shrink_to_fit();
    slice.endpoints.shrink_to_fit();
    for endpoint in &mut slice.endpoints {
        endpoint.node = endpoint.node.take().filter(|node| node == own_node).map(|_| own_node.clone());
    }
    slice
}
