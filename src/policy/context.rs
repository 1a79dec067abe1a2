//! What the rules must know besides the Service.

use ipnet::IpNet;

use super::{Warning, node};
use crate::config::ProxyConfig;
use crate::objects::{Name, Node};
use crate::plan::NodePlan;

/// What the rules must know besides the Service: the node that they are made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The own node's name: endpoints that name it are local (row A10).
    pub node_name: Name,
    /// The own node's zone, where it has one (row C8).
    pub zone: Option<Name>,
    /// The part of the plan that holds for all Services.
    pub node: NodePlan,
    /// Whether connections to external addresses pass where there is no endpoint for them, unless a Service says
    /// otherwise.
    pub pass_without_endpoints: bool,
    /// What in the configuration will not do what it seems to ask for.
    pub warnings: Vec<Warning>,
}

impl Context {
    /// The context that follows from the configuration, the own Node as far as it is known, and the ranges of the
    /// ServiceCIDR objects.
    pub fn new(config: &ProxyConfig, node: Option<&Node>, service_cidrs: &[IpNet]) -> Context {
        let (plan, warnings) = node::plan(config, node, service_cidrs);
        Context {
            node_name: config.node_name.as_str().into(),
            zone: node.and_then(|node| node.zone.clone()).filter(|zone| !zone.is_empty()),
            node: plan,
            pass_without_endpoints: config.pass_without_endpoints,
            warnings,
        }
    }

    /// Whether Services can mean something else in the other context: only the zone (row C8), the node's name
    /// (rows A10, C9), its addresses (row F8) and whether connections are counted reach into the plans of Services.
    pub fn changes_services(&self, other: &Context) -> bool {
        let reaching = |context: &Context| (context.node.node_ips.clone(), context.node.counters);
        self.node_name != other.node_name || self.zone != other.zone || reaching(self) != reaching(other)
    }
}
