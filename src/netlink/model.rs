//! nf_tables objects, as both codecs write and read them.
//!
//! Numbers are those of the kernel's `include/uapi/linux/netfilter/nf_tables.h`.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

/// The name of a table, chain, set or map.
pub type Name = CompactString;

/// Raw bytes of a key, a value, or a comparison; network byte order unless said otherwise.
pub type Bytes = SmallVec<[u8; 32]>;

/// An nf_tables family: the `nfgen_family` of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NfFamily(pub u8);

impl NfFamily {
    /// Every family; only used to ask.
    pub const UNSPEC: NfFamily = NfFamily(0);
    /// `inet`.
    pub const INET: NfFamily = NfFamily(1);
    /// `ip`.
    pub const IPV4: NfFamily = NfFamily(2);
    /// `ip6`.
    pub const IPV6: NfFamily = NfFamily(10);

    /// As `nft` writes it.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "inet",
            2 => "ip",
            3 => "arp",
            5 => "netdev",
            7 => "bridge",
            10 => "ip6",
            _ => "unknown",
        }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its family.
    pub family: NfFamily,
    /// Its name.
    pub name: Name,
    /// `NFTA_TABLE_FLAGS`.
    pub flags: u32,
    /// The comment that `nft` lists.
    pub comment: Option<Arc<str>>,
}

/// Flags of a [`Table`].
pub mod table_flags {
    /// Its chains are not hooked.
    pub const DORMANT: u32 = 0x1;
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The table's family.
    pub family: NfFamily,
    /// The table's name.
    pub table: Name,
    /// Its name.
    pub name: Name,
    /// Present on base chains.
    pub hook: Option<Hook>,
    /// Whether a rule made it for what stands in its braces: the kernel gives it a name, and it goes with its rule alone
    /// (`NFT_CHAIN_BINDING`).
    pub is_bound: bool,
    /// The comment that `nft` lists.
    pub comment: Option<Arc<str>>,
}

/// Where a base chain is hooked in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `filter`, `nat` or `route`.
    pub kind: Name,
    /// The hook's number, such as `NF_INET_PRE_ROUTING` (0), LOCAL_IN (1), FORWARD (2), LOCAL_OUT (3), POST_ROUTING (4).
    pub number: u32,
    /// Lower comes first.
    pub priority: i32,
    /// What happens to packets that no rule decides: `NF_DROP` (0) or `NF_ACCEPT` (1).
    pub policy: u32,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The table's family.
    pub family: NfFamily,
    /// The table's name.
    pub table: Name,
    /// The chain's name.
    pub chain: Name,
    /// The kernel's number for it; 0 on rules that are not in the kernel yet.
    pub handle: u64,
    /// What it does, in order.
    pub exprs: Vec<Expr>,
    /// The comment that `nft` lists.
    pub comment: Option<Arc<str>>,
}

/// A set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The table's family.
    pub family: NfFamily,
    /// The table's name.
    pub table: Name,
    /// Its name.
    pub name: Name,
    /// `NFT_SET_*` flags, see [`set_flags`].
    pub flags: u32,
    /// nft's type number of the key.
    pub key_type: u32,
    /// Length of the key in bytes.
    pub key_len: u32,
    /// nft's type number of the value; [`VERDICT_TYPE`] for verdict maps, 0 for sets.
    pub data_type: u32,
    /// Length of the value in bytes, 0 for sets and verdict maps.
    pub data_len: u32,
    /// The most elements it may hold. A set that declares it gets the kernel's fixed hash.
    pub size: Option<u32>,
    /// The lengths in bytes of the parts of a concatenated key; only for intervals over concatenations.
    pub concat: Vec<u8>,
    /// Default timeout of elements in milliseconds.
    pub timeout_ms: Option<u64>,
    /// User data, in which nft keeps the `typeof` description and a comment. Kept as it is.
    pub userdata: Vec<u8>,
    /// Statements that every element gets, such as a counter.
    pub exprs: Vec<Expr>,
}

