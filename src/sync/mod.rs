//! The daemon's loop: takes in what the source says, and keeps the kernel in step.

mod localnet;
mod runner;

pub use localnet::{NotRouted, route_loopback};
pub use runner::{Event, Runner};
