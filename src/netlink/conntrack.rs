//! Connection tracking over netlink: UDP flows are looked at one by one, and some of them deleted (row H2).
//!
//! Nothing is kept of a flow that stays, so that a table of a million takes no more memory than one of ten.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::AddAssign;

use super::attr::{Attr, Reader, Writer};
use super::batch::put_header;
use super::error::ReadError;
use super::message::{Message, attrs, messages, reply};
use super::model::NfFamily;
use super::read::{ATTEMPTS, Ending, end};
use super::sys::Socket;
use super::uapi::*;

/// Room for one datagram; the kernel makes none longer than 32 KiB when it lists.
const DATAGRAM: usize = 64 << 10;
/// Room for the answers to the deletions of one datagram's flows.
const RECEIVE_BUFFER: i32 = 1 << 20;
const UDP: u8 = 17;
const WHAT: &str = "connection tracking";

/// A UDP flow as it is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where the client sends to.
    pub destination: SocketAddr,
    /// Where the answers come from: somewhere else than the destination where that was translated.
    pub answerer: SocketAddr,
}

/// Which UDP flows the kernel is to list, where it can choose (Linux 5.8 and later).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Of which family.
    pub family: NfFamily,
    /// Only those to this port.
    pub port: Option<u16>,
    /// Only those to this IPv4 address. Of IPv6 addresses kernels (6.18 is one) select all but the one that was asked for.
    pub address: Option<Ipv4Addr>,
}

/// What became of the flows that were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many were looked at.
    pub seen: usize,
    /// How many of them were deleted.
    pub deleted: usize,
    /// How many the kernel did not let go, and the last error number: a flow table holds those that it forwards.
    pub refused: Option<(usize, i32)>,
}

impl AddAssign for Swept {
    fn add_assign(&mut self, more: Swept) {
        self.seen += more.seen;
        self.deleted += more.deleted;
        self.refused = match (self.refused, more.refused) {
            (Some((a, _)), Some((b, errno))) => Some((a + b, errno)),
            (a, b) => b.or(a),
        };
    }
}

/// A connection to the kernel's connection tracking.
#[derive(Debug)]
pub struct Conntrack {
    list: Socket,
    /// While a listing is going on, its socket takes nothing else.
    delete: Socket,
    buffer: Vec<u8>,
    seq: u32,
}

impl Conntrack {
    /// Opens a connection in the current network namespace.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn open() -> io::Result<Conntrack> {
        let delete = Socket::open()?;
        delete.set(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1)?;
        delete.set_receive_buffer(RECEIVE_BUFFER)?;
        Ok(Conntrack { list: Socket::open()?, delete, buffer: vec![0; DATAGRAM], seq: 1 })
    }

    /// Deletes those UDP flows of the selection that `is_stale` says. The kernel may list more than was selected, and
    /// while flows come and go it may leave one out or bring it twice. Zones (`ct zone`) are left alone: what is
    /// tracked there is somebody else's view of a connection, before or after translation.
    ///
    /// # Errors
    /// When the kernel cannot list, or was interrupted again and again. What was deleted by then is deleted.
    pub fn delete_udp(
        &mut self,
        selection: Selection,
        is_stale: &mut dyn FnMut(&Flow) -> bool,
    ) -> Result<Swept, ReadError> {
        let mut swept = Swept::default();
        let mut select = true;
        for _ in 0..ATTEMPTS {
            swept.seen = 0;
            match self.attempt(selection, select, is_stale, &mut swept)? {
                Ending::Complete => return Ok(swept),
                Ending::Interrupted | Ending::Failed(libc::EINTR | libc::EAGAIN) => {}
                Ending::Failed(libc::EINVAL | libc::EOPNOTSUPP) if select => select = false,
                Ending::Failed(errno) => return Err(ReadError::Refused { what: WHAT.into(), errno }),
            }
        }
        Err(ReadError::Unsteady(WHAT.into()))
    }

    fn attempt(
        &mut self,
        selection: Selection,
        select: bool,
        is_stale: &mut dyn FnMut(&Flow) -> bool,
        swept: &mut Swept,
    ) -> Result<Ending, ReadError> {
        let seq = self.next_seq();
        let mut request = Writer::default();
        put(&mut request, conntrack::GET, NLM_F_DUMP, selection.family, seq, |w| {
            if select {
                put_selection(w, selection);
            }
        });
        self.list.send(&request.bytes)?;
        let mut interrupted = false;
        let mut stale = Writer::default();
        loop {
            let length = self.list.receive(&mut self.buffer, true)?;
            let (mut ending, mut count, first) = (None, 0, self.seq);
            for message in messages(&self.buffer[..length]).filter(|m| m.seq == seq) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                if let Some(end) = end(&message) {
                    ending = Some(end);
                } else if let Some(entry) = Entry::read(&message) {
                    swept.seen += 1;
                    if is_stale(&entry.flow) {
                        entry.put_deletion(&mut stale, selection.family, first.wrapping_add(count));
                        count += 1;
                    }
                }
            }
            self.delete(&mut stale, count, swept)?;
            match ending {
                Some(Ending::Complete) if interrupted => return Ok(Ending::Interrupted),
                Some(ending) => return Ok(ending),
                None => {}
            }
        }
    }

    /// Sends deletions, which are numbered from `self.seq` on. The kernel has worked on them when the send returns;
    /// it answers those that failed.
    fn delete(&mut self, stale: &mut Writer, count: u32, swept: &mut Swept) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let first = self.seq;
        self.seq = first.wrapping_add(count);
        self.delete.send(&stale.bytes)?;
        stale.bytes.clear();
        swept.deleted += count as usize;
        loop {
            let length = match self.delete.receive(&mut self.buffer, false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                other => other?,
            };
            let replies = messages(&self.buffer[..length]).filter_map(|message| reply(&message));
            for reply in replies.filter(|reply| reply.seq.wrapping_sub(first) < count && reply.errno != 0) {
                swept.deleted -= 1;
                // one that is gone by now is no failure
                if reply.errno != libc::ENOENT {
                    let (refused, _) = swept.refused.unwrap_or_default();
                    swept.refused = Some((refused + 1, reply.errno));
                }
            }
        }
    }

    fn next_seq(&mut self) -> u32 {
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        seq
    }
}

