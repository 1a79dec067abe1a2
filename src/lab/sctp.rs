//! SCTP, as far as rules see it: the first two packets of a connection, over raw sockets.
//!
//! Rules and connection tracking treat SCTP whether or not the kernel can end such connections. So this shows where a
//! connection goes also where the kernel has no SCTP of its own: the client's INIT carries the ports, and the server's
//! INIT ACK carries its answer in the place of the state cookie. A kernel that has SCTP tells both sides, by an ABORT,
//! that it knows nothing of their connection; nobody here listens to that. Its own sockets would not do: they take no
//! notice of an ICMP port unreachable.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use super::client::{Answer, not_an_answer, said};
use crate::objects::Protocol;

/// A tag that our INITs carry, and that their answers must carry in turn.
const TAG: u32 = 0x5653_4d31;
/// The source port of clients that did not choose one.
const ANY_PORT: u16 = 36412;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const STATE_COOKIE: u16 = 7;

fn protocol() -> socket2::Protocol {
    i32::from(Protocol::Sctp.number()).into()
}

/// A raw socket for SCTP at one address, in the guise of the standard library's type for datagrams.
fn raw_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::RAW, Some(protocol()))?;
    socket.bind(&SocketAddr::new(address.ip(), 0).into())?;
    Ok(socket.into())
}

/// Opens a connection and reads who answered.
pub(super) fn ask(source: SocketAddr, to: SocketAddr, patience: Duration) -> io::Result<Answer> {
    let socket = raw_socket(source)?;
    socket.connect(SocketAddr::new(to.ip(), 0))?;
    let client = SocketAddr::new(socket.local_addr()?.ip(), if source.port() == 0 { ANY_PORT } else { source.port() });
    match socket.send(&packet(client.port(), to.port(), 0, INIT, &[])) {
        // as with UDP: rules of the client's own node, and what they do is told by what can be received
        Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {}
        sent => drop(sent?),
    }
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer)?;
        let Some(packet) = Packet::parse(strip_ip(&buffer[..length], to)) else { continue };
        let ours = packet.kind == INIT_ACK && packet.source_port == to.port() && packet.port == client.port();
        if ours && packet.tag == TAG {
            let text = String::from_utf8_lossy(packet.cookie);
            return Answer::read(&text, client).ok_or_else(|| not_an_answer(&text));
        }
    }
}

/// What serves one address and port.
pub(super) struct RawServer {
    socket: UdpSocket,
    address: SocketAddr,
}

impl RawServer {
    pub(super) fn open(address: SocketAddr) -> io::Result<RawServer> {
        let socket = raw_socket(address)?;
        socket.set_nonblocking(true)?;
        Ok(RawServer { socket, address })
    }

    /// Answers what came in. Packets to other ports of the address are other servers'.
    pub(super) fn answer(&self, name: &str) {
        let mut buffer = [0; 2048];
        while let Ok((length, sender)) = self.socket.recv_from(&mut buffer) {
            let Some(init) = Packet::parse(strip_ip(&buffer[..length], self.address)) else { continue };
            if init.kind == INIT && init.port == self.address.port() {
                let client = SocketAddr::new(sender.ip(), init.source_port);
                let text = said(name, self.address, client);
                let reply = packet(init.port, init.source_port, init.init_tag, INIT_ACK, text.as_bytes());
                // A client that cannot be reached any more does not wait for its answer.
                let _ = self.socket.send_to(&reply, SocketAddr::new(client.ip(), 0));
            }
        }
    }
}

impl AsFd for RawServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Raw IPv4 sockets hand out the IP header too, raw IPv6 sockets do not.
fn strip_ip(bytes: &[u8], address: SocketAddr) -> &[u8] {
    if address.is_ipv6() {
        return bytes;
    }
    let header = bytes.first().map_or(0, |b| usize::from(b & 0xf) * 4);
    bytes.get(header..).unwrap_or_default()
}

/// An INIT or INIT ACK, as far as it matters here (RFC 9260, sections 3.3.2 and 3.3.3).
struct Packet<'a> {
    source_port: u16,
    port: u16,
    tag: u32,
    kind: u8,
    init_tag: u32,
    cookie: &'a [u8],
}

impl Packet<'_> {
    fn parse(bytes: &[u8]) -> Option<Packet<'_>> {
        let u16_at = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let cookie = match u16_at(32) {
            Some(STATE_COOKIE) => bytes.get(36..32 + usize::from(u16_at(34)?))?,
            _ => &[],
        };
        Some(Packet {
            source_port: u16_at(0)?,
            port: u16_at(2)?,
            tag: u32_at(4)?,
            kind: *bytes.get(12)?,
            init_tag: u32_at(16)?,
            cookie,
        })
    }
}

fn packet(source_port: u16, port: u16, tag: u32, kind: u8, cookie: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(source_port.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.extend(tag.to_be_bytes());
    bytes.extend([0; 4]); // the checksum
    let parameter = if cookie.is_empty() { 0 } else { 4 + cookie.len() };
    let length = |l: usize| u16::try_from(l).expect("answers are short").to_be_bytes();
    bytes.extend([kind, 0]);
    bytes.extend(length(20 + parameter));
    bytes.extend(TAG.to_be_bytes());
    bytes.extend(65536u32.to_be_bytes()); // the receiver's window
    bytes.extend([0, 1, 0, 1]); // one stream each way
    bytes.extend(1u32.to_be_bytes()); // the first sequence number
    if parameter > 0 {
        bytes.extend(STATE_COOKIE.to_be_bytes());
        bytes.extend(length(parameter));
        bytes.extend(cookie);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let checksum = crc32c(&bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&checksum);
    bytes
}

/// The checksum of SCTP (RFC 9260, appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        let bytes = packet(4000, 80, 7, INIT_ACK, b"a 1.2.3.4:80 5.6.7.8:4000\n");
        assert_eq!(bytes.len() % 4, 0);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.source_port, packet.port, packet.tag, packet.kind), (4000, 80, 7, INIT_ACK));
        assert_eq!((packet.init_tag, packet.cookie), (TAG, &b"a 1.2.3.4:80 5.6.7.8:4000\n"[..]));
        for end in 0..bytes.len() {
            let _ = Packet::parse(&bytes[..end]);
        }
    }
}
