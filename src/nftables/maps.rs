//! How each map and set is declared: its key, its value, its flags.
//!
//! Beside the kernel's view (lengths and type numbers) a declaration carries nft's own: the `typeof` description in
//! the set's user data. It is written as nft 1.0.6 writes it, which later versions read as well; without one, 1.0.6
//! aborts on listing a map whose key holds a number from `numgen`.

use std::fmt;

use super::names::{Map, TABLE};
use super::rule::nf_family;
use crate::netlink::model::{self, Expr, VERDICT_TYPE, set_flags};
use crate::objects::Family;

/// A part of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Saddr,
    Daddr,
    L4Proto,
    Dport,
    Slot,
    Priority,
}

/// The value of a map's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    None,
    Verdict,
    Parts(&'static [Part]),
}

const FRONTEND: &[Part] = &[Part::Daddr, Part::L4Proto, Part::Dport];
const NODE_PORT: &[Part] = &[Part::L4Proto, Part::Dport];
const NUMBER: ValueKind = ValueKind::Parts(&[Part::Priority]);
const ENDPOINT: ValueKind = ValueKind::Parts(&[Part::Daddr, Part::Dport]);

/// A declaration, apart from the family and the size.
struct Declaration {
    key: &'static [Part],
    value: ValueKind,
    flags: u32,
}

fn declaration(map: Map) -> Declaration {
    let (key, value, flags): (&'static [Part], ValueKind, u32) = match map {
        Map::Services | Map::ShortCircuit | Map::NoEndpoints => (FRONTEND, ValueKind::Verdict, 0),
        Map::NodePorts | Map::NodePortShortCircuit | Map::NodePortNoEndpoints => (NODE_PORT, ValueKind::Verdict, 0),
        Map::Endpoints => (&[Part::Daddr, Part::L4Proto, Part::Dport, Part::Slot], ENDPOINT, 0),
        Map::NodePortEndpoints => (&[Part::L4Proto, Part::Dport, Part::Slot], ENDPOINT, 0),
        Map::ClusterIps => (&[Part::Daddr], ValueKind::None, 0),
        Map::Hairpin => (&[Part::Saddr, Part::Daddr], ValueKind::None, 0),
        Map::Firewalled | Map::Connections => (FRONTEND, ValueKind::None, 0),
        Map::NodePortConnections => (NODE_PORT, ValueKind::None, 0),
        Map::Allowed => (&[Part::Daddr, Part::L4Proto, Part::Dport, Part::Saddr], ValueKind::None, set_flags::INTERVAL),
        Map::PodCidrs => (&[Part::Saddr], ValueKind::None, set_flags::INTERVAL),
        Map::ServiceCidrs | Map::NodePortIps => (&[Part::Daddr], ValueKind::None, set_flags::INTERVAL),
        Map::Affinity(_) => (&[Part::Saddr], NUMBER, set_flags::EVAL | set_flags::TIMEOUT),
        Map::Slots(..) => (&[Part::Slot], NUMBER, 0),
        Map::Members(..) => (&[Part::Priority], ENDPOINT, 0),
    };
    Declaration { key, value, flags }
}

/// Whether the map is made with a size: it then gets the kernel's fixed hash, which loads two to three times faster,
/// and has to be made again before it is full. The others grow by themselves.
pub fn is_sized(map: Map) -> bool {
    !is_of_one_port(map) && declaration(map).flags & set_flags::INTERVAL == 0
}

/// Whether the map belongs to one Service port with session affinity.
pub fn is_of_one_port(map: Map) -> bool {
    matches!(map, Map::Affinity(_) | Map::Slots(..) | Map::Members(..))
}

/// What the kernel lets an affinity map hold that was made without a size.
pub const AFFINITY_CLIENTS: u32 = 65_535;

/// How many clients an affinity map holds that was made with this size, or without one.
pub fn affinity_size(declared: Option<u32>) -> u32 {
    declared.unwrap_or(AFFINITY_CLIENTS)
}

/// Whether the elements of the map count what they match. They all do, so that the map is declared so: nft 1.0.6 does
/// not load counters into one that is not.
pub fn counts(map: Map) -> bool {
    matches!(map, Map::Connections | Map::NodePortConnections)
}

