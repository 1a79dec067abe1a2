//! What the host says of itself where nobody else does: its name and its addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use nix::ifaddrs::InterfaceAddress;
use nix::net::if_::InterfaceFlags;

use crate::objects::{Family, FamilyOf};

/// kube-proxy's dummy interface in its mode ipvs: it holds the addresses of Services, not of the node.
pub const IPVS_INTERFACE: &str = "kube-ipvs0";

/// The host's name, lower-cased.
pub fn name() -> io::Result<String> {
    let name = nix::unistd::gethostname()?;
    Ok(name.to_string_lossy().trim().to_lowercase())
}

/// The unicast addresses of the current network namespace that others can reach: those of interfaces that are up,
/// without loopback and link-local ones. In each family, the one that the default route leaves from comes first, and
/// those that somebody put on the loopback interface come last. Read once, where no Node object tells them (row F5).
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for interface in nix::ifaddrs::getifaddrs()? {
        let usable = interface.flags.contains(InterfaceFlags::IFF_UP) && interface.interface_name != IPVS_INTERFACE;
        let address = ip(&interface);
        let on_loopback = interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        addresses.extend(address.filter(|address| usable && is_global(address)).map(|address| (on_loopback, address)));
    }
    let primary = Family::BOTH.map(default_source);
    addresses
        .sort_by_key(|(on_loopback, address)| (address.family(), !primary.contains(&Some(*address)), *on_loopback));
    let mut addresses: Vec<IpAddr> = addresses.into_iter().map(|(_, address)| address).collect();
    addresses.dedup();
    Ok(addresses)
}

/// All addresses of all interfaces of the current network namespace, loopback and link-local ones too.
pub fn all_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(nix::ifaddrs::getifaddrs()?.filter_map(|interface| ip(&interface)).collect())
}

/// The same, each with the name of its interface.
pub fn addresses_by_interface() -> io::Result<Vec<(String, IpAddr)>> {
    let named = |interface: InterfaceAddress| ip(&interface).map(|ip| (interface.interface_name, ip));
    Ok(nix::ifaddrs::getifaddrs()?.filter_map(named).collect())
}

fn ip(interface: &InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address?;
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

fn is_global(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// The address that packets to the rest of the world leave from. The kernel is asked by connecting a UDP socket to
/// an address that is reserved for documentation; nothing is sent.
fn default_source(family: Family) -> Option<IpAddr> {
    const DISCARD: u16 = 9;
    let socket = match family {
        Family::V4 => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        Family::V6 => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }
    .ok()?;
    match family {
        Family::V4 => socket.connect((Ipv4Addr::new(192, 0, 2, 1), DISCARD)),
        Family::V6 => socket.connect((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), DISCARD)),
    }
    .ok()?;
    Some(socket.local_addr().ok()?.ip())
}
