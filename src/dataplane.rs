//! What keeps the kernel in step with the plan, in whichever mode.
//!
//! The mode nftables is what svcmap is made for: its [`Programmer`] reads back what it wrote, sends changes that are as small
//! as they are, and says which Service was refused. The others are there for comparison and for who comes from them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::{fmt, io};

use crate::nftables::guard::{self, Intrusion};
use crate::nftables::program::{Applied, Programmer, Rest, SyncError};
use crate::plan::{Claim, NodePlan, Plan, PlanChange, PortId, PortPlan};

/// A mode's way to program the current network namespace.
pub trait Dataplane: fmt::Debug + Send {
    /// Whether the kernel lets itself be asked.
    ///
    /// # Errors
    /// It does not, or a program is missing.
    fn check(&mut self) -> Result<(), SyncError>;

    /// What [`Dataplane::replace`] shall do from now on with Services that only the kernel knows; it has to be called next.
    fn set_rest(&mut self, rest: Rest);

    /// The Service ports of which what is programmed stays, though the plan does not have them. Modes whose refusals name no
    /// Service never have any.
    fn keep(&mut self, ports: BTreeSet<PortId>) {
        drop(ports);
    }

    /// The UDP frontends that the kernel was found to hold when it was read. Modes that read no Services back find none.
    fn take_found(&mut self) -> BTreeSet<Claim> {
        BTreeSet::new()
    }

    /// For a mode whose own process answers for a UDP frontend: where from. Flows to it may stay there, and nowhere else; none
    /// for what it does not answer for.
    fn answers_for(&self, claim: &Claim) -> Option<Vec<SocketAddr>> {
        let _ = claim;
        None
    }

    /// Whether [`Dataplane::change`] can be used; else [`Dataplane::replace`] has to be.
    fn is_in_step(&self) -> bool;

    /// Whether what is programmed is still there.
    ///
    /// # Errors
    /// Those of reading.
    fn is_untouched(&mut self) -> Result<bool, SyncError>;

    /// Has it told, from a thread of its own, when somebody else changes what is programmed. Modes that the kernel tells
    /// nothing of are looked after once in a sync period only.
    ///
    /// # Errors
    /// Those of listening.
    fn guard(&self, tell: Box<dyn Fn(Intrusion) + Send>) -> io::Result<()> {
        drop(tell);
        Ok(())
    }

    /// Makes the kernel hold this plan, whatever it holds now.
    ///
    /// # Errors
    /// The kernel refuses, or cannot be asked.
    fn replace(&mut self, node: NodePlan, ports: Vec<PortPlan>) -> Result<Applied, SyncError>;

    /// Makes the kernel follow a change of the plan.
    ///
    /// # Errors
    /// The kernel refuses; [`SyncError::OutOfStep`] after that.
    fn change(&mut self, change: PlanChange) -> Result<Applied, SyncError>;

    /// Deletes what nothing uses any more and was left for a while. Modes that leave nothing have nothing to delete.
    ///
    /// # Errors
    /// Those of [`Dataplane::change`].
    fn collect(&mut self) -> Result<Applied, SyncError> {
        Ok(Applied::default())
    }

    /// Whether [`Dataplane::collect`] has left something for the next time.
    fn has_leftovers(&self) -> bool {
        false
    }

    /// Whether the kernel has to route loopback addresses for node ports.
    fn serves_loopback(&self) -> bool;
}

/// How far a mode is that reads no Services back: it holds the plan itself, and knows whether the kernel follows it.
#[derive(Debug, Default)]
pub struct Progress {
    plan: Plan,
    rest: Rest,
    in_step: bool,
}

impl Progress {
    /// The plan that the kernel has, or is to have.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// See [`Dataplane::is_in_step`].
    pub fn is_in_step(&self) -> bool {
        self.in_step
    }

    /// See [`Dataplane::set_rest`].
    pub fn set_rest(&mut self, rest: Rest) {
        self.rest = rest;
        self.in_step = false;
    }

    /// Takes a whole plan, whatever there was before.
    ///
    /// # Errors
    /// Services that the plan does not have are to stay, and this mode does not know them.
    pub fn replace(&mut self, mode: &str, node: NodePlan, ports: Vec<PortPlan>) -> Result<(), SyncError> {
        self.rest.needs_all(mode)?;
        self.in_step = false;
        self.plan = Plan::new(node, ports);
        Ok(())
    }

    /// Takes a change in.
    ///
    /// # Errors
    /// [`SyncError::OutOfStep`] where the kernel does not have what was there before.
    pub fn change(&mut self, change: PlanChange) -> Result<(), SyncError> {
        if !self.in_step {
            return Err(SyncError::OutOfStep);
        }
        self.in_step = false;
        self.plan.follow(change);
        Ok(())
    }

    /// The kernel has all of the plan.
    pub fn arrived(&mut self) {
        self.in_step = true;
    }
}

impl Dataplane for Programmer {
    fn check(&mut self) -> Result<(), SyncError> {
        Programmer::check(self)
    }

    fn set_rest(&mut self, rest: Rest) {
        Programmer::set_rest(self, rest);
    }

    fn keep(&mut self, ports: BTreeSet<PortId>) {
        Programmer::keep(self, ports);
    }

    fn take_found(&mut self) -> BTreeSet<Claim> {
        Programmer::take_found(self)
    }

    fn is_in_step(&self) -> bool {
        Programmer::is_in_step(self)
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        Programmer::is_untouched(self)
    }

    fn guard(&self, tell: Box<dyn Fn(Intrusion) + Send>) -> io::Result<()> {
        guard::start(self.port()?, tell)
    }

    fn replace(&mut self, node: NodePlan, ports: Vec<PortPlan>) -> Result<Applied, SyncError> {
        Programmer::replace(self, node, ports)
    }

    fn change(&mut self, change: PlanChange) -> Result<Applied, SyncError> {
        Programmer::change(self, change)
    }

    fn collect(&mut self) -> Result<Applied, SyncError> {
        Programmer::collect(self)
    }

    fn serves_loopback(&self) -> bool {
        self.state().node().localhost_node_ports
    }
}

impl From<Programmer> for Box<dyn Dataplane> {
    fn from(programmer: Programmer) -> Box<dyn Dataplane> {
        Box::new(programmer)
    }
}
