//! libnftnl's objects as Rust values: each frees what it owns, and an attribute can only be set to, and read as, the
//! type that the library keeps it as. Safe to use from outside; all calls into the library are in here.

#![allow(unsafe_code)]

mod attributes;
mod message;
mod object;

pub use attributes::*;
pub use message::{Add, Assembly, Message, Subject};
pub use object::{AnyExpr, Chain, Element, Expr, Kind, Object, OwnedExpr, Rule, Set, Table, Text, U32};
