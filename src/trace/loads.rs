//! What `meta`, `ct` and `fib` expressions load.

use std::net::IpAddr;

use super::flight::{Flight, Interface, Tracking, Tuple, status};
use super::hook::Hook;
use super::node::{AddressType, LOOPBACK, Node};
use super::registers::Key;
use crate::netlink::model::{Bytes, NfFamily};

/// What an expression loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    /// This value.
    Value(Key),
    /// Nothing: the rule does not match.
    Breaks,
    /// Some value of this many bytes, or nothing.
    MayBreak(u32),
}

/// `NFT_META_*`.
pub(super) mod meta_key {
    pub const PROTOCOL: u32 = 1;
    pub const PRIORITY: u32 = 2;
    pub const MARK: u32 = 3;
    pub const IIF: u32 = 4;
    pub const OIF: u32 = 5;
    pub const IIFNAME: u32 = 6;
    pub const OIFNAME: u32 = 7;
    pub const NFTRACE: u32 = 12;
    pub const SECMARK: u32 = 14;
    pub const NFPROTO: u32 = 15;
    pub const L4PROTO: u32 = 16;
}

/// `NFT_CT_*`.
pub(super) mod ct_key {
    pub const STATE: u32 = 0;
    pub const DIRECTION: u32 = 1;
    pub const STATUS: u32 = 2;
    pub const MARK: u32 = 3;
    pub const SECMARK: u32 = 4;
    pub const L3PROTOCOL: u32 = 7;
    pub const SRC: u32 = 8;
    pub const DST: u32 = 9;
    pub const PROTOCOL: u32 = 10;
    pub const PROTO_SRC: u32 = 11;
    pub const PROTO_DST: u32 = 12;
    pub const LABELS: u32 = 13;
    pub const ZONE: u32 = 17;
    pub const EVENTMASK: u32 = 18;
    pub const SRC_IP: u32 = 19;
    pub const DST_IP: u32 = 20;
    pub const SRC_IP6: u32 = 21;
    pub const DST_IP6: u32 = 22;
}

/// `NF_CT_STATE_INVALID_BIT`, `NF_CT_STATE_BIT(IP_CT_NEW)`, `NF_CT_STATE_UNTRACKED_BIT`.
const STATE_INVALID: u32 = 1;
const STATE_NEW: u32 = 8;
const STATE_UNTRACKED: u32 = 64;

/// The longest name of an interface, `IFNAMSIZ`.
const NAME_LENGTH: usize = 16;
/// The longest value that a register holds, for those of unknown length.
const LONGEST: u32 = 16;

fn number(value: u32) -> Loaded {
    Loaded::Value(Key::exactly(&value.to_ne_bytes()))
}

fn bytes(value: &[u8]) -> Loaded {
    Loaded::Value(Key::exactly(value))
}

/// A property of the packet (`nft_meta_get_eval` of `net/netfilter/nft_meta.c`).
pub(super) fn meta(flight: &Flight, node: &Node, key: u32) -> Loaded {
    match key {
        meta_key::PROTOCOL => bytes(if flight.family == NfFamily::IPV4 { &[0x08, 0x00] } else { &[0x86, 0xdd] }),
        meta_key::MARK => number(flight.mark),
        meta_key::PRIORITY => flight.priority.map_or(Loaded::Value(Key::unknown(4)), number),
        meta_key::IIF => interface_index(&flight.incoming, node),
        meta_key::OIF => interface_index(&flight.outgoing, node),
        meta_key::IIFNAME => interface_name(&flight.incoming),
        meta_key::OIFNAME => interface_name(&flight.outgoing),
        meta_key::NFPROTO => bytes(&[flight.family.0]),
        meta_key::L4PROTO => bytes(&[flight.protocol.number()]),
        _ => Loaded::MayBreak(LONGEST),
    }
}

fn interface_name(interface: &Interface) -> Loaded {
    let mut name = [0; NAME_LENGTH];
    match interface {
        Interface::None => {}
        Interface::Named(text) if text.len() < NAME_LENGTH => name[..text.len()].copy_from_slice(text.as_bytes()),
        _ => return Loaded::Value(Key::unknown(NAME_LENGTH)),
    }
    bytes(&name)
}

fn interface_index(interface: &Interface, node: &Node) -> Loaded {
    let index = match interface {
        Interface::None => Some(0),
        Interface::Named(name) => node.index(name),
        Interface::Unknown => None,
    };
    index.map_or(Loaded::Value(Key::unknown(4)), number)
}

