//! Connection tracking (behaviour section H): which flows end with a change of the objects, by the rules alone and in
//! the kernel.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod kernel;
mod many;
mod pure;
mod runner;
mod table;