/// The declaration as the netlink layer wants it.
pub fn to_wire(map: Map, family: Family, size: Option<u32>) -> model::Set {
    let Declaration { key, value, flags } = declaration(map);
    let concatenated_range = flags & set_flags::INTERVAL != 0 && key.len() > 1;
    let (data_type, data_len) = match value {
        ValueKind::None => (0, 0),
        ValueKind::Verdict => (VERDICT_TYPE, 0),
        ValueKind::Parts(parts) => (type_number(parts, family), padded_len(parts, family)),
    };
    let mut flags = flags;
    if value != ValueKind::None {
        flags |= set_flags::MAP;
    }
    if concatenated_range {
        flags |= set_flags::CONCAT;
    }
    model::Set {
        family: nf_family(family),
        table: TABLE.into(),
        name: map.name(),
        flags,
        key_type: type_number(key, family),
        key_len: padded_len(key, family),
        data_type,
        data_len,
        size,
        concat: if concatenated_range { key.iter().map(|p| p.len(family) as u8).collect() } else { Vec::new() },
        timeout_ms: None,
        userdata: userdata(key, value, family),
        exprs: if counts(map) { vec![Expr::Counter { packets: 0, bytes: 0 }] } else { Vec::new() },
    }
}

/// The declaration's lines as `nft` lists them, without the elements.
pub fn to_text(map: Map, family: Family, size: Option<u32>) -> Vec<String> {
    let Declaration { key, value, flags } = declaration(map);
    let key = Concatenation(key, family);
    let mut lines = vec![match value {
        ValueKind::None => format!("typeof {key}"),
        ValueKind::Verdict => format!("typeof {key} : verdict"),
        ValueKind::Parts(parts) => format!("typeof {key} : {}", Concatenation(parts, family)),
    }];
    if let Some(size) = size {
        lines.push(format!("size {size}"));
    }
    if flags & set_flags::INTERVAL != 0 {
        lines.push("flags interval".into());
    }
    if flags & set_flags::EVAL != 0 {
        lines.push("flags dynamic,timeout".into());
    }
    if counts(map) {
        lines.push("counter".into());
    }
    lines
}

/// The word that opens the declaration.
pub fn keyword(map: Map) -> &'static str {
    match declaration(map).value {
        ValueKind::None => "set",
        ValueKind::Verdict | ValueKind::Parts(_) => "map",
    }
}

impl Part {
    fn len(self, family: Family) -> u32 {
        match self {
            Part::Saddr | Part::Daddr => family.address_len() as u32,
            Part::L4Proto => 1,
            Part::Dport => 2,
            Part::Slot | Part::Priority => 4,
        }
    }

    /// nft's number of the data type (`include/datatype.h` of nftables: ipv4_addr, ipv6_addr, inet_proto,
    /// inet_service, integer, classid).
    fn type_number(self, family: Family) -> u32 {
        match (self, family) {
            (Part::Saddr | Part::Daddr, Family::V4) => 7,
            (Part::Saddr | Part::Daddr, Family::V6) => 8,
            (Part::L4Proto, _) => 12,
            (Part::Dport, _) => 13,
            (Part::Slot, _) => 4,
            (Part::Priority, _) => 23,
        }
    }

    /// The `typeof` description of the expression: its kind, and what tells it from others of the kind.
    fn describe(self, family: Family, out: &mut Vec<u8>) {
        let (header, saddr, daddr) = match family {
            Family::V4 => (12, 11, 12),
            Family::V6 => (13, 8, 9),
        };
        match self {
            Part::Saddr => describe(out, kind::PAYLOAD, &[header, saddr]),
            Part::Daddr => describe(out, kind::PAYLOAD, &[header, daddr]),
            Part::Dport => describe(out, kind::PAYLOAD, &[11, 2]),
            Part::L4Proto => describe(out, kind::META, &[16]),
            Part::Slot => describe(out, kind::NUMGEN, &[1, 65536, 0]),
            Part::Priority => describe(out, kind::META, &[2]),
        }
    }
}

/// nft's numbers of expression kinds (`enum expr_types`).
mod kind {
    pub const VERDICT: u32 = 1;
    pub const PAYLOAD: u32 = 7;
    pub const META: u32 = 9;
    pub const CONCAT: u32 = 13;
    pub const NUMGEN: u32 = 23;
}

/// A concatenation as text.
struct Concatenation(&'static [Part], Family);

impl fmt::Display for Concatenation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = super::rule::ip_word(self.1);
        for (i, part) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(" . ")?;
            }
            match part {
                Part::Saddr => write!(f, "{ip} saddr")?,
                Part::Daddr => write!(f, "{ip} daddr")?,
                Part::L4Proto => f.write_str("meta l4proto")?,
                Part::Dport => f.write_str("th dport")?,
                Part::Slot => f.write_str("numgen random mod 65536")?,
                Part::Priority => f.write_str("meta priority")?,
            }
        }
        Ok(())
    }
}

fn type_number(parts: &[Part], family: Family) -> u32 {
    parts.iter().fold(0, |number, part| number << 6 | part.type_number(family))
}

/// A single part has its own length; in a concatenation every part is padded to 4 bytes.
fn padded_len(parts: &[Part], family: Family) -> u32 {
    match parts {
        [part] => part.len(family),
        _ => parts.iter().map(|part| part.len(family).next_multiple_of(4)).sum(),
    }
}

