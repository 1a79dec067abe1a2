//! Elements of the maps and sets: typed, as text, and as the bytes that the kernel keeps.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::maps;
use super::names::{Chain, Map};
use super::numbers::Number;
use crate::netlink::model::{self, Bytes};
use crate::objects::{Family, Protocol};
use crate::plan::PortName;

/// The key of an element. Every map has keys of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// `address . protocol . port`.
    Frontend(IpAddr, Protocol, u16),
    /// `address . protocol . port . slot`.
    FrontendSlot(IpAddr, Protocol, u16, u32),
    /// `protocol . port`.
    NodePort(Protocol, u16),
    /// `protocol . port . slot`.
    NodePortSlot(Protocol, u16, u32),
    /// `address`.
    Address(IpAddr),
    /// `address . address`, the same twice.
    Pair(IpAddr),
    /// `address . protocol . port . source prefix`.
    Source(IpAddr, Protocol, u16, IpNet),
    /// A slot alone, in a map of one Service port.
    Slot(u32),
    /// The number of an endpoint.
    Number(Number),
}

/// The value of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Sets have none.
    None,
    /// `address . port`.
    Endpoint(IpAddr, u16),
    /// The number of an endpoint.
    Number(Number),
    /// The rest of the packet's way is in this chain.
    Goto(Chain),
    /// The packet is dropped.
    Drop,
    /// The packet is left alone.
    Accept,
}

/// An element of one of the table's maps or sets.
#[derive(Clone, Debug)]
pub struct Element {
    /// Where it belongs.
    pub map: Map,
    /// Its key.
    pub key: Key,
    /// Its value.
    pub value: Value,
    /// The Service port that it stands for; none on elements that several may share.
    pub owner: Option<PortName>,
}

/// An element that several Service ports may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shared {
    /// The address is a ClusterIP.
    ClusterIp(IpAddr),
    /// The address is that of an endpoint on this node.
    Hairpin(IpAddr),
}

impl From<Shared> for Element {
    fn from(shared: Shared) -> Element {
        let (map, key) = match shared {
            Shared::ClusterIp(ip) => (Map::ClusterIps, Key::Address(ip)),
            Shared::Hairpin(ip) => (Map::Hairpin, Key::Pair(ip)),
        };
        Element { map, key, value: Value::None, owner: None }
    }
}

/// Elements are equal that are the same in the kernel.
impl PartialEq for Element {
    fn eq(&self, other: &Element) -> bool {
        (self.map, self.key, self.value) == (other.map, other.key, other.value)
            && (!self.is_commented() || self.owner == other.owner)
    }
}

impl Eq for Element {}

impl Element {
    /// Whether the owner is written into the ruleset as a comment. Elements of `endpoints` go without, since there
    /// are many and the frontend's comment stands beside them; and so do those of maps that one Service port has alone.
    pub fn is_commented(&self) -> bool {
        !matches!(self.map, Map::Endpoints | Map::NodePortEndpoints | Map::Allowed) && !maps::is_of_one_port(self.map)
    }

    /// The element as the netlink layer wants it; `name` says what a chain is called.
    pub fn to_wire(&self, name: impl FnMut(Chain) -> model::Name) -> model::Element {
        let (key, key_end) = self.key.to_bytes();
        model::Element {
            key,
            key_end: key_end.map(Box::new),
            data: self.value.to_wire(name),
            comment: self.owner.as_ref().filter(|_| self.is_commented()).map(PortName::shared),
            ..model::Element::default()
        }
    }
}

/// As it stands between the braces of `elements = { … }`, before anything was counted.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)?;
        if maps::counts(self.map) {
            f.write_str(" counter packets 0 bytes 0")?;
        }
        if let Some(owner) = self.owner.as_ref().filter(|_| self.is_commented()) {
            write!(f, " comment \"{owner}\"")?;
        }
        match self.value {
            Value::None => Ok(()),
            Value::Endpoint(ip, port) => write!(f, " : {ip} . {port}"),
            Value::Number(number) => write!(f, " : {number}"),
            Value::Goto(chain) => write!(f, " : goto {chain}"),
            Value::Drop => f.write_str(" : drop"),
            Value::Accept => f.write_str(" : accept"),
        }
    }
}

