//! The way of a packet through the node, from hook to hook.

use std::sync::Arc;

use super::assume::Assumptions;
use super::flight::{Flight, Interface};
use super::hook::{Base, Hook, Hooks};
use super::node::{LOOPBACK, Node, Origin, Packet};
use super::refusal::{Place, Refusal, Unknown};
use super::walk::{Walk, place};
use super::way::{Learned, Outcome, Trace, Way};

/// A packet's way through a node's rules.
pub(super) struct Path<'a> {
    hooks: &'a Hooks<'a>,
    node: &'a Node,
    assumptions: &'a Assumptions,
    ways: Vec<Way>,
}

/// Takes a packet through a node's rules, where clients are remembered from packets before.
pub(super) fn follow(
    hooks: &Hooks,
    node: &Node,
    packet: &Packet,
    before: &[Learned],
    assumptions: &Assumptions,
) -> Result<Trace, Refusal> {
    let mut path = Path { hooks, node, assumptions, ways: Vec::new() };
    path.before_ip(packet)?;
    let flight = Flight { learned: before.to_vec(), ..Flight::new(packet) };
    match packet.origin {
        Origin::Node => path.is_sent(flight)?,
        Origin::Interface(_) | Origin::Somewhere => path.comes_in(flight)?,
    }
    path.ways.iter_mut().for_each(|way| drop(way.learned.drain(..before.len())));
    Ok(Trace { ways: path.ways })
}

impl Path<'_> {
    fn comes_in(&mut self, flight: Flight) -> Result<(), Refusal> {
        for flight in self.pass(Hook::Prerouting, flight)? {
            let to = flight.destination.ip();
            if to.is_loopback() {
                return Err(Refusal::routing(format!(
                    "whether the node takes packets to {to} from outside is not known"
                )));
            }
            if self.node.is_local(to) {
                self.ends_here(flight)?;
            } else {
                self.passes_on(flight)?;
            }
        }
        Ok(())
    }

    fn passes_on(&mut self, mut flight: Flight) -> Result<(), Refusal> {
        flight.outgoing = self.outgoing(&flight)?;
        flight.priority = None; // made anew from the type of service (`ip_forward`)
        for flight in self.pass(Hook::Forward, flight)? {
            for flight in self.pass(Hook::Postrouting, flight)? {
                self.deliver(flight);
            }
        }
        Ok(())
    }

    fn ends_here(&mut self, flight: Flight) -> Result<(), Refusal> {
        self.pass(Hook::Input, flight)?.into_iter().for_each(|flight| self.deliver(flight));
        Ok(())
    }

    /// What the node sends to itself comes in again through the loopback interface.
    fn is_sent(&mut self, mut flight: Flight) -> Result<(), Refusal> {
        flight.outgoing = self.outgoing(&flight)?;
        for mut flight in self.pass(Hook::Output, flight)? {
            flight.outgoing = self.outgoing(&flight)?;
            for mut flight in self.pass(Hook::Postrouting, flight)? {
                if !self.node.is_local(flight.destination.ip()) {
                    self.deliver(flight);
                    continue;
                }
                (flight.incoming, flight.outgoing) = (Interface::Named(LOOPBACK.into()), Interface::None);
                for flight in self.pass(Hook::Prerouting, flight)? {
                    self.ends_here(flight)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a packet through a hook, and returns the ways on.
    fn pass(&mut self, hook: Hook, flight: Flight) -> Result<Vec<Flight>, Refusal> {
        let passed = Walk { hooks: self.hooks, node: self.node, assumptions: self.assumptions, hook }.pass(flight)?;
        self.ways.extend(passed.ended.into_iter().map(|(flight, outcome)| flight.into_way(outcome)));
        Ok(passed.on)
    }

    fn deliver(&mut self, flight: Flight) {
        let outcome: Outcome = flight.delivered();
        self.ways.push(flight.into_way(outcome));
    }

    /// Where a packet leaves.
    fn outgoing(&self, flight: &Flight) -> Result<Interface, Refusal> {
        let to = flight.destination.ip();
        if to.is_multicast() {
            return Err(Refusal::routing(format!("{to} is a multicast address")));
        }
        let interface = self.node.route(to).map_or(Interface::Unknown, Interface::Named);
        self.bridged(&interface)?;
        Ok(interface)
    }

    /// Refuses what rules of other families see before those of IP do.
    fn before_ip(&self, packet: &Packet) -> Result<(), Refusal> {
        if let Some(Base { table, chain }) = self.hooks.ingress {
            self.passes(&place(table, chain, None), "sees packets before their addresses are looked at".into())?;
        }
        match &packet.origin {
            Origin::Node | Origin::Somewhere => Ok(()),
            Origin::Interface(name) => self.bridged(&Interface::Named(name.clone())),
        }
    }

    /// Refuses an interface that is a bridge, if there are rules for bridges.
    fn bridged(&self, interface: &Interface) -> Result<(), Refusal> {
        let Interface::Named(name) = interface else { return Ok(()) };
        let is_bridge = self.node.interface(name).is_some_and(|interface| interface.is_bridge);
        match self.hooks.bridge {
            Some(Base { table, chain }) if is_bridge => {
                self.passes(&place(table, chain, None), format!("sees the packets of the bridge {name}"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a chain that is not gone through, unless it is taken to do nothing.
    fn passes(&self, place: &Arc<Place>, why: String) -> Result<(), Refusal> {
        match self.assumptions.of(place) {
            Some(false) => Ok(()),
            _ => Err(Refusal::at(place, Unknown::Routing(why))),
        }
    }
}
