//! The daemon's loop against the kernel: when it syncs, what it notices, and what it does with what is refused.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod periods;
mod refused;
mod support;
