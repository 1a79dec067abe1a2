//! What a Service's health check node port counts (behaviour row I3).

use std::collections::HashSet;

use crate::objects::EndpointSlice;

/// How many addresses on this node are ready, over all of a Service's slices and ports; each counts once, in each
/// family. Endpoints that are terminating are not ready.
pub fn local_ready(node: &str, slices: &[&EndpointSlice]) -> usize {
    let endpoints = slices.iter().filter(|slice| !slice.ports.is_empty()).flat_map(|slice| &slice.endpoints);
    let local = endpoints.filter(|e| e.conditions.ready && e.node.as_deref() == Some(node));
    local.map(|e| e.address).collect::<HashSet<_>>().len()
}
