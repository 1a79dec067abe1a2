//! The attributes that are used, each with the type that the library keeps it as.

#![allow(missing_docs)] // the library's names are the documentation

use nftnl::nftnl_sys as sys;

use super::object::{Blob, Chain, Element, Expr, Kind, Rule, Set, Table, Text, U8, U32, U64};

/// The library keeps the lengths of at most so many parts of a key.
const PARTS_MAX: usize = 16;

impl Table {
    pub const NAME: Text<Table> = Text::new(sys::NFTNL_TABLE_NAME);
    pub const FLAGS: U32<Table> = U32::new(sys::NFTNL_TABLE_FLAGS);
    pub const USERDATA: Blob<Table> = Blob::any(sys::NFTNL_TABLE_USERDATA);
}

impl Chain {
    pub const TABLE: Text<Chain> = Text::new(sys::NFTNL_CHAIN_TABLE);
    pub const NAME: Text<Chain> = Text::new(sys::NFTNL_CHAIN_NAME);
    pub const HOOK: U32<Chain> = U32::new(sys::NFTNL_CHAIN_HOOKNUM);
    /// Signed.
    pub const PRIORITY: U32<Chain> = U32::new(sys::NFTNL_CHAIN_PRIO);
    pub const POLICY: U32<Chain> = U32::new(sys::NFTNL_CHAIN_POLICY);
    pub const TYPE: Text<Chain> = Text::new(sys::NFTNL_CHAIN_TYPE);
    pub const FLAGS: U32<Chain> = U32::new(sys::NFTNL_CHAIN_FLAGS);
    pub const USERDATA: Blob<Chain> = Blob::any(sys::NFTNL_CHAIN_USERDATA);
}

impl Rule {
    pub const TABLE: Text<Rule> = Text::new(sys::NFTNL_RULE_TABLE);
    pub const CHAIN: Text<Rule> = Text::new(sys::NFTNL_RULE_CHAIN);
    pub const HANDLE: U64<Rule> = U64::new(sys::NFTNL_RULE_HANDLE);
    pub const USERDATA: Blob<Rule> = Blob::any(sys::NFTNL_RULE_USERDATA);
}

impl Set {
    pub const TABLE: Text<Set> = Text::new(sys::NFTNL_SET_TABLE);
    pub const NAME: Text<Set> = Text::new(sys::NFTNL_SET_NAME);
    pub const FLAGS: U32<Set> = U32::new(sys::NFTNL_SET_FLAGS);
    pub const KEY_TYPE: U32<Set> = U32::new(sys::NFTNL_SET_KEY_TYPE);
    pub const KEY_LEN: U32<Set> = U32::new(sys::NFTNL_SET_KEY_LEN);
    pub const DATA_TYPE: U32<Set> = U32::new(sys::NFTNL_SET_DATA_TYPE);
    pub const DATA_LEN: U32<Set> = U32::new(sys::NFTNL_SET_DATA_LEN);
    pub const ID: U32<Set> = U32::new(sys::NFTNL_SET_ID);
    pub const SIZE: U32<Set> = U32::new(sys::NFTNL_SET_DESC_SIZE);
    pub const CONCAT: Blob<Set> = Blob::at_most(sys::NFTNL_SET_DESC_CONCAT, PARTS_MAX);
    pub const TIMEOUT: U64<Set> = U64::new(sys::NFTNL_SET_TIMEOUT);
    pub const USERDATA: Blob<Set> = Blob::any(sys::NFTNL_SET_USERDATA);
}

impl Element {
    pub const FLAGS: U32<Element> = U32::new(sys::NFTNL_SET_ELEM_FLAGS);
    pub const KEY: Blob<Element> = Blob::data(sys::NFTNL_SET_ELEM_KEY);
    pub const KEY_END: Blob<Element> = Blob::data(sys::NFTNL_SET_ELEM_KEY_END);
    pub const DATA: Blob<Element> = Blob::data(sys::NFTNL_SET_ELEM_DATA);
    /// Signed.
    pub const VERDICT: U32<Element> = U32::new(sys::NFTNL_SET_ELEM_VERDICT);
    pub const CHAIN: Text<Element> = Text::new(sys::NFTNL_SET_ELEM_CHAIN);
    pub const TIMEOUT: U64<Element> = U64::new(sys::NFTNL_SET_ELEM_TIMEOUT);
    pub const EXPIRATION: U64<Element> = U64::new(sys::NFTNL_SET_ELEM_EXPIRATION);
    pub const USERDATA: Blob<Element> = Blob::any(sys::NFTNL_SET_ELEM_USERDATA);
    pub const OBJREF: Text<Element> = Text::new(sys::NFTNL_SET_ELEM_OBJREF);
}

macro_rules! kinds {
    ($($kind:ident = $name:literal { $($attribute:ident: $type:ident::$new:ident = $attr:ident),* })*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        pub struct $kind;

        impl Kind for $kind {
            const NAME: &std::ffi::CStr = $name;
        }

        impl $kind {
            $(pub const $attribute: $type<Expr<$kind>> = $type::$new(sys::$attr);)*
        }
    )*};
}

