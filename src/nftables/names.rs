//! The names of maps, sets and chains, and what they stand for.
//!
//! Names are part of the interface to people: they are all listed in `docs/ruleset.md`. A chain's name says what it
//! does; those made on demand end in a number of endpoints, or in the [`AffinityId`] of a Service port.

use std::fmt;
use std::str::FromStr;

use compact_str::{CompactString, ToCompactString};
use sha2::{Digest, Sha256};

use crate::objects::Protocol;
use crate::plan::{PoolKind, PortName};

/// The table's name, in both families.
pub const TABLE: &str = "svcmap";

/// Identifies a Service port with session affinity in the names of its chains and maps: a hash of its name and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffinityId(u64);

impl AffinityId {
    /// The identifier of a Service port.
    pub fn new(name: &PortName, protocol: Protocol) -> AffinityId {
        let digest = Sha256::new().chain_update(name.as_str()).chain_update([protocol.number()]).finalize();
        AffinityId(u64::from_be_bytes(std::array::from_fn(|i| digest[i])))
    }
}

impl fmt::Display for AffinityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A map or set of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Map {
    /// Frontend → chain that picks an endpoint.
    Services,
    /// The same for node ports.
    NodePorts,
    /// Frontend and slot → endpoint.
    Endpoints,
    /// The same for node ports.
    NodePortEndpoints,
    /// Frontend → chain for pods and the node, where others get local endpoints only.
    ShortCircuit,
    /// The same for node ports.
    NodePortShortCircuit,
    /// Frontend → verdict for those who find no endpoint.
    NoEndpoints,
    /// The same for node ports.
    NodePortNoEndpoints,
    /// Frontend → chain that sends a known client to the endpoint it had before.
    Sticky,
    /// The same for node ports.
    NodePortSticky,
    /// Frontend → chain that notes which endpoint a client got.
    Learn,
    /// The same for node ports.
    NodePortLearn,
    /// The ClusterIPs in use.
    ClusterIps,
    /// Addresses of endpoints on this node, twice: a pod that reaches itself through its Service.
    Hairpin,
    /// Frontends with source ranges.
    Firewalled,
    /// Frontend and source that may come.
    Allowed,
    /// Source addresses of pods.
    PodCidrs,
    /// Ranges of ClusterIPs.
    ServiceCidrs,
    /// Addresses that node ports are served on.
    NodePortIps,
    /// Client → address of its endpoint.
    Affinity(AffinityId, PoolKind),
    /// Client → port of its endpoint.
    AffinityPort(AffinityId, PoolKind),
}

impl Map {
    /// Those that are always there, in the order in which they are made and listed.
    pub const CONSTANT: [Map; 19] = [
        Map::Services,
        Map::NodePorts,
        Map::Endpoints,
        Map::NodePortEndpoints,
        Map::ShortCircuit,
        Map::NodePortShortCircuit,
        Map::NoEndpoints,
        Map::NodePortNoEndpoints,
        Map::Sticky,
        Map::NodePortSticky,
        Map::Learn,
        Map::NodePortLearn,
        Map::ClusterIps,
        Map::Hairpin,
        Map::Firewalled,
        Map::Allowed,
        Map::PodCidrs,
        Map::ServiceCidrs,
        Map::NodePortIps,
    ];

    /// The name in the ruleset.
    pub fn name(self) -> CompactString {
        self.to_compact_string()
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Map::Services => "services",
            Map::NodePorts => "nodeports",
            Map::Endpoints => "endpoints",
            Map::NodePortEndpoints => "nodeport-endpoints",
            Map::ShortCircuit => "short-circuit",
            Map::NodePortShortCircuit => "nodeport-short-circuit",
            Map::NoEndpoints => "no-endpoints",
            Map::NodePortNoEndpoints => "nodeport-no-endpoints",
            Map::Sticky => "sticky",
            Map::NodePortSticky => "nodeport-sticky",
            Map::Learn => "learn",
            Map::NodePortLearn => "nodeport-learn",
            Map::ClusterIps => "cluster-ips",
            Map::Hairpin => "hairpin",
            Map::Firewalled => "firewalled",
            Map::Allowed => "allowed",
            Map::PodCidrs => "pod-cidrs",
            Map::ServiceCidrs => "service-cidrs",
            Map::NodePortIps => "nodeport-ips",
            Map::Affinity(id, pool) => return write!(f, "affinity-{}-{id}", pool_name(*pool)),
            Map::AffinityPort(id, pool) => return write!(f, "affinity-{}-port-{id}", pool_name(*pool)),
        })
    }
}

