//! What a rule does, as far as layouts are told by it.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::netlink::model::{Data, Expr, Name, Register, Rule, Verdict};

/// `NFT_META_MARK`, and `NFTA_FIB_F_SADDR`.
const MARK: u32 = 3;
const FIB_SADDR: u32 = 1;

/// The chain that a rule leads to, by itself and not by a map.
pub fn leads_to(rule: &Rule) -> Option<&Name> {
    rule.exprs.iter().find_map(|expr| match expr {
        Expr::Immediate { data: Data::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)), .. } => Some(chain),
        _ => None,
    })
}

/// The sets and maps that it looks up, and whether it wants what is not there.
pub fn lookups(rule: &Rule) -> impl Iterator<Item = (&Name, bool)> {
    rule.exprs.iter().filter_map(|expr| match expr {
        Expr::Lookup { set, invert, .. } => Some((set, *invert)),
        _ => None,
    })
}

/// Of how many numbers it draws one.
pub fn draws(rule: &Rule) -> Option<u32> {
    rule.exprs.iter().find_map(|expr| match expr {
        Expr::Numgen { modulus, .. } => Some(*modulus),
        _ => None,
    })
}

/// Whether it changes the packet's mark.
pub fn marks(rule: &Rule) -> bool {
    rule.exprs.iter().any(|expr| matches!(expr, Expr::MetaSet { key: MARK, .. }))
}

/// Whether it asks where the packet comes from: its address, or its interface.
pub fn asks_for_source(rule: &Rule) -> bool {
    rule.exprs.iter().any(|expr| match expr {
        // the source address of IPv4, and of IPv6
        Expr::Payload { base: 1, offset: 12, len, .. } => *len <= 4,
        Expr::Payload { base: 1, offset: 8, len, .. } => *len > 4,
        Expr::MetaLoad { key, .. } => matches!(key, 4 | 6), // the interface that it came in through
        _ => false,
    })
}

/// Whether it asks whether the source is one of the node's addresses.
pub fn asks_for_node(rule: &Rule) -> bool {
    rule.exprs.iter().any(|expr| matches!(expr, Expr::Fib { flags: FIB_SADDR, .. }))
}

/// The sources that a rule excludes by comparing: nft makes a comparison of a set with one element.
pub fn excludes_source(rule: &Rule) -> Option<IpNet> {
    source_compared(rule, |op| op == 1)
}

/// The sources that a rule compares with, whether it wants them or not.
pub fn compared_source(rule: &Rule) -> Option<IpNet> {
    source_compared(rule, |op| op <= 1)
}

fn source_compared(rule: &Rule, is_wanted: impl Fn(u32) -> bool) -> Option<IpNet> {
    let mut length = None;
    for expr in &rule.exprs {
        match expr {
            // nft loads only as many bytes as a prefix has, where it has whole ones
            Expr::Payload { base: 1, offset: 12, len, .. } if *len <= 4 => length = Some((4, len * 8)),
            Expr::Payload { base: 1, offset: 8, len, .. } => length = Some((16, len * 8)),
            Expr::Bitwise { mask, .. } => {
                length = length.map(|(bytes, _)| (bytes, mask.iter().map(|byte| byte.count_ones()).sum()));
            }
            Expr::Cmp { op, data, .. } if is_wanted(*op) && length.is_some() => {
                let (bytes, bits) = length?;
                let mut address = data.to_vec();
                address.resize(bytes, 0);
                return IpNet::new(ip(&address)?, u8::try_from(bits).ok()?).ok();
            }
            _ => length = None,
        }
    }
    None
}

/// Where it translates the destination to, if that is said in the rule.
pub fn translates_to(rule: &Rule) -> Option<SocketAddr> {
    let constant = |register: Register| {
        rule.exprs.iter().rev().find_map(|expr| match expr {
            Expr::Immediate { dreg, data: Data::Value(value) } if *dreg == register => Some(value),
            _ => None,
        })
    };
    rule.exprs.iter().find_map(|expr| match expr {
        Expr::Nat { kind: 1, addr_min: Some(address), proto_min: Some(port), .. } => {
            Some(SocketAddr::new(ip(constant(*address)?)?, port_of(constant(*port)?)?))
        }
        _ => None,
    })
}

/// An address in network byte order.
pub fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// A port in network byte order, padded or not.
pub fn port_of(bytes: &[u8]) -> Option<u16> {
    match bytes {
        [high, low, ..] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}