/// A property of the connection (`nft_ct_get_eval` of `net/netfilter/nft_ct.c`).
pub(super) fn ct(flight: &Flight, key: u32, direction: Option<u8>) -> Loaded {
    match (key, flight.tracking) {
        (ct_key::STATE, Tracking::NotYet) => return number(STATE_INVALID),
        (ct_key::STATE, Tracking::Untracked) => return number(STATE_UNTRACKED),
        (ct_key::STATE, Tracking::New) => return number(STATE_NEW),
        (_, Tracking::New) => {}
        _ => return Loaded::Breaks,
    }
    let Tuple { source, source_port, destination } = flight.original;
    // towards the sender: from where the packet goes by now, to whom it comes from by now
    let (from, from_port, to, to_port) = match direction {
        Some(1) => {
            (Some(flight.destination.ip()), Some(flight.destination.port()), flight.source_ip(), flight.source_port)
        }
        _ => (Some(source), source_port, Some(destination.ip()), Some(destination.port())),
    };
    let v4 = flight.family == NfFamily::IPV4;
    match key {
        ct_key::DIRECTION => bytes(&[0]),
        ct_key::STATUS => ct_status(flight),
        ct_key::MARK => number(flight.connection_mark),
        ct_key::L3PROTOCOL => bytes(&[flight.family.0]),
        ct_key::PROTOCOL => bytes(&[flight.protocol.number()]),
        ct_key::ZONE => bytes(&0u16.to_ne_bytes()),
        ct_key::SRC => address(from, v4),
        ct_key::DST => address(to, v4),
        ct_key::SRC_IP if v4 => address(from, v4),
        ct_key::DST_IP if v4 => address(to, v4),
        ct_key::SRC_IP6 if !v4 => address(from, v4),
        ct_key::DST_IP6 if !v4 => address(to, v4),
        ct_key::SRC_IP | ct_key::DST_IP | ct_key::SRC_IP6 | ct_key::DST_IP6 => Loaded::Breaks,
        ct_key::PROTO_SRC => port(from_port),
        ct_key::PROTO_DST => port(to_port),
        _ => Loaded::MayBreak(LONGEST),
    }
}

fn ct_status(flight: &Flight) -> Loaded {
    let known = !flight.status_unknown;
    Loaded::Value(Key {
        bytes: Bytes::from_slice(&(flight.status & known).to_ne_bytes()),
        known: Bytes::from_slice(&known.to_ne_bytes()),
    })
}

fn address(ip: Option<IpAddr>, v4: bool) -> Loaded {
    match ip {
        Some(IpAddr::V4(ip)) => bytes(&ip.octets()),
        Some(IpAddr::V6(ip)) => bytes(&ip.octets()),
        None => Loaded::Value(Key::unknown(if v4 { 4 } else { 16 })),
    }
}

fn port(port: Option<u16>) -> Loaded {
    port.map_or(Loaded::Value(Key::unknown(2)), |port| bytes(&port.to_be_bytes()))
}

/// `NFT_FIB_RESULT_ADDRTYPE`, `NFTA_FIB_F_SADDR`, `NFTA_FIB_F_DADDR`.
const FIB_ADDRTYPE: u32 = 3;
const FIB_SADDR: u32 = 1;
const FIB_DADDR: u32 = 2;
/// `NFT_FIB_RESULT_OIF`, `NFTA_FIB_F_MARK`, `NFTA_FIB_F_IIF`, `NFTA_FIB_F_PRESENT`.
const FIB_OIF: u32 = 1;
const FIB_MARK: u32 = 4;
const FIB_IIF: u32 = 8;
const FIB_PRESENT: u32 = 32;
/// Whether the way back to the sender leads through where the packet came in.
const WAY_BACK: u32 = FIB_SADDR | FIB_IIF | FIB_PRESENT;

/// What the routing tables say of an address: what kind of address it is, whatever the interface; or of the sender's whether
/// the way back leads through the interface that the packet came in through.
pub(super) fn fib(flight: &Flight, hook: Hook, node: &Node, result: u32, flags: u32) -> Loaded {
    if (result, flags & !FIB_MARK) == (FIB_OIF, WAY_BACK) {
        return came_the_way_back(flight, hook, node)
            .map_or(Loaded::MayBreak(LONGEST), |present| bytes(&[u8::from(present)]));
    }
    let ip = match (result, flags) {
        (FIB_ADDRTYPE, FIB_SADDR) => flight.source_ip(),
        (FIB_ADDRTYPE, FIB_DADDR) => Some(flight.destination.ip()),
        _ => return Loaded::MayBreak(LONGEST),
    };
    // RTN_*
    match ip.map(|ip| node.address_type(ip)) {
        Some(AddressType::Unicast) => number(1),
        Some(AddressType::Local) => number(2),
        Some(AddressType::Broadcast) => number(3),
        Some(AddressType::Multicast) => number(5),
        // 1 or RTN_UNREACHABLE, which is 7
        Some(AddressType::NotLocal) => Loaded::Value(Key {
            bytes: Bytes::from_slice(&1u32.to_ne_bytes()),
            known: Bytes::from_slice(&(!6u32).to_ne_bytes()),
        }),
        // the node's own: it was masqueraded
        None => number(2),
    }
}

/// `nft_fib4_eval` and `nft_fib6_eval`. A packet of which it is not known through which interface it came in is one that came in
/// where the way back leads.
fn came_the_way_back(flight: &Flight, hook: Hook, node: &Node) -> Option<bool> {
    match &flight.incoming {
        Interface::None => None,
        Interface::Unknown => Some(true),
        Interface::Named(name) if name == LOOPBACK => (hook == Hook::Prerouting).then_some(true),
        Interface::Named(name) => node.leads_through(flight.source_ip()?, name),
    }
}

/// The connection was confirmed at the end of this hook (`nf_confirm`).
pub(super) fn confirm(flight: &mut Flight, hook: Hook) {
    if flight.tracking == Tracking::New && matches!(hook, Hook::Input | Hook::Postrouting) {
        flight.status |= status::CONFIRMED;
    }
}