kinds! {
    Payload = c"payload" {
        DREG: U32::new = NFTNL_EXPR_PAYLOAD_DREG,
        BASE: U32::new = NFTNL_EXPR_PAYLOAD_BASE,
        OFFSET: U32::new = NFTNL_EXPR_PAYLOAD_OFFSET,
        LEN: U32::new = NFTNL_EXPR_PAYLOAD_LEN,
        SREG: U32::new = NFTNL_EXPR_PAYLOAD_SREG
    }
    Meta = c"meta" {
        KEY: U32::new = NFTNL_EXPR_META_KEY,
        DREG: U32::new = NFTNL_EXPR_META_DREG,
        SREG: U32::new = NFTNL_EXPR_META_SREG
    }
    Ct = c"ct" {
        DREG: U32::new = NFTNL_EXPR_CT_DREG,
        KEY: U32::new = NFTNL_EXPR_CT_KEY,
        DIRECTION: U8::new = NFTNL_EXPR_CT_DIR,
        SREG: U32::new = NFTNL_EXPR_CT_SREG
    }
    Cmp = c"cmp" {
        SREG: U32::new = NFTNL_EXPR_CMP_SREG,
        OP: U32::new = NFTNL_EXPR_CMP_OP,
        DATA: Blob::data = NFTNL_EXPR_CMP_DATA
    }
    Bitwise = c"bitwise" {
        SREG: U32::new = NFTNL_EXPR_BITWISE_SREG,
        DREG: U32::new = NFTNL_EXPR_BITWISE_DREG,
        LEN: U32::new = NFTNL_EXPR_BITWISE_LEN,
        MASK: Blob::data = NFTNL_EXPR_BITWISE_MASK,
        XOR: Blob::data = NFTNL_EXPR_BITWISE_XOR,
        OP: U32::new = NFTNL_EXPR_BITWISE_OP
    }
    Byteorder = c"byteorder" {
        SREG: U32::new = NFTNL_EXPR_BYTEORDER_SREG,
        DREG: U32::new = NFTNL_EXPR_BYTEORDER_DREG,
        OP: U32::new = NFTNL_EXPR_BYTEORDER_OP,
        LEN: U32::new = NFTNL_EXPR_BYTEORDER_LEN,
        SIZE: U32::new = NFTNL_EXPR_BYTEORDER_SIZE
    }
    Lookup = c"lookup" {
        SET: Text::new = NFTNL_EXPR_LOOKUP_SET,
        SREG: U32::new = NFTNL_EXPR_LOOKUP_SREG,
        DREG: U32::new = NFTNL_EXPR_LOOKUP_DREG,
        FLAGS: U32::new = NFTNL_EXPR_LOOKUP_FLAGS
    }
    Numgen = c"numgen" {
        DREG: U32::new = NFTNL_EXPR_NG_DREG,
        MODULUS: U32::new = NFTNL_EXPR_NG_MODULUS,
        TYPE: U32::new = NFTNL_EXPR_NG_TYPE,
        OFFSET: U32::new = NFTNL_EXPR_NG_OFFSET
    }
    Immediate = c"immediate" {
        DREG: U32::new = NFTNL_EXPR_IMM_DREG,
        DATA: Blob::data = NFTNL_EXPR_IMM_DATA,
        VERDICT: U32::new = NFTNL_EXPR_IMM_VERDICT,
        CHAIN: Text::new = NFTNL_EXPR_IMM_CHAIN
    }
    Nat = c"nat" {
        TYPE: U32::new = NFTNL_EXPR_NAT_TYPE,
        FAMILY: U32::new = NFTNL_EXPR_NAT_FAMILY,
        ADDR_MIN: U32::new = NFTNL_EXPR_NAT_REG_ADDR_MIN,
        ADDR_MAX: U32::new = NFTNL_EXPR_NAT_REG_ADDR_MAX,
        PROTO_MIN: U32::new = NFTNL_EXPR_NAT_REG_PROTO_MIN,
        PROTO_MAX: U32::new = NFTNL_EXPR_NAT_REG_PROTO_MAX,
        FLAGS: U32::new = NFTNL_EXPR_NAT_FLAGS
    }
    Masq = c"masq" {
        FLAGS: U32::new = NFTNL_EXPR_MASQ_FLAGS,
        PROTO_MIN: U32::new = NFTNL_EXPR_MASQ_REG_PROTO_MIN,
        PROTO_MAX: U32::new = NFTNL_EXPR_MASQ_REG_PROTO_MAX
    }
    Redir = c"redir" {
        PROTO_MIN: U32::new = NFTNL_EXPR_REDIR_REG_PROTO_MIN,
        PROTO_MAX: U32::new = NFTNL_EXPR_REDIR_REG_PROTO_MAX,
        FLAGS: U32::new = NFTNL_EXPR_REDIR_FLAGS
    }
    Reject = c"reject" {
        TYPE: U32::new = NFTNL_EXPR_REJECT_TYPE,
        CODE: U8::new = NFTNL_EXPR_REJECT_CODE
    }
    Fib = c"fib" {
        DREG: U32::new = NFTNL_EXPR_FIB_DREG,
        RESULT: U32::new = NFTNL_EXPR_FIB_RESULT,
        FLAGS: U32::new = NFTNL_EXPR_FIB_FLAGS
    }
    Dynset = c"dynset" {
        OP: U32::new = NFTNL_EXPR_DYNSET_OP,
        SET: Text::new = NFTNL_EXPR_DYNSET_SET_NAME,
        SREG_KEY: U32::new = NFTNL_EXPR_DYNSET_SREG_KEY,
        SREG_DATA: U32::new = NFTNL_EXPR_DYNSET_SREG_DATA,
        TIMEOUT: U64::new = NFTNL_EXPR_DYNSET_TIMEOUT,
        FLAGS: U32::new = NFTNL_EXPR_DYNSET_FLAGS
    }
    Counter = c"counter" {
        PACKETS: U64::new = NFTNL_EXPR_CTR_PACKETS,
        BYTES: U64::new = NFTNL_EXPR_CTR_BYTES
    }
}
