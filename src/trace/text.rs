//! Elements as people read them: by the types that the set declares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::refusal::Place;
use super::ruleset::{Ruleset, SetElements, TableRules};
use super::way::verdict_text;
use crate::netlink::model::{Data, Element, Set, element_flags};
use crate::nftables::element::prefix_between;
use crate::objects::Protocol;

/// nft's numbers of data types (`include/datatype.h` of nftables).
mod kind {
    pub const INTEGER: u32 = 4;
    pub const IPV4: u32 = 7;
    pub const IPV6: u32 = 8;
    pub const PROTOCOL: u32 = 12;
    pub const PORT: u32 = 13;
    pub const MARK: u32 = 19;
    pub const PRIORITY: u32 = 23;
    pub const INTERFACE: u32 = 41;
}

impl Ruleset {
    /// The prefixes that a set of addresses holds, in the tables of this name in all families.
    pub fn prefixes(&self, table: &str, set: &str) -> Vec<IpNet> {
        let sets = self.tables.iter().filter(|there| there.table.name == table).filter_map(|there| there.sets.get(set));
        sets.flat_map(prefixes).collect()
    }

    /// The same of a set of one table.
    pub fn prefixes_of(&self, table: &TableRules, set: &str) -> Vec<IpNet> {
        table.sets.get(set).into_iter().flat_map(prefixes).collect()
    }

    /// An element of a set of the rule's table, as `nft` would list it: `10.96.1.5 . tcp . 80 : goto cluster-3`.
    pub fn element_text(&self, place: &Place, set: &str, element: &Element) -> String {
        let table = self.tables.iter().find(|table| table.is(place.family, &place.table));
        let Some(set) = table.and_then(|table| table.sets.get(set)) else { return hex(&element.key) };
        let mut text = key_text(set, element);
        match &element.data {
            Data::None => {}
            Data::Value(value) => text += &format!(" : {}", typed(set.set.data_type, value)),
            Data::Verdict(verdict) => text += &format!(" : {}", verdict_text(verdict)),
        }
        text
    }
}

fn prefixes(set: &SetElements) -> impl Iterator<Item = IpNet> {
    set.elements.iter().filter_map(|element| prefix(set, element))
}

/// A range of addresses that is a prefix, or an address.
fn prefix(set: &SetElements, element: &Element) -> Option<IpNet> {
    let ip = |bytes: &[u8]| match set.set.key_type {
        kind::IPV4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        kind::IPV6 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    };
    let first = ip(&element.key).filter(|_| !is_end(element))?;
    if !set.is_interval() {
        return Some(first.into());
    }
    let last = match set.elements.end_of(element) {
        Some(end) => ip(&before(&end.key))?,
        None => ip(&vec![0xff; element.key.len()])?, // up to the last address there is
    };
    prefix_between(first, last)
}

fn key_text(set: &SetElements, element: &Element) -> String {
    if element.key.is_empty() {
        return "*".into();
    }
    if let Some(prefix) = prefix(set, element).filter(|prefix| set.is_interval() && prefix.prefix_len() > 0) {
        return match prefix.prefix_len() == prefix.max_prefix_len() {
            true => prefix.addr().to_string(),
            false => prefix.to_string(),
        };
    }
    let first = typed(set.set.key_type, &element.key);
    let last = match (&element.key_end, set.is_interval() && !is_concatenation(&set.set)) {
        (Some(end), _) => Some(end.to_vec()),
        (None, true) => set.elements.end_of(element).map(|end| before(&end.key)),
        (None, false) => None,
    };
    match last {
        Some(last) if last != element.key.to_vec() => format!("{first}-{}", typed(set.set.key_type, &last)),
        _ => first,
    }
}

/// The key before one: what is behind a range is not in it.
fn before(key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    for byte in key.iter_mut().rev() {
        let borrow = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrow {
            break;
        }
    }
    key
}

fn is_concatenation(set: &Set) -> bool {
    set.key_type >= 1 << 6
}

/// A value of a type, which for concatenations is made of 6 bits for each part.
fn typed(mut types: u32, bytes: &[u8]) -> String {
    let mut kinds = Vec::new();
    while types > 0 {
        kinds.insert(0, types & 0x3f);
        types >>= 6;
    }
    let mut rest = bytes;
    let mut parts = Vec::new();
    for kind in &kinds {
        let Some(length) = length(*kind).filter(|length| rest.len() >= *length) else { return hex(bytes) };
        let (part, _) = rest.split_at(length);
        parts.push(part_text(*kind, part));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    if parts.is_empty() || !rest.is_empty() { hex(bytes) } else { parts.join(" . ") }
}

fn length(kind: u32) -> Option<usize> {
    Some(match kind {
        kind::INTEGER | kind::IPV4 | kind::MARK | kind::PRIORITY => 4,
        kind::IPV6 | kind::INTERFACE => 16,
        kind::PROTOCOL => 1,
        kind::PORT => 2,
        _ => return None,
    })
}

fn part_text(kind: u32, bytes: &[u8]) -> String {
    match (kind, bytes) {
        (kind::IPV4, &[a, b, c, d]) => Ipv4Addr::new(a, b, c, d).to_string(),
        (kind::IPV6, bytes) => match <[u8; 16]>::try_from(bytes) {
            Ok(bytes) => Ipv6Addr::from(bytes).to_string(),
            Err(_) => hex(bytes),
        },
        (kind::PROTOCOL, &[number]) => {
            Protocol::from_number(number).map_or_else(|| number.to_string(), |protocol| protocol.to_string())
        }
        (kind::PORT, &[high, low]) => u16::from_be_bytes([high, low]).to_string(),
        (kind::INTEGER, &[a, b, c, d]) => u32::from_ne_bytes([a, b, c, d]).to_string(),
        (kind::MARK, &[a, b, c, d]) => format!("{:#x}", u32::from_ne_bytes([a, b, c, d])),
        (kind::PRIORITY, &[a, b, c, d]) => {
            let number = u32::from_ne_bytes([a, b, c, d]);
            format!("{:x}:{:x}", number >> 16, number & 0xffff)
        }
        (kind::INTERFACE, bytes) => String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned(),
        _ => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an element is the end of a range.
pub(super) fn is_end(element: &Element) -> bool {
    element.flags & element_flags::INTERVAL_END != 0
}
