//! The tracer on rulesets that the kernel holds: svcmap's own, and whatever others write.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod listed;
mod refusals;
mod rules;
mod same;
mod support;
