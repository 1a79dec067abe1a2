//! The netlink layer against the running kernel, in namespaces of its own, with every codec that is built in.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod round_trip;
mod ruleset;
mod transactions;
