//! Which families a case is run in, and the IPv6 twin of every address.

use std::net::{IpAddr, Ipv6Addr};

use svcmap::objects::{Family, parse_address, parse_network};

/// Which families a case is run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// As it is written.
    V4,
    /// Its IPv6 twin.
    V6,
    /// Objects of both families, and the flows of both.
    Dual,
}

impl Stack {
    /// All of them.
    pub const ALL: [Stack; 3] = [Stack::V4, Stack::V6, Stack::Dual];

    /// The families of the objects and the flows.
    pub fn families(self) -> &'static [Family] {
        match self {
            Stack::V4 => &[Family::V4],
            Stack::V6 => &[Family::V6],
            Stack::Dual => &Family::BOTH,
        }
    }
}

/// What an address of a case is in a family: the text itself, or its IPv6 twin. What is no address stays as it is.
pub fn in_family(text: &str, family: Family) -> String {
    match (family, parse_address(text)) {
        (Family::V6, Some(IpAddr::V4(address))) => twin(address).to_string(),
        _ => text.to_owned(),
    }
}

/// The address in a family.
pub fn address(text: &str, family: Family) -> IpAddr {
    parse_address(&in_family(text, family)).unwrap_or_else(|| panic!("{text} is not an address"))
}

/// The same for a prefix.
pub fn network_in_family(text: &str, family: Family) -> String {
    match (family, parse_network(text)) {
        (Family::V4, _) | (_, None) => text.to_owned(),
        (_, Some(network)) if network.prefix_len() == 0 => "::/0".to_owned(),
        (_, Some(network)) if network.addr().is_loopback() => "::1/128".to_owned(),
        (_, Some(network)) => {
            format!("{}/{}", in_family(&network.addr().to_string(), family), network.prefix_len() + 96)
        }
    }
}

fn twin(address: std::net::Ipv4Addr) -> Ipv6Addr {
    if address.is_loopback() {
        return Ipv6Addr::LOCALHOST;
    }
    let [a, b, c, d] = address.octets();
    Ipv6Addr::new(0xfd00, 0x5c, 0, 0, 0, 0, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}
