//! Whose an element is.

use std::net::IpAddr;

use hashbrown::HashMap;

use super::element::Key;
use super::names::{AffinityId, Map};
use super::read::typed_element;
use super::rule::family_of;
use super::state::State;
use super::{lower, maps};
use crate::netlink::model::{self, Op};
use crate::netlink::{Blame, CommitError};
use crate::objects::{Family, Protocol};
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

/// The Service port that an element belongs to: as its comment says, or else the one that has what it is about.
pub fn of_element(state: &State, family: Family, map: Map, element: &model::Element) -> Option<PortName> {
    match Sought::by(family, map, element)? {
        Sought::Name(name) => Some(name),
        Sought::Holder(of) => {
            let mut ports = state.ports().filter(|port| port.id.family == family);
            ports.find(|port| holdings(port).any(|held| held == of)).map(|port| port.id.name.clone())
        }
    }
}

/// The Service ports of a state by what their elements are about: for asking often.
pub struct Owners<'a>(HashMap<(Family, Holding), &'a PortName>);

impl<'a> Owners<'a> {
    /// Those of a state.
    pub fn of(state: &'a State) -> Owners<'a> {
        let mut owners = HashMap::new();
        for port in state.ports() {
            for holding in holdings(port) {
                owners.entry((port.id.family, holding)).or_insert(&port.id.name);
            }
        }
        Owners(owners)
    }

    /// What [`of_element`] says.
    pub fn of_element(&self, family: Family, map: Map, element: &model::Element) -> Option<PortName> {
        match Sought::by(family, map, element)? {
            Sought::Name(name) => Some(name),
            Sought::Holder(of) => self.0.get(&(family, of)).copied().cloned(),
        }
    }
}

/// What an element can be about, of which one Service port has each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holding {
    Frontend(IpAddr, Protocol, u16),
    NodePort(Protocol, u16),
    Address(IpAddr),
    Endpoint(IpAddr),
    Clients(AffinityId),
}

/// How the owner of an element is found.
enum Sought {
    Name(PortName),
    Holder(Holding),
}

impl Sought {
    fn by(family: Family, map: Map, element: &model::Element) -> Option<Sought> {
        if let Some(comment) = &element.comment {
            return Some(Sought::Name(PortName::parse(comment)));
        }
        if let Map::Affinity(id) | Map::Slots(id, _) | Map::Members(id, _) = map {
            return Some(Sought::Holder(Holding::Clients(id)));
        }
        Some(Sought::Holder(match typed_element(map, family, element)?.key {
            Key::Frontend(ip, protocol, port)
            | Key::FrontendSlot(ip, protocol, port, _)
            | Key::Source(ip, protocol, port, _) => Holding::Frontend(ip, protocol, port),
            Key::NodePort(protocol, port) | Key::NodePortSlot(protocol, port, _) => Holding::NodePort(protocol, port),
            Key::Address(ip) => Holding::Address(ip),
            Key::Pair(ip) => Holding::Endpoint(ip),
            // in maps whose name says whose they are
            Key::Slot(_) | Key::Number(_) => return None,
        }))
    }
}

fn holdings(port: &PortPlan) -> impl Iterator<Item = Holding> + '_ {
    let of_frontend = |address: FrontendAddress| match address.ip() {
        Some(ip) => [Some(Holding::Frontend(ip, port.protocol, address.port())), Some(Holding::Address(ip))],
        None => [Some(Holding::NodePort(port.protocol, address.port())), None],
    };
    let frontends = port.frontends.iter().flat_map(move |frontend| of_frontend(frontend.address)).flatten();
    let endpoints = port.cluster.iter().chain(&port.local).map(|endpoint| Holding::Endpoint(endpoint.ip));
    let clients = lower::affinity(port).map(|(id, _)| Holding::Clients(id));
    frontends.chain(endpoints).chain(clients)
}
