//! An HTTP client: one request a connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Answer {
    fn parse(text: &str) -> Option<Answer> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let (first, headers) = head.split_once("\r\n")?;
        let status = first.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        Some(Answer { status, headers: headers.into(), body: body.into() })
    }

    /// The value of a header, spelled like this.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Asks for a path.
///
/// # Errors
/// When nobody answers.
pub fn get(address: &str, path: &str) -> io::Result<Answer> {
    let address: SocketAddr = address.parse().expect("an address and a port");
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Answer::parse(&text).ok_or_else(|| io::Error::other(format!("no answer: {text:?}")))
}
