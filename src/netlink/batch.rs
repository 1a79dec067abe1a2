//! A transaction as bytes: messages between a begin and an end, and which operation and elements each of them stands for.

use super::attr::Writer;
use super::message::attrs;
use super::model::NfFamily;
use super::uapi::*;

/// What one message stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The operation's index.
    pub op: usize,
    /// The index within the operation of the first element in this message; 0 where there are none.
    pub element: usize,
}

/// What a message asks for: `nlmsg_type` without the subsystem, `nlmsg_flags` and `nfgen_family`.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// `NFT_MSG_*`.
    pub message: u8,
    /// `NLM_F_*`; `NLM_F_REQUEST` is added.
    pub flags: u16,
    /// The table's family.
    pub family: NfFamily,
}

/// A transaction in the making. Messages are numbered one after the other; the begin has the number before the first.
#[derive(Debug, Default)]
pub struct Batch {
    writer: Writer,
    parts: Vec<(Part, usize)>,
    first_seq: u32,
}

impl Batch {
    /// Starts over with an empty transaction, keeping the buffers. With a generation the kernel refuses the whole
    /// (`ERESTART`) if its rules have changed since.
    pub fn begin(&mut self, seq: u32, generation: Option<u32>) {
        self.writer.bytes.clear();
        self.writer.take_too_long();
        self.parts.clear();
        self.first_seq = seq;
        self.put(NFNL_MSG_BATCH_BEGIN, 0, BATCH, seq, |w| {
            if let Some(id) = generation {
                w.u32(NFNL_BATCH_GENID, id);
            }
        });
    }

    /// Adds a message whose attributes `body` writes. Tells whether it fits: no attribute may be over 64 KiB.
    #[must_use]
    pub fn message(&mut self, part: Part, request: Request, body: impl FnOnce(&mut Writer)) -> bool {
        self.parts.push((part, self.writer.bytes.len()));
        let kind = NFNL_SUBSYS_NFTABLES << 8 | u16::from(request.message);
        self.put(kind, request.flags, [request.family.0, 0, 0, 0], self.last_seq(), body);
        !self.writer.take_too_long()
    }

    /// Adds a message that is there already, header and all; it gets the next number.
    pub fn append(&mut self, part: Part, message: &[u8]) {
        let start = self.writer.bytes.len();
        self.parts.push((part, start));
        self.writer.bytes.extend_from_slice(message);
        let seq = self.last_seq();
        self.writer.bytes[start + 8..start + 12].copy_from_slice(&seq.to_ne_bytes());
    }

    /// Ends the transaction: the last message is to be acknowledged.
    pub fn finish(&mut self) {
        if let Some((_, start)) = self.parts.last() {
            let flags = &mut self.writer.bytes[start + 6..start + 8];
            let asked = u16::from_ne_bytes([flags[0], flags[1]]) | NLM_F_ACK;
            flags.copy_from_slice(&asked.to_ne_bytes());
        }
        self.put(NFNL_MSG_BATCH_END, 0, BATCH, self.last_seq().wrapping_add(1), |_| ());
    }

