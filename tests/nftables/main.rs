//! The dataplane against the real kernel, each test in a network namespace of its own.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod adoption;
mod affinity;
mod histories;
mod listing;
mod refusal;
mod seek;
mod seen;
mod support;
