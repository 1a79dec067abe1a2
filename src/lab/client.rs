//! One new connection, and what came of it.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use super::sctp;
use crate::objects::Protocol;

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The server's name.
    pub name: String,
    /// The address and port that the server was reached at.
    pub by: SocketAddr,
    /// The client's address and port, as the server saw them.
    pub seen: SocketAddr,
    /// The client's address and port, as the client knows them.
    pub client: SocketAddr,
}

impl Answer {
    /// Whether the client's address was replaced on the way.
    pub fn masqueraded(&self) -> bool {
        self.seen != self.client
    }

    /// Reads what [`said`] wrote, or the same behind an HTTP header.
    pub(super) fn read(text: &str, client: SocketAddr) -> Option<Answer> {
        let body = text.rsplit_once("\r\n\r\n").map_or(text, |(_, body)| body);
        let mut words = body.split_whitespace();
        let (name, by, seen) = (words.next()?, words.next()?, words.next()?);
        Some(Answer { name: name.to_owned(), by: by.parse().ok()?, seen: seen.parse().ok()?, client })
    }
}

/// What a server says to its client.
pub(super) fn said(name: &str, by: SocketAddr, seen: SocketAddr) -> String {
    format!("{name} {by} {seen}\n")
}

/// What came of a new connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A server answered.
    Answered(Answer),
    /// It was refused: by an ICMP port unreachable, or a TCP reset.
    Refused,
    /// Nothing came back in the time given.
    TimedOut,
    /// There is no way to the address.
    Unreachable,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Answered(a) => {
                let source = if a.masqueraded() { "masqueraded as" } else { "from" };
                write!(f, "answered by {} ({}), {source} {}", a.by, a.name, a.seen)
            }
            Outcome::Refused => f.write_str("refused"),
            Outcome::TimedOut => f.write_str("no answer"),
            Outcome::Unreachable => f.write_str("unreachable"),
        }
    }
}

/// Opens one new connection in the current network namespace, from `source` (port 0 picks one), and asks the server
/// at the other end who it is.
///
/// # Errors
/// When the source cannot be bound, or the connection breaks in a way that no rule and no server means it to.
pub fn probe(protocol: Protocol, source: SocketAddr, to: SocketAddr, patience: Duration) -> io::Result<Outcome> {
    let result = match protocol {
        Protocol::Tcp => stream(source, to, patience),
        Protocol::Udp => Conversation::open(source, to).and_then(|client| client.exchange(patience)),
        Protocol::Sctp => sctp::ask(source, to, patience),
    };
    outcome(result)
}

fn outcome(result: io::Result<Answer>) -> io::Result<Outcome> {
    let error = match result {
        Ok(answer) => return Ok(Outcome::Answered(answer)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::ConnectionRefused => Ok(Outcome::Refused),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Ok(Outcome::TimedOut),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Ok(Outcome::Unreachable),
        // An ICMP "protocol unreachable", or "unrecognized next header" in IPv6: a host without SCTP.
        _ if matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOPROTOOPT | Errno::EPROTO)) => {
            Ok(Outcome::Refused)
        }
        // An ICMP "communication administratively prohibited".
        _ if error.raw_os_error() == Some(Errno::EACCES as i32) => Ok(Outcome::Unreachable),
        _ => Err(error),
    }
}

fn stream(source: SocketAddr, to: SocketAddr, patience: Duration) -> io::Result<Answer> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    bind(&socket, source)?;
    socket.connect_timeout(&to.into(), patience)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Answer::read(&text, stream.local_addr()?).ok_or_else(|| not_an_answer(&text))
}

/// A UDP client that keeps its port: to connection tracking, all its datagrams are one flow.
#[derive(Debug)]
pub struct Conversation(UdpSocket);

impl Conversation {
    /// Opens a socket in the current network namespace, from `source` (port 0 picks one). Nothing is sent yet.
    ///
    /// # Errors
    /// When the source cannot be bound, or there is no route.
    pub fn open(source: SocketAddr, to: SocketAddr) -> io::Result<Conversation> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
        bind(&socket, source)?;
        socket.connect(&to.into())?;
        Ok(Conversation(socket.into()))
    }

    /// The client's address and port.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn client(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Sends one datagram, and waits for what comes of it.
    ///
    /// # Errors
    /// See [`probe`].
    pub fn ask(&self, patience: Duration) -> io::Result<Outcome> {
        self.forget()?;
        outcome(self.exchange(patience))
    }

    fn exchange(&self, patience: Duration) -> io::Result<Answer> {
        self.0.set_read_timeout(Some(patience))?;
        match self.0.send(b"who?\n") {
            // Rules of the client's own node drop it, or refuse it: which of both is told by what can be received.
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {}
            sent => drop(sent?),
        }
        let mut buffer = [0; 512];
        let length = self.0.recv(&mut buffer)?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        Answer::read(&text, self.client()?).ok_or_else(|| not_an_answer(&text))
    }

    /// Drops what came late of earlier datagrams.
    fn forget(&self) -> io::Result<()> {
        self.0.set_nonblocking(true)?;
        let pending = |error: &io::Error| error.kind() != ErrorKind::WouldBlock;
        while self.0.recv(&mut [0; 512]).as_ref().err().is_none_or(pending) {}
        self.0.set_nonblocking(false)
    }
}

fn bind(socket: &Socket, source: SocketAddr) -> io::Result<()> {
    let say = |e: io::Error| io::Error::other(format!("cannot send from {source}: {e}"));
    socket.bind(&source.into()).map_err(say)
}

pub(super) fn not_an_answer(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("this is no answer of a server: {text:?}"))
}
