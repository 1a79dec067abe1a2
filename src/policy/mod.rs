//! Pure rules over plain data: which endpoints, which verdict, whose source address.
//!
//! A file per section of the rules: [`selection`] (rows A), [`frontends`] (B), [`endpoints`] (C), [`masquerade`] (E),
//! [`source_ranges`] (F7–F10), [`node`] (E9, E12, F1–F5), [`flows`] (H3–H5). The rows are named where they are decided.
//! No rule opens a socket for a node port (row F11) or accepts anything on behalf of a host's firewall (row F12).

pub mod context;
pub mod endpoints;
pub mod flows;
pub mod frontends;
pub mod health;
pub mod masquerade;
pub mod node;
mod seen;
pub mod selection;
pub mod source_ranges;
mod warning;

pub use context::Context;
pub use warning::Warning;

use crate::objects::{EndpointSlice, Family, Service, ServicePort};
use crate::plan::{Claim, Frontend, FrontendAddress, PoolKind, PortId, PortName, PortPlan, Verdict};

use endpoints::{Pools, Slices};

/// What a Service does on this node: one plan per port and family that has an address, each family by itself (row B10).
///
/// `slices` may be in any order and may hold slices of other Services and families, which do not count. Where an
/// endpoint stands in more than one of them in the same state, the first one is used.
pub fn plan_service(context: &Context, service: &Service, slices: &[&EndpointSlice]) -> Vec<PortPlan> {
    let mut plans = Vec::new();
    plan_uncontested(context, service, slices, |_| true, &mut plans);
    plans
}

/// What a Service does on this node where it only gets those addresses that `wins` says (row A11), added to `plans`.
pub fn plan_uncontested(
    context: &Context,
    service: &Service,
    slices: &[&EndpointSlice],
    wins: impl Fn(&Claim) -> bool,
    plans: &mut Vec<PortPlan>,
) {
    if !selection::is_proxied(service) {
        return;
    }
    for family in Family::BOTH {
        let sources = source_ranges::allowed(context, service, family);
        let slices = Slices::new(service, family, slices);
        for served in frontends::served(service, family) {
            let mut frontends = frontends::resolve(service, &served, sources.as_ref());
            frontends.retain(|frontend| wins(&Claim::new(family, served.port.protocol, frontend.address)));
            if !frontends.is_empty() {
                let pools = endpoints::pools(context, served.port, &slices);
                plans.push(port_plan(context, service, served.port, family, frontends, pools));
            }
        }
    }
}

/// Puts frontends and endpoints together: says what happens where there is no endpoint (rows C5, C12–C14), and leaves
/// out the endpoints that nobody asks for (rows C1, C2).
fn port_plan(
    context: &Context,
    service: &Service,
    port: &ServicePort,
    family: Family,
    mut frontends: Vec<Frontend>,
    pools: Pools,
) -> PortPlan {
    let Pools { mut cluster, mut local, has_any } = pools;
    let verdict = if has_any { Verdict::Drop } else { Verdict::Reject };
    // only addresses that other nodes may answer on as well, such as anycast ones; ClusterIPs and node ports are refused
    let pass = service.pass_without_endpoints.unwrap_or(context.pass_without_endpoints);
    for frontend in &mut frontends {
        let empty = match frontend.pool {
            PoolKind::Cluster => cluster.is_empty(),
            PoolKind::Local => local.is_empty(),
        };
        let passes = pass && matches!(frontend.address, FrontendAddress::External(..));
        frontend.no_endpoints = empty.then_some(if passes { Verdict::Pass } else { verdict });
    }
    if !frontends.iter().any(|f| f.pool == PoolKind::Cluster || f.short_circuit) {
        cluster = Vec::new();
    }
    if !frontends.iter().any(|f| f.pool == PoolKind::Local) {
        local = Vec::new();
    }
    frontends.sort_by_key(|frontend| frontend.address);
    // plans are kept, by the hundred thousand
    frontends.shrink_to_fit();
    cluster.shrink_to_fit();
    local.shrink_to_fit();
    PortPlan {
        id: PortId { name: PortName::new(&service.key, &port.name), family },
        protocol: port.protocol,
        frontends,
        cluster,
        local,
        affinity: service.affinity,
        counted: context.node.counters,
    }
}
