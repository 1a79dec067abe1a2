//! Keeps the kernel in step with the plan.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::ops::AddAssign;
use std::time::Duration;

use super::cut::{self, Limits};
use super::decode;
use super::names::Map;
use super::owner;
use super::read::{self, Reading};
use super::schedule::Schedule;
use super::send::{self, Failure};
use super::state::State;
use super::transaction::{Transaction, set_ref};
use crate::netlink::model::{Op, Table};
use crate::netlink::{CodecKind, CommitError, Connection, ReadError};
use crate::objects::{Family, Protocol};
use crate::plan::{Claim, NodePlan, PlanChange, PortId, PortPlan};

/// A connection to the kernel, and what it programmed there.
#[derive(Debug)]
pub struct Programmer {
    connection: Connection,
    state: State,
    rest: Rest,
    /// Whether the state is what the kernel holds. A failed transaction leaves that open.
    in_step: bool,
    /// The UDP frontends that the kernel was found to hold.
    found: BTreeSet<Claim>,
    /// The Service ports of which the programmed form stays, though the plan does not have them.
    kept: BTreeSet<PortId>,
    /// The generation of the ruleset while nobody else changes it; zero where it is not known.
    generation: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Transactions committed. More than one only for a load that is too large for one.
    pub transactions: usize,
    /// Netlink messages sent.
    pub messages: usize,
    /// Bytes sent.
    pub bytes: usize,
    /// Elements added.
    pub added: usize,
    /// Elements deleted.
    pub deleted: usize,
    /// Service ports that were programmed and are not any more. The modes that read no Services back do not know.
    pub removed: usize,
    /// Time taken to make the transactions and their messages.
    pub encode: Duration,
    /// Time taken by the kernel.
    pub kernel: Duration,
    /// The kernel's time for the longest transaction.
    pub longest: Duration,
}

impl AddAssign for Applied {
    fn add_assign(&mut self, more: Applied) {
        self.transactions += more.transactions;
        self.messages += more.messages;
        self.bytes += more.bytes;
        self.added += more.added;
        self.deleted += more.deleted;
        self.removed += more.removed;
        self.encode += more.encode;
        self.kernel += more.kernel;
        self.longest = self.longest.max(more.longest);
    }
}

/// What becomes of Services that the kernel holds and the plan does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// They are gone.
    #[default]
    Delete,
    /// The plan may not be all there is, so they stay; but for those that have a frontend of a Service in the plan.
    Keep,
}

impl Rest {
    /// For modes that cannot tell what they programmed of a Service earlier.
    ///
    /// # Errors
    /// The plan may not be all there is.
    pub fn needs_all(self, mode: &str) -> Result<(), SyncError> {
        match self {
            Rest::Delete => Ok(()),
            Rest::Keep => Err(SyncError::Refused(format!(
                "the input could not be read to its end, and the mode {mode} cannot keep Services that it does not name: \
                 nothing was changed"
            ))),
        }
    }
}

/// Why the kernel could not be brought in step. It is as it was before the transaction that failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The kernel refused a transaction.
    #[error("{}{error}", object.as_ref().map(|id| format!("Service {}: ", id.name)).unwrap_or_default())]
    Commit {
        /// The Service port that the refused part belongs to, where it belongs to one.
        object: Option<PortId>,
        /// What the kernel said.
        error: Box<CommitError>,
    },
    /// The kernel's tables could not be read.
    #[error("reading the kernel's tables: {0}")]
    Read(#[from] ReadError),
    /// What loads the rules of another mode said no, or the kernel did.
    #[error("{0}")]
    Refused(String),
    /// A change was given where the last one had failed: now the whole plan is needed.
    #[error("the last transaction failed: the whole plan has to be applied now")]
    OutOfStep,
}

