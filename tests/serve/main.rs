//! What the daemon tells over HTTP (behaviour sections I and K), asked of a real process in a network namespace.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod checks;
mod client;
mod configuration;
mod daemon;
mod ending;
mod exposition;
mod host;
mod metrics;
mod page;
mod probes;
