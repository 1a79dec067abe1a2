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
        Protocol::Udp => datagram(source, to, patience),
        Protocol::Sctp => sctp::ask(source, to, patience),
    };
    match result {
        Ok(answer) => Ok(Outcome::Answered(answer)),
        Err(error) => outcome_of(error),
    }
}

fn outcome_of(error: io::Error) -> io::Result<Outcome> {
    match error.kind() {
        ErrorKind::ConnectionRefused => Ok(Outcome::Refused),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Ok(Outcome::TimedOut),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Ok(Outcome::Unreachable),
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

fn datagram(source: SocketAddr, to: SocketAddr, patience: Duration) -> io::Result<Answer> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
    bind(&socket, source)?;
    socket.connect(&to.into())?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(patience))?;
    socket.send(b"who?\n")?;
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    Answer::read(&text, socket.local_addr()?).ok_or_else(|| not_an_answer(&text))
}

fn bind(socket: &Socket, source: SocketAddr) -> io::Result<()> {
    let say = |e: io::Error| io::Error::other(format!("cannot send from {source}: {e}"));
    socket.bind(&source.into()).map_err(say)
}

pub(super) fn not_an_answer(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("this is no answer of a server: {text:?}"))
}
