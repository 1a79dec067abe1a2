//! Messages made of objects, and objects made of messages.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use nftnl::{Batch, MsgType, NlMsg, nftnl_sys as sys};

use super::object::{AnyExpr, Chain, Rule, Set, Table};
use crate::netlink::attr::Attr;
use crate::netlink::message::attrs;
use crate::netlink::uapi::{MESSAGE_HEADER, expr};

/// What a message is about.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
    /// A table.
    Table(&'a Table),
    /// A chain.
    Chain(&'a Chain),
    /// A rule, or all of a chain.
    Rule(&'a Rule),
    /// A set, without its elements.
    Set(&'a Set),
}

/// A message about one object.
pub struct Message<'a> {
    /// `NFT_MSG_*`.
    pub kind: u8,
    /// `NLM_F_*`.
    pub flags: u16,
    /// `nfgen_family`.
    pub family: u8,
    /// The object.
    pub subject: Subject<'a>,
}

// SAFETY: `write` writes one message. None is longer than a netlink message may be: the callers do not put more into a
// rule or set than fits, see `write::MOST`.
unsafe impl NlMsg for Message<'_> {
    unsafe fn write(&self, buffer: *mut c_void, seq: u32, _: MsgType) {
        // SAFETY: the caller gives a buffer for the longest message. The subject is alive.
        unsafe {
            let header = sys::nftnl_nlmsg_build_hdr(
                buffer.cast(),
                u16::from(self.kind),
                u16::from(self.family),
                self.flags,
                seq,
            );
            match self.subject {
                Subject::Table(table) => sys::nftnl_table_nlmsg_build_payload(header, table.0.as_ptr()),
                Subject::Chain(chain) => sys::nftnl_chain_nlmsg_build_payload(header, chain.0.as_ptr()),
                Subject::Rule(rule) => sys::nftnl_rule_nlmsg_build_payload(header, rule.0.as_ptr()),
                Subject::Set(set) => sys::nftnl_set_nlmsg_build_payload(header, set.0.as_ptr()),
            }
        }
    }
}

/// Messages about the elements of a set, as many as they take.
struct Elements {
    walk: NonNull<sys::nftnl_set_elems_iter>,
    kind: u8,
    flags: u16,
    family: u8,
    more: Cell<bool>,
}

// SAFETY: `write` writes one message and ends it before it becomes longer than a netlink message may be.
unsafe impl NlMsg for Elements {
    unsafe fn write(&self, buffer: *mut c_void, seq: u32, _: MsgType) {
        // SAFETY: the caller gives a buffer for the longest message. The set that is walked outlives the walk.
        unsafe {
            let header = sys::nftnl_nlmsg_build_hdr(
                buffer.cast(),
                u16::from(self.kind),
                u16::from(self.family),
                self.flags,
                seq,
            );
            self.more.set(sys::nftnl_set_elems_nlmsg_build_payload_iter(header, self.walk.as_ptr()) > 0);
        }
    }
}

/// What a message does with its object; the library's messages carry it in their kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Add {
    /// Makes it.
    Yes,
    /// Deletes it.
    No,
}

impl Add {
    fn msg_type(self) -> MsgType {
        match self {
            Add::Yes => MsgType::Add,
            Add::No => MsgType::Del,
        }
    }
}

/// Messages being put together by the library.
pub struct Assembly(Batch);

impl Assembly {
    /// Without any.
    pub fn new() -> Assembly {
        Assembly(Batch::new())
    }

    /// Appends a message.
    pub fn message(&mut self, message: &Message, add: Add) {
        self.0.add(message, add.msg_type());
    }

