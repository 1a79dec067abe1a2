//! Types of values, and values as the bytes that the kernel compares.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::ast::Value;
use super::token::Tokens;
use super::{expression, fields};
use crate::netlink::model::Bytes;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ipv4,
    Ipv6,
    Protocol,
    Port,
    Mark,
    Priority,
    Interface,
    InterfaceIndex,
    Integer,
    /// Numbers of one, two and four bytes in network byte order.
    Byte,
    Short,
    Long,
    TcpFlags,
    Family,
    EtherType,
    Direction,
    State,
    Status,
    AddressType,
}

impl Kind {
    /// What values of this number are, where that is plain.
    pub fn of_number(number: u32) -> Option<Kind> {
        let kinds = [Kind::Ipv4, Kind::Ipv6, Kind::Protocol, Kind::Port, Kind::Mark, Kind::Priority, Kind::Interface];
        kinds.into_iter().find(|kind| kind.number() == number)
    }

    /// nft's number (`include/datatype.h` of nftables).
    pub fn number(self) -> u32 {
        match self {
            Kind::Ipv4 => 7,
            Kind::Ipv6 => 8,
            Kind::Protocol => 12,
            Kind::Port => 13,
            Kind::Mark => 19,
            Kind::Priority => 23,
            Kind::Interface => 41,
            Kind::InterfaceIndex => 20,
            Kind::Integer | Kind::Byte | Kind::Short | Kind::Long => 4,
            Kind::TcpFlags => 15,
            Kind::Family => 2,
            Kind::EtherType => 10,
            Kind::Direction => 27,
            Kind::State => 26,
            Kind::Status => 28,
            Kind::AddressType => 42,
        }
    }

    pub fn len(self) -> usize {
        match self {
            Kind::Ipv6 | Kind::Interface => 16,
            Kind::Protocol | Kind::Family | Kind::Direction | Kind::Byte | Kind::TcpFlags => 1,
            Kind::Port | Kind::EtherType | Kind::Short => 2,
            _ => 4,
        }
    }

    /// Whether values are numbers in the host's byte order, of which a comparison of bytes says nothing.
    pub fn is_of_host(self) -> bool {
        matches!(self, Kind::Mark | Kind::Integer | Kind::Priority | Kind::InterfaceIndex)
    }

    /// Whether values name bits, any of which is asked for.
    pub fn is_bits(self) -> bool {
        matches!(self, Kind::State | Kind::Status | Kind::TcpFlags)
    }

    /// The kind of a type's name, or of `typeof`'s expression.
    pub fn of_type(name: &str) -> Option<Kind> {
        Some(match name {
            "ipv4_addr" => Kind::Ipv4,
            "ipv6_addr" => Kind::Ipv6,
            "inet_proto" => Kind::Protocol,
            "inet_service" => Kind::Port,
            "mark" => Kind::Mark,
            "classid" => Kind::Priority,
            "ifname" => Kind::Interface,
            "iface_index" => Kind::InterfaceIndex,
            "integer" => Kind::Integer,
            "nf_proto" => Kind::Family,
            "ether_type" => Kind::EtherType,
            "ct_dir" => Kind::Direction,
            "ct_state" => Kind::State,
            "ct_status" => Kind::Status,
            "fib_addrtype" => Kind::AddressType,
            "tcp_flag" => Kind::TcpFlags,
            expression => return Kind::of(&expression::expression(&mut Tokens::new(expression))?),
        })
    }

    /// The kind of what an expression gives.
    pub fn of(value: &Value) -> Option<Kind> {
        Some(match value {
            Value::Header(header, field) => fields::field(header, field)?.2,
            Value::Meta(key) => match key.as_str() {
                "mark" => Kind::Mark,
                "priority" => Kind::Priority,
                "l4proto" => Kind::Protocol,
                "nfproto" => Kind::Family,
                "protocol" => Kind::EtherType,
                "iifname" | "oifname" => Kind::Interface,
                "iif" | "oif" => Kind::InterfaceIndex,
                _ => return None,
            },
            Value::Ct { key, .. } => match key.as_str() {
                "state" => Kind::State,
                "status" => Kind::Status,
                "direction" => Kind::Direction,
                "mark" => Kind::Mark,
                "ip saddr" | "ip daddr" => Kind::Ipv4,
                "ip6 saddr" | "ip6 daddr" => Kind::Ipv6,
                "proto-src" | "proto-dst" => Kind::Port,
                "protocol" => Kind::Protocol,
                "l3proto" => Kind::Family,
                _ => return None,
            },
            Value::Fib { flags, result } if result == "type" && flags.len() == 1 => Kind::AddressType,
            Value::Numgen { .. } => Kind::Integer,
            Value::Bits(value, ..) => return Kind::of(value),
            _ => return None,
        })
    }

