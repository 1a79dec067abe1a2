//! A small cluster in network namespaces, without root: what `svcmap demo`, the packet tests and the benchmarks run in.
//!
//! A process calls [`enter`] before it has threads; then it may make any number of [`Lab`]s. Each has a node, pods on
//! it, another node, clients outside and the rest of the world, every one in a network namespace of its own. Nothing
//! of it is seen outside the process, and all of it is gone when the process ends.

mod client;
mod cost;
mod enter;
mod memory;
mod namespace;
mod sctp;
mod server;
mod topology;

use std::net::SocketAddr;

pub use client::{Answer, Conversation, Outcome, probe};
pub use cost::{Rounds, Spent, Stopwatch, median};
pub use enter::{EnterError, enter, enter_network};
pub use memory::{kernel_memory, settled_kernel_memory};
pub use namespace::Namespace;
pub use server::Server;
pub use topology::{Lab, Place};

use crate::objects::Protocol;

/// What a server answers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listen {
    /// Over which protocol.
    pub protocol: Protocol,
    /// At which address and port.
    pub address: SocketAddr,
}