impl Key {
    /// The key's bytes, and for prefixes the last key of the range: parts in order, each padded to 4 bytes.
    pub fn to_bytes(self) -> (Bytes, Option<Bytes>) {
        let mut key = Bytes::new();
        match self {
            Key::Frontend(ip, protocol, port) => push_frontend(&mut key, ip, protocol, port),
            Key::FrontendSlot(ip, protocol, port, slot) => {
                push_frontend(&mut key, ip, protocol, port);
                push_slot(&mut key, slot);
            }
            Key::NodePort(protocol, port) => push_port(&mut key, protocol, port),
            Key::NodePortSlot(protocol, port, slot) => {
                push_port(&mut key, protocol, port);
                push_slot(&mut key, slot);
            }
            Key::Slot(slot) => push_slot(&mut key, slot),
            Key::Number(number) => key.extend_from_slice(&number.priority().to_ne_bytes()),
            Key::Address(ip) => push_ip(&mut key, ip),
            Key::Pair(ip) => {
                push_ip(&mut key, ip);
                push_ip(&mut key, ip);
            }
            Key::Source(ip, protocol, port, source) => {
                push_frontend(&mut key, ip, protocol, port);
                let mut end = key.clone();
                push_ip(&mut key, source.network());
                push_ip(&mut end, source.broadcast());
                return (key, Some(end));
            }
        }
        (key, None)
    }

    /// The slot that it names.
    pub fn slot(self) -> Option<u32> {
        match self {
            Key::FrontendSlot(.., slot) | Key::NodePortSlot(.., slot) | Key::Slot(slot) => Some(slot),
            Key::Frontend(..)
            | Key::NodePort(..)
            | Key::Number(_)
            | Key::Address(_)
            | Key::Pair(_)
            | Key::Source(..) => None,
        }
    }

    /// Reads the bytes of a key of one of the maps that svcmap fills; none if they are no such key.
    pub fn from_bytes(map: Map, family: Family, key: &[u8], key_end: Option<&[u8]>) -> Option<Key> {
        let mut parts = Parts { family, rest: key };
        let key = match map {
            Map::Services | Map::ShortCircuit | Map::NoEndpoints | Map::Connections | Map::Firewalled => {
                Key::Frontend(parts.ip()?, parts.protocol()?, parts.port()?)
            }
            Map::Endpoints => Key::FrontendSlot(parts.ip()?, parts.protocol()?, parts.port()?, parts.slot()?),
            Map::NodePorts | Map::NodePortShortCircuit | Map::NodePortNoEndpoints | Map::NodePortConnections => {
                Key::NodePort(parts.protocol()?, parts.port()?)
            }
            Map::NodePortEndpoints => Key::NodePortSlot(parts.protocol()?, parts.port()?, parts.slot()?),
            Map::ClusterIps => Key::Address(parts.ip()?),
            Map::Hairpin => {
                let ip = parts.ip()?;
                (parts.ip()? == ip).then_some(Key::Pair(ip))?
            }
            Map::Allowed => {
                let (ip, protocol, port, first) = (parts.ip()?, parts.protocol()?, parts.port()?, parts.ip()?);
                let end = key_end?;
                let last = Parts { family, rest: end.get(end.len().checked_sub(family.address_len())?..)? }.ip()?;
                Key::Source(ip, protocol, port, prefix_between(first, last)?)
            }
            Map::Slots(..) => Key::Slot(parts.slot()?),
            Map::Members(..) => Key::Number(parts.number()?),
            Map::PodCidrs | Map::ServiceCidrs | Map::NodePortIps | Map::Affinity(_) => return None,
        };
        parts.rest.is_empty().then_some(key)
    }
}

/// As `nft` lists it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Frontend(ip, protocol, port) => write!(f, "{ip} . {protocol} . {port}"),
            Key::FrontendSlot(ip, protocol, port, slot) => write!(f, "{ip} . {protocol} . {port} . {slot}"),
            Key::NodePort(protocol, port) => write!(f, "{protocol} . {port}"),
            Key::NodePortSlot(protocol, port, slot) => write!(f, "{protocol} . {port} . {slot}"),
            Key::Slot(slot) => slot.fmt(f),
            Key::Number(number) => number.fmt(f),
            Key::Address(ip) => ip.fmt(f),
            Key::Pair(ip) => write!(f, "{ip} . {ip}"),
            Key::Source(ip, protocol, port, source) if source.prefix_len() == source.max_prefix_len() => {
                write!(f, "{ip} . {protocol} . {port} . {}", source.addr())
            }
            Key::Source(ip, protocol, port, source) => write!(f, "{ip} . {protocol} . {port} . {source}"),
        }
    }
}