impl Programmer {
    /// Opens a connection in the current network namespace. Nothing is read or written yet.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn open(codec: CodecKind) -> io::Result<Programmer> {
        Ok(Programmer {
            connection: Connection::open(codec)?,
            state: State::default(),
            rest: Rest::default(),
            in_step: false,
            found: BTreeSet::new(),
            kept: BTreeSet::new(),
            generation: 0,
        })
    }

    /// The port of the socket that its transactions go through.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn port(&self) -> io::Result<u32> {
        self.connection.port()
    }

    /// Cuts transactions to this length, where the send buffer would allow longer ones.
    pub fn limit_transactions(&mut self, bytes: usize) {
        self.connection.limit_batches(bytes);
    }

    /// What is programmed, as far as it is known.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What [`Programmer::replace`] shall do from now on with Services that only the kernel knows; it has to be called next.
    pub fn set_rest(&mut self, rest: Rest) {
        self.rest = rest;
        self.in_step = false;
    }

    /// The Service ports of which [`Programmer::replace`] shall leave what is programmed as it is, though the plan does not
    /// have them; unless a Service of the plan has a frontend of theirs.
    pub fn keep(&mut self, ports: BTreeSet<PortId>) {
        self.kept = ports;
    }

    /// Whether nobody but this programmer has changed any rules, in whichever table, since it last read them (row J6).
    ///
    /// # Errors
    /// Those of reading.
    pub fn is_untouched(&mut self) -> Result<bool, SyncError> {
        Ok(self.in_step && self.connection.generation()? == self.generation)
    }

    /// Whether [`Programmer::change`] can be used; else [`Programmer::replace`] has to be.
    pub fn is_in_step(&self) -> bool {
        self.in_step
    }

    /// The UDP frontends that the kernel was found to hold when it was read, or that it should have held, since this was
    /// last asked. Those that the plan does not have are gone now, and flows to them have to end (behaviour row H6); those
    /// that were not in the kernel may have been missed by flows.
    pub fn take_found(&mut self) -> BTreeSet<Claim> {
        std::mem::take(&mut self.found)
    }

    /// Whether the kernel lets itself be asked. No version is: what it cannot do it refuses (row G8).
    ///
    /// # Errors
    /// Those of reading: without CAP_NET_ADMIN nothing can be.
    pub fn check(&mut self) -> Result<(), SyncError> {
        self.connection.tables()?;
        Ok(())
    }

    /// Makes the kernel hold this plan, and unless told to keep the rest nothing else, whatever it holds now: the tables are
    /// read first, and only the difference is sent.
    ///
    /// # Errors
    /// See [`SyncError`]. With a load that is cut into several transactions, those before the failed one are in force.
    pub fn replace(&mut self, node: NodePlan, ports: Vec<PortPlan>) -> Result<Applied, SyncError> {
        self.in_step = false;
        let (repairs, change, wake) = self.compare(node, ports)?;
        let mut applied = Applied::default();
        self.send_change(repairs, change, &mut applied)?;
        self.send(wake, &mut applied)?;
        self.in_step = true;
        Ok(applied)
    }

    /// Makes the kernel follow a change of the plan. Without one there is no message at all.
    ///
    /// # Errors
    /// See [`SyncError`].
    pub fn change(&mut self, change: PlanChange) -> Result<Applied, SyncError> {
        if !self.in_step {
            return Err(SyncError::OutOfStep);
        }
        self.in_step = false;
        let mut applied = Applied::default();
        self.send_change(Transaction::default(), change, &mut applied)?;
        self.in_step = true;
        Ok(applied)
    }

    /// Deletes the chains and maps that nothing uses any more.
    ///
    /// # Errors
    /// See [`SyncError`].
    pub fn collect(&mut self) -> Result<Applied, SyncError> {
        if !self.in_step {
            return Err(SyncError::OutOfStep);
        }
        let transaction = self.state.collect();
        let mut applied = Applied::default();
        self.in_step = false;
        self.send(transaction, &mut applied)?;
        self.in_step = true;
        Ok(applied)
    }

    /// What [`Programmer::replace`] would do, in one list. Nothing is sent; the state is that of the plan afterwards.
    ///
    /// # Errors
    /// Those of reading.
    pub fn preview(&mut self, node: NodePlan, ports: Vec<PortPlan>) -> Result<Preview, SyncError> {
        self.in_step = false;
        let (repairs, change, wake) = self.compare(node, ports)?;
        let before = self.state.clone();
        let transaction = self.state.advance(change);
        Ok(Preview { before, ops: repairs.then(transaction).then(wake).ops })
    }

    /// Deletes svcmap's tables; returns which were there.
    ///
    /// # Errors
    /// See [`SyncError`].
    pub fn cleanup(&mut self) -> Result<Vec<Family>, SyncError> {
        self.in_step = false;
        self.state = State::default();
        let tables = self.connection.tables()?;
        let ours = |family: &Family| tables.iter().any(|table| is_ours(table, *family));
        let found: Vec<Family> = Family::BOTH.into_iter().filter(ours).collect();
        let ops = found.iter().map(|family| delete_table(*family)).collect();
        self.send(Transaction { ops, ..Transaction::default() }, &mut Applied::default())?;
        Ok(found)
    }

    /// Reads the kernel and works out what differs from the plan.
    fn compare(
        &mut self,
        node: NodePlan,
        mut ports: Vec<PortPlan>,
    ) -> Result<(Transaction, PlanChange, Transaction), SyncError> {
        self.generation = self.connection.generation()?;
        let Reading { state, repairs, wake } = read::read(&mut self.connection, &node)?;
        self.state = state;
        // flows that began while something was missing went elsewhere
        let udp = ports.iter().filter(|port| port.protocol == Protocol::Udp);
        self.found.extend(udp.flat_map(PortPlan::claims));
        if self.state.ports.is_empty() {
            return Ok((repairs, PlanChange { node: Some(node), changed: ports, removed: Vec::new() }, wake));
        }
        let wanted: HashSet<_> = ports.iter().map(|port| &port.id).collect();
        let keeps_any = self.rest == Rest::Keep || !self.kept.is_empty();
        let claimed: HashSet<Claim> =
            if keeps_any { ports.iter().flat_map(PortPlan::claims).collect() } else { HashSet::new() };
        let is_kept = |port: &PortPlan| self.rest == Rest::Keep || self.kept.contains(&port.id);
        let stays = |port: &PortPlan| is_kept(port) && port.claims().all(|claim| !claimed.contains(&claim));
        let (mut removed, mut closed) = (Vec::new(), Vec::new());
        for port in self.state.ports() {
            let is_wanted = wanted.contains(&port.id);
            if !is_wanted && stays(port) {
                closed.extend(decode::without_gaps(port));
                continue;
            }
            if port.protocol == Protocol::Udp {
                self.found.extend(port.claims());
            }
            if !is_wanted {
                removed.push(port.id.clone());
            }
        }
        if self.rest == Rest::Keep {
            // the endpoints may be in what could not be read
            let is_open = |port: &PortPlan| port.cluster.is_empty() && port.local.is_empty();
            let had = |port: &PortPlan| self.state.port(&port.id).is_some_and(|known| !is_open(known));
            ports.retain(|port| !(is_open(port) && had(port)));
        }
        // what is as it should be must not count where a change is cut into parts
        ports.retain_mut(|port| self.state.differs(port));
        ports.extend(closed);
        Ok((repairs, PlanChange { node: Some(node), changed: ports, removed }, wake))
    }

    /// Sends repairs in one transaction with the change, or the last part of them with its first; before it where both do not fit.
    fn send_change(
        &mut self,
        repairs: Transaction,
        change: PlanChange,
        applied: &mut Applied,
    ) -> Result<(), SyncError> {
        let limits = Limits::new(self.connection.max_batch_bytes());
        let removed = change.removed.len();
        let mut schedule = Schedule::new(&mut self.state, change, limits);
        let before = applied.transactions;
        let (mut repairs, mut waiting) = (cut::repairs(repairs, limits), None);
        let mut next = || {
            if repairs.len() > 1 {
                return repairs.pop_front();
            }
            let next = waiting.take().or_else(|| schedule.next());
            match (repairs.pop_front(), next) {
                (Some(repairs), Some(next)) if !limits.hold([&repairs.ops, &next.ops]) => {
                    waiting = Some(next);
                    Some(repairs)
                }
                (Some(repairs), next) => Some(repairs.then(next.unwrap_or_default())),
                (None, next) => next,
            }
        };
        let sent = send::all(&mut self.connection, &mut next, applied);
        applied.encode += schedule.time();
        self.count(applied.transactions - before);
        sent.map_err(|failure| self.explain(failure))?;
        applied.removed += removed;
        Ok(())
    }

    fn send(&mut self, transaction: Transaction, applied: &mut Applied) -> Result<(), SyncError> {
        let before = applied.transactions;
        let sent = send::one(&mut self.connection, transaction, applied);
        self.count(applied.transactions - before);
        sent.map_err(|failure| self.explain(failure))
    }

    /// Each commit moves the generation on by one. A step of somebody else in between makes the count wrong for good.
    fn count(&mut self, commits: usize) {
        self.generation = self.generation.wrapping_add(commits as u32);
    }

    fn explain(&self, failure: Failure) -> SyncError {
        match failure {
            Failure::Read(error) => SyncError::Read(error),
            Failure::Commit { ops, error } => self.refused(&ops, *error),
        }
    }

    fn refused(&self, ops: &[Op], mut error: CommitError) -> SyncError {
        if let CommitError::Refused { what, .. } | CommitError::Unencodable { what, .. } = &mut error
            && let Some(subject) = owner::subject_of_refusal(ops, what)
        {
            what.subject = subject;
        }
        SyncError::Commit { object: owner::of_refusal(&self.state, ops, &error), error: Box::new(error) }
    }
}

/// What the kernel would be told.
#[derive(Debug)]
pub struct Preview {
    /// What it holds now.
    pub before: State,
    /// What would be sent.
    pub ops: Vec<Op>,
}

fn is_ours(table: &Table, family: Family) -> bool {
    let set = set_ref(family, Map::Services);
    table.family == set.family && table.name == set.table
}

fn delete_table(family: Family) -> Op {
    let set = set_ref(family, Map::Services);
    Op::DeleteTable { family: set.family, name: set.table }
}
