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
    /// Frontend with session affinity → chain that picks an endpoint for a client that has none yet.
    Unpinned,
    /// The same for node ports.
    NodePortUnpinned,
    /// Frontend → chain that notes which endpoint a client got.
    Learn,
    /// The same for node ports.
    NodePortLearn,
    /// Frontends whose new connections are counted.
    Connections,
    /// The same for node ports.
    NodePortConnections,
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
    pub const CONSTANT: [Map; 21] = [
        Map::Services,
        Map::NodePorts,
        Map::Endpoints,
        Map::NodePortEndpoints,
        Map::ShortCircuit,
        Map::NodePortShortCircuit,
        Map::NoEndpoints,
        Map::NodePortNoEndpoints,
        Map::Unpinned,
        Map::NodePortUnpinned,
        Map::Learn,
        Map::NodePortLearn,
        Map::Connections,
        Map::NodePortConnections,
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

    /// Whether its elements lead packets somewhere.
    pub fn holds_verdicts(self) -> bool {
        match self {
            Map::Services
            | Map::NodePorts
            | Map::ShortCircuit
            | Map::NodePortShortCircuit
            | Map::NoEndpoints
            | Map::NodePortNoEndpoints
            | Map::Unpinned
            | Map::NodePortUnpinned
            | Map::Learn
            | Map::NodePortLearn => true,
            Map::Endpoints
            | Map::NodePortEndpoints
            | Map::Connections
            | Map::NodePortConnections
            | Map::ClusterIps
            | Map::Hairpin
            | Map::Firewalled
            | Map::Allowed
            | Map::PodCidrs
            | Map::ServiceCidrs
            | Map::NodePortIps
            | Map::Affinity(..)
            | Map::AffinityPort(..) => false,
        }
    }

    /// The position in [`Map::CONSTANT`], for a map that is always there.
    fn index(self) -> Option<usize> {
        Some(match self {
            Map::Services => 0,
            Map::NodePorts => 1,
            Map::Endpoints => 2,
            Map::NodePortEndpoints => 3,
            Map::ShortCircuit => 4,
            Map::NodePortShortCircuit => 5,
            Map::NoEndpoints => 6,
            Map::NodePortNoEndpoints => 7,
            Map::Unpinned => 8,
            Map::NodePortUnpinned => 9,
            Map::Learn => 10,
            Map::NodePortLearn => 11,
            Map::Connections => 12,
            Map::NodePortConnections => 13,
            Map::ClusterIps => 14,
            Map::Hairpin => 15,
            Map::Firewalled => 16,
            Map::Allowed => 17,
            Map::PodCidrs => 18,
            Map::ServiceCidrs => 19,
            Map::NodePortIps => 20,
            Map::Affinity(..) | Map::AffinityPort(..) => return None,
        })
    }
}

/// One value for each map that is always there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerMap<T>([T; Map::CONSTANT.len()]);

impl<T> PerMap<T> {
    /// The value of a map; none for affinity maps.
    pub fn get(&self, map: Map) -> Option<&T> {
        map.index().map(|index| &self.0[index])
    }

    /// The value of a map; none for affinity maps.
    pub fn get_mut(&mut self, map: Map) -> Option<&mut T> {
        map.index().map(|index| &mut self.0[index])
    }

