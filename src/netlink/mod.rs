//! nf_tables over netlink: objects and expressions, two codecs that put them on the wire, and the socket; beside it,
//! what is needed of connection tracking and of network interfaces, and the little else that takes `unsafe`.
//!
//! This module knows nothing of Services. It is the only one with `unsafe`.

#[cfg(test)]
mod arbitrary;
pub mod attr;
pub mod batch;
pub mod canonical;
pub mod codec;
pub mod connection;
pub mod conntrack;
pub mod dummy;
pub mod error;
pub mod heap;
pub mod ipvs;
#[cfg(feature = "libnftnl")]
pub mod libnftnl;
pub mod link;
mod lookup;
pub mod message;
pub mod model;
pub mod monitor;
pub mod native;
pub mod read;
pub mod requests;
pub mod route;
pub mod sys;
pub mod uapi;
pub mod userdata;

pub use codec::{Codec, CodecKind};
pub use connection::{BATCH_BYTES, Commit, Connection, batch_bytes};
pub use error::{Blame, CommitError, ReadError, Refusal};
pub use read::Sink;
