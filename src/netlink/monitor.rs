//! What the kernel tells of changes to rules, whoever makes them.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use super::attr::Attr;
use super::message::{Message, attrs, family, messages};
use super::model::NfFamily;
use super::sys::Socket;
use super::uapi::*;

/// Room for what is told while nobody reads. Beyond it the kernel drops messages and says so.
const RECEIVE_BUFFER: i32 = 8 << 20;
/// Room for one datagram.
const DATAGRAM: usize = 128 << 10;

/// Listens to all changes of nf_tables rules in the current network namespace, from its opening on.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
    told: VecDeque<Told>,
    /// The tables of a transaction whose end is still to come.
    tables: BTreeSet<(NfFamily, String)>,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Somebody committed a transaction.
    Committed(Committed),
    /// More happened at once than there was room for. Which transactions these were cannot be said.
    Lost,
}

/// A transaction that somebody committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The port of the socket that it came through, see [`super::Connection::port`].
    pub port: u32,
    /// The process: the name of its thread, and that one's number as the whole machine counts, which is another one than
    /// within a container.
    pub process: Option<(String, u32)>,
    /// The tables of which something was made or deleted.
    pub tables: BTreeSet<(NfFamily, String)>,
}

impl Monitor {
    /// Begins to listen.
    ///
    /// # Errors
    /// Those of the socket: without CAP_NET_ADMIN nobody is told.
    pub fn open() -> io::Result<Monitor> {
        let socket = Socket::open()?;
        socket.set_receive_buffer(RECEIVE_BUFFER)?;
        socket.set(libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES)?;
        Ok(Monitor { socket, buffer: vec![0; DATAGRAM], told: VecDeque::new(), tables: BTreeSet::new() })
    }

    /// Waits until there is something to tell.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn wait(&mut self) -> io::Result<Told> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Ok(told);
            }
            match self.socket.receive(&mut self.buffer, true) {
                Ok(length) => {
                    let (tables, told) = (&mut self.tables, &mut self.told);
                    told.extend(messages(&self.buffer[..length]).filter_map(|message| take_in(tables, &message)));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.tables.clear();
                    return Ok(Told::Lost);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A transaction's changes come one by one, and its end after them (`nf_tables_commit` in
/// `net/netfilter/nf_tables_api.c`).
fn take_in(tables: &mut BTreeSet<(NfFamily, String)>, message: &Message) -> Option<Told> {
    let [kind, subsystem] = message.kind.to_le_bytes();
    if u16::from(subsystem) != NFNL_SUBSYS_NFTABLES {
        return None;
    }
    let attrs = attrs(message.bytes);
    if kind != message::NEWGEN {
        // for everything that there is, the first attribute is the table's name
        if let (Some(family), Some(table)) = (family(message.bytes), attrs.find(table::NAME)) {
            tables.insert((NfFamily(family), table.text().into_owned()));
        }
        return None;
    }
    let name = attrs.find(generation::PROCESS_NAME).map(|name| name.text().into_owned());
    let number = attrs.find(generation::PROCESS).and_then(Attr::u32);
    Some(Told::Committed(Committed { port: message.port, process: name.zip(number), tables: std::mem::take(tables) }))
}
