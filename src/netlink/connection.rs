//! Transactions: one batch, one send, one acknowledgement.

use std::io;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::codec::{Codec, CodecKind};
use super::error::CommitError;
use super::message::{Reply, messages, reply};
use super::model::Op;
use super::native::encoded_len;
use super::sys::Socket;

/// The send buffer that is asked for. A limit, not an allocation; the kernel doubles it.
const SEND_BUFFER: i32 = 256 << 20;
/// Room for the kernel's replies to a batch of which much is wrong.
const RECEIVE_BUFFER: i32 = 8 << 20;
/// Room for one datagram; the kernel makes none longer than 32 KiB when it lists.
const DATAGRAM: usize = 128 << 10;
/// What the kernel needs of the send buffer for itself.
const OVERHEAD: usize = 32;
/// The encoding buffer that is kept between transactions.
const KEEP: usize = 1 << 20;

/// A long-lived connection to the kernel's nf_tables. Open one and keep it: closing one after deletions waits for the
/// kernel (about 16 ms).
#[derive(Debug)]
pub struct Connection {
    pub(super) socket: Socket,
    pub(super) codec: Box<dyn Codec>,
    pub(super) buffer: Vec<u8>,
    pub(super) seq: u32,
    batch: Batch,
    limit: usize,
}

/// A transaction that the kernel has committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Messages, without the begin and end.
    pub messages: usize,
    /// Bytes sent; 0 when there was nothing to do.
    pub bytes: usize,
    /// Time taken to make the messages.
    pub encode: Duration,
    /// Time taken by the kernel.
    pub kernel: Duration,
}

/// An upper bound of the bytes that an operation takes in a transaction; exact for the native codec. Add
/// [`BATCH_BYTES`] for the transaction itself.
pub fn batch_bytes(op: &Op) -> usize {
    encoded_len(op)
}

/// The bytes that a transaction takes without any operation.
pub const BATCH_BYTES: usize = 48;

impl Connection {
    /// Opens a connection in the current network namespace.
    pub fn open(codec: CodecKind) -> io::Result<Connection> {
        let socket = Socket::open()?;
        socket.set(libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1)?;
        socket.set(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1)?;
        // Beyond the system's limit only with privilege over the initial user namespace; up to it for everyone.
        if socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER)?;
        }
        socket.set_receive_buffer(RECEIVE_BUFFER)?;
        let send_buffer = socket.get(libc::SOL_SOCKET, libc::SO_SNDBUF)?;
        Ok(Connection {
            limit: usize::try_from(send_buffer).unwrap_or_default().saturating_sub(OVERHEAD),
            socket,
            codec: codec.codec(),
            buffer: vec![0; DATAGRAM],
            seq: 1,
            batch: Batch::default(),
        })
    }

    /// The port of its socket, by which the kernel tells who made a change, see [`super::monitor`].
    ///
    /// # Errors
    /// Those of the socket.
    pub fn port(&self) -> io::Result<u32> {
        self.socket.port()
    }

    /// The longest transaction in bytes that can be sent: 512 MiB with privilege over the initial user namespace, else
    /// twice the system's `net.core.wmem_max`. Callers cut larger work into transactions that are each consistent.
    pub fn max_batch_bytes(&self) -> usize {
        self.limit
    }

    /// Lowers the limit of [`Connection::max_batch_bytes`]: what is longer is then refused before it is sent.
    pub fn limit_batches(&mut self, bytes: usize) {
        self.limit = self.limit.min(bytes);
    }

    /// Commits all of `ops` or nothing. Without any there is no message to the kernel at all.
    pub fn commit(&mut self, ops: &[Op]) -> Result<Commit, CommitError> {
        self.commit_since(ops, None)
    }

    /// As [`Connection::commit`], but only if nobody has changed any rules since the ruleset had that generation, see
    /// [`Connection::generation`]; else [`CommitError::Outdated`].
    pub fn commit_since(&mut self, ops: &[Op], generation: Option<u32>) -> Result<Commit, CommitError> {
        if ops.iter().all(|op| op.weight() == 0) {
            return Ok(Commit::default());
        }
        let started = Instant::now();
        self.batch.begin(self.seq, generation);
        let encoded = self.codec.encode(ops, &mut self.batch);
        self.batch.finish();
        let encode = started.elapsed();
        self.seq = self.batch.next_seq();
        let result = encoded.map_err(|error| CommitError::unencodable(ops, error)).and_then(|()| self.send(ops));
        let (messages, bytes) = (self.batch.messages(), self.batch.bytes().len());
        self.batch.shrink(KEEP);
        result.map(|kernel| Commit { messages, bytes, encode, kernel })
    }

    fn send(&mut self, ops: &[Op]) -> Result<Duration, CommitError> {
        let (bytes, limit) = (self.batch.bytes().len(), self.limit);
        if bytes > limit {
            return Err(CommitError::TooLarge { bytes, limit });
        }
        let started = Instant::now();
        self.socket.send(self.batch.bytes())?;
        let kernel = started.elapsed();
        self.outcome(ops).map(|()| kernel)
    }

    /// Reads the replies, all of which the kernel has given before the send returned. An acknowledgement alone is no
    /// proof: in a refused batch the messages without fault are acknowledged too.
    fn outcome(&mut self, ops: &[Op]) -> Result<(), CommitError> {
        let (mut acknowledged, mut errors, mut lost) = (false, Vec::new(), None);
        loop {
            match self.socket.receive(&mut self.buffer, false) {
                Ok(length) => {
                    for reply in messages(&self.buffer[..length]).filter_map(|m| reply(&m)) {
                        self.sort(reply, &mut acknowledged, &mut errors);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // More replies than the receive buffer holds; only a batch with many faults has that many.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => lost = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        match (acknowledged, lost) {
            (true, None) if errors.is_empty() => Ok(()),
            (_, Some(error)) if errors.is_empty() => Err(error.into()),
            _ => Err(CommitError::refused(ops, errors, |reply| self.batch.blame(reply.seq, reply.offset))),
        }
    }

    fn sort(&self, reply: Reply, acknowledged: &mut bool, errors: &mut Vec<Reply>) {
        match reply.errno {
            _ if !self.batch.owns(reply.seq) => {}
            0 => *acknowledged |= reply.seq == self.batch.last_seq(),
            _ => errors.push(reply),
        }
    }
}