    /// All maps and their values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Map, &T)> {
        Map::CONSTANT.into_iter().zip(&self.0)
    }

    /// The same, each value to be changed or taken.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Map, &mut T)> {
        Map::CONSTANT.into_iter().zip(&mut self.0)
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
            Map::Unpinned => "unpinned",
            Map::NodePortUnpinned => "nodeport-unpinned",
            Map::Learn => "learn",
            Map::NodePortLearn => "nodeport-learn",
            Map::Connections => "connections",
            Map::NodePortConnections => "nodeport-connections",
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
    /// Everybody uses this pool, who does not come from the pod network masqueraded.
    Cluster(PoolKind),
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
    /// Marks what does not come from the pod network for masquerading, then picks one of so many endpoints of a pool.
    Cluster(PoolKind, u32),
    /// Marks for masquerading, then picks one of so many endpoints of the cluster.
    External(Side, u32),
    /// Pods and the node go through the short circuit, everybody else gets one of so many local endpoints.
    Local(Side, u32),
    /// Sends a known client to the endpoint it had before.
    Sticky(AffinityId, Side, Stickiness),
    /// Notes which endpoint a client got.
    Learn(AffinityId, Learner),
    /// Sends pods and the node to the cluster's endpoints.
    ShortCircuit(Side),
    /// Refuses with an ICMP port unreachable.
    Refuse,
    /// Looks up where a new connection goes.
    Dispatch,
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
    /// Masquerading.
    NatPostrouting,
    /// Learning where endpoints are in the host network.
    LearnInput,
    /// Learning, before masquerading.
    LearnPostrouting,
}

impl Base {
    /// Those that every ruleset has.
    pub const ALWAYS: [Base; 6] = [
        Base::NatPrerouting,
        Base::NatOutput,
        Base::FilterInput,
        Base::FilterForward,
        Base::FilterOutput,
        Base::NatPostrouting,
    ];

    /// Those that are there only where a frontend has source ranges.
    pub const GUARDS: [Base; 2] = [Base::GuardPrerouting, Base::GuardOutput];

    /// Those that are there only where a frontend has session affinity.
    pub const LEARNERS: [Base; 2] = [Base::LearnInput, Base::LearnPostrouting];

    fn name(self) -> &'static str {
        match self {
            Base::GuardPrerouting => "guard-prerouting",
            Base::GuardOutput => "guard-output",
            Base::NatPrerouting => "nat-prerouting",
            Base::NatOutput => "nat-output",
            Base::FilterInput => "filter-input",
            Base::FilterForward => "filter-forward",
            Base::FilterOutput => "filter-output",
            Base::NatPostrouting => "nat-postrouting",
            Base::LearnInput => "learn-input",
            Base::LearnPostrouting => "learn-postrouting",
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
            Chain::Dispatch,
            Chain::Verdicts,
            Chain::NodePortVerdicts,
        ]
        .into_iter()
        .chain(Base::ALWAYS.into_iter().map(Chain::Base))
    }

    /// Whether every ruleset has it; the others are made on demand and go when nothing names them any more.
    pub fn is_constant(self) -> bool {
        match self {
            Chain::Pick(..)
            | Chain::Cluster(..)
            | Chain::External(..)
            | Chain::Local(..)
            | Chain::Sticky(..)
            | Chain::Learn(..)
            | Chain::Learning => false,
            Chain::Base(base) => Base::ALWAYS.contains(&base),
            _ => true,
        }
    }
}

impl Stickiness {
    const ALL: [Stickiness; 6] = [
        Stickiness::Pool(PoolKind::Cluster),
        Stickiness::Pool(PoolKind::Local),
        Stickiness::Cluster(PoolKind::Cluster),
        Stickiness::Cluster(PoolKind::Local),
        Stickiness::External,
        Stickiness::ShortCircuit,
    ];

