//! What is proposed for kube-proxy's nftables mode: chains `dispatch-N`, each for all ClusterIPs with N endpoints, and one map
//! `endpoints` from address, protocol, port and a number below N to an endpoint.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::super::ports::Drawn;
use super::rule;
use crate::netlink::model::Data;
use crate::objects::{Family, Protocol};
use crate::trace::SetElements;

/// The endpoints of one frontend by the number that is drawn.
type Buckets = BTreeMap<u32, SocketAddr>;

/// The map.
#[derive(Debug, Default)]
pub struct SharedMap {
    frontends: HashMap<(Protocol, IpAddr, u16), Buckets>,
    /// How many elements are none of an endpoint.
    pub strange: usize,
}

/// For how many endpoints a chain is, if it is one of these.
pub fn count(chain: &str) -> Option<u32> {
    chain.strip_prefix("dispatch-")?.parse().ok()
}

impl SharedMap {
    /// Reads the map `endpoints` of a table.
    pub fn read(family: Family, set: Option<&SetElements>) -> SharedMap {
        let mut map = SharedMap::default();
        for element in set.iter().flat_map(|set| set.elements.iter()) {
            match SharedMap::entry(family, &element.key, &element.data) {
                Some((key, bucket, to)) => drop(map.frontends.entry(key).or_default().insert(bucket, to)),
                None => map.strange += 1,
            }
        }
        map
    }

    fn entry(family: Family, key: &[u8], data: &Data) -> Option<((Protocol, IpAddr, u16), u32, SocketAddr)> {
        let length = family.address_len();
        let (ip, rest) = (rule::ip(key.get(..length)?)?, key.get(length..)?);
        let (protocol, port) = (Protocol::from_number(*rest.first()?)?, rule::port_of(rest.get(4..)?)?);
        let bucket = u32::from_ne_bytes(rest.get(8..12)?.try_into().ok()?);
        let Data::Value(value) = data else { return None };
        let to = SocketAddr::new(rule::ip(value.get(..length)?)?, rule::port_of(value.get(length..)?)?);
        Some(((protocol, ip, port), bucket, to))
    }

    /// Takes the endpoints of a frontend that draws below `count`, with their shares; and the numbers below that have none.
    pub fn take(&mut self, protocol: Protocol, ip: IpAddr, port: u16, count: u32) -> (Vec<Drawn>, Vec<u32>) {
        let mut buckets = self.frontends.remove(&(protocol, ip, port)).unwrap_or_default();
        let behind = buckets.split_off(&count);
        if !behind.is_empty() {
            self.frontends.insert((protocol, ip, port), behind);
        }
        let missing = (0..count).filter(|bucket| !buckets.contains_key(bucket)).take(8).collect();
        let mut counts: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for to in buckets.values() {
            *counts.entry(*to).or_default() += 1;
        }
        let total = buckets.len() as f64;
        let share = |count: u32| f64::from(count) / total;
        (
            counts.into_iter().map(|(to, count)| Drawn { ip: to.ip(), port: to.port(), share: share(count) }).collect(),
            missing,
        )
    }

    /// The frontends that elements are left of: nothing draws them.
    pub fn left(&self) -> impl Iterator<Item = (Protocol, SocketAddr, usize)> {
        self.frontends
            .iter()
            .map(|((protocol, ip, port), buckets)| (*protocol, SocketAddr::new(*ip, *port), buckets.len()))
    }
}
