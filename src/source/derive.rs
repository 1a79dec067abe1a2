//! EndpointSlices for Services that have none in the input: from Endpoints objects, as the mirroring controller makes
//! them, or from Pods, as the endpoint slice controller does.
//!
//! A controller caps the number of endpoints in a slice to keep API objects small. Nothing depends on the cap, so
//! there is none here.

use std::collections::{HashMap, HashSet};

use crate::objects::{
    Conditions, Endpoint, EndpointSlice, Family, FamilyOf, Name, Protocol, Service, ServiceKey, ServicePort,
    ServiceType, SliceKey, SlicePort, Target,
};

use super::convert::{Endpoints, Pod};

/// Makes the slices that are missing. `sliced` are the Services that have slices, whoever they are for.
pub fn missing_slices(
    services: &[Service],
    sliced: &HashSet<ServiceKey>,
    endpoints: &[Endpoints],
    pods: &[Pod],
) -> Vec<EndpointSlice> {
    let endpoints: HashMap<&ServiceKey, &Endpoints> = endpoints.iter().map(|e| (&e.key, e)).collect();
    let pods = PodIndex::new(pods);
    let mut slices = Vec::new();
    for service in services.iter().filter(|s| is_proxied(s) && !sliced.contains(&s.key)) {
        match endpoints.get(&service.key) {
            Some(endpoints) => slices.extend(mirror(endpoints)),
            None => slices.extend(select(service, &pods)),
        }
    }
    slices
}

fn is_proxied(service: &Service) -> bool {
    service.kind != ServiceType::ExternalName && !service.cluster_ips.is_empty() && !service.other_proxy
}

/// Mirrors an Endpoints object: a slice for each subset and family.
fn mirror(object: &Endpoints) -> Vec<EndpointSlice> {
    let mut slices = Slices::new(&object.key, "endpoints");
    for subset in &object.subsets {
        for endpoint in &subset.endpoints {
            slices.add(endpoint.address.family(), &subset.ports, endpoint.clone());
        }
    }
    slices.finish()
}

/// The endpoints of a Service from the Pods that its selector matches: a slice for each family and each set of
/// ports, since a named target port can have another number, or none, in every Pod. Where the Service publishes Pods that
/// are not ready, all are ready (row C7).
fn select<'p>(service: &'p Service, pods: &PodIndex<'p>) -> Vec<EndpointSlice> {
    let mut slices = Slices::new(&service.key, "pods");
    for pod in pods.matching(service) {
        if pod.finished {
            continue;
        }
        let named = named_ports(pod);
        let ports: Vec<SlicePort> = service.ports.iter().filter_map(|port| target_port(port, &named)).collect();
        for family in service.cluster_ips.iter().map(FamilyOf::family) {
            let Some(address) = pod.addresses.iter().find(|a| a.family() == family) else { continue };
            let conditions = Conditions {
                ready: service.publish_not_ready || (pod.ready && !pod.terminating),
                serving: pod.ready,
                terminating: pod.terminating,
            };
            let endpoint = Endpoint { address: *address, conditions, node: pod.node.clone(), hints: None };
            slices.add(family, &ports, endpoint);
        }
    }
    slices.finish()
}

/// The numbers of a Pod's ports by name and protocol; of two, the first.
fn named_ports(pod: &Pod) -> HashMap<(&str, Protocol), u16> {
    pod.ports.iter().rev().map(|port| ((&*port.name, port.protocol), port.port)).collect()
}

/// The port of a Pod with these named ports that a Service port leads to, if it has it.
fn target_port(port: &ServicePort, named: &HashMap<(&str, Protocol), u16>) -> Option<SlicePort> {
    let number = match &port.target {
        Target::Number(number) => *number,
        Target::Named(name) => *named.get(&(&**name, port.protocol))?,
    };
    Some(SlicePort { name: port.name.clone(), protocol: port.protocol, port: number })
}

/// The slices of one Service while they are made.
struct Slices<'k> {
    service: &'k ServiceKey,
    origin: &'static str,
    positions: HashMap<(Family, Vec<SlicePort>), usize>,
    slices: Vec<EndpointSlice>,
}

impl<'k> Slices<'k> {
    fn new(service: &'k ServiceKey, origin: &'static str) -> Slices<'k> {
        Slices { service, origin, positions: HashMap::new(), slices: Vec::new() }
    }

    /// Adds an endpoint to the slice of its family and ports. Without ports it would serve nothing.
    fn add(&mut self, family: Family, ports: &[SlicePort], endpoint: Endpoint) {
        if ports.is_empty() {
            return;
        }
        let position = *self.positions.entry((family, ports.to_vec())).or_insert_with(|| {
            let name = format!("{}-{}-{}", self.service.name, self.origin, self.slices.len());
            self.slices.push(EndpointSlice {
                key: SliceKey { namespace: self.service.namespace.clone(), name: name.into() },
                service: self.service.name.clone(),
                family,
                ports: ports.to_vec(),
                endpoints: Vec::new(),
            });
            self.slices.len() - 1
        });
        self.slices[position].endpoints.push(endpoint);
    }

    fn finish(self) -> Vec<EndpointSlice> {
        self.slices
    }
}

/// Pods by namespace and label, so that a selector is compared with few of them.
struct PodIndex<'p>(HashMap<(&'p str, &'p str, &'p str), Vec<&'p Pod>>);

impl<'p> PodIndex<'p> {
    fn new(pods: &'p [Pod]) -> PodIndex<'p> {
        let mut index: HashMap<_, Vec<&Pod>> = HashMap::new();
        for pod in pods {
            for (key, value) in &pod.labels {
                index.entry((&*pod.key.namespace, &**key, &**value)).or_default().push(pod);
            }
        }
        PodIndex(index)
    }

    /// The Pods in the Service's namespace that carry all labels of its selector; none for an empty selector.
    fn matching(&self, service: &'p Service) -> impl Iterator<Item = &'p Pod> {
        let fewest = service.selector.iter().map(|label| self.carrying(service, label)).min_by_key(|pods| pods.len());
        fewest
            .unwrap_or_default()
            .iter()
            .copied()
            .filter(|pod| service.selector.iter().all(|label| pod.labels.contains(label)))
    }

    fn carrying(&self, service: &'p Service, (key, value): &'p (Name, Name)) -> &[&'p Pod] {
        self.0.get(&(&*service.key.namespace, &**key, &**value)).map_or(&[], Vec::as_slice)
    }
}
