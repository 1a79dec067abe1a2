//! Requests to other parts of the kernel than nf_tables: any number in one send, and listings.

use std::io;

use super::attr::Writer;
use super::message::{Message, done_errno, messages, reply};
use super::sys::Socket;
use super::uapi::*;

/// Room for one datagram; the kernel makes none longer than 32 KiB when it lists.
const DATAGRAM: usize = 64 << 10;
/// The most that goes in one send: any send buffer holds it, and any receive buffer the errors.
const SEND: usize = 32 << 10;

/// A connection to a part of the kernel that speaks netlink.
#[derive(Debug)]
pub struct Requests {
    socket: Socket,
    buffer: Vec<u8>,
    seq: u32,
}

/// What one message asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its type.
    pub kind: u16,
    /// Its flags, but for `NLM_F_REQUEST`.
    pub flags: u16,
    /// What follows the netlink header.
    pub body: Vec<u8>,
}

impl Request {
    /// A request whose body is a fixed part and attributes.
    pub fn new(kind: u16, flags: u16, fixed: &[u8], attributes: impl FnOnce(&mut Writer)) -> Request {
        let mut writer = Writer::default();
        writer.bytes.extend_from_slice(fixed);
        attributes(&mut writer);
        Request { kind, flags, body: writer.bytes }
    }

    /// How many bytes it is when it is sent.
    pub fn size(&self) -> usize {
        NETLINK_HEADER + self.body.len()
    }

    fn put(&self, seq: u32, flags: u16, out: &mut Vec<u8>) {
        let length = self.size() as u32;
        out.extend_from_slice(&length.to_ne_bytes());
        out.extend_from_slice(&self.kind.to_ne_bytes());
        out.extend_from_slice(&(self.flags | flags | NLM_F_REQUEST).to_ne_bytes());
        out.extend_from_slice(&seq.to_ne_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.body);
    }
}

impl Requests {
    /// Opens a connection in the current network namespace; the protocol is one of libc's `NETLINK_…`.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn open(protocol: i32) -> io::Result<Requests> {
        let socket = Socket::of(protocol)?;
        socket.set(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1)?;
        Ok(Requests { socket, buffer: vec![0; DATAGRAM], seq: 1 })
    }

    /// Sends all requests, each of which is a step of its own. Returns those that were refused, by their index, with the
    /// error number.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&mut self, requests: &[Request]) -> io::Result<Vec<(usize, i32)>> {
        let mut refused = Vec::new();
        let mut bytes = Vec::new();
        let mut first = 0;
        for (at, request) in requests.iter().enumerate() {
            request.put(self.seq.wrapping_add((at - first) as u32), 0, &mut bytes);
            if bytes.len() >= SEND || at + 1 == requests.len() {
                self.socket.send(&bytes)?;
                self.errors(first, &mut refused)?;
                self.seq = self.seq.wrapping_add((at + 1 - first) as u32);
                first = at + 1;
                bytes.clear();
            }
        }
        Ok(refused)
    }

    /// The kernel has worked on the requests when the send returns; it answers those that failed.
    fn errors(&mut self, first: usize, refused: &mut Vec<(usize, i32)>) -> io::Result<()> {
        loop {
            let length = match self.socket.receive(&mut self.buffer, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                other => other?,
            };
            let replies = messages(&self.buffer[..length]).filter_map(|message| reply(&message));
            refused.extend(replies.filter(|reply| reply.errno != 0).map(|reply| {
                let at = reply.seq.wrapping_sub(self.seq) as usize;
                (first + at, reply.errno)
            }));
        }
    }

    /// Asks for something that is answered by one message, or for a listing, and hands over what follows the netlink header
    /// of each answer.
    ///
    /// # Errors
    /// Those of the socket, and what the kernel answers; a listing that it was interrupted in is
    /// [`io::ErrorKind::Interrupted`].
    pub fn ask(&mut self, request: &Request, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        let is_listing = request.flags & NLM_F_DUMP == NLM_F_DUMP;
        let mut bytes = Vec::new();
        request.put(seq, if is_listing { 0 } else { NLM_F_ACK }, &mut bytes);
        self.socket.send(&bytes)?;
        let mut interrupted = false;
        loop {
            let length = self.socket.receive(&mut self.buffer, true)?;
            for message in messages(&self.buffer[..length]).filter(|message| message.seq == seq) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match end(&message) {
                    Some(0) if interrupted => return Err(io::ErrorKind::Interrupted.into()),
                    Some(0) => return Ok(()),
                    Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    None => each(&message.bytes[NETLINK_HEADER..]),
                }
            }
        }
    }
}

/// The error number that a message ends the answers with, 0 for a good end; nothing where it does not.
fn end(message: &Message) -> Option<i32> {
    match message.kind {
        NLMSG_DONE => Some(done_errno(message).unwrap_or(0)),
        _ => reply(message).map(|reply| reply.errno),
    }
}