    /// Appends the messages about a set's elements; without elements, one about all of them. Gives their number.
    pub fn elements(&mut self, set: &Set, kind: u8, flags: u16, family: u8, add: Add) -> usize {
        // SAFETY: the set is alive, does not change during the walk, and the walk is ended by its own function.
        let Some(walk) = NonNull::new(unsafe { sys::nftnl_set_elems_iter_create(set.0.as_ptr()) }) else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<usize>())
        };
        let elements = Elements { walk, kind, flags, family, more: Cell::new(true) };
        let mut count = 0;
        while elements.more.get() {
            self.0.add(&elements, add.msg_type());
            count += 1;
        }
        // SAFETY: the walk is not used any more.
        unsafe { sys::nftnl_set_elems_iter_destroy(walk.as_ptr()) };
        count
    }

    /// Calls `each` with every message, in order, without the library's begin and end.
    pub fn for_each(self, mut each: impl FnMut(&[u8])) {
        let batch = self.0.finalize();
        let messages: Vec<&[u8]> =
            batch.iter().flat_map(|page| mnl::NlMessages::new(page).filter_map(Result::ok)).collect();
        let inner = messages.len().saturating_sub(1);
        messages.get(1..inner).unwrap_or_default().iter().for_each(|message| each(message));
    }
}

/// A message where the library can read it: aligned, of the length that its header says, and with zeros behind it that
/// end any text.
struct Aligned(Vec<u32>);

impl Aligned {
    fn new(message: &[u8]) -> Option<Aligned> {
        if message.len() < MESSAGE_HEADER {
            return None;
        }
        let mut words: Vec<u32> = message
            .chunks(4)
            .map(|chunk| {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                u32::from_ne_bytes(word)
            })
            .collect();
        words[0] = u32::try_from(message.len()).ok()?;
        words.push(0);
        Some(Aligned(words))
    }

    fn header(&self) -> *const sys::libc::nlmsghdr {
        self.0.as_ptr().cast()
    }
}

macro_rules! parse {
    ($object:ident, $parse:ident, $doc:literal) => {
        impl $object {
            #[doc = $doc]
            pub fn parse(message: &[u8]) -> Option<$object> {
                let object = $object::new();
                let message = Aligned::new(message)?;
                // SAFETY: the message is aligned and as long as it says; the object is alive.
                let result: c_int = unsafe { sys::$parse(message.header(), object.0.as_ptr()) };
                (result >= 0).then_some(object)
            }
        }
    };
}

parse!(Table, nftnl_table_nlmsg_parse, "From a message of the kernel.");
parse!(Chain, nftnl_chain_nlmsg_parse, "From a message of the kernel.");
parse!(Rule, nftnl_rule_nlmsg_parse, "From a message of the kernel.");

impl Set {
    /// From a message of the kernel; without elements.
    pub fn parse(message: &[u8]) -> Option<Set> {
        let set = Set::new();
        let message = Aligned::new(message)?;
        // SAFETY: the message is aligned and as long as it says; the set is alive.
        let result = unsafe { sys::nftnl_set_nlmsg_parse(message.header(), set.0.as_ptr()) };
        if result < 0 {
            // The library has freed the expressions that it had read and left them in the set's list (1.2.4): freeing the
            // set would free them twice. A few bytes a message that it does not understand are the lesser harm.
            std::mem::forget(set);
            return None;
        }
        Some(set)
    }

    /// From a message of the kernel: only elements.
    pub fn parse_elements(message: &[u8]) -> Option<Set> {
        let set = Set::new();
        let message = Aligned::new(message)?;
        // SAFETY: the message is aligned and as long as it says; the set is alive.
        let result = unsafe { sys::nftnl_set_elems_nlmsg_parse(message.header(), set.0.as_ptr()) };
        (result >= 0).then_some(set)
    }
}

impl AnyExpr<'_> {
    /// The attributes of the expression as the library writes them.
    pub fn attributes(&self) -> Vec<u8> {
        let mut buffer = vec![0u32; nftnl::nft_nlmsg_maxsize() as usize / 4];
        // SAFETY: the buffer is aligned and has room for the longest message; the expression came out of one. It is
        // alive, and only read although the library takes it as one that may be changed.
        let length = unsafe {
            let header = sys::nftnl_nlmsg_build_hdr(buffer.as_mut_ptr().cast(), 0, 0, 0, 0);
            sys::nftnl_expr_build_payload(header, self.expr.as_ptr());
            (*header).nlmsg_len as usize
        };
        let bytes: Vec<u8> = buffer.iter().take(length.div_ceil(4)).flat_map(|word| word.to_ne_bytes()).collect();
        let message = bytes.get(..length).unwrap_or_default();
        attrs(message).find(expr::DATA).map(|Attr { value, .. }| value.to_vec()).unwrap_or_default()
    }
}
