//! What turns operations into bytes, and the kernel's messages into objects.

use std::fmt;
use std::str::FromStr;

use super::batch::Batch;
use super::model::{Chain, Element, Op, Rule, Set, Table};
use super::native::Native;

/// One way to write and read nf_tables messages. All of them write the same transactions and read the same objects.
pub trait Codec: Send + fmt::Debug {
    /// Adds the messages of `ops` to a batch that has begun.
    fn encode(&self, ops: &[Op], batch: &mut Batch) -> Result<(), EncodeError>;
    /// Reads `NFT_MSG_NEWTABLE`. Like the others: nothing for what is no such message; what it does not know it passes
    /// over.
    fn table(&self, message: &[u8]) -> Option<Table>;
    /// Reads `NFT_MSG_NEWCHAIN`.
    fn chain(&self, message: &[u8]) -> Option<Chain>;
    /// Reads `NFT_MSG_NEWRULE`.
    fn rule(&self, message: &[u8]) -> Option<Rule>;
    /// Reads `NFT_MSG_NEWSET`.
    fn set(&self, message: &[u8]) -> Option<Set>;
    /// Reads the elements of `NFT_MSG_NEWSETELEM`.
    fn elements(&self, message: &[u8], each: &mut dyn FnMut(Element));
}

/// An operation that cannot be put into messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeError {
    /// Its index.
    pub op: usize,
    /// The element within it, where it is one.
    pub element: Option<usize>,
    /// Why not.
    pub why: String,
}

/// Which codec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CodecKind {
    /// svcmap's own.
    #[default]
    Native,
    /// The C library's, see [`libnftnl`](super::libnftnl).
    #[cfg(feature = "libnftnl")]
    Libnftnl,
}

impl CodecKind {
    /// Those that this binary was built with.
    pub const ALL: &[CodecKind] = &[
        CodecKind::Native,
        #[cfg(feature = "libnftnl")]
        CodecKind::Libnftnl,
    ];

    /// The codec itself.
    pub fn codec(self) -> Box<dyn Codec> {
        match self {
            CodecKind::Native => Box::new(Native),
            #[cfg(feature = "libnftnl")]
            CodecKind::Libnftnl => Box::new(super::libnftnl::Libnftnl),
        }
    }

    /// As it is given on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CodecKind::Native => "native",
            #[cfg(feature = "libnftnl")]
            CodecKind::Libnftnl => "libnftnl",
        }
    }
}

impl fmt::Display for CodecKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CodecKind {
    type Err = String;

    fn from_str(text: &str) -> Result<CodecKind, String> {
        if let Some(kind) = CodecKind::ALL.iter().find(|kind| kind.name() == text) {
            return Ok(*kind);
        }
        Err(match text {
            "libnftnl" => "codec libnftnl: this svcmap was built without the cargo feature `libnftnl`".into(),
            _ => format!("codec {text:?}: expected native or libnftnl"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_have_names() {
        for kind in CodecKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(*kind));
        }
        assert_eq!("nativ".parse::<CodecKind>(), Err("codec \"nativ\": expected native or libnftnl".into()));
    }
}
