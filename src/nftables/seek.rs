//! The endpoints of large clusters, found by their keys.
//!
//! The verdicts say which chains they lead to, and a chain's name says how many slots it picks from: so the keys of all
//! endpoints are known before any is read. The kernel tells how many there are in all; where it has others, or lacks some, all
//! are listed, as they are where the map is small or the kernel does not tell.

use std::collections::BTreeSet;

use super::chains::{self, LOCAL_SLOTS};
use super::element::{Element, Key, Value};
use super::names::{Chain, Map, Side};
use super::shapes;
use super::transaction::set_ref;
use crate::netlink::model::{self, Bytes};
use crate::netlink::{Connection, ReadError, Sink};
use crate::objects::Family;
use crate::plan::PoolKind;

/// From so many elements on, listing a map takes the kernel longer than finding each of them.
pub const LARGE: u32 = 100_000;

/// The slots that a frontend's packets may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slots {
    frontend: Key,
    pool: PoolKind,
    size: u32,
}

impl Slots {
    /// What the verdicts of one side lead to.
    pub fn of(side: Side, verdicts: &[Element]) -> BTreeSet<Slots> {
        let maps = match side {
            Side::Address => [Map::Services, Map::ShortCircuit],
            Side::NodePort => [Map::NodePorts, Map::NodePortShortCircuit],
        };
        let mut slots = BTreeSet::new();
        for verdict in verdicts.iter().filter(|verdict| maps.contains(&verdict.map)) {
            let Value::Goto(chain) = verdict.value else { continue };
            for picking in std::iter::once(chain).chain(chains::references(chain)) {
                if let Chain::Pick(of, pool, size) = picking
                    && of == side
                {
                    slots.insert(Slots { frontend: verdict.key, pool, size });
                }
            }
        }
        slots
    }

    fn keys(self) -> impl Iterator<Item = Bytes> {
        let Slots { frontend, pool, size } = self;
        let first = match pool {
            PoolKind::Cluster => 0,
            PoolKind::Local => LOCAL_SLOTS,
        };
        let key = move |slot| match frontend {
            Key::Frontend(ip, protocol, port) => Some(Key::FrontendSlot(ip, protocol, port, slot)),
            Key::NodePort(protocol, port) => Some(Key::NodePortSlot(protocol, port, slot)),
            _ => None,
        };
        (first..first.saturating_add(size)).filter_map(key).map(|key| key.to_bytes().0)
    }
}

/// The map that the picking chains of one side look up.
pub fn map_of(side: Side) -> Map {
    match side {
        Side::Address => Map::Endpoints,
        Side::NodePort => Map::NodePortEndpoints,
    }
}

/// Passes all elements of one side's map on, where they are exactly those in the slots. Else the answer is no, what came is void,
/// and the map has to be listed.
///
/// # Errors
/// Those of reading.
pub fn endpoints(
    connection: &mut Connection,
    (family, side): (Family, Side),
    slots: &BTreeSet<Slots>,
    sink: &mut dyn Sink<Item = model::Element>,
) -> Result<bool, ReadError> {
    let set = set_ref(family, map_of(side));
    let generation = connection.generation()?;
    let Some(count) = connection.element_count(&set)? else { return Ok(false) };
    // a name may say anything, where somebody else wrote it
    if slots.iter().map(|slots| u64::from(slots.size)).sum::<u64>() > 2 * u64::from(count) {
        return Ok(false);
    }
    let mut found = 0;
    let mut each = |element| {
        found += 1;
        sink.push(element);
    };
    let is_exact = |slots: &&Slots| shapes::is_exact(slots.size);
    let keys = slots.iter().filter(is_exact).flat_map(|slots| slots.keys());
    let mut is_whole = connection.find_elements(&set, keys, &mut each)?;
    for slots in slots.iter().filter(|slots| !is_exact(slots)) {
        // the last ones of such a shape may be empty
        connection.find_elements(&set, slots.keys(), &mut each)?;
    }
    is_whole &= found == count && connection.generation()? == generation;
    if !is_whole {
        sink.reset();
    }
    Ok(is_whole)
}
