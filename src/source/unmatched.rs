//! Ports of EndpointSlices that go with no port of their Service.

use std::collections::{HashMap, HashSet};

use super::Problem;
use crate::objects::{EndpointSlice, Protocol, Service, ServiceKey};
use crate::policy::selection::is_proxied;

/// Reports them where the Service has a port of that protocol for which no slice has any: somebody has given the two different
/// names (behaviour row A6), and the endpoints would be missing without a word. A slice may well have ports that no Service
/// port wants, and none for one that has no endpoints; both is no fault by itself.
pub fn report(services: &[Service], slices: &[EndpointSlice], problems: &mut Vec<Problem>) {
    let mut of_service: HashMap<ServiceKey, Vec<&EndpointSlice>> = HashMap::new();
    for slice in slices {
        of_service.entry(slice.service_key()).or_default().push(slice);
    }
    for service in services.iter().filter(|service| is_proxied(service)) {
        if let Some(slices) = of_service.get(&service.key) {
            of_one(service, slices, problems);
        }
    }
}

fn of_one(service: &Service, slices: &[&EndpointSlice], problems: &mut Vec<Problem>) {
    let offered: HashSet<(&str, Protocol)> =
        slices.iter().flat_map(|slice| &slice.ports).map(|port| (&*port.name, port.protocol)).collect();
    let without = service.ports.iter().filter(|port| !offered.contains(&(&*port.name, port.protocol)));
    let without: HashMap<Protocol, &str> = without.map(|port| (port.protocol, &*port.name)).collect();
    if without.is_empty() {
        return;
    }
    let mut known: HashSet<(&str, Protocol)> = service.ports.iter().map(|port| (&*port.name, port.protocol)).collect();
    for slice in slices {
        for port in &slice.ports {
            let Some(other) = without.get(&port.protocol) else { continue };
            // what several slices have is said once
            if !known.insert((&*port.name, port.protocol)) {
                continue;
            }
            problems.push(Problem {
                object: format!("EndpointSlice {}", slice.key),
                field: "ports".into(),
                message: format!(
                    "no {} port of Service {} has the name {:?}, so that it leads to none of these endpoints; {:?} has no \
                     endpoints",
                    port.protocol.kubernetes(),
                    service.key,
                    port.name,
                    other
                ),
                skipped: false,
            });
        }
    }
}
