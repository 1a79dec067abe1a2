//! Addresses, prefixes, families and protocols.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// An IP family. Rules of the two families live in tables of their own (`ip svcmap`, `ip6 svcmap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families, in the order in which they are programmed.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// The length of an address of this family, in bytes.
    pub const fn address_len(self) -> usize {
        match self {
            Family::V4 => 4,
            Family::V6 => 16,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// Things that belong to one IP family.
pub trait FamilyOf {
    /// The family of this address or prefix.
    fn family(&self) -> Family;
}

impl FamilyOf for IpAddr {
    fn family(&self) -> Family {
        if self.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl FamilyOf for IpNet {
    fn family(&self) -> Family {
        self.addr().family()
    }
}

/// A transport protocol that a Service port can have (behaviour row B5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP, protocol number 6.
    Tcp,
    /// UDP, protocol number 17.
    Udp,
    /// SCTP, protocol number 132.
    Sctp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// The number in the IP header.
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// The protocol with this number in the IP header.
    pub const fn from_number(number: u8) -> Option<Protocol> {
        match number {
            6 => Some(Protocol::Tcp),
            17 => Some(Protocol::Udp),
            132 => Some(Protocol::Sctp),
            _ => None,
        }
    }

    /// The protocol that nftables, iptables and ipset write as `tcp`, `udp` or `sctp`.
    pub fn from_name(text: &str) -> Option<Protocol> {
        match text {
            "tcp" => Some(Protocol::Tcp),
            "udp" => Some(Protocol::Udp),
            "sctp" => Some(Protocol::Sctp),
            _ => None,
        }
    }

    /// As Kubernetes writes it: `TCP`, `UDP` or `SCTP`.
    pub const fn kubernetes(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    /// The protocol that Kubernetes writes as `TCP`, `UDP` or `SCTP`.
    pub fn from_kubernetes(text: &str) -> Option<Protocol> {
        match text {
            "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            _ => None,
        }
    }
}

/// As `nft` writes it: `tcp`, `udp`, `sctp`.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        })
    }
}

/// Reads an address as older API objects may hold it: surrounding blanks and leading zeros in the parts of an IPv4
/// address are accepted and mean decimal (`172.30.0.041` is `172.30.0.41`; behaviour row A13). An IPv4 address
/// written inside IPv6 (`::ffff:10.0.0.1`) is the IPv4 address.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(|a| IpAddr::V6(a).to_canonical());
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Reads a prefix leniently, as [`parse_address`] does (`203.0.113.000/025`), and clears the host bits.
pub fn parse_network(text: &str) -> Option<IpNet> {
    let (address, length) = text.trim().split_once('/')?;
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = length.trim_start_matches('0');
    let length: u8 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let address = parse_address(address)?;
    IpNet::new(address, length).ok().map(|n| n.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case C20.
    #[test]
    fn text_addresses_are_read_leniently_and_become_canonical() {
        for (text, want) in [
            ("172.30.0.041", "172.30.0.41"),
            ("1.2.3.004", "1.2.3.4"),
            ("192.168.099.022", "192.168.99.22"),
            ("10.180.00.001", "10.180.0.1"),
            (" 10.0.0.1 ", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("fd00:0::01", "fd00::1"),
        ] {
            assert_eq!(parse_address(text).map(|a| a.to_string()).as_deref(), Some(want), "{text}");
        }
        assert_eq!(parse_network("203.0.113.000/025").unwrap().to_string(), "203.0.113.0/25");
        assert_eq!(parse_network(" 203.0.113.9/25 ").unwrap().to_string(), "203.0.113.0/25");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["", "10.0.0", "10.0.0.256", "10.0.0.1.2", "a.b.c.d", "10.0.0.-1", "10..0.1", "fd00:::1", "10.0.0.1/24"]
        {
            assert_eq!(parse_address(text), None, "{text}");
        }
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "/8", "fd00::/129", "10.0.0.0/+8"] {
            assert_eq!(parse_network(text), None, "{text}");
        }
    }
}
