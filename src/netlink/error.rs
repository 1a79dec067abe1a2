//! What can go wrong between here and the kernel, in words.

use crate::amounts::counted;
use std::fmt::{self, Write as _};
use std::io;

use super::codec::EncodeError;
use super::message::Reply;
use super::model::{Element, Op, SetRef, set_flags};

/// Why a transaction was not committed. In every case but [`CommitError::Io`] the kernel is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The kernel refused. The fields are those of the first refusal; `all` holds this one and those that followed it.
    #[error("{}", refused(*errno, what, message.as_deref(), all.len()))]
    Refused {
        /// The error number, such as `libc::EEXIST`.
        errno: i32,
        /// What was refused.
        what: Blame,
        /// The kernel's own words, where it has some.
        message: Option<String>,
        /// Every refusal that the kernel reported, in the order of the messages.
        all: Vec<Refusal>,
    },
    /// The rules were changed by someone since the generation that the transaction was made for.
    #[error("the ruleset was changed by another program in the meantime")]
    Outdated,
    /// The transaction does not fit into the send buffer; nothing was sent. Commit it in smaller pieces.
    #[error("the transaction takes {bytes} bytes, the socket's send buffer holds {limit}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The most that can be sent, as [`Connection::max_batch_bytes`](super::Connection::max_batch_bytes) says.
        limit: usize,
    },
    /// An operation cannot be put into messages; nothing was sent.
    #[error("{what}: {why}")]
    Unencodable {
        /// Which.
        what: Blame,
        /// Why not.
        why: String,
    },
    /// The socket failed. Whether the transaction was committed is not known: read the state back.
    #[error("netlink: {0}")]
    Io(#[from] io::Error),
}

/// One refusal of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number.
    pub errno: i32,
    /// What was refused.
    pub what: Blame,
    /// The kernel's own words, where it has some.
    pub message: Option<String>,
}

/// The part of a transaction that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The operation's index; nothing when it is the transaction as a whole, as when the right to change rules is
    /// missing, or when the rules would loop.
    pub op: Option<usize>,
    /// The element's index within the operation.
    pub element: Option<usize>,
    /// Its name for people, such as `add element 0a600105 to map ip svcmap services`.
    pub subject: String,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.subject)
    }
}

impl Blame {
    /// From the place in a transaction.
    pub fn new(ops: &[Op], place: Option<(usize, Option<usize>)>) -> Blame {
        let Some((index, element)) = place else {
            return Blame { op: None, element: None, subject: "the transaction".into() };
        };
        Blame { op: Some(index), element, subject: ops.get(index).map_or_else(String::new, |op| subject(op, element)) }
    }
}

impl CommitError {
    /// From the kernel's errors.
    pub(super) fn refused(
        ops: &[Op],
        errors: Vec<Reply>,
        place: impl Fn(&Reply) -> Option<(usize, Option<usize>)>,
    ) -> Self {
        let all: Vec<Refusal> = errors
            .into_iter()
            .map(|reply| Refusal { errno: reply.errno, what: Blame::new(ops, place(&reply)), message: reply.text })
            .collect();
        match all.first().cloned() {
            Some(Refusal { errno: libc::ERESTART, .. }) => CommitError::Outdated,
            Some(Refusal { errno, what, message }) => CommitError::Refused { errno, what, message, all },
            None => CommitError::Io(io::Error::other("the kernel did not acknowledge the transaction")),
        }
    }

    /// From an operation that cannot be sent.
    pub(super) fn unencodable(ops: &[Op], error: EncodeError) -> Self {
        CommitError::Unencodable { what: Blame::new(ops, Some((error.op, error.element))), why: error.why }
    }
}

fn refused(errno: i32, what: &Blame, message: Option<&str>, count: usize) -> String {
    let mut text = format!("{what}: {}", io::Error::from_raw_os_error(errno));
    if let Some(message) = message {
        let _ = write!(text, " (kernel: {message})");
    }
    if count > 1 {
        let _ = write!(text, ", and {} more", count - 1);
    }
    text
}

