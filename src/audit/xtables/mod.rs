//! Rules of iptables, and where a packet goes through them.
//!
//! [`tables`] reads what `iptables-save` printed into [`rule`]s with their [`mod@matches`], [`sets`] what `ipset save` did;
//! [`walk`] follows a packet through them; [`mod@check`] compares what becomes of packets of [`clients`] with what is
//! [`mod@expected`] of the Services that were read, and [`cause`] says why it differs.

pub mod cause;
pub mod check;
pub mod clients;
pub mod expected;
pub mod jumps;
pub mod matches;
pub mod rule;
pub mod sets;
mod shared;
pub mod tables;
pub mod walk;
mod words;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::objects::Protocol;

pub use check::{check, limits};
pub use rule::{Action, Rule};
pub use sets::Sets;
pub use tables::{Table, Tables};

/// The virtual servers of IPVS: their real servers, with their weights.
pub type Servers = BTreeMap<(Protocol, SocketAddr), Vec<(SocketAddr, u32)>>;

/// All that a packet may meet beside nftables.
#[derive(Debug, Default)]
pub struct World {
    /// The tables, of one make of iptables after the other.
    pub layers: Vec<Tables>,
    /// The sets.
    pub sets: Sets,
    /// The virtual servers.
    pub servers: Servers,
}

impl World {
    /// Adds all of another.
    pub fn merge(&mut self, other: World) {
        self.layers.extend(other.layers);
        self.sets.merge(other.sets);
        self.servers.extend(other.servers);
    }
}
