//! What the interface, the sets and the chains are called.

use crate::objects::{Family, Protocol};

/// The dummy interface that has the addresses of Services, so that the kernel takes packets to them for its own.
pub const DEVICE: &str = crate::config::host::IPVS_INTERFACE;

/// External addresses with source ranges: whose source is masqueraded.
pub const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
/// Node ports: whose source is masqueraded.
pub const NODE_PORT: &str = "KUBE-NODE-PORT";
/// Who may come where there are source ranges.
pub const SOURCE_RANGES: &str = "KUBE-SOURCE-RANGES-FIREWALL";
/// What comes in to the addresses of Services and to none of their ports.
pub const INPUT_FILTER: &str = "KUBE-IPVS-FILTER";
/// The same for what the node itself sends.
pub const OUTPUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";

/// The chains that only this mode has.
pub const CHAINS: [&str; 5] = [LOAD_BALANCER, NODE_PORT, SOURCE_RANGES, INPUT_FILTER, OUTPUT_FILTER];

/// The longest name of a set.
const LONGEST: usize = 31;

/// A set of `ipset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Set {
    /// Endpoints of this node, twice with the port between: a pod that reaches itself is masqueraded (row E1).
    LoopBack,
    /// ClusterIPs.
    ClusterIp,
    /// External addresses whose clients are masqueraded (row E5).
    ExternalIp,
    /// External addresses whose clients are not (row E6).
    ExternalIpLocal,
    /// External addresses with source ranges, of either kind.
    LoadBalancer,
    /// Those of them whose clients are not masqueraded.
    LoadBalancerLocal,
    /// All of them, for the firewall (row F7).
    LoadBalancerFw,
    /// Single sources that may come.
    LoadBalancerSourceIp,
    /// Prefixes that may come.
    LoadBalancerSourceCidr,
    /// Node ports whose clients are masqueraded.
    NodePort(Protocol),
    /// Node ports whose clients are not.
    NodePortLocal(Protocol),
    /// What is dropped for everybody, since there are endpoints elsewhere (row C12). kube-proxy has no such set.
    Dropped,
    /// What is dropped for all but pods and the node (row C13). kube-proxy has no such set.
    DroppedOutside,
    /// All addresses on the interface.
    IpvsIps,
}

impl Set {
    /// All of them.
    pub const ALL: [Set; 18] = [
        Set::LoopBack,
        Set::ClusterIp,
        Set::ExternalIp,
        Set::ExternalIpLocal,
        Set::LoadBalancer,
        Set::LoadBalancerLocal,
        Set::LoadBalancerFw,
        Set::LoadBalancerSourceIp,
        Set::LoadBalancerSourceCidr,
        Set::NodePort(Protocol::Tcp),
        Set::NodePort(Protocol::Udp),
        Set::NodePort(Protocol::Sctp),
        Set::NodePortLocal(Protocol::Tcp),
        Set::NodePortLocal(Protocol::Udp),
        Set::NodePortLocal(Protocol::Sctp),
        Set::Dropped,
        Set::DroppedOutside,
        Set::IpvsIps,
    ];

    /// Its name in a family: those of IPv6 say so, and are cut where they become too long.
    pub fn name(self, family: Family) -> String {
        let name = match self {
            Set::LoopBack => "KUBE-LOOP-BACK",
            Set::ClusterIp => "KUBE-CLUSTER-IP",
            Set::ExternalIp => "KUBE-EXTERNAL-IP",
            Set::ExternalIpLocal => "KUBE-EXTERNAL-IP-LOCAL",
            Set::LoadBalancer => "KUBE-LOAD-BALANCER",
            Set::LoadBalancerLocal => "KUBE-LOAD-BALANCER-LOCAL",
            Set::LoadBalancerFw => "KUBE-LOAD-BALANCER-FW",
            Set::LoadBalancerSourceIp => "KUBE-LOAD-BALANCER-SOURCE-IP",
            Set::LoadBalancerSourceCidr => "KUBE-LOAD-BALANCER-SOURCE-CIDR",
            Set::NodePort(Protocol::Tcp) => "KUBE-NODE-PORT-TCP",
            Set::NodePort(Protocol::Udp) => "KUBE-NODE-PORT-UDP",
            Set::NodePort(Protocol::Sctp) => "KUBE-NODE-PORT-SCTP-HASH",
            Set::NodePortLocal(Protocol::Tcp) => "KUBE-NODE-PORT-LOCAL-TCP",
            Set::NodePortLocal(Protocol::Udp) => "KUBE-NODE-PORT-LOCAL-UDP",
            Set::NodePortLocal(Protocol::Sctp) => "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
            Set::Dropped => "SVCMAP-DROPPED",
            Set::DroppedOutside => "SVCMAP-DROPPED-OUTSIDE",
            Set::IpvsIps => "KUBE-IPVS-IPS",
        };
        let mut name = match family {
            Family::V4 => name.to_owned(),
            Family::V6 => name.replacen('-', "-6-", 1),
        };
        name.truncate(LONGEST);
        name
    }

    /// What its entries are made of, in the words of `ipset`.
    pub fn kind(self) -> &'static str {
        match self {
            Set::LoopBack | Set::LoadBalancerSourceIp => "hash:ip,port,ip",
            Set::LoadBalancerSourceCidr => "hash:ip,port,net",
            Set::NodePort(Protocol::Tcp | Protocol::Udp) | Set::NodePortLocal(Protocol::Tcp | Protocol::Udp) => {
                "bitmap:port"
            }
            Set::IpvsIps => "hash:ip",
            _ => "hash:ip,port",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ipv6_say_so_and_are_short_enough() {
        assert_eq!(Set::ClusterIp.name(Family::V4), "KUBE-CLUSTER-IP");
        assert_eq!(Set::ClusterIp.name(Family::V6), "KUBE-6-CLUSTER-IP");
        assert_eq!(Set::NodePortLocal(Protocol::Sctp).name(Family::V6), "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS");
        let names: std::collections::BTreeSet<String> =
            Set::ALL.iter().flat_map(|set| Family::BOTH.map(|family| set.name(family))).collect();
        assert_eq!(names.len(), 2 * Set::ALL.len());
    }
}