/// `NFT_SET_*`.
pub mod set_flags {
    /// Belongs to one rule.
    pub const ANONYMOUS: u32 = 0x1;
    /// Cannot change any more.
    pub const CONSTANT: u32 = 0x2;
    /// Elements are ranges.
    pub const INTERVAL: u32 = 0x4;
    /// Elements have values.
    pub const MAP: u32 = 0x8;
    /// Elements may expire.
    pub const TIMEOUT: u32 = 0x10;
    /// Rules may add elements.
    pub const EVAL: u32 = 0x20;
    /// Values are stateful objects.
    pub const OBJECT: u32 = 0x40;
    /// Keys are concatenations.
    pub const CONCAT: u32 = 0x80;
}

/// `NFT_DATA_VERDICT`, as a set's data type.
pub const VERDICT_TYPE: u32 = 0xffff_ff00;

/// An element of a set or map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// The key, parts padded to 4 bytes each. Empty on the catch-all element.
    pub key: Bytes,
    /// The last key of a range; only in sets with ranges over concatenations.
    pub key_end: Option<Box<Bytes>>,
    /// The value.
    pub data: Data,
    /// `NFT_SET_ELEM_*` flags, see [`element_flags`].
    pub flags: u32,
    /// How long it lives from now on or from its last refresh, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// How long it still has to live, in milliseconds; as read from the kernel.
    pub expiration_ms: Option<u64>,
    /// The comment that `nft` lists.
    pub comment: Option<Arc<str>>,
    /// Packets and bytes of the element's counter, as read from the kernel.
    pub counter: Option<(u64, u64)>,
    /// Whether it has more, as read from the kernel: other statements than a counter, or an object. Never written.
    pub unread: bool,
}

/// `NFT_SET_ELEM_*`.
pub mod element_flags {
    /// The key is the first one *behind* a range.
    pub const INTERVAL_END: u32 = 0x1;
    /// Matches whatever no other element does.
    pub const CATCHALL: u32 = 0x2;
}

/// The value of an element, or of an immediate expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// No value: the element of a set.
    #[default]
    None,
    /// Plain bytes.
    Value(Bytes),
    /// A verdict.
    Verdict(Verdict),
}

/// What happens to the packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// `NF_ACCEPT`.
    Accept,
    /// `NF_DROP`.
    Drop,
    /// `NFT_CONTINUE`.
    Continue,
    /// `NFT_BREAK`.
    Break,
    /// `NFT_RETURN`.
    Return,
    /// `NFT_JUMP` to a chain.
    Jump(Name),
    /// `NFT_GOTO` a chain.
    Goto(Name),
    /// Any other code (queues, for instance).
    Other(i32),
}

/// A register number: 1–4 are the 16 byte registers, 8–23 the 4 byte ones; 0 holds the verdict.
pub type Register = u32;