impl Value {
    /// The value as the netlink layer wants it; `name` says what a chain is called.
    pub fn to_wire(self, mut name: impl FnMut(Chain) -> model::Name) -> model::Data {
        match self {
            Value::None => model::Data::None,
            Value::Endpoint(ip, port) => {
                let mut data = Bytes::new();
                push_ip(&mut data, ip);
                data.extend_from_slice(&port.to_be_bytes());
                data.extend_from_slice(&[0, 0]);
                model::Data::Value(data)
            }
            Value::Number(number) => model::Data::Value(Bytes::from_slice(&number.priority().to_ne_bytes())),
            Value::Goto(chain) => model::Data::Verdict(model::Verdict::Goto(name(chain))),
            Value::Drop => model::Data::Verdict(model::Verdict::Drop),
            Value::Accept => model::Data::Verdict(model::Verdict::Accept),
        }
    }

    /// Reads a value of one of the maps back; none if it is not one of ours.
    pub fn from_wire(map: Map, family: Family, data: &model::Data) -> Option<Value> {
        match data {
            model::Data::None => Some(Value::None),
            model::Data::Value(bytes) => {
                let mut parts = Parts { family, rest: bytes };
                let value = match map {
                    Map::Slots(..) => Value::Number(parts.number()?),
                    _ => Value::Endpoint(parts.ip()?, parts.port()?),
                };
                parts.rest.is_empty().then_some(value)
            }
            model::Data::Verdict(model::Verdict::Goto(chain)) => Some(Value::Goto(chain.parse().ok()?)),
            model::Data::Verdict(model::Verdict::Drop) => Some(Value::Drop),
            model::Data::Verdict(model::Verdict::Accept) => Some(Value::Accept),
            model::Data::Verdict(_) => None,
        }
    }

    /// Whether it leads packets somewhere.
    pub fn is_verdict(self) -> bool {
        matches!(self, Value::Goto(_) | Value::Drop | Value::Accept)
    }

    /// The chain that a verdict names.
    pub fn chain(self) -> Option<Chain> {
        match self {
            Value::Goto(chain) => Some(chain),
            Value::None | Value::Endpoint(..) | Value::Number(_) | Value::Drop | Value::Accept => None,
        }
    }
}

/// Appends an address in network byte order.
pub fn push_ip(bytes: &mut Bytes, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
    }
}

fn push_port(bytes: &mut Bytes, protocol: Protocol, port: u16) {
    let [high, low] = port.to_be_bytes();
    bytes.extend_from_slice(&[protocol.number(), 0, 0, 0, high, low, 0, 0]);
}

fn push_frontend(bytes: &mut Bytes, ip: IpAddr, protocol: Protocol, port: u16) {
    push_ip(bytes, ip);
    push_port(bytes, protocol, port);
}

/// The slot stands in host byte order, as `numgen` produces it (`net/netfilter/nft_numgen.c`).
fn push_slot(bytes: &mut Bytes, slot: u32) {
    bytes.extend_from_slice(&slot.to_ne_bytes());
}

/// The parts of a key or value that are still to be read.
struct Parts<'a> {
    family: Family,
    rest: &'a [u8],
}

impl Parts<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    fn ip(&mut self) -> Option<IpAddr> {
        Some(match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from(self.take::<4>()?)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from(self.take::<16>()?)),
        })
    }

    fn protocol(&mut self) -> Option<Protocol> {
        Protocol::from_number(self.take::<4>()?[0])
    }

    fn port(&mut self) -> Option<u16> {
        let [high, low, _, _] = self.take::<4>()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn slot(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take::<4>()?))
    }

    fn number(&mut self) -> Option<Number> {
        Number::from_priority(u32::from_ne_bytes(self.take::<4>()?))
    }
}

