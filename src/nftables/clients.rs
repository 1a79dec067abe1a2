//! What the kernel learned of clients with session affinity.
//!
//! Rules write these maps, not svcmap; it only gives entries another life where the timeout is edited (behaviour row D8),
//! and carries them over where a table is made again (row D6).

use std::cmp::Reverse;

use super::maps;
use super::transaction::Retime;
use crate::netlink::model::{Element, Op, SetRef};
use crate::netlink::{Connection, ReadError};

/// Entries that live no longer than this are left to expire by themselves, in milliseconds: one that expired in the
/// meantime cannot be deleted. Longer than it takes to make and to commit the transaction, unless there are many.
pub const EXPIRES_SOON: u64 = 100;

/// What gives the entries of maps another timeout, but for those that expire within so many milliseconds.
///
/// # Errors
/// Those of reading; a map that is not there holds no clients.
pub fn retime(connection: &mut Connection, maps: &[Retime], soon: u64) -> Result<Vec<Op>, ReadError> {
    let mut ops = Vec::new();
    for Retime { set, seconds } in maps {
        let entries = entries(connection, set, soon)?;
        if entries.is_empty() {
            continue;
        }
        let keys = entries.iter().map(|entry| Element { key: entry.key.clone(), ..Element::default() }).collect();
        ops.push(Op::DeleteElements { set: set.clone(), elements: keys });
        let timeout = u64::from(*seconds) * 1000;
        let elements = entries.into_iter().filter_map(|entry| retimed(entry, timeout)).collect();
        ops.push(Op::AddElements { set: set.clone(), elements });
    }
    Ok(ops)
}

/// An entry under another timeout, in milliseconds; none if it would have expired by now.
fn retimed(entry: Element, timeout: u64) -> Option<Element> {
    let age = entry.timeout_ms.unwrap_or_default().saturating_sub(entry.expiration_ms.unwrap_or_default());
    let left = timeout.checked_sub(age).filter(|left| *left > 0)?;
    Some(Element { timeout_ms: Some(timeout), expiration_ms: Some(left), ..entry })
}

/// The entries of maps that are about to be made again by `making`, to be added to the new ones: those that were last
/// refreshed, where the new ones hold fewer.
///
/// # Errors
/// Those of reading.
pub fn carried(connection: &mut Connection, maps: &[SetRef], making: &[Op]) -> Result<Vec<Op>, ReadError> {
    let mut ops = Vec::new();
    for set in maps {
        let made = making.iter().find_map(|op| match op {
            Op::AddSet(made) if made.name == set.name && made.family == set.family => Some(made),
            _ => None,
        });
        let Some(made) = made else { continue };
        let mut elements = entries(connection, set, EXPIRES_SOON)?;
        let room = maps::affinity_size(made.size) as usize;
        if elements.len() > room {
            elements.sort_unstable_by_key(|entry| Reverse(entry.expiration_ms));
            elements.truncate(room);
        }
        elements.iter_mut().for_each(be_consistent);
        if !elements.is_empty() {
            ops.push(Op::AddElements { set: set.clone(), elements });
        }
    }
    Ok(ops)
}

/// Where a longer timeout came later, a refreshed entry has more time left than its own timeout says, and kernels refuse
/// to add such a one.
fn be_consistent(entry: &mut Element) {
    if let (Some(timeout), Some(left)) = (&mut entry.timeout_ms, entry.expiration_ms) {
        *timeout = left.max(*timeout);
    }
}

fn entries(connection: &mut Connection, set: &SetRef, soon: u64) -> Result<Vec<Element>, ReadError> {
    match connection.elements(set) {
        Ok(mut elements) => {
            elements.retain(|element| element.expiration_ms.is_none_or(|left| left > soon));
            Ok(elements)
        }
        Err(ReadError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
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

    #[test]
    fn no_entry_lives_longer_than_its_timeout() {
        for (timeout, left, after) in [(500, 400, 500), (500, 500, 500), (500, 2000, 2000)] {
            let mut entry = Element { timeout_ms: Some(timeout), expiration_ms: Some(left), ..Element::default() };
            be_consistent(&mut entry);
            assert_eq!((entry.timeout_ms, entry.expiration_ms), (Some(after), Some(left)));
        }
    }
}