/// The user data of a set: a list of type, length, value (one byte each for the first two).
fn userdata(key: &[Part], value: ValueKind, family: Family) -> Vec<u8> {
    const KEY_BYTEORDER: u8 = 0;
    const DATA_BYTEORDER: u8 = 1;
    const KEY_TYPEOF: u8 = 3;
    const DATA_TYPEOF: u8 = 4;
    const DATA_INTERVAL: u8 = 6;
    let mut out = Vec::new();
    put_u32(&mut out, KEY_BYTEORDER, byteorder(key));
    match value {
        ValueKind::None => {}
        ValueKind::Verdict => put_u32(&mut out, DATA_BYTEORDER, 0),
        ValueKind::Parts(parts) => put_u32(&mut out, DATA_BYTEORDER, byteorder(parts)),
    }
    put(&mut out, KEY_TYPEOF, &describe_all(key, family));
    match value {
        ValueKind::None => return out,
        ValueKind::Verdict => {
            let mut verdict = Vec::new();
            describe(&mut verdict, kind::VERDICT, &[]);
            put(&mut out, DATA_TYPEOF, &verdict);
        }
        ValueKind::Parts(parts) => put(&mut out, DATA_TYPEOF, &describe_all(parts, family)),
    }
    put_u32(&mut out, DATA_INTERVAL, 0);
    out
}

/// nft's byte order of a key or value: 0 for concatenations, 2 (big endian) for a single field of a packet, 1 (the
/// host's) for what the kernel counts or keeps beside it.
fn byteorder(parts: &[Part]) -> u32 {
    match parts {
        [Part::Slot | Part::Priority] => 1,
        [_] => 2,
        _ => 0,
    }
}

fn describe_all(parts: &[Part], family: Family) -> Vec<u8> {
    let mut out = Vec::new();
    if let [part] = parts {
        part.describe(family, &mut out);
        return out;
    }
    let mut inner = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut description = Vec::new();
        part.describe(family, &mut description);
        put(&mut inner, index as u8, &description);
    }
    put_u32(&mut out, 0, kind::CONCAT);
    put(&mut out, 1, &inner);
    out
}

/// One expression: its kind, and its properties numbered from 0.
fn describe(out: &mut Vec<u8>, kind: u32, properties: &[u32]) {
    let mut inner = Vec::new();
    for (index, property) in properties.iter().enumerate() {
        put_u32(&mut inner, index as u8, *property);
    }
    put_u32(out, 0, kind);
    put(out, 1, &inner);
}

fn put_u32(out: &mut Vec<u8>, kind: u8, value: u32) {
    put(out, kind, &value.to_ne_bytes());
}

fn put(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.push(kind);
    out.push(u8::try_from(value.len()).expect("a description is shorter than 256 bytes"));
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nft 1.0.6 itself wrote for these declarations.
    #[test]
    fn descriptions_are_those_of_nft() {
        for (map, family, want) in [
            (
                Map::Endpoints,
                Family::V4,
                "000400000000010400000000036000040d00000001580014000407000000010c00040c00000001040c000000010e00040900000001060004100000000214000407000000010c00040b000000010402000000031a0004170000000112000401000000010400000100020400000000043400040d000000012c0014000407000000010c00040c00000001040c0000000114000407000000010c00040b000000010402000000060400000000",
            ),
            (
                Map::Services,
                Family::V6,
                "000400000000010400000000034400040d000000013c0014000407000000010c00040d000000010409000000010e00040900000001060004100000000214000407000000010c00040b00000001040200000004080004010000000100060400000000",
            ),
            (Map::ClusterIps, Family::V4, "0004020000000314000407000000010c00040c00000001040c000000"),
            (
                Map::Hairpin,
                Family::V6,
                "000400000000033400040d000000012c0014000407000000010c00040d0000000104080000000114000407000000010c00040d000000010409000000",
            ),
        ] {
            let set = to_wire(map, family, None);
            let hex: String = set.userdata.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, want, "{map} {family}");
        }
    }

    #[test]
    fn keys_have_the_lengths_that_the_kernel_is_told() {
        for (map, family, key, value) in [
            (Map::Endpoints, Family::V4, 16, 8),
            (Map::Endpoints, Family::V6, 28, 20),
            (Map::NodePortEndpoints, Family::V4, 12, 8),
            (Map::Allowed, Family::V6, 40, 0),
            (Map::ClusterIps, Family::V4, 4, 0),
        ] {
            let set = to_wire(map, family, None);
            assert_eq!((set.key_len, set.data_len), (key, value), "{map} {family}");
        }
        assert_eq!(to_wire(Map::Allowed, Family::V6, None).concat, [16, 1, 2, 16]);
    }
}
