//! Where fields stand in their headers, and what their values are.

use super::bytes::Kind;

/// `NFT_PAYLOAD_*`.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

/// The base, the offset and the length of a field, and what its value is; none of a field that is not at a fixed place, or
/// that is of some bits only.
pub fn field(header: &str, field: &str) -> Option<(u32, u32, Kind)> {
    let network = |offset, kind| Some((NETWORK, offset, kind));
    let transport = |offset, kind| Some((TRANSPORT, offset, kind));
    match (header, field) {
        ("ip", "length") => network(2, Kind::Short),
        ("ip", "id") => network(4, Kind::Short),
        ("ip", "frag-off") => network(6, Kind::Short),
        ("ip", "ttl") => network(8, Kind::Byte),
        ("ip", "protocol") => network(9, Kind::Protocol),
        ("ip", "saddr") => network(12, Kind::Ipv4),
        ("ip", "daddr") => network(16, Kind::Ipv4),
        ("ip6", "length") => network(4, Kind::Short),
        ("ip6", "nexthdr") => network(6, Kind::Protocol),
        ("ip6", "hoplimit") => network(7, Kind::Byte),
        ("ip6", "saddr") => network(8, Kind::Ipv6),
        ("ip6", "daddr") => network(24, Kind::Ipv6),
        ("tcp" | "udp" | "udplite" | "sctp" | "dccp" | "th", "sport") => transport(0, Kind::Port),
        ("tcp" | "udp" | "udplite" | "sctp" | "dccp" | "th", "dport") => transport(2, Kind::Port),
        ("tcp", "sequence") => transport(4, Kind::Long),
        ("tcp", "ackseq") => transport(8, Kind::Long),
        ("tcp", "flags") => transport(13, Kind::TcpFlags),
        ("tcp", "window") => transport(14, Kind::Short),
        ("udp", "length") => transport(4, Kind::Short),
        _ => None,
    }
}
