//! Sends transactions to the kernel.

use std::sync::mpsc;
use std::thread;

use super::cut::{self, Limits};
use super::program::Applied;
use super::transaction::Transaction;
use super::{clients, counts};
use crate::netlink::model::Op;
use crate::netlink::{CommitError, Connection, ReadError};

/// Why a transaction did not come into force.
#[derive(Debug)]
pub enum Failure {
    /// The kernel refused it.
    Commit {
        /// What was sent.
        ops: Vec<Op>,
        /// What the kernel said.
        error: Box<CommitError>,
    },
    /// What it depends on could not be read.
    Read(ReadError),
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        Failure::Read(error)
    }
}

impl Failure {
    fn is_about_something_missing(&self) -> bool {
        matches!(self, Failure::Commit { error, .. } if matches!(**error, CommitError::Refused { errno: libc::ENOENT, .. }))
    }
}

/// Sends the transactions that `next` makes, each after the one before, until one fails. Where there are several, the
/// next one is made while the kernel works on the present one: no more than one ahead, which bounds the memory.
pub fn all(
    connection: &mut Connection,
    mut next: impl FnMut() -> Option<Transaction>,
    applied: &mut Applied,
) -> Result<(), Failure> {
    let Some(first) = next() else { return Ok(()) };
    let Some(second) = next() else { return one(connection, first, applied) };
    thread::scope(|scope| {
        let (line, transactions) = mpsc::sync_channel(0);
        let sender = scope.spawn(move || transactions.into_iter().try_for_each(|t| one(connection, t, applied)));
        for transaction in [first, second].into_iter().chain(std::iter::from_fn(next)) {
            if line.send(transaction).is_err() {
                break; // one has failed
            }
        }
        drop(line);
        sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sends one transaction, and what of it only the kernel knows.
pub fn one(connection: &mut Connection, mut transaction: Transaction, applied: &mut Applied) -> Result<(), Failure> {
    let carried = clients::carried(connection, &transaction.carry, &transaction.ops)?;
    transaction.ops.extend(carried);
    counts::carry(connection, &transaction.counts, &mut transaction.ops)?;
    let retime = std::mem::take(&mut transaction.retime);
    let planned = transaction.ops.len();
    let mut soon = clients::EXPIRES_SOON;
    loop {
        // an entry may go between reading and deleting it: then the transaction is refused, and made again without those
        // that are about to go; all of them would have gone before the last attempt
        let learned = clients::retime(connection, &retime, soon)?;
        transaction.ops.truncate(planned);
        let retry = !learned.is_empty();
        transaction.ops.extend(learned);
        match commit(connection, &transaction.ops, applied) {
            Err(error) if retry && error.is_about_something_missing() => soon = soon.saturating_mul(10),
            other => return other,
        }
    }
}

fn commit(connection: &mut Connection, ops: &[Op], applied: &mut Applied) -> Result<(), Failure> {
    // only the send buffer counts here: how many elements a transaction has is decided where it is made
    let limits = Limits::new(connection.max_batch_bytes()).without_cuts();
    for piece in cut::pieces(ops, limits) {
        let commit = match connection.commit(&piece) {
            Ok(commit) => commit,
            Err(error) => return Err(Failure::Commit { ops: piece.into_owned(), error: Box::new(error) }),
        };
        if commit.bytes > 0 {
            applied.transactions += 1;
        }
        applied.messages += commit.messages;
        applied.bytes += commit.bytes;
        applied.encode += commit.encode;
        applied.kernel += commit.kernel;
        applied.longest = applied.longest.max(commit.kernel);
        for op in piece.iter() {
            match op {
                Op::AddElements { elements, .. } => applied.added += elements.len(),
                Op::DeleteElements { elements, .. } => applied.deleted += elements.len(),
                _ => {}
            }
        }
    }
    Ok(())
}
