//! The endpoints of large clusters, found by their keys.
//!
//! The verdicts say which chains they lead to, and a chain's name says how many slots it picks from: so the keys of all
//! endpoints are known before any is read. The kernel tells how many there are in all; where it has others, or lacks some, all
//! are listed, as they are where the map is small or the kernel does not tell.

use std::collections::BTreeMap;

use super::chains;
use super::element::{Element, Key, Value};
use super::names::{Chain, Map, Side};
use super::shapes;
use super::transaction::set_ref;
use crate::netlink::model::{self, Bytes, SetRef};
use crate::netlink::{Connection, ReadError, Sink};
use crate::objects::Family;
use crate::plan::PoolKind;

/// From so many elements on, listing a map takes the kernel longer than finding each of them.
pub const LARGE: u32 = 100_000;

/// How many slots a frontend's packets may be sent to in each pool. Where verdicts say different numbers, the largest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(BTreeMap<(Key, PoolKind), u32>);

impl Slots {
    /// What the verdicts of one side lead to.
    pub fn of(side: Side, verdicts: &[Element]) -> Slots {
        let maps = match side {
            Side::Address => [Map::Services, Map::ShortCircuit],
            Side::NodePort => [Map::NodePorts, Map::NodePortShortCircuit],
        };
        let mut slots = Slots::default();
        for verdict in verdicts.iter().filter(|verdict| maps.contains(&verdict.map)) {
            let Value::Goto(chain) = verdict.value else { continue };
            for picking in std::iter::once(chain).chain(chains::references(chain)) {
                if let Chain::Pick(of, pool, size) = picking
                    && of == side
                {
                    let known = slots.0.entry((verdict.key, pool)).or_default();
                    *known = size.max(*known);
                }
            }
        }
        slots
    }

    /// How many there are in all.
    fn count(&self) -> u64 {
        self.0.values().copied().map(u64::from).sum()
    }

    /// The keys of each pool's slots, of shapes that have no empty ones, or of the others.
    fn keys(&self, is_exact: bool) -> impl Iterator<Item = impl Iterator<Item = Bytes>> {
        let slots = self.0.iter().filter(move |(_, size)| shapes::is_exact(**size) == is_exact);
        slots.map(|(&(frontend, pool), &size)| keys(frontend, pool, size))
    }
}

fn keys(frontend: Key, pool: PoolKind, size: u32) -> impl Iterator<Item = Bytes> {
    let first = chains::first_slot(pool);
    let key = move |slot| match frontend {
        Key::Frontend(ip, protocol, port) => Some(Key::FrontendSlot(ip, protocol, port, slot)),
        Key::NodePort(protocol, port) => Some(Key::NodePortSlot(protocol, port, slot)),
        _ => None,
    };
    (first..first.saturating_add(size)).filter_map(key).map(|key| key.to_bytes().0)
}

/// Passes all elements of one side's map on, where they are exactly those in the slots. Else the answer is no, what came is void,
/// and the map has to be listed: that also is what becomes of one that the kernel does not look such keys up in.
///
/// # Errors
/// Those of the socket.
pub fn endpoints(
    connection: &mut Connection,
    (family, side): (Family, Side),
    slots: &Slots,
    sink: &mut dyn Sink<Item = model::Element>,
) -> Result<bool, ReadError> {
    match found_exactly(connection, &set_ref(family, side.endpoints()), slots, sink) {
        Ok(true) => Ok(true),
        Ok(false) | Err(ReadError::Refused { .. } | ReadError::NotFound(_)) => {
            sink.reset();
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn found_exactly(
    connection: &mut Connection,
    set: &SetRef,
    slots: &Slots,
    sink: &mut dyn Sink<Item = model::Element>,
) -> Result<bool, ReadError> {
    let generation = connection.generation()?;
    let Some(count) = connection.element_count(set)? else { return Ok(false) };
    // a name may say anything, where somebody else wrote it; and the kernel does not count what answers for all keys
    if slots.count() > 2 * u64::from(count) || connection.has_catch_all(set)? {
        return Ok(false);
    }
    let mut found = 0;
    let mut each = |element| {
        found += 1;
        sink.push(element);
    };
    if !connection.find_elements(set, slots.keys(true).flatten(), &mut each)? {
        return Ok(false);
    }
    for keys in slots.keys(false) {
        // the last ones of such a shape may be empty
        connection.find_elements(set, keys, &mut each)?;
    }
    Ok(found == count && connection.generation()? == generation)
}
