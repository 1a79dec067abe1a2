//! A packet under way: what it is by now, and what the kernel knows of its connection.

use std::net::{IpAddr, SocketAddr};

use super::hook::Manip;
use super::node::{Origin, Packet};
use super::share::Share;
use super::way::{Learned, Outcome, Source, Step, Way};
use crate::netlink::model::{Name, NfFamily};
use crate::objects::Protocol;

/// `IPS_CONFIRMED` and the others of `linux/netfilter/nf_conntrack_common.h`.
pub(super) mod status {
    pub const CONFIRMED: u32 = 1 << 3;
    pub const SRC_NAT: u32 = 1 << 4;
    pub const DST_NAT: u32 = 1 << 5;
    pub const SRC_NAT_DONE: u32 = 1 << 7;
    pub const DST_NAT_DONE: u32 = 1 << 8;
}

/// A packet under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub share: Share,
    pub family: NfFamily,
    pub protocol: Protocol,
    /// As it was sent.
    pub original: Tuple,
    /// As it is now.
    pub source: Source,
    /// The address that took the sender's place, while a rule is tried with each that it may be.
    pub chosen: Option<IpAddr>,
    /// None where nothing is known of it.
    pub source_port: Option<u16>,
    pub destination: SocketAddr,
    pub mark: u32,
    /// None where nothing is known of it: the sender may have set it, or the kernel from other fields.
    pub priority: Option<u32>,
    pub incoming: Interface,
    pub outgoing: Interface,
    pub tracking: Tracking,
    pub status: u32,
    /// Bits of the status that are not known.
    pub status_unknown: u32,
    pub connection_mark: u32,
    /// Whether a rule translated it, be it to the same address.
    pub translated: bool,
    pub steps: Vec<Step>,
    pub learned: Vec<Learned>,
}

/// Who sent a packet where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuple {
    pub source: IpAddr,
    pub source_port: Option<u16>,
    pub destination: SocketAddr,
}

/// An interface as a hook knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    /// There is none.
    None,
    Named(Name),
    /// There is one, and nothing is known of it.
    Unknown,
}

/// What connection tracking knows of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracking {
    /// It has not met it yet.
    NotYet,
    /// It is the first packet of a new connection.
    New,
    /// A rule said that it shall be passed over.
    Untracked,
}

impl Flight {
    pub fn new(packet: &Packet) -> Flight {
        let Packet { protocol, source, source_port, destination, ref origin } = *packet;
        Flight {
            share: Share::ALL,
            family: packet.family(),
            protocol,
            original: Tuple { source, source_port, destination },
            source: Source::Kept,
            chosen: None,
            source_port,
            destination,
            mark: 0,
            priority: None,
            incoming: match origin {
                Origin::Node => Interface::None,
                Origin::Interface(name) => Interface::Named(name.clone()),
                Origin::Somewhere => Interface::Unknown,
            },
            outgoing: Interface::None,
            tracking: Tracking::NotYet,
            status: 0,
            status_unknown: 0,
            connection_mark: 0,
            translated: false,
            steps: Vec::new(),
            learned: Vec::new(),
        }
    }

    /// The source address as it is now; none where the kernel chooses one of the node's.
    pub fn source_ip(&self) -> Option<IpAddr> {
        match self.source {
            Source::Kept => Some(self.original.source),
            Source::Masqueraded => self.chosen,
            Source::Address(ip) => Some(ip),
        }
    }

    /// Whether NAT has decided on an address.
    pub fn is_decided(&self, manip: Manip) -> bool {
        self.status & done(manip) != 0
    }

    /// NAT has decided on an address.
    pub fn decide(&mut self, manip: Manip) {
        self.status |= done(manip);
    }

    /// Whether it is the same packet on the same way, whatever the share.
    pub fn is_as(&self, other: &Flight) -> bool {
        *self == Flight { share: self.share, ..other.clone() }
    }

    /// The same packet, whatever the way here.
    pub fn without_steps(&self) -> Flight {
        Flight { steps: Vec::new(), ..self.clone() }
    }

    /// What becomes of it if nothing more happens to it.
    pub fn delivered(&self) -> Outcome {
        if self.translated {
            Outcome::Delivered { to: self.destination, source: self.source }
        } else {
            Outcome::Untouched
        }
    }

    pub fn into_way(self, outcome: Outcome) -> Way {
        Way { share: self.share, steps: self.steps, outcome, learned: self.learned }
    }
}

fn done(manip: Manip) -> u32 {
    match manip {
        Manip::Source => status::SRC_NAT_DONE,
        Manip::Destination => status::DST_NAT_DONE,
    }
}
