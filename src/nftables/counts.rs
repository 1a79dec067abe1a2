//! Counts of new connections where a table is made again.

use std::collections::HashMap;

use crate::netlink::model::{Bytes, Element, Op, SetRef};
use crate::netlink::{Connection, ReadError};

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
