//! The daemon's loop: takes in what the source says, and keeps the kernel in step.

mod runner;

pub use runner::{Event, Runner};
