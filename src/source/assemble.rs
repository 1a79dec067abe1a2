//! Objects, as they come from files, to a snapshot: each key once, and endpoints for Services that have no slices.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ipnet::IpNet;

use crate::objects::{EndpointSlice, Name, Node, Service, ServiceKey, SliceKey};

use super::convert::{Endpoints, Object, Pod, PodKey};
use super::derive::missing_slices;
use super::{Problem, Snapshot, unmatched};

/// Puts objects together as they come. Of two with the same key the later one counts.
pub struct Assembler {
    services: Keyed<ServiceKey, Service>,
    slices: Keyed<SliceKey, EndpointSlice>,
    endpoints: Keyed<ServiceKey, Endpoints>,
    nodes: Keyed<Name, Node>,
    pods: Keyed<PodKey, Pod>,
    cidrs: Keyed<Name, Vec<IpNet>>,
    /// Services that have slices, though not for us.
    sliced: HashSet<ServiceKey>,
}

impl Assembler {
    /// Nothing yet.
    pub fn new() -> Assembler {
        Assembler {
            services: Keyed::new("Service"),
            slices: Keyed::new("EndpointSlice"),
            endpoints: Keyed::new("Endpoints"),
            nodes: Keyed::new("Node"),
            pods: Keyed::new("Pod"),
            cidrs: Keyed::new("ServiceCIDR"),
            sliced: HashSet::new(),
        }
    }

    /// Takes an object, and reports it if it is there already.
    pub fn add(&mut self, object: Object, problems: &mut Vec<Problem>) {
        match object {
            Object::Service(service) => self.services.insert(service.key.clone(), service, problems),
            Object::Slice(slice) => self.slices.insert(slice.key.clone(), slice, problems),
            Object::SliceElsewhere(key) => {
                self.sliced.insert(key);
            }
            Object::Endpoints(object) => self.endpoints.insert(object.key.clone(), object, problems),
            Object::Node(node) => self.nodes.insert(node.name.clone(), node, problems),
            Object::Pod(pod) => self.pods.insert(pod.key.clone(), pod, problems),
            Object::ServiceCidr(name, prefixes) => self.cidrs.insert(name, prefixes, problems),
        }
    }

    /// All of it, with endpoints for the Services that have no slices.
    pub fn finish(mut self, problems: &mut Vec<Problem>) -> Snapshot {
        self.sliced.extend(self.slices.values.iter().map(|slice| slice.service_key()));
        unmatched::report(&self.services.values, &self.slices.values, problems);
        let missing = missing_slices(&self.services.values, &self.sliced, &self.endpoints.values, &self.pods.values);
        for slice in missing {
            self.slices.insert(slice.key.clone(), slice, problems);
        }
        let mut service_cidrs: Vec<_> = self.cidrs.values.into_iter().flatten().collect();
        service_cidrs.sort();
        service_cidrs.dedup();
        Snapshot { services: self.services.values, slices: self.slices.values, nodes: self.nodes.values, service_cidrs }
    }
}

/// Objects of one kind in the order of their first mention.
struct Keyed<K, V> {
    kind: &'static str,
    positions: HashMap<K, usize>,
    values: Vec<V>,
}

impl<K: Eq + Hash + std::fmt::Display, V> Keyed<K, V> {
    fn new(kind: &'static str) -> Keyed<K, V> {
        Keyed { kind, positions: HashMap::new(), values: Vec::new() }
    }

    fn insert(&mut self, key: K, value: V, problems: &mut Vec<Problem>) {
        match self.positions.get(&key) {
            Some(&position) => {
                problems.push(Problem {
                    object: format!("{} {key}", self.kind),
                    field: String::new(),
                    message: "is there twice; the later one counts".into(),
                    skipped: false,
                });
                self.values[position] = value;
            }
            None => {
                self.positions.insert(key, self.values.len());
                self.values.push(value);
            }
        }
    }
}
