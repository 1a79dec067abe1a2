//! A ruleset said in terms of Services, whoever made it.
//!
//! [`ports`] is what is said: Service ports with their frontends and endpoints, without anything of a layout.
//! [`readers`] has a reader for each layout, [`live`] reads what this network namespace has in all of them, [`mod@compare`]
//! tells two readings apart, [`findings`] looks for what is wrong with one, and [`mod@write`] prints it. [`follow`] takes clients
//! through the rules to every frontend, and holds what becomes of them against what was read.

mod clients;
pub mod compare;
mod deviation;
mod diverted;
pub mod findings;
pub mod follow;
pub mod live;
pub mod ports;
mod promise;
pub mod readers;
pub mod write;
pub mod xtables;

pub use compare::{Difference, compare, in_layouts};
pub use findings::{Finding, Kind};
pub use ports::{Drawn, Frontend, Port, Who};
pub use readers::{Layout, Reading, read};
