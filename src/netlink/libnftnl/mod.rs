//! The codec over the C library libnftnl, by way of the crates nftnl, nftnl-sys and mnl: the same transactions, the
//! same objects.
//!
//! What the library cannot write, and is refused before anything is sent: expressions kept raw ([`Expr::Raw`]), names
//! over 255 bytes, keys and values over 64 bytes, keys of more than 16 parts, rules and sets that take over 32 KiB. What
//! it cannot read, such as a rule with an expression that it does not know, is read by the native codec.
//!
//! Only the kernel's messages may be read with it: the library trusts them, and ends the process at an attribute that
//! has another length than it expects. The native codec takes any bytes.
//!
//! [`Expr::Raw`]: super::model::Expr::Raw

mod exprs;
mod ffi;
mod read;
#[cfg(test)]
mod tests;
mod write;

use super::batch::Batch;
use super::codec::{Codec, EncodeError};
use super::model::{Chain, Element, Op, Rule, Set, Table};
use super::native::Native;

/// The codec over libnftnl.
#[derive(Clone, Copy, Debug, Default)]
pub struct Libnftnl;

impl Codec for Libnftnl {
    fn encode(&self, ops: &[Op], batch: &mut Batch) -> Result<(), EncodeError> {
        write::encode(ops, batch)
    }

    fn table(&self, message: &[u8]) -> Option<Table> {
        read::table(message).or_else(|| Native.table(message))
    }

    fn chain(&self, message: &[u8]) -> Option<Chain> {
        read::chain(message).or_else(|| Native.chain(message))
    }

    fn rule(&self, message: &[u8]) -> Option<Rule> {
        read::rule(message).or_else(|| Native.rule(message))
    }

    fn set(&self, message: &[u8]) -> Option<Set> {
        read::set(message).or_else(|| Native.set(message))
    }

    fn elements(&self, message: &[u8], each: &mut dyn FnMut(Element)) {
        match read::elements(message) {
            Some(elements) => elements.into_iter().for_each(each),
            None => Native.elements(message, each),
        }
    }
}
