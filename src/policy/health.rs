//! What a Service's health check node port counts (behaviour row I3).

use std::collections::HashSet;

use crate::objects::{EndpointSlice, Family};

/// How many addresses of one family are ready on the node of this name, over all of a Service's slices and ports; each
/// counts once. Endpoints that are terminating are not ready.
pub fn local_ready(node: &str, slices: &[&EndpointSlice], family: Family) -> usize {
    let slices = slices.iter().filter(|slice| slice.family == family && !slice.ports.is_empty());
    let local = slices.flat_map(|slice| &slice.endpoints).filter(|endpoint| endpoint.node.as_deref() == Some(node));
    local.filter(|endpoint| endpoint.conditions.ready).map(|endpoint| endpoint.address).collect::<HashSet<_>>().len()
}