    fn name(self) -> &'static str {
        match self {
            Stickiness::Pool(PoolKind::Cluster) => "sticky-pick",
            Stickiness::Pool(PoolKind::Local) => "sticky-pick-local",
            Stickiness::Cluster(PoolKind::Cluster) => "sticky-cluster",
            Stickiness::Cluster(PoolKind::Local) => "sticky-cluster-local",
            Stickiness::External => "sticky-external",
            Stickiness::ShortCircuit => "sticky-local",
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
            Chain::Cluster(PoolKind::Cluster, n) => write!(f, "cluster-{n}"),
            Chain::Cluster(PoolKind::Local, n) => write!(f, "cluster-local-{n}"),
            Chain::External(side, n) => write!(f, "{side}external-{n}"),
            Chain::Local(side, n) => write!(f, "{side}local-{n}"),
            Chain::Sticky(id, side, stickiness) => write!(f, "{side}{}-{id}", stickiness.name()),
            Chain::Learn(id, Learner::Pool(pool)) => write!(f, "learn-{}-{id}", pool_name(pool)),
            Chain::Learn(id, Learner::Both) => write!(f, "learn-both-{id}"),
            Chain::ShortCircuit(side) => write!(f, "{side}short-circuit"),
            Chain::Refuse => f.write_str("refuse"),
            Chain::Dispatch => f.write_str("dispatch"),
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
        let on_demand = Base::GUARDS.into_iter().chain(Base::LEARNERS).map(Chain::Base).chain([Chain::Learning]);
        if let Some(chain) = Chain::constant().chain(on_demand).find(|chain| chain.name() == name) {
            return Ok(chain);
        }
        let (side, rest) = match name.strip_prefix("nodeport-") {
            Some(rest) => (Side::NodePort, rest),
            None => (Side::Address, name),
        };
        if let Some((head, id)) = split_id(rest) {
            if let Some(stickiness) = Stickiness::ALL.into_iter().find(|stickiness| stickiness.name() == head) {
                return Ok(Chain::Sticky(id, side, stickiness));
            }
            return match (side, head) {
                (Side::Address, "learn-cluster") => Ok(Chain::Learn(id, Learner::Pool(PoolKind::Cluster))),
                (Side::Address, "learn-local") => Ok(Chain::Learn(id, Learner::Pool(PoolKind::Local))),
                (Side::Address, "learn-both") => Ok(Chain::Learn(id, Learner::Both)),
                _ => Err(UnknownName),
            };
        }
        let (head, number) = rest.rsplit_once('-').ok_or(UnknownName)?;
        let number: u32 = number.parse().map_err(|_| UnknownName)?;
        match (side, head) {
            (_, "pick") => Ok(Chain::Pick(side, PoolKind::Cluster, number)),
            (_, "pick-local") => Ok(Chain::Pick(side, PoolKind::Local, number)),
            (Side::Address, "cluster") => Ok(Chain::Cluster(PoolKind::Cluster, number)),
            (Side::Address, "cluster-local") => Ok(Chain::Cluster(PoolKind::Local, number)),
            (_, "external") => Ok(Chain::External(side, number)),
            (_, "local") => Ok(Chain::Local(side, number)),
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
    fn every_constant_map_has_a_value_of_its_own() {
        let mut values = PerMap::<usize>::default();
        for (value, map) in Map::CONSTANT.into_iter().enumerate() {
            *values.get_mut(map).unwrap() = value;
        }
        assert!(values.iter().enumerate().all(|(value, (_, held))| value == *held));
    }

    #[test]
    fn every_name_is_read_back_as_what_it_was_written_from() {
        let id = AffinityId::new(&PortName::new(&ServiceKey::new("default", "dns"), "dns"), Protocol::Udp);
        let pools = [PoolKind::Cluster, PoolKind::Local];
        let mut chains: Vec<Chain> = Chain::constant().chain([Chain::Learning]).collect();
        chains.extend(Base::GUARDS.into_iter().chain(Base::LEARNERS).map(Chain::Base));
        for side in [Side::Address, Side::NodePort] {
            chains.extend([Chain::External(side, 7), Chain::Local(side, 0)]);
            chains.extend(pools.map(|pool| Chain::Pick(side, pool, 3)));
            chains.extend(Stickiness::ALL.map(|stickiness| Chain::Sticky(id, side, stickiness)));
        }
        chains.push(Chain::Learn(id, Learner::Both));
        for pool in pools {
            chains.extend([Chain::Cluster(pool, 3), Chain::Learn(id, Learner::Pool(pool))]);
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
