//! A dummy interface and its addresses, over rtnetlink (`linux/rtnetlink.h`).

use std::io;
use std::net::IpAddr;

use super::requests::{Request, Requests};
use super::uapi::{IFINFO, IFLA_IFNAME, NLM_F_CREATE};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
/// Fails where there is one.
const NLM_F_EXCL: u16 = 0x200;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_CACHEINFO: u16 = 6;
/// `struct ifa_cacheinfo` of an address that is there for ever and never preferred: the kernel does not send from it by itself.
const NEVER_PREFERRED: [u32; 4] = [0, u32::MAX, 0, 0];
/// `IFA_F_NODAD`: nobody else is asked whether an IPv6 address is free.
const NODAD: u8 = 2;
/// `struct ifaddrmsg`.
const ADDRESS_HEADER: usize = 8;

/// A connection to the kernel's interfaces.
#[derive(Debug)]
pub struct Interfaces(Requests);

impl Interfaces {
    /// Opens a connection in the current network namespace.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn open() -> io::Result<Interfaces> {
        Ok(Interfaces(Requests::open(libc::NETLINK_ROUTE)?))
    }

    /// Makes a dummy interface unless there is an interface of that name; says whether it did.
    ///
    /// # Errors
    /// The kernel has no dummy interfaces, or lets us make none.
    pub fn add_dummy(&mut self, name: &str) -> io::Result<bool> {
        let request = Request::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &[0; IFINFO], |w| {
            w.text(IFLA_IFNAME, name);
            w.nest(IFLA_LINKINFO, |w| w.text(IFLA_INFO_KIND, "dummy"));
        });
        match self.0.ask(&request, |_| ()) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Gives an interface these addresses, IPv6 ones so that nothing is sent from them that need not be, and takes
    /// those from it. Returns how many bytes that took, and the first that was refused, with the reason.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn change<'a>(
        &mut self,
        interface: u32,
        add: impl IntoIterator<Item = &'a IpAddr>,
        delete: impl IntoIterator<Item = &'a IpAddr>,
    ) -> io::Result<(usize, Option<(IpAddr, io::Error)>)> {
        let delete = delete.into_iter().map(|ip| (*ip, RTM_DELADDR, 0));
        let steps: Vec<_> = delete.chain(add.into_iter().map(|ip| (*ip, RTM_NEWADDR, NLM_F_CREATE))).collect();
        let requests: Vec<Request> =
            steps.iter().map(|(ip, kind, flags)| address_request(*kind, *flags, interface, *ip)).collect();
        let refused = self.0.send(&requests)?;
        // one that is gone already is as it should be
        let real = refused.into_iter().find(|(_, errno)| *errno != libc::EADDRNOTAVAIL && *errno != libc::EEXIST);
        let real = real.map(|(at, errno)| (steps[at].0, io::Error::from_raw_os_error(errno)));
        Ok((requests.iter().map(Request::size).sum(), real))
    }
}

fn address_request(kind: u16, flags: u16, interface: u32, ip: IpAddr) -> Request {
    let (family, length, own_flags) = match ip {
        IpAddr::V4(_) => (libc::AF_INET as u8, 32, 0),
        IpAddr::V6(_) => (libc::AF_INET6 as u8, 128, NODAD),
    };
    let mut header = [0; ADDRESS_HEADER];
    header[..3].copy_from_slice(&[family, length, own_flags]);
    header[4..].copy_from_slice(&interface.to_ne_bytes());
    Request::new(kind, flags, &header, |w| match ip {
        IpAddr::V4(ip) => w.put(IFA_LOCAL, &ip.octets()),
        IpAddr::V6(ip) => {
            w.put(IFA_LOCAL, &ip.octets());
            w.put(IFA_CACHEINFO, NEVER_PREFERRED.map(u32::to_ne_bytes).as_flattened());
        }
    })
}
