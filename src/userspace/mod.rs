//! Services as they were served before kernels did it: a process that accepts each connection and opens another one to an
//! endpoint. For comparison, and for curiosity.
//!
//! [`table`] says which packets are led to which listening socket, in a small table of nftables of its own, and [`text`]
//! writes it for `nft`. [`doors`] holds these sockets, one for each set of endpoints that a Service port's clients are led
//! to, [`balancer`] chooses among the endpoints, [`tcp`] and [`udp`] carry what is said to and fro. [`program`] keeps
//! all of it in step with the plan, and [`render`] shows it without a process.
//!
//! Which clients get which endpoints is the plan's, and said by the rules: a socket knows a single set of endpoints. So
//! nothing is decided here but whose turn it is.

pub mod balancer;
pub mod doors;
pub mod program;
pub mod range;
pub mod render;
pub mod table;
pub mod tcp;
pub mod text;
pub mod udp;

use std::net::SocketAddr;

pub use program::Programmer;

use crate::objects::Protocol;
use crate::plan::{PoolKind, PortId, PortPlan};

/// A listening socket's reason: the endpoints that lie behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Door {
    /// Of which Service port.
    pub port: PortId,
    /// Which of its sets.
    pub pool: PoolKind,
}

/// Where the doors are.
pub type Places = std::collections::BTreeMap<Door, SocketAddr>;

/// The doors that a Service port's frontends need: for each of the sets of endpoints that some client is led to. None for
/// SCTP, which no socket of another process can take over.
pub fn doors_of(port: &PortPlan) -> impl Iterator<Item = Door> + '_ {
    let is_needed = move |pool: PoolKind| {
        let leads_there = |frontend: &crate::plan::Frontend| {
            frontend.pool == pool || (frontend.short_circuit && pool == PoolKind::Cluster)
        };
        !port.pool(pool).is_empty() && port.frontends.iter().any(leads_there)
    };
    let pools = [PoolKind::Cluster, PoolKind::Local].into_iter();
    let door = |pool| Door { port: port.id.clone(), pool };
    pools.filter(move |pool| port.protocol != Protocol::Sctp && is_needed(*pool)).map(door)
}

/// What has to be said of a Service port that this mode cannot serve.
pub fn refusal(port: &PortPlan) -> Option<String> {
    (port.protocol == Protocol::Sctp).then(|| {
        format!("Service {}: SCTP cannot be served in the mode userspace, which carries TCP and UDP", port.id.name)
    })
}
