//! The headers of the packet, as far as its addresses, ports and protocol tell them.

use std::net::IpAddr;

use super::flight::Flight;
use super::loads::Loaded;
use super::registers::Key;
use crate::netlink::model::{Bytes, NfFamily};
use crate::objects::Protocol;

/// `NFT_PAYLOAD_*`.
const LINK: u32 = 0;
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

/// A header of which not every bit is known.
struct Header {
    bytes: Vec<u8>,
    known: Vec<u8>,
}

impl Header {
    fn unknown(length: usize) -> Header {
        Header { bytes: vec![0; length], known: vec![0; length] }
    }

    /// Says some bits of a byte.
    fn bits(&mut self, at: usize, value: u8, known: u8) {
        (self.bytes[at], self.known[at]) = (value, known);
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        value.iter().enumerate().for_each(|(i, byte)| self.bits(at + i, *byte, 0xff));
    }

    fn put_ip(&mut self, at: usize, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => self.put(at, &ip.octets()),
            IpAddr::V6(ip) => self.put(at, &ip.octets()),
        }
    }
}

/// What a `payload` expression loads.
pub(super) fn payload(flight: &Flight, base: u32, offset: u32, length: u32) -> Loaded {
    let header = match base {
        NETWORK => network(flight),
        TRANSPORT => transport(flight),
        // there may be no such header
        _ => return Loaded::MayBreak(length),
    };
    let range = offset as usize..offset as usize + length as usize;
    match (header.bytes.get(range.clone()), header.known.get(range)) {
        (Some(bytes), Some(known)) => {
            Loaded::Value(Key { bytes: Bytes::from_slice(bytes), known: Bytes::from_slice(known) })
        }
        // what is behind the header may not be there
        _ => Loaded::MayBreak(length),
    }
}

/// Whether a packet still goes the same way after this was written into it: its addresses, its ports and all else that is known
/// of it stay, and it is let on by the next router.
pub(super) fn keeps_its_way(flight: &Flight, base: u32, offset: u32, value: &Key) -> bool {
    let v4 = flight.family == NfFamily::IPV4;
    let (header, addresses, hops) = match base {
        LINK => return true,
        NETWORK if v4 => (network(flight), 12..20, 8),
        NETWORK => (network(flight), 8..40, 7),
        TRANSPORT => (transport(flight), 0..4, usize::MAX),
        _ => return false,
    };
    let written = (offset as usize..).zip(value.bytes.iter().zip(&value.known));
    written.take_while(|(at, _)| *at < header.bytes.len()).all(|(at, (byte, known))| {
        let (before, certain) = (header.bytes[at], header.known[at]);
        if addresses.contains(&at) {
            certain == 0xff && *known == 0xff && *byte == before
        } else if at == hops {
            *known == 0xff && *byte > 1
        } else {
            known & certain == certain && (byte ^ before) & certain == 0
        }
    })
}

/// The packet is taken to have no options, and to be no fragment: connection tracking has put those together.
fn network(flight: &Flight) -> Header {
    let source = flight.source_ip();
    let destination = flight.destination.ip();
    if flight.family == NfFamily::IPV4 {
        let mut header = Header::unknown(20);
        header.bits(0, 0x40, 0xf0); // version; the length is not known
        header.bits(6, 0, 0x3f); // "don't fragment" is not known
        header.put(7, &[0]);
        header.put(9, &[flight.protocol.number()]);
        source.into_iter().for_each(|ip| header.put_ip(12, ip));
        header.put_ip(16, destination);
        header
    } else {
        let mut header = Header::unknown(40);
        header.bits(0, 0x60, 0xf0);
        header.put(6, &[flight.protocol.number()]);
        source.into_iter().for_each(|ip| header.put_ip(8, ip));
        header.put_ip(24, destination);
        header
    }
}

fn transport(flight: &Flight) -> Header {
    let mut header = Header::unknown(match flight.protocol {
        Protocol::Tcp => 20,
        Protocol::Udp => 8,
        Protocol::Sctp => 12,
    });
    if let Some(port) = flight.source_port {
        header.put(0, &port.to_be_bytes());
    }
    header.put(2, &flight.destination.port().to_be_bytes());
    if flight.protocol == Protocol::Tcp {
        header.bits(13, 0x02, 0x3f); // SYN alone; the bits of congestion notification are not known
    }
    header
}
