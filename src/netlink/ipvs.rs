//! Virtual servers over generic netlink (`linux/ip_vs.h`). Numbers are in the host's byte order here, addresses and ports in
//! the network's.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::attr::{Attr, Reader, Writer};
use super::requests::{Request, Requests};
use super::uapi::NLM_F_DUMP;

/// `GENL_ID_CTRL`, which knows the numbers of the others.
const CONTROL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`.
const HEADER: usize = 4;

/// Commands, by the kernel's names.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Command {
    NewService = 1,
    SetService = 2,
    DelService = 3,
    GetService = 4,
    NewDest = 5,
    SetDest = 6,
    DelDest = 7,
    GetDest = 8,
    SetConfig = 12,
}

const CMD_ATTR_SERVICE: u16 = 1;
const CMD_ATTR_DEST: u16 = 2;
const CMD_ATTR_TIMEOUT_TCP: u16 = 4;

const SVC_ATTR_AF: u16 = 1;
const SVC_ATTR_PROTOCOL: u16 = 2;
const SVC_ATTR_ADDR: u16 = 3;
const SVC_ATTR_PORT: u16 = 4;
const SVC_ATTR_SCHED_NAME: u16 = 6;
const SVC_ATTR_FLAGS: u16 = 7;
const SVC_ATTR_TIMEOUT: u16 = 8;
const SVC_ATTR_NETMASK: u16 = 9;

const DEST_ATTR_ADDR: u16 = 1;
const DEST_ATTR_PORT: u16 = 2;
const DEST_ATTR_FWD_METHOD: u16 = 3;
const DEST_ATTR_WEIGHT: u16 = 4;
const DEST_ATTR_U_THRESH: u16 = 5;
const DEST_ATTR_L_THRESH: u16 = 6;
const DEST_ATTR_ACTIVE_CONNS: u16 = 7;
const DEST_ATTR_INACT_CONNS: u16 = 8;
const DEST_ATTR_ADDR_FAMILY: u16 = 11;

/// `IP_VS_SVC_F_PERSISTENT`.
const PERSISTENT: u32 = 1;
/// `IP_VS_SVC_F_HASHED`, which the kernel sets by itself.
const HASHED: u32 = 2;
/// `IP_VS_CONN_F_MASQ`: the destination is translated.
const TRANSLATED: u32 = 0;

/// A virtual server's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Service {
    /// The protocol's number in the IP header.
    pub protocol: u8,
    /// Where clients send to.
    pub address: SocketAddr,
}

/// What a virtual server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Which scheduler.
    pub scheduler: String,
    /// The scheduler's flags, `IP_VS_SVC_F_SCHED…`.
    pub flags: u32,
    /// For how many seconds a client stays with its real server.
    pub persistence: Option<u32>,
}

/// A real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where it listens.
    pub address: SocketAddr,
    /// How much of the connections it gets; with 0 it only keeps those that it has.
    pub weight: u32,
    /// Connections that it has, closed ones among them that are remembered.
    pub connections: u32,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A virtual server that was not there.
    AddService(Service, Scheduling),
    /// Another scheduling for one.
    ChangeService(Service, Scheduling),
    /// One that is gone, with its real servers.
    DeleteService(Service),
    /// A real server more, with its weight.
    AddDestination(Service, SocketAddr, u32),
    /// Another weight.
    Weigh(Service, SocketAddr, u32),
    /// A real server less.
    DeleteDestination(Service, SocketAddr),
}

/// A connection to the kernel's IPVS.
#[derive(Debug)]
pub struct Ipvs {
    requests: Requests,
    family: u16,
}

impl Ipvs {
    /// Opens a connection in the current network namespace. The kernel loads the module if there is one.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] where the kernel has no IPVS.
    pub fn open() -> io::Result<Ipvs> {
        let mut requests = Requests::open(libc::NETLINK_GENERIC)?;
        let header = [CTRL_CMD_GETFAMILY, 1, 0, 0];
        let request = Request::new(CONTROL, 0, &header, |w| w.text(CTRL_ATTR_FAMILY_NAME, "IPVS"));
        let mut family = None;
        requests.ask(&request, |body| family = attrs(body).find(CTRL_ATTR_FAMILY_ID).and_then(u16_of))?;
        let family = family.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ipvs { requests, family })
    }

    /// All virtual servers that are known by an address.
    ///
    /// # Errors
    /// Those of asking.
    pub fn services(&mut self) -> io::Result<Vec<(Service, Scheduling)>> {
        let request = self.request(Command::GetService, NLM_F_DUMP, |_| ());
        let mut services = Vec::new();
        self.requests.ask(&request, |body| {
            services.extend(attrs(body).find(CMD_ATTR_SERVICE).and_then(|service| read_service(service.attrs())));
        })?;
        Ok(services)
    }

    /// The real servers of a virtual one.
    ///
    /// # Errors
    /// Those of asking.
    pub fn destinations(&mut self, service: &Service) -> io::Result<Vec<Destination>> {
        let request =
            self.request(Command::GetDest, NLM_F_DUMP, |w| w.nest(CMD_ATTR_SERVICE, |w| put_service(w, service)));
        let mut destinations = Vec::new();
        self.requests.ask(&request, |body| {
            let of = |dest: Attr| read_destination(dest.attrs(), service.address.ip());
            destinations.extend(attrs(body).find(CMD_ATTR_DEST).and_then(of));
        })?;
        Ok(destinations)
    }

    /// Does all steps, each by itself, in order. Returns how many bytes that took, and the steps that were refused, with the
    /// error number.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn carry_out(&mut self, steps: &[Step]) -> io::Result<(usize, Vec<(usize, i32)>)> {
        let requests: Vec<Request> = steps.iter().map(|step| self.step(step)).collect();
        Ok((requests.iter().map(Request::size).sum(), self.requests.send(&requests)?))
    }

    /// How many seconds TCP sessions, TCP sessions after a FIN, and UDP flows are remembered; 0 leaves the value.
    ///
    /// # Errors
    /// Those of asking.
    pub fn set_timeouts(&mut self, seconds: [u32; 3]) -> io::Result<()> {
        let request = self.request(Command::SetConfig, 0, |w| {
            (CMD_ATTR_TIMEOUT_TCP..).zip(seconds).for_each(|(kind, seconds)| put_u32(w, kind, seconds));
        });
        self.requests.ask(&request, |_| ())
    }

    fn step(&self, step: &Step) -> Request {
        let service = |command, service: &Service, scheduling: Option<&Scheduling>| {
            self.request(command, 0, |w| {
                w.nest(CMD_ATTR_SERVICE, |w| {
                    put_service(w, service);
                    scheduling.into_iter().for_each(|scheduling| put_scheduling(w, service, scheduling));
                });
            })
        };
        let destination = |command, service: &Service, address: SocketAddr, weight: Option<u32>| {
            self.request(command, 0, |w| {
                w.nest(CMD_ATTR_SERVICE, |w| put_service(w, service));
                w.nest(CMD_ATTR_DEST, |w| put_destination(w, address, weight));
            })
        };
        match step {
            Step::AddService(id, scheduling) => service(Command::NewService, id, Some(scheduling)),
            Step::ChangeService(id, scheduling) => service(Command::SetService, id, Some(scheduling)),
            Step::DeleteService(id) => service(Command::DelService, id, None),
            Step::AddDestination(id, address, weight) => destination(Command::NewDest, id, *address, Some(*weight)),
            Step::Weigh(id, address, weight) => destination(Command::SetDest, id, *address, Some(*weight)),
            Step::DeleteDestination(id, address) => destination(Command::DelDest, id, *address, None),
        }
    }

    fn request(&self, command: Command, flags: u16, attributes: impl FnOnce(&mut Writer)) -> Request {
        Request::new(self.family, flags, &[command as u8, 1, 0, 0], attributes)
    }
}

fn attrs(body: &[u8]) -> Reader<'_> {
    Reader::new(body.get(HEADER..).unwrap_or_default())
}

fn put_u16(w: &mut Writer, kind: u16, value: u16) {
    w.put(kind, &value.to_ne_bytes());
}

fn put_u32(w: &mut Writer, kind: u16, value: u32) {
    w.put(kind, &value.to_ne_bytes());
}

fn af(ip: IpAddr) -> u16 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u16
}

/// `union nf_inet_addr`.
fn put_address(w: &mut Writer, kind: u16, ip: IpAddr) {
    let mut bytes = [0; 16];
    match ip {
        IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes = ip.octets(),
    }
    w.put(kind, &bytes);
}

fn put_service(w: &mut Writer, service: &Service) {
    put_u16(w, SVC_ATTR_AF, af(service.address.ip()));
    put_u16(w, SVC_ATTR_PROTOCOL, service.protocol.into());
    put_address(w, SVC_ATTR_ADDR, service.address.ip());
    w.u16(SVC_ATTR_PORT, service.address.port());
}

fn put_scheduling(w: &mut Writer, service: &Service, scheduling: &Scheduling) {
    w.text(SVC_ATTR_SCHED_NAME, &scheduling.scheduler);
    let flags = scheduling.flags | if scheduling.persistence.is_some() { PERSISTENT } else { 0 };
    // `struct ip_vs_flags`: the flags, and which of them are meant
    w.put_all(SVC_ATTR_FLAGS, [&flags.to_ne_bytes(), &u32::MAX.to_ne_bytes()]);
    put_u32(w, SVC_ATTR_TIMEOUT, scheduling.persistence.unwrap_or(0));
    // a client is a single address: all of the mask's bits in IPv4, the length of the prefix in IPv6
    put_u32(w, SVC_ATTR_NETMASK, if service.address.is_ipv4() { u32::MAX } else { 128 });
}

fn put_destination(w: &mut Writer, address: SocketAddr, weight: Option<u32>) {
    put_address(w, DEST_ATTR_ADDR, address.ip());
    w.u16(DEST_ATTR_PORT, address.port());
    put_u16(w, DEST_ATTR_ADDR_FAMILY, af(address.ip()));
    if let Some(weight) = weight {
        put_u32(w, DEST_ATTR_FWD_METHOD, TRANSLATED);
        put_u32(w, DEST_ATTR_WEIGHT, weight);
        put_u32(w, DEST_ATTR_U_THRESH, 0);
        put_u32(w, DEST_ATTR_L_THRESH, 0);
    }
}

fn u16_of(attr: Attr) -> Option<u16> {
    attr.value.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_of(attr: Attr) -> Option<u32> {
    Some(u32::from_ne_bytes(*attr.value.first_chunk()?))
}

fn address_of(is_v4: bool, ip: Attr, port: Attr) -> Option<SocketAddr> {
    let bytes: &[u8; 16] = ip.value.first_chunk()?;
    let ip = if is_v4 { IpAddr::from(*bytes.first_chunk::<4>()?) } else { IpAddr::from(*bytes) };
    Some(SocketAddr::new(ip, port.u16()?))
}

/// Nothing for one that is known by a firewall mark.
fn read_service(attrs: Reader) -> Option<(Service, Scheduling)> {
    let is_v4 = u16_of(attrs.find(SVC_ATTR_AF)?)? == af(IpAddr::from([0; 4]));
    let address = address_of(is_v4, attrs.find(SVC_ATTR_ADDR)?, attrs.find(SVC_ATTR_PORT)?)?;
    let protocol = u8::try_from(u16_of(attrs.find(SVC_ATTR_PROTOCOL)?)?).ok()?;
    let flags = u32_of(attrs.find(SVC_ATTR_FLAGS)?)?;
    let timeout = u32_of(attrs.find(SVC_ATTR_TIMEOUT)?)?;
    let scheduling = Scheduling {
        scheduler: attrs.find(SVC_ATTR_SCHED_NAME)?.text().into_owned(),
        flags: flags & !(PERSISTENT | HASHED),
        persistence: (flags & PERSISTENT != 0).then_some(timeout),
    };
    Some((Service { protocol, address }, scheduling))
}

fn read_destination(attrs: Reader, of: IpAddr) -> Option<Destination> {
    // kernels before 3.18 do not say the family: it is the virtual server's
    let family = attrs.find(DEST_ATTR_ADDR_FAMILY).and_then(u16_of).unwrap_or(af(of));
    let is_v4 = family == af(IpAddr::from([0; 4]));
    let count = |kind| attrs.find(kind).and_then(u32_of).unwrap_or(0);
    Some(Destination {
        address: address_of(is_v4, attrs.find(DEST_ATTR_ADDR)?, attrs.find(DEST_ATTR_PORT)?)?,
        weight: count(DEST_ATTR_WEIGHT),
        connections: count(DEST_ATTR_ACTIVE_CONNS) + count(DEST_ATTR_INACT_CONNS),
    })
}
