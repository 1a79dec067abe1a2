//! Whether a rule matches a packet.

use std::net::IpAddr;

use ipnet::IpNet;

use super::super::matches::{Match, Recent, Side, has_client_port, is_named, state};
use super::super::rule::Rule;
use super::super::sets::Asked;
use super::{Packet, Place, Segment, State, Walker};
use crate::explain::Client;

/// What a rule says to a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// It matches.
    Yes,
    /// It does not.
    No,
    /// It cannot be told.
    Unknown,
    /// It matches with this probability.
    Share(f64),
}

impl From<bool> for Answer {
    fn from(does: bool) -> Answer {
        if does { Answer::Yes } else { Answer::No }
    }
}

/// What is known, or the opposite of it.
fn known(does: Option<bool>, not: bool) -> Answer {
    does.map_or(Answer::Unknown, |does| (does != not).into())
}

fn is_in(ip: IpAddr, asked: Option<(IpNet, bool)>) -> bool {
    asked.is_none_or(|(net, not)| net.contains(&ip) != not)
}

impl<'a> Walker<'a> {
    /// Whether all that a rule asks for holds.
    pub(super) fn answer(&self, rule: &'a Rule, place: Place, packet: &Packet, state: &State<'a>) -> Answer {
        let to = state.way.destination;
        let fits = rule.protocol.is_none_or(|protocol| protocol == packet.protocol)
            && rule.port.is_none_or(|port| port == to.port())
            && is_in(to.ip(), rule.destination)
            && is_in(packet.source, rule.source);
        if !fits {
            return Answer::No;
        }
        let mut all = Answer::Yes;
        for one in &rule.more {
            match self.one(one, packet, state) {
                Answer::No => {
                    self.look_up(one, place);
                    return Answer::No;
                }
                Answer::Yes => {}
                Answer::Unknown => all = Answer::Unknown,
                Answer::Share(share) => all = if all == Answer::Unknown { all } else { Answer::Share(share) },
            }
        }
        all
    }

    fn one(&self, one: &Match, packet: &Packet, state: &State<'a>) -> Answer {
        let to = state.way.destination;
        let address = |side: &Side| if *side == Side::Source { packet.source } else { to.ip() };
        match one {
            Match::Never => Answer::No,
            Match::OtherThan(protocol) => (packet.protocol != *protocol).into(),
            Match::Ports(side, ranges, not) => {
                let own = ranges.iter().any(|(from, last)| (*from..=*last).contains(&to.port()));
                match side {
                    Side::Destination => (own != *not).into(),
                    Side::Source => known(has_client_port(ranges), *not),
                    Side::Both => known(if own { Some(true) } else { has_client_port(ranges) }, *not),
                }
            }
            Match::Addresses(side, range, not) => (((range.0)..=(range.1)).contains(&address(side)) != *not).into(),
            Match::In(name, not) => known(incoming(name, packet, state.segment), *not),
            Match::Out(name, not) => known(self.outgoing(name, to.ip()), *not),
            Match::Local(Side::Source, not) => ((packet.from == Client::Node) != *not).into(),
            Match::Local(_, not) => ((self.ground.is_local)(to.ip()) != *not).into(),
            Match::State(bits, not) => ((bits & states(packet, state) != 0) != *not).into(),
            Match::FirstDestination(net, not) => (net.contains(&packet.destination.ip()) != *not).into(),
            Match::FirstPort(from, last, not) => ((*from..=*last).contains(&packet.destination.port()) != *not).into(),
            Match::Mark(value, mask, not) => ((state.way.mark & mask == *value) != *not).into(),
            Match::Set(name, sides, not) => {
                let asked = Asked { protocol: packet.protocol, source: packet.source, destination: to };
                known(self.world.sets.holds(name, sides, &asked), *not)
            }
            Match::Share(share) if *share <= 0.0 => Answer::No,
            Match::Share(share) => Answer::Share(share.min(1.0)),
            Match::Recent(_, Recent::Set, _) => Answer::Yes,
            // a new client is in no list
            Match::Recent(_, _, not) => (*not).into(),
            Match::Unknown => Answer::Unknown,
        }
    }

    /// Whether a packet to an address leaves through an interface.
    fn outgoing(&self, name: &str, to: IpAddr) -> Option<bool> {
        if (self.ground.is_local)(to) {
            return Some(is_named(name, "lo"));
        }
        match (self.ground.route)(to) {
            Some(interface) => Some(is_named(name, &interface)),
            None => (name == "lo").then_some(false),
        }
    }
}

/// Whether a packet came in through an interface. What the node sends has none, until it comes back to it.
fn incoming(name: &str, packet: &Packet, segment: Segment) -> Option<bool> {
    if packet.from == Client::Node {
        return Some(segment == Segment::Input && is_named(name, "lo"));
    }
    match &packet.interface {
        Some(interface) => Some(is_named(name, interface)),
        None => (name == "lo" || packet.other_interface.as_deref() == Some(name)).then_some(false),
    }
}

/// The bits of a packet's connection.
fn states(packet: &Packet, state: &State) -> u8 {
    if packet.is_answer {
        return state::ESTABLISHED;
    }
    if !state.is_tracked {
        return state::UNTRACKED;
    }
    let dnat = if state.way.translated.is_some_and(|by| by.is_some()) { state::DNAT } else { 0 };
    state::NEW | dnat
}
