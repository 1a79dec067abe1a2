//! What an expression is called.

use super::loads::{ct_key, meta_key};
use super::raw::{LISTED, LISTED_CONDITION};
use crate::netlink::model::Expr;

/// The expression as it is named in a refusal.
pub(super) fn describe(expr: &Expr) -> String {
    match expr {
        Expr::Payload { base, offset, len, .. } => format!("payload ({len} bytes at {offset} of header {base})"),
        Expr::MetaLoad { key, .. } => format!("meta {}", meta_name(*key)),
        Expr::MetaSet { key, .. } => format!("meta {} set", meta_name(*key)),
        Expr::Ct { key, .. } => format!("ct {}", ct_name(*key)),
        Expr::Cmp { .. } => "cmp".into(),
        Expr::Bitwise { .. } => "bitwise".into(),
        Expr::Byteorder { .. } => "byteorder".into(),
        Expr::Lookup { set, .. } => format!("lookup in {set}"),
        Expr::Numgen { .. } => "numgen".into(),
        Expr::Immediate { .. } => "immediate".into(),
        Expr::Nat { kind: 0, .. } => "snat".into(),
        Expr::Nat { .. } => "dnat".into(),
        Expr::Masq { .. } => "masquerade".into(),
        Expr::Redir { .. } => "redirect".into(),
        Expr::Reject { .. } => "reject".into(),
        Expr::Fib { result, flags, .. } => format!("fib (result {result}, flags {flags})"),
        Expr::Dynset { set, .. } => format!("dynset of {set}"),
        Expr::Counter { .. } => "counter".into(),
        Expr::Raw { name, data } if [LISTED, LISTED_CONDITION].contains(&name.as_str()) => {
            String::from_utf8_lossy(data).into_owned()
        }
        Expr::Raw { name, .. } => name.to_string(),
    }
}

fn meta_name(key: u32) -> String {
    let name = match key {
        0 => "length",
        meta_key::PROTOCOL => "protocol",
        meta_key::PRIORITY => "priority",
        meta_key::MARK => "mark",
        meta_key::IIF => "iif",
        meta_key::OIF => "oif",
        meta_key::IIFNAME => "iifname",
        meta_key::OIFNAME => "oifname",
        8 => "iiftype",
        9 => "oiftype",
        10 => "skuid",
        11 => "skgid",
        meta_key::NFTRACE => "nftrace",
        meta_key::SECMARK => "secmark",
        meta_key::NFPROTO => "nfproto",
        meta_key::L4PROTO => "l4proto",
        19 => "pkttype",
        20 => "cpu",
        21 => "iifgroup",
        22 => "oifgroup",
        23 => "cgroup",
        24 => "random",
        25 => "secpath",
        _ => return format!("key {key}"),
    };
    name.into()
}

fn ct_name(key: u32) -> String {
    let name = match key {
        ct_key::STATE => "state",
        ct_key::DIRECTION => "direction",
        ct_key::STATUS => "status",
        ct_key::MARK => "mark",
        4 => "secmark",
        5 => "expiration",
        6 => "helper",
        ct_key::L3PROTOCOL => "l3proto",
        ct_key::SRC | ct_key::SRC_IP | ct_key::SRC_IP6 => "saddr",
        ct_key::DST | ct_key::DST_IP | ct_key::DST_IP6 => "daddr",
        ct_key::PROTOCOL => "protocol",
        ct_key::PROTO_SRC => "proto-src",
        ct_key::PROTO_DST => "proto-dst",
        13 => "label",
        14 => "packets",
        15 => "bytes",
        ct_key::ZONE => "zone",
        _ => return format!("key {key}"),
    };
    name.into()
}