    /// The bits of a prefix: of numbers in the host's byte order, the highest ones.
    pub fn mask(self, length: u8) -> Option<Bytes> {
        match self {
            Kind::Mark | Kind::Integer | Kind::Priority if length <= 32 => {
                let bits = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Some(Bytes::from_slice(&bits.to_ne_bytes()))
            }
            kind => mask(kind.len(), length),
        }
    }

    /// A word as bytes: of addresses and ports in network byte order, of numbers in the host's.
    pub fn bytes(self, word: &str) -> Option<Bytes> {
        let host = |number: u32| Some(Bytes::from_slice(&number.to_ne_bytes()));
        match self {
            Kind::Ipv4 => word.parse::<Ipv4Addr>().ok().map(|ip| Bytes::from_slice(&ip.octets())),
            Kind::Ipv6 => word.parse::<Ipv6Addr>().ok().map(|ip| Bytes::from_slice(&ip.octets())),
            Kind::Port => word.parse::<u16>().ok().map(|port| Bytes::from_slice(&port.to_be_bytes())),
            Kind::Byte => word.parse::<u8>().ok().map(|number| Bytes::from_slice(&[number])),
            Kind::Short => u16::try_from(number(word)?).ok().map(|number| Bytes::from_slice(&number.to_be_bytes())),
            Kind::Long => Some(Bytes::from_slice(&number(word)?.to_be_bytes())),
            Kind::TcpFlags => u8::try_from(bit(word, &TCP_FLAGS)?).ok().map(|bits| Bytes::from_slice(&[bits])),
            Kind::Protocol => protocol(word).map(|number| Bytes::from_slice(&[number])),
            Kind::Family => match word {
                "ipv4" => Some(Bytes::from_slice(&[2])),
                "ipv6" => Some(Bytes::from_slice(&[10])),
                _ => None,
            },
            Kind::EtherType => match word {
                "ip" => Some(Bytes::from_slice(&[8, 0])),
                "ip6" => Some(Bytes::from_slice(&[0x86, 0xdd])),
                _ => None,
            },
            Kind::Direction => match word {
                "original" => Some(Bytes::from_slice(&[0])),
                "reply" => Some(Bytes::from_slice(&[1])),
                _ => None,
            },
            Kind::Interface if word.len() < 16 && !word.ends_with('*') => {
                let mut bytes = Bytes::from_slice(word.as_bytes());
                bytes.resize(16, 0);
                Some(bytes)
            }
            Kind::Interface => None,
            Kind::InterfaceIndex if word == "lo" => host(1),
            Kind::Priority => host(priority(word)?),
            Kind::Mark | Kind::Integer | Kind::InterfaceIndex => host(number(word)?),
            Kind::State => host(bit(word, &STATES)?),
            Kind::Status => host(bit(word, &STATUSES)?),
            Kind::AddressType => host(bit(word, &ADDRESS_TYPES)?),
        }
    }
}

/// A number in decimal or hexadecimal digits.
pub fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// A priority: `none`, `root`, or two numbers in hexadecimal digits, of which one may be left out; in JSON a plain number.
fn priority(word: &str) -> Option<u32> {
    let half = |digits: &str| if digits.is_empty() { Some(0) } else { u16::from_str_radix(digits, 16).ok() };
    match word.split_once(':') {
        Some((major, minor)) => Some(u32::from(half(major)?) << 16 | u32::from(half(minor)?)),
        None if word == "none" => Some(0),
        None if word == "root" => Some(u32::MAX),
        None => number(word),
    }
}