impl FromStr for Map {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Map, UnknownName> {
        if let Some(map) = Map::CONSTANT.into_iter().find(|map| map.name() == name) {
            return Ok(map);
        }
        let (head, id) = split_id(name).ok_or(UnknownName)?;
        match head {
            "affinity-cluster" => Ok(Map::Affinity(id, PoolKind::Cluster)),
            "affinity-local" => Ok(Map::Affinity(id, PoolKind::Local)),
            "affinity-cluster-port" => Ok(Map::AffinityPort(id, PoolKind::Cluster)),
            "affinity-local-port" => Ok(Map::AffinityPort(id, PoolKind::Local)),
            _ => Err(UnknownName),
        }
    }
}

/// A name that is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a name of this version's ruleset")]
pub struct UnknownName;

/// Which endpoints map a shape looks up: node ports have maps without the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Frontends with an address.
    Address,
    /// Node ports.
    NodePort,
}

/// How the clients of a Service port with session affinity are told apart before they get the endpoint they had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stickiness {
    /// Everybody uses this pool.
    Pool(PoolKind),
    /// Everybody uses the cluster's pool, masqueraded.
    External,
    /// Pods and the node use the cluster's pool, everybody else the local one.
    ShortCircuit,
}

/// In which maps a Service port with session affinity notes a client's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Learner {
    /// In those of this pool.
    Pool(PoolKind),
    /// In those of both, for frontends with a short circuit. A client that is not a pod gets local endpoints there,
    /// and keeps the one it got when it turns to the ClusterIP.
    Both,
}

/// A chain of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chain {
    /// Picks one of so many endpoints of a pool.
    Pick(Side, PoolKind, u32),
    /// Marks for masquerading, then picks one of so many endpoints of the cluster.
    External(Side, u32),
    /// Pods and the node go through the short circuit, everybody else gets one of so many local endpoints.
    Local(Side, u32),
    /// Sends a known client to the endpoint it had before.
    Sticky(AffinityId, Stickiness),
    /// Notes which endpoint a client got.
    Learn(AffinityId, Learner),
    /// Sends pods and the node to the cluster's endpoints.
    ShortCircuit(Side),
    /// Refuses with an ICMP port unreachable.
    Refuse,
    /// Marks what does not come from the pod network for masquerading.
    OffCluster,
    /// Looks up where a new connection goes.
    Dispatch,
    /// Looks up where a new connection to a node port goes.
    NodePorts,
    /// Looks up who learns the endpoint of a new connection.
    Learning,
    /// Looks up what becomes of new connections that got no endpoint.
    Verdicts,
    /// The same for node ports.
    NodePortVerdicts,
    /// A base chain.
    Base(Base),
}

/// A base chain: where the table is hooked into the packet path. Hooks and priorities are part of the interface to
/// other users of nftables (behaviour rows G1–G6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Base {
    /// Source ranges, before DNAT.
    GuardPrerouting,
    /// Source ranges for the node's own connections.
    GuardOutput,
    /// DNAT.
    NatPrerouting,
    /// DNAT of the node's own connections.
    NatOutput,
    /// Verdicts after DNAT.
    FilterInput,
    /// Verdicts after DNAT.
    FilterForward,
    /// Verdicts after DNAT.
    FilterOutput,
    /// Learning of endpoints in the host network.
    NatInput,
    /// Learning and masquerading.
    NatPostrouting,
}

