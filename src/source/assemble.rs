//! Objects, as they come from files, to a snapshot: each key once, and endpoints for Services that have no slices.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::convert::Object;
use super::derive::missing_slices;
use super::{Problem, Snapshot};

/// Puts objects together. Of two with the same key the later one counts.
pub fn assemble(objects: Vec<Object>, problems: &mut Vec<Problem>) -> Snapshot {
    let mut services = Keyed::new("Service");
    let mut slices = Keyed::new("EndpointSlice");
    let mut endpoints = Keyed::new("Endpoints");
    let mut nodes = Keyed::new("Node");
    let mut pods = Keyed::new("Pod");
    let mut cidrs = Keyed::new("ServiceCIDR");
    let mut sliced = HashSet::new();
    for object in objects {
        match object {
            Object::Service(service) => services.insert(service.key.clone(), service, problems),
            Object::Slice(slice) => slices.insert(slice.key.clone(), slice, problems),
            Object::SliceElsewhere(key) => {
                sliced.insert(key);
            }
            Object::Endpoints(object) => endpoints.insert(object.key.clone(), object, problems),
            Object::Node(node) => nodes.insert(node.name.clone(), node, problems),
            Object::Pod(pod) => pods.insert(pod.key.clone(), pod, problems),
            Object::ServiceCidr(name, prefixes) => cidrs.insert(name, prefixes, problems),
        }
    }
    sliced.extend(slices.values.iter().map(|slice| slice.service_key()));
    for slice in missing_slices(&services.values, &sliced, &endpoints.values, &pods.values) {
        slices.insert(slice.key.clone(), slice, problems);
    }
    let mut service_cidrs: Vec<_> = cidrs.values.into_iter().flatten().collect();
    service_cidrs.sort();
    service_cidrs.dedup();
    Snapshot { services: services.values, slices: slices.values, nodes: nodes.values, service_cidrs }
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