/// An expression of a rule. All that svcmap writes, and what tracing foreign rules wants; the rest is kept raw.
#[allow(missing_docs)] // the fields are the kernel's attributes of the same names
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Loads bytes of the packet.
    Payload { dreg: Register, base: u32, offset: u32, len: u32 },
    /// Loads a packet property (`NFT_META_*`).
    MetaLoad { dreg: Register, key: u32 },
    /// Sets a packet property.
    MetaSet { sreg: Register, key: u32 },
    /// Loads a property of the connection (`NFT_CT_*`), of one direction (0 original, 1 reply) where it has two.
    Ct { dreg: Register, key: u32, direction: Option<u8> },
    /// Goes on only if the comparison (`NFT_CMP_*`) holds.
    Cmp { sreg: Register, op: u32, data: Bytes },
    /// `dreg = (sreg & mask) ^ xor`. In boxes, since every expression is as large as the largest one.
    Bitwise { sreg: Register, dreg: Register, len: u32, mask: Box<Bytes>, xor: Box<Bytes> },
    /// Converts byte order: `op` 0 to host order, 1 to network order; `len` bytes in units of `size`.
    Byteorder { sreg: Register, dreg: Register, op: u32, len: u32, size: u32 },
    /// Looks a set or map up; with a `dreg` it is a map, and register 0 takes verdicts.
    Lookup { sreg: Register, set: Name, dreg: Option<Register>, invert: bool },
    /// Numbers: `kind` 0 counts, 1 is random; `modulus` different ones from `offset` on. Host byte order.
    Numgen { dreg: Register, modulus: u32, kind: u32, offset: u32 },
    /// Loads a constant, or gives a verdict.
    Immediate { dreg: Register, data: Data },
    /// Rewrites an address: `kind` 0 is SNAT, 1 DNAT; `family` is an [`NfFamily`].
    Nat {
        kind: u32,
        family: u32,
        addr_min: Option<Register>,
        addr_max: Option<Register>,
        proto_min: Option<Register>,
        proto_max: Option<Register>,
        flags: u32,
    },
    /// Masquerades.
    Masq { flags: u32, proto_min: Option<Register>, proto_max: Option<Register> },
    /// Redirects to a local port.
    Redir { proto_min: Option<Register>, proto_max: Option<Register>, flags: u32 },
    /// Rejects: `kind` 0 ICMP unreachable, 1 TCP reset, 2 family independent.
    Reject { kind: u32, code: u8 },
    /// Looks an address up in the routing tables (`NFT_FIB_RESULT_*`, `NFTA_FIB_F_*`).
    Fib { dreg: Register, result: u32, flags: u32 },
    /// Adds (0), updates (1) or deletes (2) an element from the packet path.
    Dynset { op: u32, set: Name, sreg_key: Register, sreg_data: Option<Register>, timeout_ms: Option<u64> },
    /// Counts.
    Counter { packets: u64, bytes: u64 },
    /// An expression that svcmap does not write: its name and its attributes as they are.
    Raw { name: Name, data: Vec<u8> },
}

/// Which set or map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetRef {
    /// The table's family.
    pub family: NfFamily,
    /// The table's name.
    pub table: Name,
    /// The set's name.
    pub name: Name,
}

/// Which chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainRef {
    /// The table's family.
    pub family: NfFamily,
    /// The table's name.
    pub table: Name,
    /// The chain's name.
    pub name: Name,
}

/// One change. A list of them makes a transaction: all of them happen, or none does.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes a table, or keeps the one that is there.
    AddTable(Table),
    /// Deletes a table and all that it holds.
    DeleteTable { family: NfFamily, name: Name },
    /// Makes a chain, or keeps the one that is there.
    AddChain(Chain),
    /// Deletes a chain with its rules. Nothing may refer to it.
    DeleteChain(ChainRef),
    /// Appends a rule.
    AddRule(Rule),
    /// Deletes all rules of a chain.
    FlushChain(ChainRef),
    /// Deletes one rule, by the kernel's number for it.
    DeleteRule { chain: ChainRef, handle: u64 },
    /// Makes a set or map, or keeps the one that is there.
    AddSet(Set),
    /// Deletes a set or map. Nothing may refer to it.
    DeleteSet(SetRef),
    /// Adds elements. An element that is there with the same value is no error; with another value it is.
    AddElements { set: SetRef, elements: Vec<Element> },
    /// Deletes elements. One that is not there is an error.
    DeleteElements { set: SetRef, elements: Vec<Element> },
    /// Deletes all elements.
    FlushSet(SetRef),
}

impl Op {
    /// The number of elements that the operation sends, 1 for any other object.
    pub fn weight(&self) -> usize {
        match self {
            Op::AddElements { elements, .. } | Op::DeleteElements { elements, .. } => elements.len(),
            _ => 1,
        }
    }
}