impl Base {
    /// Those that every ruleset has.
    pub const ALWAYS: [Base; 7] = [
        Base::NatPrerouting,
        Base::NatOutput,
        Base::FilterInput,
        Base::FilterForward,
        Base::FilterOutput,
        Base::NatInput,
        Base::NatPostrouting,
    ];

    /// Those that are there only where a frontend has source ranges.
    pub const GUARDS: [Base; 2] = [Base::GuardPrerouting, Base::GuardOutput];

    fn name(self) -> &'static str {
        match self {
            Base::GuardPrerouting => "guard-prerouting",
            Base::GuardOutput => "guard-output",
            Base::NatPrerouting => "nat-prerouting",
            Base::NatOutput => "nat-output",
            Base::FilterInput => "filter-input",
            Base::FilterForward => "filter-forward",
            Base::FilterOutput => "filter-output",
            Base::NatInput => "nat-input",
            Base::NatPostrouting => "nat-postrouting",
        }
    }
}

impl Chain {
    /// The name in the ruleset.
    pub fn name(self) -> CompactString {
        self.to_compact_string()
    }

    /// Those that every ruleset has, in the order in which they are made and listed.
    pub fn constant() -> impl Iterator<Item = Chain> {
        [
            Chain::Refuse,
            Chain::ShortCircuit(Side::Address),
            Chain::ShortCircuit(Side::NodePort),
            Chain::OffCluster,
            Chain::NodePorts,
            Chain::Dispatch,
            Chain::Learning,
            Chain::Verdicts,
            Chain::NodePortVerdicts,
        ]
        .into_iter()
        .chain(Base::ALWAYS.into_iter().map(Chain::Base))
    }

    /// Whether every ruleset has it; the others are made on demand and go when nothing names them any more.
    pub fn is_constant(self) -> bool {
        match self {
            Chain::Pick(..) | Chain::External(..) | Chain::Local(..) | Chain::Sticky(..) | Chain::Learn(..) => false,
            Chain::Base(base) => Base::ALWAYS.contains(&base),
            _ => true,
        }
    }
}

const fn pool_name(pool: PoolKind) -> &'static str {
    match pool {
        PoolKind::Cluster => "cluster",
        PoolKind::Local => "local",
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Address => "",
            Side::NodePort => "nodeport-",
        })
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Chain::Pick(side, PoolKind::Cluster, n) => write!(f, "{side}pick-{n}"),
            Chain::Pick(side, PoolKind::Local, n) => write!(f, "{side}pick-local-{n}"),
            Chain::External(side, n) => write!(f, "{side}external-{n}"),
            Chain::Local(side, n) => write!(f, "{side}local-{n}"),
            Chain::Sticky(id, Stickiness::Pool(pool)) => write!(f, "sticky-{}-{id}", pool_name(pool)),
            Chain::Sticky(id, Stickiness::External) => write!(f, "sticky-external-{id}"),
            Chain::Sticky(id, Stickiness::ShortCircuit) => write!(f, "sticky-short-circuit-{id}"),
            Chain::Learn(id, Learner::Pool(pool)) => write!(f, "learn-{}-{id}", pool_name(pool)),
            Chain::Learn(id, Learner::Both) => write!(f, "learn-both-{id}"),
            Chain::OffCluster => f.write_str("off-cluster"),
            Chain::ShortCircuit(side) => write!(f, "{side}short-circuit"),
            Chain::Refuse => f.write_str("refuse"),
            Chain::Dispatch => f.write_str("dispatch"),
            Chain::NodePorts => f.write_str("nodeports"),
            Chain::Learning => f.write_str("learning"),
            Chain::Verdicts => f.write_str("verdicts"),
            Chain::NodePortVerdicts => f.write_str("nodeport-verdicts"),
            Chain::Base(base) => f.write_str(base.name()),
        }
    }
}

