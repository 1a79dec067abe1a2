//! Counts of new connections: read, and kept where a table is made again.

use std::collections::HashMap;

use super::names::Map;
use super::transaction::set_ref;
use crate::netlink::model::{Bytes, Element, Op, SetRef};
use crate::netlink::{Connection, ReadError};
use crate::objects::Family;
use crate::plan::PortName;

/// New connections to each Service port since its counters were made, both families together; nothing where nothing counts.
///
/// # Errors
/// Those of reading.
pub fn read(connection: &mut Connection) -> Result<HashMap<PortName, u64>, ReadError> {
    let mut counts = HashMap::new();
    for family in Family::BOTH {
        for map in [Map::Connections, Map::NodePortConnections] {
            let elements = match connection.elements(&set_ref(family, map)) {
                Ok(elements) => elements,
                Err(ReadError::NotFound(_)) => continue,
                Err(error) => return Err(error),
            };
            for element in elements {
                if let (Some(comment), Some((packets, _))) = (element.comment.as_deref(), element.counter) {
                    *counts.entry(PortName::parse(comment)).or_insert(0) += packets;
                }
            }
        }
    }
    Ok(counts)
}

/// Gives the elements that a transaction adds to the sets the counts that those of the same key and Service port have
/// now. What is counted between this and the commit, a fraction of a millisecond, is missing.
///
/// # Errors
/// Those of reading; in a set that is not there nothing was counted.
pub fn carry(connection: &mut Connection, sets: &[SetRef], ops: &mut [Op]) -> Result<(), ReadError> {
    for set in sets {
        let elements = match connection.elements(set) {
            Ok(elements) => elements,
            Err(ReadError::NotFound(_)) => continue,
            Err(error) => return Err(error),
        };
        let before: HashMap<Bytes, Element> =
            elements.into_iter().map(|element| (element.key.clone(), element)).collect();
        let added = ops.iter_mut().filter_map(|op| match op {
            Op::AddElements { set: to, elements } if to == set => Some(elements),
            _ => None,
        });
        for element in added.flatten() {
            if let Some(old) = before.get(&element.key).filter(|old| old.comment == element.comment) {
                element.counter = old.counter;
            }
        }
    }
    Ok(())
}
