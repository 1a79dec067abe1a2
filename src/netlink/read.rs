//! Reading the ruleset back.

use std::io;

use super::attr::{Attr, Writer};
use super::batch::{Request, single};
use super::codec::Codec;
use super::connection::Connection;
use super::error::ReadError;
use super::message::{Message, attrs, done_errno, messages, reply};
use super::model::{Chain, Element, NfFamily, Rule, Set, SetRef, Table};
use super::uapi::*;

/// How often a listing that was interrupted by a change is started over.
pub const ATTEMPTS: usize = 32;

/// Takes a listing as it comes in. The ruleset may change meanwhile; the listing then starts over.
pub trait Sink {
    /// What is listed.
    type Item;
    /// One item.
    fn push(&mut self, item: Self::Item);
    /// All that came so far is void.
    fn reset(&mut self);
}

impl<T> Sink for Vec<T> {
    type Item = T;

    fn push(&mut self, item: T) {
        Vec::push(self, item);
    }

    fn reset(&mut self) {
        self.clear();
    }
}

/// How one attempt at a listing ended.
pub(super) enum Ending {
    Complete,
    Interrupted,
    Failed(i32),
}

impl Connection {
    /// All tables of all families.
    pub fn tables(&mut self) -> Result<Vec<Table>, ReadError> {
        let request = dump(message::GETTABLE, NfFamily::UNSPEC);
        self.list(request, "tables", |_| (), |codec, m, sink: &mut Vec<Table>| sink.extend(codec.table(m)))
    }

    /// The chains of a table.
    pub fn chains(&mut self, family: NfFamily, table: &str) -> Result<Vec<Chain>, ReadError> {
        let request = dump(message::GETCHAIN, family);
        let read = |codec: &dyn Codec, m: &[u8], sink: &mut Vec<Chain>| {
            sink.extend(codec.chain(m).filter(|chain| chain.table == table));
        };
        let chains = self.list(request, &table_name(family, table), |w| w.text(chain::TABLE, table), read)?;
        self.or_no_table(chains, family, table)
    }

    /// The rules of a table, chain by chain in their order.
    pub fn rules(&mut self, family: NfFamily, table: &str) -> Result<Vec<Rule>, ReadError> {
        let request = dump(message::GETRULE, family);
        let read = |codec: &dyn Codec, m: &[u8], sink: &mut Vec<Rule>| {
            sink.extend(codec.rule(m).filter(|rule| rule.table == table));
        };
        let rules = self.list(request, &table_name(family, table), |w| w.text(rule::TABLE, table), read)?;
        self.or_no_table(rules, family, table)
    }

    /// The sets and maps of a table, without their elements.
    pub fn sets(&mut self, family: NfFamily, table: &str) -> Result<Vec<Set>, ReadError> {
        let request = dump(message::GETSET, family);
        let read = |codec: &dyn Codec, m: &[u8], sink: &mut Vec<Set>| {
            sink.extend(codec.set(m).filter(|set| set.table == table));
        };
        let sets = self.list(request, &table_name(family, table), |w| w.text(set::TABLE, table), read)?;
        self.or_no_table(sets, family, table)
    }

    /// The elements of a set or map, in no particular order.
    pub fn elements(&mut self, set: &SetRef) -> Result<Vec<Element>, ReadError> {
        let mut elements = Vec::new();
        self.for_each_element(set, &mut elements)?;
        Ok(elements)
    }

    /// Passes the elements of a set or map on as they come in.
    pub fn for_each_element(&mut self, set: &SetRef, sink: &mut dyn Sink<Item = Element>) -> Result<(), ReadError> {
        let what = described(set);
        self.dump(
            dump(message::GETSETELEM, set.family),
            &what,
            &|w| {
                w.text(elements::TABLE, &set.table);
                w.text(elements::SET, &set.name);
            },
            &mut |codec, event| match event {
                Event::Message(message) => codec.elements(message, &mut |element| sink.push(element)),
                Event::Reset => sink.reset(),
            },
        )
    }

    /// The generation of the ruleset, which every commit of anyone moves on.
    pub fn generation(&mut self) -> Result<u32, ReadError> {
        let request = Request { message: message::GETGEN, flags: 0, family: NfFamily::UNSPEC };
        let seq = self.ask(request, &|_| ())?;
        loop {
            let length = self.socket.receive(&mut self.buffer, true)?;
            for message in messages(&self.buffer[..length]).filter(|m| m.seq == seq) {
                if let Some(refusal) = reply(&message) {
                    return Err(ReadError::Refused { what: "generation".into(), errno: refusal.errno });
                }
                if let Some(id) = attrs(message.bytes).find(generation::ID).and_then(Attr::u32) {
                    return Ok(id);
                }
            }
        }
    }

