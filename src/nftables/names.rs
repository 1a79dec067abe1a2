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

/// The table's name, in both families. It is nobody else's (row G7).
pub const TABLE: &str = "svcmap";

/// Identifies a Service port with session affinity in the names of its chains and maps: a hash of its name and protocol,
/// which is what clients are remembered for (row D1).
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
    /// Client → number of its endpoint.
    Affinity(AffinityId),
    /// Slot → number of an endpoint that clients without one may get.
    Slots(AffinityId, PoolKind),
    /// Number → endpoint.
    Members(AffinityId, PoolKind),
}

impl Map {
    /// Those that are always there, in the order in which they are made and listed.
    pub const CONSTANT: [Map; 17] = [
        Map::Services,
        Map::NodePorts,
        Map::Endpoints,
        Map::NodePortEndpoints,
        Map::ShortCircuit,
        Map::NodePortShortCircuit,
        Map::NoEndpoints,
        Map::NodePortNoEndpoints,
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
            | Map::NodePortNoEndpoints => true,
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
            | Map::Affinity(_)
            | Map::Slots(..)
            | Map::Members(..) => false,
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
            Map::Connections => 8,
            Map::NodePortConnections => 9,
            Map::ClusterIps => 10,
            Map::Hairpin => 11,
            Map::Firewalled => 12,
            Map::Allowed => 13,
            Map::PodCidrs => 14,
            Map::ServiceCidrs => 15,
            Map::NodePortIps => 16,
            Map::Affinity(_) | Map::Slots(..) | Map::Members(..) => return None,
        })
    }
}

/// One value for each map that is always there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerMap<T>([T; Map::CONSTANT.len()]);

impl<T> PerMap<T> {
    /// The value of a map; none for those of one Service port.
    pub fn get(&self, map: Map) -> Option<&T> {
        map.index().map(|index| &self.0[index])
    }

    /// The value of a map; none for those of one Service port.
    pub fn get_mut(&mut self, map: Map) -> Option<&mut T> {
        map.index().map(|index| &mut self.0[index])
    }

    /// All maps and their values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Map, &T)> {
        Map::CONSTANT.into_iter().zip(&self.0)
    }

    /// All maps and their values, in their order.
    pub fn into_pairs(self) -> impl Iterator<Item = (Map, T)> {
        Map::CONSTANT.into_iter().zip(self.0)
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
            Map::Connections => "connections",
            Map::NodePortConnections => "nodeport-connections",
            Map::ClusterIps => "cluster-ips",
            Map::Hairpin => "hairpin",
            Map::Firewalled => "firewalled",
            Map::Allowed => "allowed",
            Map::PodCidrs => "pod-cidrs",
            Map::ServiceCidrs => "service-cidrs",
            Map::NodePortIps => "nodeport-ips",
            Map::Affinity(id) => return write!(f, "affinity-{id}"),
            Map::Slots(id, pool) => return write!(f, "slots-{}-{id}", pool_name(*pool)),
            Map::Members(id, pool) => return write!(f, "members-{}-{id}", pool_name(*pool)),
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
            "affinity" => Ok(Map::Affinity(id)),
            "slots-cluster" => Ok(Map::Slots(id, PoolKind::Cluster)),
            "slots-local" => Ok(Map::Slots(id, PoolKind::Local)),
            "members-cluster" => Ok(Map::Members(id, PoolKind::Cluster)),
            "members-local" => Ok(Map::Members(id, PoolKind::Local)),
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

/// How the clients of a Service port with session affinity are told apart before they get the endpoint they had. No others
/// have chains of their own (row D10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stickiness {
    /// Draws the number of an endpoint of this pool. A chain of its own: rules that look the clients up cost the kernel a
    /// walk over all of them when they are made, and only this one depends on how many endpoints there are.
    Draw(PoolKind),
    /// Everybody uses this pool.
    Pool(PoolKind),
    /// Everybody uses this pool, who does not come from the pod network masqueraded.
    Cluster(PoolKind),
    /// Everybody uses the cluster's pool, masqueraded.
    External,
    /// Pods and the node use the cluster's pool, everybody else the local one.
    ShortCircuit,
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
    /// Sends a client to the endpoint it had before, or to a random one that is noted.
    Sticky(AffinityId, Stickiness),
    /// Sends pods and the node to the cluster's endpoints.
    ShortCircuit(Side),
    /// Refuses with an ICMP port unreachable.
    Refuse,
    /// Looks up where a new connection goes.
    Dispatch,
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
    /// Gives packets back the priority that session affinity took, before masquerading.
    AffinityPostrouting,
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
            Base::AffinityPostrouting => "affinity-postrouting",
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
            Chain::Pick(..) | Chain::Cluster(..) | Chain::External(..) | Chain::Local(..) | Chain::Sticky(..) => false,
            Chain::Base(base) => Base::ALWAYS.contains(&base),
            _ => true,
        }
    }
}