/// What a message says of a flow.
struct Entry<'a> {
    flow: Flow,
    /// The tuple that the kernel finds it by, as it came.
    original: Attr<'a>,
    /// Which flow it is, of those that had this tuple over time.
    id: Option<Attr<'a>>,
}

impl<'a> Entry<'a> {
    /// Nothing where it is not a UDP flow, or is in a zone.
    fn read(message: &Message<'a>) -> Option<Entry<'a>> {
        if message.kind != NFNL_SUBSYS_CTNETLINK << 8 | u16::from(conntrack::NEW) {
            return None;
        }
        let (mut original, mut reply, mut id) = (None, None, None);
        for attr in attrs(message.bytes) {
            match attr.kind {
                conntrack::TUPLE_ORIG => original = Some(attr),
                conntrack::TUPLE_REPLY => reply = Some(attr),
                conntrack::ID => id = Some(attr),
                conntrack::ZONE if attr.u16() != Some(0) => return None,
                _ => {}
            }
        }
        let (original, reply) = (original?, reply?);
        let in_zone = original.attrs().find(conntrack::TUPLE_ZONE).is_some_and(|zone| zone.u16() != Some(0));
        if in_zone {
            return None;
        }
        let destination =
            end_of(original.attrs(), conntrack::IP_V4_DST, conntrack::IP_V6_DST, conntrack::PROTO_DST_PORT)?;
        let answerer = end_of(reply.attrs(), conntrack::IP_V4_SRC, conntrack::IP_V6_SRC, conntrack::PROTO_SRC_PORT)?;
        Some(Entry { flow: Flow { destination, answerer }, original, id })
    }

    fn put_deletion(&self, writer: &mut Writer, family: NfFamily, seq: u32) {
        put(writer, conntrack::DELETE, 0, family, seq, |w| {
            w.nest(conntrack::TUPLE_ORIG, |w| w.bytes.extend_from_slice(self.original.value));
            if let Some(id) = self.id {
                w.put(conntrack::ID, id.value);
            }
        });
    }
}

/// One end of a UDP tuple.
fn end_of(tuple: Reader<'_>, v4: u16, v6: u16, port: u16) -> Option<SocketAddr> {
    let (mut ip, mut number, mut is_udp) = (None, None, false);
    for part in tuple {
        match part.kind {
            conntrack::TUPLE_IP => ip = part.attrs().find_map(|attr| address(attr, v4, v6)),
            conntrack::TUPLE_PROTO => {
                for attr in part.attrs() {
                    match attr.kind {
                        conntrack::PROTO_NUM => is_udp = attr.value == [UDP],
                        kind if kind == port => number = attr.u16(),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    is_udp.then_some(SocketAddr::new(ip?, number?))
}

fn address(attr: Attr<'_>, v4: u16, v6: u16) -> Option<IpAddr> {
    match attr.kind {
        kind if kind == v4 => Some(<[u8; 4]>::try_from(attr.value).ok()?.into()),
        kind if kind == v6 => Some(<[u8; 16]>::try_from(attr.value).ok()?.into()),
        _ => None,
    }
}

/// Asks for what is selected. An older kernel takes no notice.
fn put_selection(w: &mut Writer, selection: Selection) {
    let mut flags = conntrack::F_PROTO_NUM;
    w.nest(conntrack::TUPLE_ORIG, |w| {
        if let Some(address) = selection.address {
            flags |= conntrack::F_IP_DST;
            w.nest(conntrack::TUPLE_IP, |w| w.put(conntrack::IP_V4_DST, &address.octets()));
        }
        w.nest(conntrack::TUPLE_PROTO, |w| {
            w.u8(conntrack::PROTO_NUM, UDP);
            if let Some(port) = selection.port {
                flags |= conntrack::F_PROTO_DST_PORT;
                w.u16(conntrack::PROTO_DST_PORT, port);
            }
        });
    });
    w.nest(conntrack::FILTER, |w| {
        w.put(conntrack::FILTER_ORIG_FLAGS, &flags.to_ne_bytes());
        w.put(conntrack::FILTER_REPLY_FLAGS, &0u32.to_ne_bytes());
    });
}

fn put(writer: &mut Writer, message: u8, flags: u16, family: NfFamily, seq: u32, body: impl FnOnce(&mut Writer)) {
    let start = writer.bytes.len();
    let kind = NFNL_SUBSYS_CTNETLINK << 8 | u16::from(message);
    put_header(&mut writer.bytes, kind, flags, [family.0, 0, 0, 0], seq);
    body(writer);
    let length = (writer.bytes.len() - start) as u32;
    writer.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}