    /// The kernel lists nothing for a table that is not there; tells this from an empty table.
    fn or_no_table<T>(&mut self, items: Vec<T>, family: NfFamily, table: &str) -> Result<Vec<T>, ReadError> {
        let is = |t: &Table| t.name == table && (t.family == family || family == NfFamily::UNSPEC);
        if items.is_empty() && !self.tables()?.iter().any(is) {
            return Err(ReadError::NotFound(table_name(family, table)));
        }
        Ok(items)
    }

    fn list<T>(
        &mut self,
        request: Request,
        what: &str,
        body: impl Fn(&mut Writer),
        read: impl Fn(&dyn Codec, &[u8], &mut Vec<T>),
    ) -> Result<Vec<T>, ReadError> {
        let mut items = Vec::new();
        self.dump(request, what, &body, &mut |codec, event| match event {
            Event::Message(message) => read(codec, message, &mut items),
            Event::Reset => items.clear(),
        })?;
        Ok(items)
    }

    fn dump(
        &mut self,
        request: Request,
        what: &str,
        body: &dyn Fn(&mut Writer),
        each: &mut dyn FnMut(&dyn Codec, Event),
    ) -> Result<(), ReadError> {
        for _ in 0..ATTEMPTS {
            match self.attempt(request, body, each)? {
                Ending::Complete => return Ok(()),
                Ending::Interrupted | Ending::Failed(libc::EINTR | libc::EAGAIN) => each(&*self.codec, Event::Reset),
                Ending::Failed(libc::ENOENT) => return Err(ReadError::NotFound(what.into())),
                Ending::Failed(errno) => return Err(ReadError::Refused { what: what.into(), errno }),
            }
        }
        Err(ReadError::Unsteady(what.into()))
    }

    /// One listing. The kernel marks those of tables, chains, rules and sets that a commit came into, but not those of
    /// elements, where it may then leave some out or bring some twice: hence the look at the generation.
    fn attempt(
        &mut self,
        request: Request,
        body: &dyn Fn(&mut Writer),
        each: &mut dyn FnMut(&dyn Codec, Event),
    ) -> Result<Ending, ReadError> {
        let before = self.generation()?;
        match self.read_to_end(request, body, each)? {
            Ending::Complete if self.generation()? != before => Ok(Ending::Interrupted),
            ending => Ok(ending),
        }
    }

    /// Reads to the end even when it is known to be void: until then the kernel refuses to start another.
    fn read_to_end(
        &mut self,
        request: Request,
        body: &dyn Fn(&mut Writer),
        each: &mut dyn FnMut(&dyn Codec, Event),
    ) -> io::Result<Ending> {
        let seq = self.ask(request, body)?;
        let mut interrupted = false;
        loop {
            let length = self.socket.receive(&mut self.buffer, true)?;
            for message in messages(&self.buffer[..length]).filter(|m| m.seq == seq) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match end(&message) {
                    Some(Ending::Complete) if interrupted => return Ok(Ending::Interrupted),
                    Some(ending) => return Ok(ending),
                    None => each(&*self.codec, Event::Message(message.bytes)),
                }
            }
        }
    }

    pub(super) fn ask(&mut self, request: Request, body: &dyn Fn(&mut Writer)) -> io::Result<u32> {
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        self.socket.send(&single(request, seq, body))?;
        Ok(seq)
    }
}

/// What a listing brings.
enum Event<'a> {
    Message(&'a [u8]),
    Reset,
}

/// How the listing ends, if that is what the message says.
pub(super) fn end(message: &Message) -> Option<Ending> {
    match message.kind {
        NLMSG_DONE => Some(done_errno(message).map_or(Ending::Complete, Ending::Failed)),
        NLMSG_ERROR => reply(message).map(|reply| Ending::Failed(reply.errno)),
        _ => None,
    }
}

fn dump(message: u8, family: NfFamily) -> Request {
    Request { message, flags: NLM_F_DUMP, family }
}

/// A set as errors name it.
pub(super) fn described(set: &SetRef) -> String {
    format!("set {} {} {}", set.family.name(), set.table, set.name)
}

fn table_name(family: NfFamily, table: &str) -> String {
    format!("table {} {table}", family.name())
}
