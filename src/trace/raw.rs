//! Expressions that the netlink model keeps raw, as far as it is known what they do to a packet.

use crate::netlink::attr::{Attr, Reader};
use crate::netlink::model::{Bytes, Register};
use crate::netlink::uapi::data::VALUE;

use super::loads::ct_key;

/// The name of what stands in a listing and is not understood; the text is its data.
pub const LISTED: &str = "listed";
/// The same for what does nothing to a packet, but behind which the rule may not match.
pub const LISTED_CONDITION: &str = "listed condition";

/// What a raw expression does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Raw {
    /// Nothing to the packet.
    Harmless,
    /// Nothing to the packet; but the rule may not match behind it, or it loads something unknown.
    Condition { dreg: Option<Register> },
    /// Whether a value is within a range.
    Range { sreg: Register, invert: bool, from: Bytes, to: Bytes },
    /// Connection tracking passes the packet over.
    Untrack,
    /// Sets the connection's mark.
    ConnectionMark { sreg: Register },
    /// Writes into the packet.
    Write { sreg: Register, base: u32, offset: u32, length: u32 },
    /// Something to the packet, perhaps.
    Unknown,
}

/// `NFTA_PAYLOAD_*`, of the form that writes.
mod payload {
    pub const BASE: u16 = 2;
    pub const OFFSET: u16 = 3;
    pub const LEN: u16 = 4;
    pub const SREG: u16 = 5;
}

/// `NFTA_RANGE_*`.
mod range {
    pub const SREG: u16 = 1;
    pub const OP: u16 = 2;
    pub const FROM: u16 = 3;
    pub const TO: u16 = 4;
}

/// `NFTA_CT_*`, of the form that sets.
mod ct {
    pub const KEY: u16 = 2;
    pub const SREG: u16 = 4;
}

/// What an expression of this name with these attributes does.
pub(super) fn raw(name: &str, data: &[u8]) -> Raw {
    let number = |kind| Reader::new(data).find(kind).and_then(Attr::u32);
    let condition = |dreg| Raw::Condition { dreg: number(dreg) };
    match name {
        LISTED_CONDITION => Raw::Condition { dreg: None },
        "log" | "last" => Raw::Harmless,
        "notrack" => Raw::Untrack,
        "limit" | "quota" | "connlimit" | "flow_offload" | "dynset" => Raw::Condition { dreg: None },
        "range" => read_range(data).unwrap_or(Raw::Unknown),
        "ct" if number(ct::SREG).is_some() => match (number(ct::KEY), number(ct::SREG)) {
            (Some(ct_key::MARK), Some(sreg)) => Raw::ConnectionMark { sreg },
            (Some(ct_key::SECMARK | ct_key::LABELS | ct_key::EVENTMASK), _) => Raw::Harmless,
            _ => Raw::Unknown,
        },
        "payload" if number(payload::SREG).is_some() => write(number).unwrap_or(Raw::Unknown),
        // NFTA_EXTHDR_SREG: only options of TCP are written, which say nothing about where a packet goes
        "exthdr" if number(7).is_some() => Raw::Condition { dreg: None },
        "ct" | "rt" | "payload" | "exthdr" | "osf" => condition(1),
        "bitwise" | "byteorder" | "hash" => condition(2),
        "socket" | "tunnel" | "xfrm" => Raw::Condition { dreg: number(1).or(number(2)) },
        "objref" => object(number(1)),
        "match" => {
            // NFTA_MATCH_NAME; iptables-nft keeps comments as matches
            let comment = Reader::new(data).find(1).is_some_and(|attr| attr.text() == "comment");
            if comment { Raw::Harmless } else { Raw::Condition { dreg: None } }
        }
        _ => Raw::Unknown,
    }
}

fn write(number: impl Fn(u16) -> Option<u32>) -> Option<Raw> {
    let (sreg, base) = (number(payload::SREG)?, number(payload::BASE)?);
    Some(Raw::Write { sreg, base, offset: number(payload::OFFSET)?, length: number(payload::LEN)? })
}

/// By the type of the object (`NFT_OBJECT_*`); a map of objects has none here.
fn object(kind: Option<u32>) -> Raw {
    match kind {
        // counters; helpers, timeouts, security marks and expectations
        Some(1 | 3 | 7 | 8 | 9) => Raw::Harmless,
        // quotas, limits, limits of connections
        Some(2 | 4 | 5) => Raw::Condition { dreg: None },
        _ => Raw::Unknown,
    }
}

fn read_range(data: &[u8]) -> Option<Raw> {
    let find = |kind| Reader::new(data).find(kind);
    let bytes = |kind| Some(Bytes::from_slice(find(kind)?.attrs().find(VALUE)?.value));
    let invert = match find(range::OP)?.u32()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(Raw::Range { sreg: find(range::SREG)?.u32()?, invert, from: bytes(range::FROM)?, to: bytes(range::TO)? })
}