/// What an operation does, for people.
fn subject(op: &Op, element: Option<usize>) -> String {
    match op {
        Op::AddTable(t) => format!("add table {} {}", t.family.name(), t.name),
        Op::DeleteTable { family, name } => format!("delete table {} {name}", family.name()),
        Op::AddChain(c) => format!("add chain {} {} {}", c.family.name(), c.table, c.name),
        Op::DeleteChain(c) => format!("delete chain {} {} {}", c.family.name(), c.table, c.name),
        Op::AddRule(r) => format!("add rule to chain {} {} {}", r.family.name(), r.table, r.chain),
        Op::DeleteRule { chain: c, handle } => {
            format!("delete rule {handle} of chain {} {} {}", c.family.name(), c.table, c.name)
        }
        Op::FlushChain(c) => format!("flush chain {} {} {}", c.family.name(), c.table, c.name),
        Op::AddSet(s) => {
            let kind = if s.flags & set_flags::MAP != 0 { "map" } else { "set" };
            format!("add {kind} {} {} {}", s.family.name(), s.table, s.name)
        }
        Op::DeleteSet(s) => format!("delete set {}", set_name(s)),
        Op::FlushSet(s) => format!("flush set {}", set_name(s)),
        Op::AddElements { set, elements } => element_subject("add", "to", set, elements, element),
        Op::DeleteElements { set, elements } => element_subject("delete", "from", set, elements, element),
    }
}

fn set_name(set: &SetRef) -> String {
    format!("{} {} {}", set.family.name(), set.table, set.name)
}

fn element_subject(verb: &str, preposition: &str, set: &SetRef, elements: &[Element], index: Option<usize>) -> String {
    let set = set_name(set);
    match index.and_then(|index| elements.get(index)) {
        None => format!("{verb} {} {preposition} set {set}", counted(elements.len(), "element")),
        Some(element) => {
            let comment = element.comment.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
            format!("{verb} element {}{comment} {preposition} set {set}", hex(&element.key))
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Listing needs the same right as changing, and lacking it is the one reason for EPERM.
fn advice(errno: i32) -> &'static str {
    if errno == libc::EPERM { " (CAP_NET_ADMIN over the network namespace is needed)" } else { "" }
}

/// Why something could not be read from the kernel.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such table or set.
    #[error("{0}: not found")]
    NotFound(String),
    /// The kernel refused to list it.
    #[error("{what}: {}{}", io::Error::from_raw_os_error(*errno), advice(*errno))]
    Refused {
        /// What was asked for.
        what: String,
        /// The error number.
        errno: i32,
    },
    /// It changed again and again while it was being read.
    #[error("{0}: changed {attempts} times while it was read", attempts = super::read::ATTEMPTS)]
    Unsteady(String),
    /// The socket failed.
    #[error("netlink: {0}")]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::model::{Bytes, NfFamily};

    #[test]
    fn refusals_read_well() {
        let elements = vec![
            Element::default(),
            Element {
                key: Bytes::from_slice(&[10, 96, 1, 5]),
                comment: Some("default/web:http".into()),
                ..Element::default()
            },
        ];
        let set = SetRef { family: NfFamily::IPV4, table: "svcmap".into(), name: "services".into() };
        let ops = [Op::AddElements { set, elements }];
        let reply = |errno, text: Option<&str>| Reply { seq: 2, errno, offset: None, text: text.map(Into::into) };
        let error = CommitError::refused(&ops, vec![reply(libc::EEXIST, None)], |_| Some((0, Some(1))));
        let expected = "add element 0a600105 (default/web:http) to set ip svcmap services: File exists (os error 17)";
        assert_eq!(error.to_string(), expected);

        let two = vec![reply(libc::ENOENT, Some("no")), reply(libc::ENOENT, None)];
        let error = CommitError::refused(&ops, two, |_| Some((0, None)));
        let expected =
            "add 2 elements to set ip svcmap services: No such file or directory (os error 2) (kernel: no), and 1 more";
        assert_eq!(error.to_string(), expected);

        let error = CommitError::refused(&ops, vec![reply(libc::EPERM, None)], |_| None);
        assert_eq!(error.to_string(), "the transaction: Operation not permitted (os error 1)");
        let error = CommitError::refused(&ops, vec![reply(libc::ERESTART, None)], |_| None);
        assert!(matches!(error, CommitError::Outdated));
    }
}
