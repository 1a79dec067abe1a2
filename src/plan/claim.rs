//! What a frontend occupies.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::FrontendAddress;
use crate::objects::{Family, FamilyOf, Protocol};

/// What a frontend occupies: two Services cannot answer on the same (row A11). Whether the address is a ClusterIP, an
/// external one or a load balancer's makes no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    place: Place,
    protocol: Protocol,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Address(IpAddr),
    Nodes(Family),
}

impl Claim {
    /// What the frontend of a Service port of this family and protocol occupies.
    pub fn new(family: Family, protocol: Protocol, address: FrontendAddress) -> Claim {
        match address {
            FrontendAddress::Cluster(ip, port) | FrontendAddress::External(ip, port) => {
                Claim::address(ip, protocol, port)
            }
            FrontendAddress::NodePort(port) => Claim::node_port(family, protocol, port),
        }
    }

    /// A port of one address.
    pub fn address(ip: IpAddr, protocol: Protocol, port: u16) -> Claim {
        Claim { place: Place::Address(ip), protocol, port }
    }

    /// A port of the node's addresses.
    pub fn node_port(family: Family, protocol: Protocol, port: u16) -> Claim {
        Claim { place: Place::Nodes(family), protocol, port }
    }

    /// The address; none for a node port.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.place {
            Place::Address(ip) => Some(ip),
            Place::Nodes(_) => None,
        }
    }

    /// The family.
    pub fn family(&self) -> Family {
        match self.place {
            Place::Address(ip) => ip.family(),
            Place::Nodes(family) => family,
        }
    }

    /// The transport protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The port that clients send to.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// `10.96.0.1:80/tcp`, or `IPv4 node port 30080/tcp`.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Address(ip) => write!(f, "{}/{}", SocketAddr::new(ip, self.port), self.protocol),
            Place::Nodes(family) => write!(f, "{family} node port {}/{}", self.port, self.protocol),
        }
    }
}
