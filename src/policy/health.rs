//! What a Service's health check node port tells (behaviour rows I1–I3).

use std::collections::HashSet;

use super::selection;
use crate::objects::{EndpointSlice, Family, FamilyOf, Service, ServiceType, TrafficPolicy};

/// The health check of a Service: load balancers ask every node whether it has endpoints, since only such a node may
/// get traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// `spec.healthCheckNodePort`.
    pub port: u16,
    /// How many ready endpoints are on the node; nothing for a family that the Service does not have.
    ready_v4: Option<usize>,
    ready_v6: Option<usize>,
}

impl HealthCheck {
    /// What somebody is told who asks on an address of this family: how many endpoints he would reach there. Where the
    /// Service has no address of the family, the other family's number: the probe may take another way than the traffic.
    pub fn ready(&self, family: Family) -> usize {
        let (own, other) = match family {
            Family::V4 => (self.ready_v4, self.ready_v6),
            Family::V6 => (self.ready_v6, self.ready_v4),
        };
        own.or(other).unwrap_or(0)
    }
}

/// The health check of the Service on the node of this name. Only load balancers that must not send to nodes without
/// endpoints have one; that is decided by type and policy, whatever the field says.
pub fn check(node: &str, service: &Service, slices: &[&EndpointSlice]) -> Option<HealthCheck> {
    let wanted = service.kind == ServiceType::LoadBalancer && service.external_policy == TrafficPolicy::Local;
    let port = service.health_check_node_port;
    if port == 0 || !wanted || !selection::is_proxied(service) || service.ports.is_empty() {
        return None;
    }
    let ready = |family| {
        let has = service.cluster_ips.iter().any(|ip| ip.family() == family);
        has.then(|| local_ready(node, slices, family))
    };
    Some(HealthCheck { port, ready_v4: ready(Family::V4), ready_v6: ready(Family::V6) })
}

/// How many addresses of one family are ready on the node of this name, over all of a Service's slices and ports; each
/// counts once. Endpoints that are terminating are not ready.
pub fn local_ready(node: &str, slices: &[&EndpointSlice], family: Family) -> usize {
    let slices = slices.iter().filter(|slice| slice.family == family && !slice.ports.is_empty());
    let local = slices.flat_map(|slice| &slice.endpoints).filter(|endpoint| endpoint.node.as_deref() == Some(node));
    local.filter(|endpoint| endpoint.conditions.ready).map(|endpoint| endpoint.address).collect::<HashSet<_>>().len()
}
