//! The kernel's numbers, by the kernel's names: `linux/netlink.h`, `linux/netfilter/nfnetlink.h`,
//! `linux/netfilter/nf_tables.h` and `linux/netfilter/nfnetlink_conntrack.h`.

#![allow(missing_docs)] // the names are the documentation

/// `struct nlmsghdr` and `struct nfgenmsg`, which every nf_tables message starts with.
pub const MESSAGE_HEADER: usize = NETLINK_HEADER + 4;
/// `struct nlmsghdr`.
pub const NETLINK_HEADER: usize = 16;

pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_DUMP_INTR: u16 = 0x10;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;
/// In a reply: the refused message is not repeated, only its header is.
pub const NLM_F_CAPPED: u16 = 0x100;
/// In a reply: attributes follow.
pub const NLM_F_ACK_TLVS: u16 = 0x200;

pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;

pub const NLMSGERR_ATTR_MSG: u16 = 1;
pub const NLMSGERR_ATTR_OFFS: u16 = 2;

pub const NFNL_SUBSYS_CTNETLINK: u16 = 1;
pub const NFNL_SUBSYS_NFTABLES: u16 = 10;
pub const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub const NFNL_MSG_BATCH_END: u16 = 0x11;
pub const NFNL_BATCH_GENID: u16 = 1;
/// The group that is told of changes to rules.
pub const NFNLGRP_NFTABLES: i32 = 7;

/// `NFT_MSG_*`, without the subsystem.
pub mod message {
    pub const NEWTABLE: u8 = 0;
    pub const GETTABLE: u8 = 1;
    pub const DELTABLE: u8 = 2;
    pub const NEWCHAIN: u8 = 3;
    pub const GETCHAIN: u8 = 4;
    pub const DELCHAIN: u8 = 5;
    pub const NEWRULE: u8 = 6;
    pub const GETRULE: u8 = 7;
    pub const DELRULE: u8 = 8;
    pub const NEWSET: u8 = 9;
    pub const GETSET: u8 = 10;
    pub const DELSET: u8 = 11;
    pub const NEWSETELEM: u8 = 12;
    pub const GETSETELEM: u8 = 13;
    pub const DELSETELEM: u8 = 14;
    pub const NEWGEN: u8 = 15;
    pub const GETGEN: u8 = 16;
}

/// `NFT_CMP_*`: how values are compared.
pub mod comparison {
    pub const EQ: u32 = 0;
    pub const NEQ: u32 = 1;
    pub const LT: u32 = 2;
    pub const LTE: u32 = 3;
    pub const GT: u32 = 4;
    pub const GTE: u32 = 5;
}

pub const NFTA_LIST_ELEM: u16 = 1;

pub mod table {
    pub const NAME: u16 = 1;
    pub const FLAGS: u16 = 2;
    pub const USERDATA: u16 = 6;
}

pub mod chain {
    pub const TABLE: u16 = 1;
    pub const NAME: u16 = 3;
    pub const HOOK: u16 = 4;
    pub const POLICY: u16 = 5;
    pub const TYPE: u16 = 7;
    pub const FLAGS: u16 = 10;
    pub const USERDATA: u16 = 12;
    /// Of [`FLAGS`]: `NFT_CHAIN_BINDING`.
    pub const BINDING: u32 = 0x4;
    pub const HOOK_NUMBER: u16 = 1;
    pub const HOOK_PRIORITY: u16 = 2;
}

pub mod rule {
    pub const TABLE: u16 = 1;
    pub const CHAIN: u16 = 2;
    pub const HANDLE: u16 = 3;
    pub const EXPRESSIONS: u16 = 4;
    pub const USERDATA: u16 = 7;
}

pub mod set {
    pub const TABLE: u16 = 1;
    pub const NAME: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const KEY_TYPE: u16 = 4;
    pub const KEY_LEN: u16 = 5;
    pub const DATA_TYPE: u16 = 6;
    pub const DATA_LEN: u16 = 7;
    pub const DESC: u16 = 9;
    pub const ID: u16 = 10;
    pub const TIMEOUT: u16 = 11;
    pub const USERDATA: u16 = 13;
    pub const EXPR: u16 = 17;
    pub const EXPRESSIONS: u16 = 18;
    pub const COUNT: u16 = 20;
    pub const DESC_SIZE: u16 = 1;
    pub const DESC_CONCAT: u16 = 2;
    pub const FIELD_LEN: u16 = 1;
}

pub mod elements {
    pub const TABLE: u16 = 1;
    pub const SET: u16 = 2;
    pub const ELEMENTS: u16 = 3;
}

pub mod element {
    pub const KEY: u16 = 1;
    pub const DATA: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const TIMEOUT: u16 = 4;
    pub const EXPIRATION: u16 = 5;
    pub const USERDATA: u16 = 6;
    pub const EXPR: u16 = 7;
    pub const OBJREF: u16 = 9;
    pub const KEY_END: u16 = 10;
    pub const EXPRESSIONS: u16 = 11;
}

pub mod data {
    pub const VALUE: u16 = 1;
    pub const VERDICT: u16 = 2;
    pub const VERDICT_CODE: u16 = 1;
    pub const VERDICT_CHAIN: u16 = 2;
}

pub mod verdict {
    pub const DROP: i32 = 0;
    pub const ACCEPT: i32 = 1;
    pub const CONTINUE: i32 = -1;
    pub const BREAK: i32 = -2;
    pub const JUMP: i32 = -3;
    pub const GOTO: i32 = -4;
    pub const RETURN: i32 = -5;
}