/// The prefix that begins and ends with these addresses, if there is one.
pub fn prefix_between(first: IpAddr, last: IpAddr) -> Option<IpNet> {
    let (first_bits, last_bits, width) = match (first, last) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return None,
    };
    let differing = 128 - (first_bits ^ last_bits).leading_zeros();
    let prefix = IpNet::new(first, u8::try_from(width - differing).ok()?).ok()?;
    (prefix.network() == first && prefix.broadcast() == last).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::super::names::AffinityId;
    use super::*;
    use crate::plan::PoolKind;

    fn number() -> Number {
        Number::from_priority(0x7300_0007).unwrap()
    }

    fn keys() -> Vec<(Map, Family, Key)> {
        let mut all = Vec::new();
        let id = AffinityId::new(&PortName::parse("default/web"), Protocol::Tcp);
        for (family, ip, net) in [
            (Family::V4, "10.96.1.5", "192.0.2.0/24"),
            (Family::V6, "fd00:96::5", "2001:db8::/32"),
            (Family::V4, "10.96.1.5", "0.0.0.0/0"),
            (Family::V6, "fd00:96::5", "::/0"),
            (Family::V4, "10.96.1.5", "192.0.2.7/32"),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            let p = Protocol::Sctp;
            all.extend([
                (Map::Services, family, Key::Frontend(ip, p, 80)),
                (Map::Endpoints, family, Key::FrontendSlot(ip, p, 80, 1_000_001)),
                (Map::NodePorts, family, Key::NodePort(p, 30080)),
                (Map::NodePortEndpoints, family, Key::NodePortSlot(p, 30080, 7)),
                (Map::ClusterIps, family, Key::Address(ip)),
                (Map::Hairpin, family, Key::Pair(ip)),
                (Map::Allowed, family, Key::Source(ip, p, 80, net.parse().unwrap())),
                (Map::Slots(id, PoolKind::Local), family, Key::Slot(3)),
                (Map::Members(id, PoolKind::Cluster), family, Key::Number(number())),
            ]);
        }
        all
    }

    #[test]
    fn keys_are_read_back_as_what_they_were_written_from() {
        for (map, family, key) in keys() {
            let (bytes, end) = key.to_bytes();
            assert_eq!(bytes.len() % 4, 0, "{key}");
            assert_eq!(Key::from_bytes(map, family, &bytes, end.as_deref()), Some(key), "{key}");
            let cut = Key::from_bytes(map, family, &bytes[..bytes.len() - 1], end.as_deref());
            assert_eq!(cut, None, "{key}, cut");
        }
    }

    #[test]
    fn values_are_read_back_as_what_they_were_written_from() {
        let slots = Map::Slots(AffinityId::new(&PortName::parse("default/web"), Protocol::Tcp), PoolKind::Cluster);
        for (map, family, value) in [
            (Map::ClusterIps, Family::V4, Value::None),
            (Map::Endpoints, Family::V4, Value::Endpoint("10.244.1.2".parse().unwrap(), 8080)),
            (Map::Endpoints, Family::V6, Value::Endpoint("fd00::1".parse().unwrap(), 8080)),
            (slots, Family::V6, Value::Number(number())),
            (Map::NoEndpoints, Family::V4, Value::Goto(Chain::Refuse)),
            (Map::NoEndpoints, Family::V4, Value::Drop),
            (Map::NoEndpoints, Family::V6, Value::Accept),
        ] {
            assert_eq!(Value::from_wire(map, family, &value.to_wire(Chain::name)), Some(value));
        }
    }

    #[test]
    fn only_ranges_that_are_prefixes_become_prefixes() {
        let between = |a: &str, b: &str| prefix_between(a.parse().unwrap(), b.parse().unwrap()).map(|n| n.to_string());
        assert_eq!(between("10.0.0.0", "10.0.0.255").as_deref(), Some("10.0.0.0/24"));
        assert_eq!(between("10.0.0.1", "10.0.0.1").as_deref(), Some("10.0.0.1/32"));
        assert_eq!(between("10.0.0.1", "10.0.0.2"), None);
        assert_eq!(between("10.0.0.4", "10.0.0.10"), None);
        assert_eq!(between("10.0.0.0", "::1"), None);
    }
}
