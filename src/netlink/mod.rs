//! nf_tables over netlink: objects and expressions, two codecs that put them on the wire, and the socket.
//!
//! This module knows nothing of Services. It is the only one with `unsafe`.

pub mod model;
