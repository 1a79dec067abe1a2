//! What the kernel learned of clients with session affinity.
//!
//! Rules write these maps, not svcmap; it only takes entries out whose endpoint is gone (behaviour row D4), and
//! carries them over where a table is made again (row D6).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::element::push_ip;
use super::maps::affinity_maps;
use super::transaction::{Forget, set_ref};
use crate::netlink::model::{Bytes, Data, Element, Op, SetRef};
use crate::netlink::{Connection, ReadError};

/// Entries that live no longer than this are left to expire by themselves, in milliseconds: one that expired in the
/// meantime cannot be deleted.
const EXPIRES_SOON: u64 = 1000;

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

/// The entries of maps that are about to be made again, to be added to the new ones.
///
/// # Errors
/// Those of reading.
pub fn carried(connection: &mut Connection, maps: &[SetRef]) -> Result<Vec<Op>, ReadError> {
    let mut ops = Vec::new();
    for set in maps {
        let elements = entries(connection, set)?;
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
