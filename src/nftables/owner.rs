//! Whose an element is.

use super::element::Key;
use super::names::Map;
use super::read::typed_element;
use super::rule::family_of;
use super::state::State;
use super::{lower, maps};
use crate::netlink::model::{self, Op};
use crate::netlink::{Blame, CommitError};
use crate::objects::Family;
use crate::plan::{FrontendAddress, PortId, PortName, PortPlan};

/// The Service port that the refused part of a transaction belongs to, where it belongs to one. It is that of one family: the
/// other may be as good as ever (behaviour row B10).
pub fn of_refusal(state: &State, ops: &[Op], error: &CommitError) -> Option<PortId> {
    let (CommitError::Refused { what, .. } | CommitError::Unencodable { what, .. }) = error else { return None };
    match ops.get(what.op?)? {
        Op::AddElements { set, elements } | Op::DeleteElements { set, elements } => {
            let family = family_of(set.family)?;
            let name = of_element(state, family, set.name.parse().ok()?, elements.get(what.element?)?)?;
            Some(PortId { name, family })
        }
        _ => None,
    }
}

/// What was refused, with the element's key as `nft` lists it, where it is one of ours.
pub fn subject_of_refusal(ops: &[Op], what: &Blame) -> Option<String> {
    let (verb, preposition, set, elements) = match ops.get(what.op?)? {
        Op::AddElements { set, elements } => ("add", "to", set, elements),
        Op::DeleteElements { set, elements } => ("delete", "from", set, elements),
        _ => return None,
    };
    let family = family_of(set.family)?;
    let map: Map = set.name.parse().ok()?;
    let key = typed_element(map, family, elements.get(what.element?)?)?.key;
    Some(format!("{verb} element {key} {preposition} {} {} {} {map}", maps::keyword(map), set.family.name(), set.table))
}

/// The Service port that an element belongs to: as its comment or its map's name says, or else the one that has its
/// frontend.
pub fn of_element(state: &State, family: Family, map: Map, element: &model::Element) -> Option<PortName> {
    if let Some(comment) = &element.comment {
        return Some(PortName::parse(comment));
    }
    if let Map::Affinity(id) | Map::Slots(id, _) | Map::Members(id, _) = map {
        let is_of = |port: &&PortPlan| lower::affinity(port).is_some_and(|(of, _)| of == id);
        return state.ports().filter(|port| port.id.family == family).find(is_of).map(|port| port.id.name.clone());
    }
    let key = typed_element(map, family, element)?.key;
    state.ports().filter(|port| port.id.family == family).find(|port| has(port, key)).map(|port| port.id.name.clone())
}

/// Whether a Service port has a frontend or an endpoint with this key.
fn has(port: &PortPlan, key: Key) -> bool {
    let by_address = |ip, number| {
        port.frontends.iter().any(|frontend| frontend.address.ip() == Some(ip) && frontend.address.port() == number)
    };
    match key {
        Key::Frontend(ip, protocol, number)
        | Key::FrontendSlot(ip, protocol, number, _)
        | Key::Source(ip, protocol, number, _) => protocol == port.protocol && by_address(ip, number),
        Key::NodePort(protocol, number) | Key::NodePortSlot(protocol, number, _) => {
            protocol == port.protocol && port.frontends.iter().any(|f| f.address == FrontendAddress::NodePort(number))
        }
        Key::Address(ip) => port.frontends.iter().any(|frontend| frontend.address.ip() == Some(ip)),
        Key::Pair(ip) => port.cluster.iter().chain(&port.local).any(|endpoint| endpoint.ip == ip),
        // in maps whose name says whose they are
        Key::Slot(_) | Key::Number(_) => false,
    }
}