pub mod generation {
    pub const ID: u16 = 1;
    pub const PROCESS: u16 = 2;
    pub const PROCESS_NAME: u16 = 3;
}

/// Attributes of the expressions; `NAME` and `DATA` are what each of them is wrapped in.
pub mod expr {
    pub const NAME: u16 = 1;
    pub const DATA: u16 = 2;

    pub mod payload {
        pub const DREG: u16 = 1;
        pub const BASE: u16 = 2;
        pub const OFFSET: u16 = 3;
        pub const LEN: u16 = 4;
    }
    pub mod meta {
        pub const DREG: u16 = 1;
        pub const KEY: u16 = 2;
        pub const SREG: u16 = 3;
    }
    pub mod ct {
        pub const DREG: u16 = 1;
        pub const KEY: u16 = 2;
        pub const DIRECTION: u16 = 3;
    }
    pub mod cmp {
        pub const SREG: u16 = 1;
        pub const OP: u16 = 2;
        pub const DATA: u16 = 3;
    }
    pub mod bitwise {
        pub const SREG: u16 = 1;
        pub const DREG: u16 = 2;
        pub const LEN: u16 = 3;
        pub const MASK: u16 = 4;
        pub const XOR: u16 = 5;
        pub const OP: u16 = 6;
        pub const OP_MASK_XOR: u32 = 0;
    }
    pub mod byteorder {
        pub const SREG: u16 = 1;
        pub const DREG: u16 = 2;
        pub const OP: u16 = 3;
        pub const LEN: u16 = 4;
        pub const SIZE: u16 = 5;
    }
    pub mod lookup {
        pub const SET: u16 = 1;
        pub const SREG: u16 = 2;
        pub const DREG: u16 = 3;
        pub const FLAGS: u16 = 5;
        pub const F_INVERT: u32 = 1;
    }
    pub mod numgen {
        pub const DREG: u16 = 1;
        pub const MODULUS: u16 = 2;
        pub const TYPE: u16 = 3;
        pub const OFFSET: u16 = 4;
    }
    pub mod immediate {
        pub const DREG: u16 = 1;
        pub const DATA: u16 = 2;
    }
    pub mod nat {
        pub const TYPE: u16 = 1;
        pub const FAMILY: u16 = 2;
        pub const ADDR_MIN: u16 = 3;
        pub const ADDR_MAX: u16 = 4;
        pub const PROTO_MIN: u16 = 5;
        pub const PROTO_MAX: u16 = 6;
        pub const FLAGS: u16 = 7;
        /// `NF_NAT_RANGE_MAP_IPS`.
        pub const F_ADDR: u32 = 1;
        /// `NF_NAT_RANGE_PROTO_SPECIFIED`.
        pub const F_PROTO: u32 = 2;
    }
    pub mod masq {
        pub const FLAGS: u16 = 1;
        pub const PROTO_MIN: u16 = 2;
        pub const PROTO_MAX: u16 = 3;
    }
    pub mod redir {
        pub const PROTO_MIN: u16 = 1;
        pub const PROTO_MAX: u16 = 2;
        pub const FLAGS: u16 = 3;
    }
    pub mod reject {
        pub const TYPE: u16 = 1;
        pub const CODE: u16 = 2;
        pub const TYPE_TCP_RESET: u32 = 1;
    }
    pub mod fib {
        pub const DREG: u16 = 1;
        pub const RESULT: u16 = 2;
        pub const FLAGS: u16 = 3;
    }
    pub mod dynset {
        pub const SET: u16 = 1;
        pub const OP: u16 = 3;
        pub const SREG_KEY: u16 = 4;
        pub const SREG_DATA: u16 = 5;
        pub const TIMEOUT: u16 = 6;
        pub const PAD: u16 = 8;
        pub const FLAGS: u16 = 9;
    }
    pub mod counter {
        pub const BYTES: u16 = 1;
        pub const PACKETS: u16 = 2;
        pub const PAD: u16 = 3;
    }
}

/// `IPCTNL_MSG_CT_*` and `CTA_*`, of connection tracking.
pub mod conntrack {
    pub const NEW: u8 = 0;
    pub const GET: u8 = 1;
    pub const DELETE: u8 = 2;

    pub const TUPLE_ORIG: u16 = 1;
    pub const TUPLE_REPLY: u16 = 2;
    pub const ID: u16 = 12;
    pub const ZONE: u16 = 18;
    pub const FILTER: u16 = 25;

    pub const TUPLE_IP: u16 = 1;
    pub const TUPLE_PROTO: u16 = 2;
    pub const TUPLE_ZONE: u16 = 3;

    pub const IP_V4_SRC: u16 = 1;
    pub const IP_V4_DST: u16 = 2;
    pub const IP_V6_SRC: u16 = 3;
    pub const IP_V6_DST: u16 = 4;

    pub const PROTO_NUM: u16 = 1;
    pub const PROTO_SRC_PORT: u16 = 2;
    pub const PROTO_DST_PORT: u16 = 3;

    pub const FILTER_ORIG_FLAGS: u16 = 1;
    pub const FILTER_REPLY_FLAGS: u16 = 2;
    /// Which parts of the tuple the kernel compares.
    pub const F_IP_DST: u32 = 1 << 1;
    pub const F_PROTO_NUM: u32 = 1 << 3;
    pub const F_PROTO_DST_PORT: u32 = 1 << 5;
}

// `linux/rtnetlink.h` and `linux/if_link.h`
pub const RTM_DELLINK: u16 = 17;
pub const IFLA_IFNAME: u16 = 3;
/// `struct ifinfomsg`.
pub const IFINFO: usize = 16;
