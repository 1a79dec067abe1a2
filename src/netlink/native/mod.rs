//! svcmap's own codec: nf_tables messages written and read without a C library.

mod decode;
mod decode_expr;
mod elements;
mod expr;
mod objects;
#[cfg(test)]
mod tests;

use super::batch::Batch;
use super::codec::{Codec, EncodeError};
use super::model::{Chain, Element, Op, Rule, Set, Table};

pub use elements::element_len;
pub use objects::encoded_len;

/// The codec without dependencies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

impl Codec for Native {
    fn encode(&self, ops: &[Op], batch: &mut Batch) -> Result<(), EncodeError> {
        ops.iter().enumerate().try_for_each(|(index, op)| objects::encode(op, index, batch))
    }

    fn table(&self, message: &[u8]) -> Option<Table> {
        decode::table(message)
    }

    fn chain(&self, message: &[u8]) -> Option<Chain> {
        decode::chain(message)
    }

    fn rule(&self, message: &[u8]) -> Option<Rule> {
        decode::rule(message)
    }

    fn set(&self, message: &[u8]) -> Option<Set> {
        decode::set(message)
    }

    fn elements(&self, message: &[u8], each: &mut dyn FnMut(Element)) {
        decode::elements(message, each);
    }
}