impl FromStr for Chain {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Chain, UnknownName> {
        let guards = Base::GUARDS.into_iter().map(Chain::Base);
        if let Some(chain) = Chain::constant().chain(guards).find(|chain| chain.name() == name) {
            return Ok(chain);
        }
        if let Some((head, id)) = split_id(name) {
            return match head {
                "sticky-cluster" => Ok(Chain::Sticky(id, Stickiness::Pool(PoolKind::Cluster))),
                "sticky-local" => Ok(Chain::Sticky(id, Stickiness::Pool(PoolKind::Local))),
                "sticky-external" => Ok(Chain::Sticky(id, Stickiness::External)),
                "sticky-short-circuit" => Ok(Chain::Sticky(id, Stickiness::ShortCircuit)),
                "learn-cluster" => Ok(Chain::Learn(id, Learner::Pool(PoolKind::Cluster))),
                "learn-local" => Ok(Chain::Learn(id, Learner::Pool(PoolKind::Local))),
                "learn-both" => Ok(Chain::Learn(id, Learner::Both)),
                _ => Err(UnknownName),
            };
        }
        let (side, rest) = match name.strip_prefix("nodeport-") {
            Some(rest) => (Side::NodePort, rest),
            None => (Side::Address, name),
        };
        let (head, number) = rest.rsplit_once('-').ok_or(UnknownName)?;
        let number: u32 = number.parse().map_err(|_| UnknownName)?;
        match head {
            "pick" => Ok(Chain::Pick(side, PoolKind::Cluster, number)),
            "pick-local" => Ok(Chain::Pick(side, PoolKind::Local, number)),
            "external" => Ok(Chain::External(side, number)),
            "local" => Ok(Chain::Local(side, number)),
            _ => Err(UnknownName),
        }
    }
}

/// Splits `head-0123456789abcdef`.
fn split_id(name: &str) -> Option<(&str, AffinityId)> {
    let (head, id) = name.rsplit_once('-')?;
    if id.len() != 16 || id.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    Some((head, AffinityId(u64::from_str_radix(id, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ServiceKey;

    #[test]
    fn every_name_is_read_back_as_what_it_was_written_from() {
        let id = AffinityId::new(&PortName::new(&ServiceKey::new("default", "dns"), "dns"), Protocol::Udp);
        let pools = [PoolKind::Cluster, PoolKind::Local];
        let mut chains = vec![Chain::Refuse, Chain::Dispatch, Chain::NodePorts, Chain::Learning, Chain::Verdicts];
        chains.extend([Chain::NodePortVerdicts, Chain::Sticky(id, Stickiness::External), Chain::OffCluster]);
        chains.push(Chain::Learn(id, Learner::Both));
        chains.push(Chain::Sticky(id, Stickiness::ShortCircuit));
        chains.extend(Base::ALWAYS.into_iter().chain(Base::GUARDS).map(Chain::Base));
        for side in [Side::Address, Side::NodePort] {
            chains.extend([Chain::External(side, 7), Chain::Local(side, 0), Chain::ShortCircuit(side)]);
            chains.extend(pools.map(|pool| Chain::Pick(side, pool, 3)));
        }
        for pool in pools {
            chains.extend([Chain::Sticky(id, Stickiness::Pool(pool)), Chain::Learn(id, Learner::Pool(pool))]);
        }
        for chain in &chains {
            assert_eq!(chain.name().parse(), Ok(*chain), "{chain}");
        }
        let names: std::collections::BTreeSet<_> = chains.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), chains.len(), "two chains share a name");
        let affinity = pools.into_iter().flat_map(|p| [Map::Affinity(id, p), Map::AffinityPort(id, p)]);
        for map in Map::CONSTANT.into_iter().chain(affinity) {
            assert_eq!(map.name().parse(), Ok(map), "{map}");
        }
        for foreign in ["", "pick-", "pick-x", "frob-3", "sticky-cluster-xyz", "nodeport-"] {
            assert_eq!(foreign.parse::<Chain>(), Err(UnknownName), "{foreign:?}");
        }
    }
}
