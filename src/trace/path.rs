//! The way of a packet through the node, from hook to hook.

use super::assume::Assumptions;
use super::flight::{Flight, Interface};
use super::hook::Hook;
use super::node::{LOOPBACK, Node, Origin, Packet};
use super::refusal::Refusal;
use super::ruleset::Ruleset;
use super::walk::Walk;
use super::way::{Outcome, Trace, Way};
use crate::netlink::model::NfFamily;

/// Families whose rules are not those of the IP stack: `netdev` and `bridge`.
const NETDEV: NfFamily = NfFamily(5);
const BRIDGE: NfFamily = NfFamily(7);
/// `NF_INET_INGRESS`.
const INGRESS: u32 = 5;

/// A packet's way through a node's rules.
pub(super) struct Path<'a> {
    pub ruleset: &'a Ruleset,
    pub node: &'a Node,
    pub assumptions: &'a Assumptions,
    ways: Vec<Way>,
}

/// What becomes of a packet in a node's rules.
///
/// # Errors
/// When it comes to something of which it is not known what it does; see [`Refusal`].
pub fn trace(ruleset: &Ruleset, node: &Node, packet: &Packet) -> Result<Trace, Refusal> {
    trace_assuming(ruleset, node, packet, &Assumptions::default())
}

/// The same, where it is taken for granted of some rules whether they match.
///
/// # Errors
/// As [`trace`], but not for what is taken for granted.
pub fn trace_assuming(
    ruleset: &Ruleset,
    node: &Node,
    packet: &Packet,
    assumptions: &Assumptions,
) -> Result<Trace, Refusal> {
    let mut path = Path { ruleset, node, assumptions, ways: Vec::new() };
    path.before_ip(packet)?;
    let flight = Flight::new(packet);
    match packet.origin {
        Origin::Node => path.is_sent(flight)?,
        Origin::Interface(_) | Origin::Somewhere => path.comes_in(flight)?,
    }
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
        let passed =
            Walk { ruleset: self.ruleset, node: self.node, assumptions: self.assumptions, hook }.pass(flight)?;
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
        let ingress = self.ruleset.base_chains().find(|(table, chain)| {
            let at_device = table.family == NETDEV || chain.hook.as_ref().is_some_and(|hook| hook.number == INGRESS);
            at_device && [NETDEV, NfFamily::INET].contains(&table.family)
        });
        if let Some((table, chain)) = ingress {
            let name = format!("{} {} {}", table.family.name(), table.name, chain.name);
            return Err(Refusal::routing(format!("{name} sees packets before their addresses are looked at")));
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
        match self.ruleset.base_chains().find(|(table, _)| table.family == BRIDGE) {
            Some((table, chain)) if is_bridge => Err(Refusal::routing(format!(
                "bridge {} {} sees the packets of the bridge {name}",
                table.name, chain.name
            ))),
            _ => Ok(()),
        }
    }
}
