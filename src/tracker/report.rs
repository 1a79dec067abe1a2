//! What is told about the objects besides their plan: health checks, and figures.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Tracker;
use super::store::ServiceId;
use crate::config::NodePortAddresses;
use crate::objects::{Family, ServiceKey};
use crate::plan::{FrontendAddress, NodePlan, PortPlan, Verdict};
use crate::policy;
use crate::policy::health::HealthCheck;

/// What is told.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub checks: BTreeMap<ServiceKey, Option<HealthCheck>>,
    pub seen: Seen,
    stranded_v4: Stranded,
    stranded_v6: Stranded,
}

/// How many changes of objects were taken in since the beginning; what says nothing new is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Of Services.
    pub services: u64,
    /// Of EndpointSlices.
    pub slices: u64,
}

/// How many Services drop connections, because they want an endpoint on this node while there are only others (rows
/// C12, C13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stranded {
    /// By `internalTrafficPolicy`.
    pub internal: usize,
    /// By `externalTrafficPolicy`.
    pub external: usize,
}

impl Stranded {
    /// Of one Service in one family.
    fn of(plans: &[PortPlan], family: Family) -> Stranded {
        let dropping = plans
            .iter()
            .filter(|plan| plan.id.family == family)
            .flat_map(|plan| &plan.frontends)
            .filter(|frontend| frontend.no_endpoints == Some(Verdict::Drop));
        let (mut internal, mut external) = (false, false);
        for frontend in dropping {
            match frontend.address {
                FrontendAddress::Cluster(..) => internal = true,
                FrontendAddress::External(..) | FrontendAddress::NodePort(_) => external = true,
            }
        }
        Stranded { internal: internal.into(), external: external.into() }
    }
}

impl Report {
    /// Takes in that a Service's plans are others now.
    pub fn replan(&mut self, before: &[PortPlan], now: &[PortPlan]) {
        for (family, stranded) in [(Family::V4, &mut self.stranded_v4), (Family::V6, &mut self.stranded_v6)] {
            let (before, now) = (Stranded::of(before, family), Stranded::of(now, family));
            stranded.internal = stranded.internal + now.internal - before.internal;
            stranded.external = stranded.external + now.external - before.external;
        }
    }
}

impl Tracker {
    /// The health checks that came, went or tell something else, in what was taken since the last time; nothing for
    /// those that went.
    pub fn take_checks(&mut self) -> BTreeMap<ServiceKey, Option<HealthCheck>> {
        std::mem::take(&mut self.report.checks)
    }

    /// How many changes were taken in.
    pub fn seen(&self) -> Seen {
        self.report.seen
    }

    /// How many Services drop connections in one family for want of a local endpoint, in what was taken last.
    pub fn stranded(&self, family: Family) -> Stranded {
        match family {
            Family::V4 => self.report.stranded_v4,
            Family::V6 => self.report.stranded_v6,
        }
    }

    /// Whether the own Node is about to go (row I9).
    pub fn is_leaving(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.leaving)
    }

    /// The node's part of the plan that was taken last.
    pub fn node_plan(&self) -> Option<&NodePlan> {
        self.planned.as_ref().map(|context| &context.node)
    }

    /// All addresses of the node that are known. Those that node ports are asked for on one by one are among them where no
    /// Node object tells any.
    pub fn node_addresses(&self) -> Vec<IpAddr> {
        let mut addresses = policy::node::known_addresses(&self.config, self.node.as_ref());
        let listed = match &self.config.node_port_addresses {
            NodePortAddresses::Networks(listed) if self.node.as_ref().is_none_or(|node| node.addresses.is_empty()) => {
                listed
            }
            _ => return addresses,
        };
        for network in listed.iter().filter(|network| network.prefix_len() == network.max_prefix_len()) {
            if !network.addr().is_loopback() && !addresses.contains(&network.addr()) {
                addresses.push(network.addr());
            }
        }
        addresses
    }

    /// The plans of the first Services by name among those whose names hold a text, and how many more of these there
    /// are.
    pub fn find_plans(&self, text: &str, limit: usize) -> (Vec<PortPlan>, usize) {
        let Some(context) = &self.planned else { return (Vec::new(), 0) };
        let is_wanted = |id: &ServiceId| {
            self.store.service(*id).is_some_and(policy::selection::is_proxied)
                && (text.is_empty() || self.store.key(*id).to_string().contains(text))
        };
        let mut found: Vec<ServiceId> = self.store.service_ids().filter(is_wanted).collect();
        found.sort_by_key(|id| self.store.key(*id));
        let rest = found.len().saturating_sub(limit);
        found.truncate(limit);
        (found.into_iter().flat_map(|id| self.plan(context, id)).collect(), rest)
    }

    pub(super) fn check(&self, id: ServiceId) -> Option<HealthCheck> {
        policy::health::check(&self.own_node, self.store.service(id)?, &self.store.slices(id))
    }
}
