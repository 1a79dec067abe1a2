//! What one Service port does in one family.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use sha2::{Digest, Sha256};

use super::Claim;
use crate::objects::{Family, Protocol, ServiceKey};

/// `namespace/name:port`, or `namespace/name` for an unnamed port: the comment that elements carry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortName(Arc<str>);

/// The longest name in bytes. nft takes comments of up to 128; the longest names that Kubernetes allows make 143.
const LONGEST_NAME: usize = 120;

impl PortName {
    /// The name of a Service's port. One that is too long for a comment ends in `~` and a hash of the whole.
    pub fn new(service: &ServiceKey, port: &str) -> PortName {
        let (namespace, name) = (service.namespace.as_str(), service.name.as_str());
        let colon = if port.is_empty() { "" } else { ":" };
        let mut text = [namespace, "/", name, colon, port].concat();
        if text.len() > LONGEST_NAME {
            let digest = Sha256::digest(text.as_bytes());
            let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            let keep = (0..LONGEST_NAME - hash.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(keep);
            text = format!("{text}~{hash}");
        }
        PortName(text.into())
    }

    /// A name as it was read from a ruleset.
    pub fn parse(text: &str) -> PortName {
        PortName(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `namespace/name`, without the port.
    pub fn service(&self) -> &str {
        self.0.split_once(':').map_or(&self.0, |(service, _)| service)
    }

    /// The text, shared.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Service port in one family: the unit that is planned, compared and programmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId {
    /// Which Service port.
    pub name: PortName,
    /// In which family.
    pub family: Family,
}

/// What one Service port does in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Which Service port, in which family.
    pub id: PortId,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The addresses it answers on, sorted by address.
    pub frontends: Vec<Frontend>,
    /// The endpoints of the whole cluster that may be used, in slot order; empty where no frontend uses them.
    pub cluster: Vec<Endpoint>,
    /// The endpoints of this node that may be used, in slot order; empty where no frontend uses them.
    pub local: Vec<Endpoint>,
    /// Session affinity by client address, and for how many seconds after the client's last new connection.
    pub affinity: Option<u32>,
    /// Whether its new connections are counted, frontend by frontend.
    pub counted: bool,
}

impl PortPlan {
    /// A TCP port that nothing is known of, to be filled in by tests.
    #[cfg(test)]
    pub fn bare(id: PortId) -> PortPlan {
        PortPlan {
            id,
            protocol: Protocol::Tcp,
            frontends: Vec::new(),
            cluster: Vec::new(),
            local: Vec::new(),
            affinity: None,
            counted: false,
        }
    }

    /// The endpoints of one pool.
    pub fn pool(&self, kind: PoolKind) -> &[Endpoint] {
        match kind {
            PoolKind::Cluster => &self.cluster,
            PoolKind::Local => &self.local,
        }
    }

    /// What its frontends occupy.
    pub fn claims(&self) -> impl Iterator<Item = Claim> + '_ {
        self.frontends.iter().map(|frontend| Claim::new(self.id.family, self.protocol, frontend.address))
    }
}

/// Which of a Service port's two sets of endpoints a frontend uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// The cluster's (behaviour row C3).
    Cluster,
    /// This node's (row C4).
    Local,
}

/// Where clients send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrontendAddress {
    /// The Service's own address: unknown ports on it are refused (row B8).
    Cluster(IpAddr, u16),
    /// An external address: `externalIPs`, or a load balancer's.
    External(IpAddr, u16),
    /// A port on the node's addresses.
    NodePort(u16),
}

impl FrontendAddress {
    /// The port that clients send to.
    pub fn port(self) -> u16 {
        match self {
            FrontendAddress::Cluster(_, port)
            | FrontendAddress::External(_, port)
            | FrontendAddress::NodePort(port) => port,
        }
    }

    /// The address that clients send to; none for a node port.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            FrontendAddress::Cluster(ip, _) | FrontendAddress::External(ip, _) => Some(ip),
            FrontendAddress::NodePort(_) => None,
        }
    }
}

/// Whose source address is replaced by the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Masquerade {
    /// That of clients outside the pod network, as far as the detector can tell; everybody's under
    /// `masqueradeAll`; nobody's without a detector (rows E2–E4).
    OffCluster,
    /// Everybody's (row E5).
    Always,
    /// Nobody's but the node's own, where [`Frontend::short_circuit`] sends it to other nodes (rows E6–E8).
    Never,
}

/// What becomes of a new connection that finds no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Refused with an ICMP port unreachable (row C14).
    Reject,
    /// Dropped, since there are endpoints elsewhere (rows C12, C13).
    Drop,
    /// Left alone, since the operator wants it so for external addresses: it goes on to wherever the routes lead.
    Pass,
}

/// One address and port of a Service, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Where clients send to.
    pub address: FrontendAddress,
    /// Which endpoints ordinary clients reach.
    pub pool: PoolKind,
    /// Whether pods and the node itself use the cluster's endpoints all the same (rows C13, E7, E8). Pods keep their
    /// source address then, the node does not.
    pub short_circuit: bool,
    /// Whose source address is replaced.
    pub masquerade: Masquerade,
    /// What ordinary clients get; present exactly when [`Frontend::pool`] is empty.
    pub no_endpoints: Option<Verdict>,
    /// Where present, only these sources may come (rows F7–F10), sorted.
    pub sources: Option<Arc<[IpNet]>>,
}

/// An endpoint in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The endpoint's address.
    pub ip: IpAddr,
    /// The port it listens on.
    pub port: u16,
    /// Whether it runs on this node: then it can be its own client (row E1).
    pub local: bool,
}

/// `address:port`, as in URLs.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_fit_into_a_comment_and_stay_different() {
        let long = "n".repeat(63);
        let name = |port: &str| PortName::new(&ServiceKey::new(&long, &long), port);
        assert_eq!(name("http").as_str().len(), LONGEST_NAME);
        assert_ne!(name("http"), name("https"));
        assert_eq!(PortName::new(&ServiceKey::new("default", "web"), "http").as_str(), "default/web:http");
        assert_eq!(PortName::new(&ServiceKey::new("default", "web"), "").as_str(), "default/web");
    }
}
