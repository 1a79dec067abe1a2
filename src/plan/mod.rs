//! The plan: what the Services mean on this node, said without any backend.
//!
//! `policy` writes it, every emitter reads it, and every reader of a ruleset produces it again. No decision is left
//! to an emitter: a plan says which endpoints a frontend uses, in which order they stand, whose source address is
//! replaced, and what happens where there is no endpoint.

mod claim;
mod node;
mod port;
mod slots;

use std::collections::BTreeMap;

pub use claim::Claim;
pub use node::{Detector, InterfaceMatch, NodePlan};
pub use port::{Endpoint, Frontend, FrontendAddress, Masquerade, PoolKind, PortId, PortName, PortPlan, Verdict};
pub use slots::assign;

/// The whole plan of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What holds for all Services.
    pub node: NodePlan,
    /// One entry per Service port and family.
    pub ports: BTreeMap<PortId, PortPlan>,
}

impl Plan {
    /// The plan that has these Service ports.
    pub fn new(node: NodePlan, ports: impl IntoIterator<Item = PortPlan>) -> Plan {
        Plan { node, ports: ports.into_iter().map(|port| (port.id.clone(), port)).collect() }
    }

    /// Follows a change.
    pub fn follow(&mut self, change: PlanChange) {
        if let Some(node) = change.node {
            self.node = node;
        }
        for id in &change.removed {
            self.ports.remove(id);
        }
        self.ports.extend(change.changed.into_iter().map(|port| (port.id.clone(), port)));
    }
}

/// A change of the plan, as small as the change of the objects behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChange {
    /// The node's part, where it changed.
    pub node: Option<NodePlan>,
    /// Service ports that are new or differ. The endpoints are in no particular order yet: [`assign`] gives slots.
    pub changed: Vec<PortPlan>,
    /// Service ports that are gone.
    pub removed: Vec<PortId>,
}

impl PlanChange {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.node.is_none() && self.changed.is_empty() && self.removed.is_empty()
    }
}
