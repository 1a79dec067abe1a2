//! Reading chosen elements of a large set, instead of listing all of it.
//!
//! For each message of a listing the kernel begins at the first bucket and passes over what it has listed already
//! (`nft_hash_walk` in `net/netfilter/nft_set_hash.c`), so that the time grows with the square of the size. An element whose key
//! is known costs one look-up.

use super::attr::{Attr, Writer};
use super::batch::Request;
use super::connection::Connection;
use super::error::ReadError;
use super::message::{attrs, messages, reply};
use super::model::{Bytes, Element, SetRef, element_flags};
use super::read::described;
use super::uapi::*;

/// Of the receive buffer for each answer: more than the kernel takes for the smallest message that it makes.
const ROOM: usize = 4096;
/// The most elements that one request asks for; they fit into one attribute, whose length is a 16 bit number.
const REQUEST: usize = 512;

impl Connection {
    /// How many elements a set or map holds; none where the kernel does not tell.
    ///
    /// # Errors
    /// Those of the socket; the set is not there.
    pub fn element_count(&mut self, set: &SetRef) -> Result<Option<u32>, ReadError> {
        let request = Request { message: message::GETSET, flags: NLM_F_ACK, family: set.family };
        let mut count = None;
        let asked = |w: &mut Writer| {
            w.text(set::TABLE, &set.table);
            w.text(set::NAME, &set.name);
        };
        let found = self.answers(request, set, &asked, &mut |_, answer| {
            count = count.or(attrs(answer).find(set::COUNT).and_then(Attr::u32));
        })?;
        found.then_some(count).ok_or_else(|| ReadError::NotFound(described(set)))
    }

    /// Passes the elements with these keys on, in their order, until one is not there. Whether all were.
    ///
    /// Others may change the set meanwhile: whoever needs all of it at one moment asks for the
    /// [generation](Connection::generation) before and afterwards.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn find_elements(
        &mut self,
        set: &SetRef,
        keys: impl Iterator<Item = Bytes>,
        each: &mut dyn FnMut(Element),
    ) -> Result<bool, ReadError> {
        let room = usize::try_from(self.socket.get(libc::SOL_SOCKET, libc::SO_RCVBUF)?).unwrap_or_default();
        let request = Request { message: message::GETSETELEM, flags: NLM_F_ACK, family: set.family };
        let mut keys = keys.fuse();
        loop {
            let keys: Vec<Bytes> = keys.by_ref().take((room / ROOM).clamp(1, REQUEST)).collect();
            if keys.is_empty() {
                return Ok(true);
            }
            let asked = |w: &mut Writer| {
                w.text(elements::TABLE, &set.table);
                w.text(elements::SET, &set.name);
                w.nest(elements::ELEMENTS, |w| {
                    let key = |w: &mut Writer, key: &Bytes| w.nest(element::KEY, |w| w.put(data::VALUE, key));
                    keys.iter().for_each(|bytes| w.nest(NFTA_LIST_ELEM, |w| key(w, bytes)));
                });
            };
            if !self.answers(request, set, &asked, &mut |connection, answer| connection.codec.elements(answer, each))? {
                return Ok(false);
            }
        }
    }

    /// Whether the set has an element that matches whatever no other does.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn has_catch_all(&mut self, set: &SetRef) -> Result<bool, ReadError> {
        let request = Request { message: message::GETSETELEM, flags: NLM_F_ACK, family: set.family };
        let asked = |w: &mut Writer| {
            w.text(elements::TABLE, &set.table);
            w.text(elements::SET, &set.name);
            w.nest(elements::ELEMENTS, |w| w.nest(NFTA_LIST_ELEM, |w| w.u32(element::FLAGS, element_flags::CATCHALL)));
        };
        self.answers(request, set, &asked, &mut |_, _| ())
    }

    /// Asks, and passes the answers on up to the acknowledgement. Whether what was asked for is there.
    fn answers(
        &mut self,
        request: Request,
        set: &SetRef,
        body: &dyn Fn(&mut Writer),
        each: &mut dyn FnMut(&Connection, &[u8]),
    ) -> Result<bool, ReadError> {
        let seq = self.ask(request, body)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let ending = loop {
            let length = match self.socket.receive(&mut buffer, true) {
                Ok(length) => length,
                Err(error) => break Err(ReadError::from(error)),
            };
            let mut ending = None;
            for message in messages(&buffer[..length]).filter(|message| message.seq == seq) {
                match reply(&message).map(|reply| reply.errno) {
                    Some(0) => ending = Some(Ok(true)),
                    Some(libc::ENOENT) => ending = Some(Ok(false)),
                    Some(errno) => ending = Some(Err(ReadError::Refused { what: described(set), errno })),
                    None => each(self, message.bytes),
                }
            }
            if let Some(ending) = ending {
                break ending;
            }
        };
        self.buffer = buffer;
        ending
    }
}
