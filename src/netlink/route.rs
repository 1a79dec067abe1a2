//! The node's interfaces, addresses and routes over rtnetlink: what decides over packets beside the rules.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

use super::attr::{Attr, Reader};
use super::message::{done_errno, messages, reply};
use super::sys::Socket;
use super::uapi::{NETLINK_HEADER, NLMSG_DONE};

/// `RTM_GETLINK`, `RTM_GETADDR`, `RTM_GETROUTE`.
const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// Room for one datagram of a dump.
const DATAGRAM: usize = 64 << 10;
/// `RT_TABLE_MAIN`, `RTN_UNICAST`.
const TABLE_MAIN: u32 = 254;
const UNICAST: u8 = 1;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What kind of virtual interface it is, such as `bridge`; empty for others.
    pub kind: String,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<IpAddr>,
}

/// A route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// To where.
    pub to: IpNet,
    /// The number of the interface; of several next hops, the first one's.
    pub interface: u32,
    /// Of routes to the same prefix, the one with the lowest is taken.
    pub metric: u32,
}

/// The interfaces of the current network namespace with their addresses.
///
/// # Errors
/// Those of the socket.
pub fn links() -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    dump(GET_LINK, 16, |body, attrs| {
        let index = u32_at(body, 4)?;
        let name = attrs.find(3)?.text().into_owned(); // IFLA_IFNAME
        // IFLA_LINKINFO, IFLA_INFO_KIND
        let kind = attrs.find(18).and_then(|info| info.attrs().find(1)).map(|kind| kind.text().into_owned());
        links.push(Link { index, name, kind: kind.unwrap_or_default(), addresses: Vec::new() });
        Some(())
    })?;
    dump(GET_ADDRESS, 8, |body, attrs| {
        let index = u32_at(body, 4)?;
        let address = attrs.find(2).or_else(|| attrs.find(1)).and_then(ip)?; // IFA_LOCAL, IFA_ADDRESS
        links.iter_mut().find(|link| link.index == index)?.addresses.push(address);
        Some(())
    })?;
    Ok(links)
}

/// The unicast routes of the current network namespace's main table.
///
/// # Errors
/// Those of the socket.
pub fn routes() -> io::Result<Vec<Route>> {
    let mut routes = Vec::new();
    dump(GET_ROUTE, 12, |body, attrs| {
        let (family, prefix, kind) = (*body.first()?, *body.get(1)?, *body.get(7)?);
        // RTA_TABLE, where the number does not fit into the header
        let table = attrs.find(15).and_then(number).unwrap_or(u32::from(*body.get(4)?));
        if table != TABLE_MAIN || kind != UNICAST {
            return None;
        }
        let nowhere = match i32::from(family) {
            libc::AF_INET => IpAddr::from([0; 4]),
            libc::AF_INET6 => IpAddr::from([0; 16]),
            _ => return None,
        };
        let to = attrs.find(1).map_or(Some(nowhere), ip)?; // RTA_DST
        // RTA_OIF, or that of the first of RTA_MULTIPATH's `struct rtnexthop`
        let interface = attrs.find(4).and_then(number).or_else(|| u32_at(attrs.find(9)?.value, 4))?;
        let metric = attrs.find(6).and_then(number).unwrap_or_default(); // RTA_PRIORITY
        routes.push(Route { to: IpNet::new(to, prefix).ok()?, interface, metric });
        Some(())
    })?;
    Ok(routes)
}

/// Asks for all objects of a kind, and hands on the header and the attributes of each. What cannot be read is left out.
fn dump(kind: u16, header: usize, mut each: impl FnMut(&[u8], Reader) -> Option<()>) -> io::Result<()> {
    let socket = Socket::open_route()?;
    let mut request = Vec::with_capacity(NETLINK_HEADER + header);
    request.extend_from_slice(&((NETLINK_HEADER + header) as u32).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&DUMP.to_ne_bytes());
    request.extend_from_slice(&1u32.to_ne_bytes());
    request.resize(NETLINK_HEADER + header, 0);
    socket.send(&request)?;
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let length = socket.receive(&mut buffer, true)?;
        for message in messages(&buffer[..length]) {
            if message.kind == NLMSG_DONE {
                return done_errno(&message).map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)));
            }
            if let Some(reply) = reply(&message) {
                return Err(io::Error::from_raw_os_error(reply.errno));
            }
            if let Some(body) = message.bytes.get(NETLINK_HEADER..)
                && let Some(attrs) = body.get(header..)
            {
                each(body, Reader::new(attrs));
            }
        }
    }
}

/// rtnetlink's numbers are in host byte order.
fn number(attr: Attr) -> Option<u32> {
    u32_at(attr.value, 0)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn ip(attr: Attr) -> Option<IpAddr> {
    match attr.value.len() {
        4 => <[u8; 4]>::try_from(attr.value).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(attr.value).ok().map(IpAddr::from),
        _ => None,
    }
}