impl Stickiness {
    const ALL: [Stickiness; 8] = [
        Stickiness::Draw(PoolKind::Cluster),
        Stickiness::Draw(PoolKind::Local),
        Stickiness::Pool(PoolKind::Cluster),
        Stickiness::Pool(PoolKind::Local),
        Stickiness::Cluster(PoolKind::Cluster),
        Stickiness::Cluster(PoolKind::Local),
        Stickiness::External,
        Stickiness::ShortCircuit,
    ];

    fn name(self) -> &'static str {
        match self {
            Stickiness::Draw(PoolKind::Cluster) => "sticky-draw",
            Stickiness::Draw(PoolKind::Local) => "sticky-draw-local",
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

impl Side {
    /// The map that its picking chains look up.
    pub fn endpoints(self) -> Map {
        match self {
            Side::Address => Map::Endpoints,
            Side::NodePort => Map::NodePortEndpoints,
        }
    }

    /// The side whose picking chains look a map up.
    pub fn of_endpoints(map: Map) -> Option<Side> {
        [Side::Address, Side::NodePort].into_iter().find(|side| side.endpoints() == map)
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
            Chain::Sticky(id, stickiness) => write!(f, "{}-{id}", stickiness.name()),
            Chain::ShortCircuit(side) => write!(f, "{side}short-circuit"),
            Chain::Refuse => f.write_str("refuse"),
            Chain::Dispatch => f.write_str("dispatch"),
            Chain::Verdicts => f.write_str("verdicts"),
            Chain::NodePortVerdicts => f.write_str("nodeport-verdicts"),
            Chain::Base(base) => f.write_str(base.name()),
        }
    }
}

impl FromStr for Chain {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Chain, UnknownName> {
        let on_demand = Base::GUARDS.into_iter().chain([Base::AffinityPostrouting]).map(Chain::Base);
        if let Some(chain) = Chain::constant().chain(on_demand).find(|chain| chain.name() == name) {
            return Ok(chain);
        }
        let (side, rest) = match name.strip_prefix("nodeport-") {
            Some(rest) => (Side::NodePort, rest),
            None => (Side::Address, name),
        };
        if let (Side::Address, Some((head, id))) = (side, split_id(rest)) {
            let stickiness = Stickiness::ALL.into_iter().find(|stickiness| stickiness.name() == head);
            return stickiness.map(|stickiness| Chain::Sticky(id, stickiness)).ok_or(UnknownName);
        }
        let (head, number) = rest.rsplit_once('-').ok_or(UnknownName)?;
        let number = size(number).ok_or(UnknownName)?;
        let chain = match (side, head) {
            (_, "pick") => Chain::Pick(side, PoolKind::Cluster, number),
            (_, "pick-local") => Chain::Pick(side, PoolKind::Local, number),
            (Side::Address, "cluster") => Chain::Cluster(PoolKind::Cluster, number),
            (Side::Address, "cluster-local") => Chain::Cluster(PoolKind::Local, number),
            (_, "external") => Chain::External(side, number),
            (_, "local") => return Ok(Chain::Local(side, number)),
            _ => return Err(UnknownName),
        };
        // nothing could be picked from none
        if number > 0 { Ok(chain) } else { Err(UnknownName) }
    }
}

/// The most slots that a name may speak of: random numbers below it, and those of a second pool, are numbers of the kernel's.
const MOST_SLOTS: u32 = i32::MAX.cast_unsigned();

/// A number as names say it, which is in one way only.
fn size(number: &str) -> Option<u32> {
    let size: u32 = number.parse().ok().filter(|size| *size <= MOST_SLOTS)?;
    (number == size.to_compact_string()).then_some(size)
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
        let mut chains: Vec<Chain> = Chain::constant().collect();
        chains.extend(Base::GUARDS.into_iter().chain([Base::AffinityPostrouting]).map(Chain::Base));
        for side in [Side::Address, Side::NodePort] {
            chains.extend([Chain::External(side, 7), Chain::Local(side, 0)]);
            chains.extend(pools.map(|pool| Chain::Pick(side, pool, 3)));
        }
        chains.extend(Stickiness::ALL.map(|stickiness| Chain::Sticky(id, stickiness)));
        chains.extend(pools.map(|pool| Chain::Cluster(pool, 3)));
        for chain in &chains {
            assert_eq!(chain.name().parse(), Ok(*chain), "{chain}");
        }
        let names: std::collections::BTreeSet<_> = chains.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), chains.len(), "two chains share a name");
        let of_pools = pools.into_iter().flat_map(|p| [Map::Slots(id, p), Map::Members(id, p)]);
        let affinity = of_pools.chain([Map::Affinity(id)]);
        for map in Map::CONSTANT.into_iter().chain(affinity) {
            assert_eq!(map.name().parse(), Ok(map), "{map}");
        }
        for foreign in [
            "",
            "pick-",
            "pick-x",
            "pick-01",
            "pick-+1",
            "pick-0",
            "nodeport-pick-local-0",
            "cluster-0",
            "external-0",
            "local-00",
            "pick-local-4294967295",
            "frob-3",
            "sticky-cluster-xyz",
            "nodeport-",
            "nodeport-sticky-pick-0123456789abcdef",
        ] {
            assert_eq!(foreign.parse::<Chain>(), Err(UnknownName), "{foreign:?}");
        }
    }
}
