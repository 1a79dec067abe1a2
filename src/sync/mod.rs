//! The daemon's loop: takes in what the source says, and keeps the kernel in step.

mod aside;
mod localnet;
mod runner;
mod stats;

pub use localnet::{NotRouted, route_loopback};
pub use runner::{Event, Periods, Runner};
pub use stats::{Latency, Stats};
