//! What a frontend promises a client, going by its Service port's endpoints and policies.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::ports::{Drawn, Frontend, Port, Who};
use crate::explain::Client;
use crate::plan::{PoolKind, Verdict};

/// Who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct From {
    /// Where that is.
    pub kind: Client,
    /// From which address.
    pub ip: IpAddr,
    /// Whether rules take it for a pod.
    pub is_pod: bool,
    /// Whether it is an endpoint of this node: where it reaches itself, the node's address replaces its own.
    pub is_own_endpoint: bool,
    /// The interface that its packets come in through, where rules may look at it.
    pub interface: Option<String>,
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.ip)
    }
}

/// What a new connection gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise<'a> {
    /// One of these endpoints, each as often as its share says.
    Endpoints {
        /// Which.
        pool: &'a [Drawn],
        /// Whether the node's address replaces the client's, also where it is not an endpoint that reaches itself.
        masquerade: bool,
    },
    /// A refusal.
    Rejected,
    /// Nothing.
    Dropped,
    /// No rule of the proxy does anything.
    Untouched,
}

impl fmt::Display for Promise<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promise::Endpoints { pool, masquerade } => {
                let sockets: Vec<SocketAddr> = pool.iter().map(Drawn::socket).collect();
                let source = if *masquerade { "masqueraded" } else { "from the sender" };
                match sockets.as_slice() {
                    [] => f.write_str("an endpoint, of which there is none"),
                    [only] => write!(f, "{only}, {source}"),
                    all => write!(f, "one of {} endpoints, {source}", all.len()),
                }
            }
            Promise::Rejected => f.write_str("a refusal"),
            Promise::Dropped => f.write_str("a drop"),
            Promise::Untouched => f.write_str("no change"),
        }
    }
}

/// What a frontend promises.
pub fn promise<'a>(port: &'a Port, frontend: &Frontend, from: &From) -> Promise<'a> {
    let is_allowed = |sources: &Vec<ipnet::IpNet>| sources.iter().any(|source| source.contains(&from.ip));
    if frontend.sources.as_ref().is_some_and(|sources| !is_allowed(sources)) {
        return Promise::Dropped;
    }
    let is_node = from.kind == Client::Node;
    let cuts_short = frontend.short_circuit && (from.is_pod || is_node);
    match frontend.no_endpoints {
        Some(_) if cuts_short => {}
        Some(Verdict::Reject) => return Promise::Rejected,
        Some(Verdict::Drop) => return Promise::Dropped,
        Some(Verdict::Pass) => return Promise::Untouched,
        None => {}
    }
    let pool = port.pool(if cuts_short { PoolKind::Cluster } else { frontend.pool });
    let masquerade = match frontend.masquerade {
        _ if cuts_short => !from.is_pod,
        Who::Nobody => false,
        Who::OffCluster => !from.is_pod,
        Who::Everybody => true,
    };
    Promise::Endpoints { pool, masquerade }
}
