//! The cluster source against an API server of its own that lists, watches, and misbehaves.

mod access;
mod events;
mod fake;
mod lists;
mod memory;
mod model;
mod query;
mod trouble;