fn protocol(word: &str) -> Option<u8> {
    Some(match word {
        "icmp" => 1,
        "igmp" => 2,
        "dccp" => 33,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "comp" => 108,
        "tcp" => 6,
        "udp" => 17,
        "ipv6-icmp" | "icmpv6" => 58,
        "sctp" => 132,
        "udplite" => 136,
        number => number.parse().ok()?,
    })
}

/// `linux/netfilter/nf_conntrack_common.h`, and `RTN_*` of `linux/rtnetlink.h`.
const STATES: [(&str, u32); 5] = [("invalid", 1), ("established", 2), ("related", 4), ("new", 8), ("untracked", 64)];
const STATUSES: [(&str, u32); 7] =
    [("expected", 1), ("seen-reply", 2), ("assured", 4), ("confirmed", 8), ("snat", 16), ("dnat", 32), ("dying", 512)];
const TCP_FLAGS: [(&str, u32); 8] =
    [("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32), ("ecn", 64), ("cwr", 128)];
const ADDRESS_TYPES: [(&str, u32); 8] = [
    ("unicast", 1),
    ("local", 2),
    ("broadcast", 3),
    ("anycast", 4),
    ("multicast", 5),
    ("blackhole", 6),
    ("unreachable", 7),
    ("prohibit", 8),
];

fn bit(word: &str, names: &[(&str, u32)]) -> Option<u32> {
    names.iter().find(|(name, _)| *name == word).map(|(_, bit)| *bit).or_else(|| number(word))
}

/// The first and the last value that is meant: the same, unless it is a prefix or a range.
pub fn bounds(kind: Kind, value: &Value) -> Option<(Bytes, Bytes)> {
    match value {
        Value::Word(word) => kind.bytes(word).map(|bytes| (bytes.clone(), bytes)),
        Value::Range(first, last) => Some((kind.bytes(first)?, kind.bytes(last)?)),
        Value::Prefix(address, length) => {
            let first = kind.bytes(address)?;
            let mask = kind.mask(*length)?;
            Some((
                first.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect(),
                first.iter().zip(&mask).map(|(byte, mask)| byte | !mask).collect(),
            ))
        }
        Value::Flags(words) => {
            let bits = all_bits(kind, words.iter().map(String::as_str))?;
            Some((bits.clone(), bits))
        }
        _ => None,
    }
}

/// All bits that words name, together.
pub fn all_bits<'a>(kind: Kind, words: impl Iterator<Item = &'a str>) -> Option<Bytes> {
    let mut all = Bytes::from_elem(0, kind.len());
    for word in words {
        all.iter_mut().zip(kind.bytes(word)?).for_each(|(all, bits)| *all |= bits);
    }
    Some(all)
}

/// So many bits from the left.
fn mask(bytes: usize, length: u8) -> Option<Bytes> {
    let length = usize::from(length);
    (length <= bytes * 8).then(|| {
        (0..bytes)
            .map(|at| match length.saturating_sub(at * 8) {
                8.. => 0xff,
                left => !(0xff_u8.checked_shr(left as u32).unwrap_or(0)),
            })
            .collect()
    })
}

/// The value behind one; none behind the last.
pub fn successor(bytes: &[u8]) -> Option<Bytes> {
    let mut next = Bytes::from_slice(bytes);
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_bounds() {
        let of = |address: &str, length| bounds(Kind::Ipv4, &Value::Prefix(address.into(), length)).unwrap();
        assert_eq!(of("10.1.2.3", 8), (Bytes::from_slice(&[10, 0, 0, 0]), Bytes::from_slice(&[10, 255, 255, 255])));
        assert_eq!(of("10.1.2.3", 20), (Bytes::from_slice(&[10, 1, 0, 0]), Bytes::from_slice(&[10, 1, 15, 255])));
        assert_eq!(of("0.0.0.0", 0).1[..], [255; 4]);
        assert_eq!(of("10.1.2.3", 32).0[..], [10, 1, 2, 3]);
        assert_eq!(bounds(Kind::Ipv4, &Value::Prefix("10.0.0.0".into(), 33)), None);
        assert_eq!(successor(&[0, 255]).as_deref(), Some(&[1, 0][..]));
        assert_eq!(successor(&[255, 255]), None);
    }
}
