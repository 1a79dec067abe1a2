//! What the Services of this node are doing, read from the kernel alone: whoever programmed it need not be running.
//!
//! [`reading`] takes the numbers out of the kernel, [`table`] makes rows of two readings, [`screen`] shows them live.

pub mod reading;
pub mod screen;
pub mod table;

pub use reading::{Reader, Reading};
pub use table::{Row, Sort, Table};