    /// All of it, as it is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.writer.bytes
    }

    /// Makes room for so many bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.writer.bytes.reserve(bytes);
    }

    /// Gives memory beyond so many bytes back, for after a large transaction.
    pub fn shrink(&mut self, keep: usize) {
        self.writer.bytes.clear();
        self.writer.bytes.shrink_to(keep);
        self.parts.clear();
        self.parts.shrink_to(keep / 64);
    }

    /// The number of messages between begin and end.
    pub fn messages(&self) -> usize {
        self.parts.len()
    }

    /// The number of the message that is acknowledged.
    pub fn last_seq(&self) -> u32 {
        self.first_seq.wrapping_add(self.parts.len() as u32)
    }

    /// The first number that a later transaction may use.
    pub fn next_seq(&self) -> u32 {
        self.last_seq().wrapping_add(2)
    }

    /// Whether a reply with that number is about this transaction.
    pub fn owns(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.first_seq) as usize <= self.parts.len() + 1
    }

    /// The operation, and the element within it, that a reply is about: `offset` is where in the message the kernel
    /// says the trouble is. Nothing for the whole transaction.
    pub fn blame(&self, seq: u32, offset: Option<usize>) -> Option<(usize, Option<usize>)> {
        let index = (seq.wrapping_sub(self.first_seq) as usize).checked_sub(1)?;
        let (part, start) = self.parts.get(index)?;
        let end = self.parts.get(index + 1).map_or(self.writer.bytes.len(), |(_, next)| *next);
        let element = element_at(&self.writer.bytes[*start..end], offset);
        Some((part.op, element.map(|i| part.element + i)))
    }

    fn put(&mut self, kind: u16, flags: u16, nfgen: [u8; 4], seq: u32, body: impl FnOnce(&mut Writer)) {
        let start = self.writer.bytes.len();
        put_header(&mut self.writer.bytes, kind, flags, nfgen, seq);
        body(&mut self.writer);
        let length = (self.writer.bytes.len() - start) as u32;
        self.writer.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// The `nfgenmsg` of a batch's begin and end: they name the subsystem.
const BATCH: [u8; 4] = [0, 0, NFNL_SUBSYS_NFTABLES.to_be_bytes()[0], NFNL_SUBSYS_NFTABLES.to_be_bytes()[1]];

/// Writes a message's header, its length still 0.
pub(super) fn put_header(bytes: &mut Vec<u8>, kind: u16, flags: u16, nfgen: [u8; 4], seq: u32) {
    let mut header = [0; MESSAGE_HEADER];
    header[4..6].copy_from_slice(&kind.to_ne_bytes());
    header[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
    header[8..12].copy_from_slice(&seq.to_ne_bytes());
    header[NETLINK_HEADER..].copy_from_slice(&nfgen);
    bytes.extend_from_slice(&header);
}

/// A message by itself, outside any transaction: what reads ask with.
pub fn single(request: Request, seq: u32, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    let kind = NFNL_SUBSYS_NFTABLES << 8 | u16::from(request.message);
    put_header(&mut writer.bytes, kind, request.flags, [request.family.0, 0, 0, 0], seq);
    body(&mut writer);
    let length = writer.bytes.len() as u32;
    writer.bytes[..4].copy_from_slice(&length.to_ne_bytes());
    writer.bytes
}

/// Which element of an element message holds the byte at `offset`; without an offset, the only one there is.
fn element_at(message: &[u8], offset: Option<usize>) -> Option<usize> {
    let kind = message.get(4..6)?;
    let kind = u16::from_ne_bytes([kind[0], kind[1]]) as u8;
    if kind != message::NEWSETELEM && kind != message::DELSETELEM {
        return None;
    }
    let list = attrs(message).find(elements::ELEMENTS)?;
    let Some(offset) = offset else {
        return (list.attrs().count() == 1).then_some(0);
    };
    let address = (message.as_ptr() as usize).checked_add(offset)?;
    list.attrs().position(|element| {
        let value = element.value.as_ptr() as usize;
        (value - super::attr::HEADER..value + element.value.len()).contains(&address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: Request = Request { message: message::NEWSETELEM, flags: 0, family: NfFamily::IPV4 };

    fn elements_message(batch: &mut Batch, part: Part, count: usize) {
        assert!(batch.message(part, ADD, |w| {
            w.text(elements::SET, "m");
            w.nest(elements::ELEMENTS, |w| {
                for _ in 0..count {
                    w.nest(NFTA_LIST_ELEM, |w| w.u32(1, 0));
                }
            });
        }));
    }

    #[test]
    fn replies_lead_to_the_very_element() {
        let mut batch = Batch::default();
        batch.begin(u32::MAX - 1, None); // the numbers wrap
        elements_message(&mut batch, Part { op: 4, element: 0 }, 3);
        elements_message(&mut batch, Part { op: 4, element: 3 }, 3);
        elements_message(&mut batch, Part { op: 5, element: 0 }, 1);
        batch.finish();
        // Header 20, set name 8, list header 4, then 12 bytes for each element.
        assert_eq!(batch.blame(0, Some(32)), Some((4, Some(3))));
        assert_eq!(batch.blame(0, Some(44)), Some((4, Some(4))));
        assert_eq!(batch.blame(0, Some(67)), Some((4, Some(5))));
        assert_eq!(batch.blame(0, Some(68)), Some((4, None)));
        assert_eq!(batch.blame(0, Some(20)), Some((4, None)), "the set's name is no element");
        assert_eq!(batch.blame(0, None), Some((4, None)));
        assert_eq!(batch.blame(1, None), Some((5, Some(0))), "the only one there is");
        assert_eq!(batch.blame(u32::MAX - 1, None), None, "the begin stands for the whole");
        assert!(batch.owns(u32::MAX - 1) && batch.owns(1) && batch.owns(2) && !batch.owns(3));
        assert_eq!(batch.next_seq(), 3);
    }

    #[test]
    fn only_the_last_message_is_acknowledged() {
        let mut batch = Batch::default();
        batch.begin(1, Some(9));
        elements_message(&mut batch, Part { op: 0, element: 0 }, 1);
        elements_message(&mut batch, Part { op: 1, element: 0 }, 1);
        batch.finish();
        let seen: Vec<(u32, bool)> =
            crate::netlink::message::messages(batch.bytes()).map(|m| (m.seq, m.flags & NLM_F_ACK != 0)).collect();
        assert_eq!(seen, [(1, false), (2, false), (3, true), (4, false)]);
    }
}
