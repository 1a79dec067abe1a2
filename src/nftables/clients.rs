//! What the kernel learned of clients with session affinity.
//!
//! Rules write these maps, not svcmap; it only takes entries out whose endpoint is gone (behaviour row D4), gives them
//! another life where the timeout is edited (row D8), and carries them over where a table is made again (row D6).

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::element::push_ip;
use super::maps::{AFFINITY_CLIENTS, affinity_maps};
use super::transaction::{Forget, Retime, set_ref};
use crate::netlink::model::{Bytes, Data, Element, Op, SetRef};
use crate::netlink::{Connection, ReadError};

/// Entries that live no longer than this are left to expire by themselves, in milliseconds: one that expired in the
/// meantime cannot be deleted.
const EXPIRES_SOON: u64 = 1000;

/// What a transaction has to do to entries that only the kernel knows.
///
/// # Errors
/// Those of reading.
pub fn changes(connection: &mut Connection, forget: &[Forget], retime: &[Retime]) -> Result<Vec<Op>, ReadError> {
    let mut ops = of_endpoints(connection, forget)?;
    for Retime { set, seconds } in retime {
        let gone: HashSet<Bytes> = ops.iter().flat_map(|op| deleted_from(op, set)).cloned().collect();
        let stay: Vec<Element> =
            entries(connection, set)?.into_iter().filter(|entry| !gone.contains(&entry.key)).collect();
        if stay.is_empty() {
            continue;
        }
        let keys = stay.iter().map(|entry| Element { key: entry.key.clone(), ..Element::default() }).collect();
        ops.push(Op::DeleteElements { set: set.clone(), elements: keys });
        let timeout = u64::from(*seconds) * 1000;
        let elements = stay.into_iter().filter_map(|entry| retimed(entry, timeout)).collect();
        ops.push(Op::AddElements { set: set.clone(), elements });
    }
    Ok(ops)
}

fn deleted_from<'a>(op: &'a Op, from: &SetRef) -> impl Iterator<Item = &'a Bytes> {
    let elements: &[Element] = match op {
        Op::DeleteElements { set, elements } if set == from => elements,
        _ => &[],
    };
    elements.iter().map(|element| &element.key)
}

/// An entry under another timeout, in milliseconds; none if it would have expired by now.
fn retimed(entry: Element, timeout: u64) -> Option<Element> {
    let age = entry.timeout_ms.unwrap_or_default().saturating_sub(entry.expiration_ms.unwrap_or_default());
    let left = timeout.checked_sub(age).filter(|left| *left > 0)?;
    Some(Element { timeout_ms: Some(timeout), expiration_ms: Some(left), ..entry })
}

/// The deletion of the entries of clients of endpoints that are gone.
///
/// # Errors
/// Those of reading; a map that is not there holds no clients.
pub fn of_endpoints(connection: &mut Connection, forget: &[Forget]) -> Result<Vec<Op>, ReadError> {
    let mut ops = Vec::new();
    for forget in forget {
        let [addresses, ports] = affinity_maps(forget.id, forget.pool).map(|map| set_ref(forget.family, map));
        let port_of: HashMap<Bytes, Data> = entries(connection, &ports)?.into_iter().map(|e| (e.key, e.data)).collect();
        let gone: HashSet<(Bytes, Bytes)> = forget.endpoints.iter().map(|place| bytes(*place)).collect();
        let is_gone = |entry: &Element| match (&entry.data, port_of.get(&entry.key)) {
            (Data::Value(address), Some(Data::Value(port))) => gone.contains(&(address.clone(), port.clone())),
            _ => false,
        };
        let keys: Vec<Bytes> =
            entries(connection, &addresses)?.into_iter().filter(is_gone).map(|entry| entry.key).collect();
        if keys.is_empty() {
            continue;
        }
        for set in [addresses, ports] {
            let elements = keys.iter().map(|key| Element { key: key.clone(), ..Element::default() }).collect();
            ops.push(Op::DeleteElements { set, elements });
        }
    }
    Ok(ops)
}

/// The entries of maps that are about to be made again by `making`, to be added to the new ones: those that were last
/// refreshed, where the new ones hold fewer.
///
/// # Errors
/// Those of reading.
pub fn carried(connection: &mut Connection, maps: &[SetRef], making: &[Op]) -> Result<Vec<Op>, ReadError> {
    let mut ops = Vec::new();
    for set in maps {
        let mut elements = entries(connection, set)?;
        let room = making.iter().find_map(|op| match op {
            Op::AddSet(made) if made.name == set.name && made.family == set.family => made.size,
            _ => None,
        });
        let room = room.unwrap_or(AFFINITY_CLIENTS) as usize;
        if elements.len() > room {
            elements.sort_unstable_by_key(|entry| Reverse(entry.expiration_ms));
            elements.truncate(room);
        }
        if !elements.is_empty() {
            ops.push(Op::AddElements { set: set.clone(), elements });
        }
    }
    Ok(ops)
}

fn entries(connection: &mut Connection, set: &SetRef) -> Result<Vec<Element>, ReadError> {
    match connection.elements(set) {
        Ok(mut elements) => {
            elements.retain(|element| element.expiration_ms.is_none_or(|left| left > EXPIRES_SOON));
            Ok(elements)
        }
        Err(ReadError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn bytes((ip, port): (IpAddr, u16)) -> (Bytes, Bytes) {
    let mut address = Bytes::new();
    push_ip(&mut address, ip);
    (address, Bytes::from_slice(&port.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_age() {
        let entry =
            |timeout, left| Element { timeout_ms: Some(timeout), expiration_ms: Some(left), ..Element::default() };
        for (before, timeout, after) in [
            (entry(100_000, 70_000), 50_000, Some(entry(50_000, 20_000))),
            (entry(100_000, 70_000), 200_000, Some(entry(200_000, 170_000))),
            (entry(100_000, 70_000), 30_001, Some(entry(30_001, 1))),
            (entry(100_000, 70_000), 30_000, None),
            (entry(100_000, 100_000), 1_000, Some(entry(1_000, 1_000))),
        ] {
            assert_eq!(retimed(before.clone(), timeout), after, "{before:?}, {timeout}");
        }
    }
}
