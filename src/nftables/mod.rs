//! The plan as nftables maps: one private table per family, chains that are shared by all Services, and Services only
//! as elements of maps and sets.
//!
//! [`lower`] turns a Service port's plan into elements, [`chains`] says what the chains do, [`state`] remembers what
//! is programmed and turns a change of the plan into a [`transaction`] as small as the change. [`text`] writes the
//! same as an `nft` script, [`read`] reads the kernel back, [`program`] does the sending.

pub mod chains;
pub mod clients;
pub mod counts;
pub mod cut;
pub mod decode;
pub mod differences;
pub mod element;
mod fill;
pub mod guard;
pub mod lower;
pub mod maps;
pub mod names;
pub mod numbers;
pub mod owner;
pub mod ports;
pub mod program;
pub mod ranges;
pub mod read;
pub mod rule;
mod schedule;
pub mod seek;
mod send;
pub mod shapes;
pub mod slots;
pub mod state;
pub mod text;
pub mod transaction;
mod unused;
