//! What a mode has to be able to do.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::lab::Spent;
use crate::plan::{Plan, PlanChange};

/// One mode in its network namespace.
pub trait Backend {
    /// What loads the rules.
    fn loader(&self) -> String;

    /// Loads a plan where there is nothing.
    ///
    /// # Errors
    /// The kernel, or the program that loads them, refuses the rules.
    fn load(&mut self, plan: &Plan) -> Result<Loaded>;

    /// What there is now, by kind.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    fn kinds(&mut self) -> Result<BTreeMap<&'static str, usize>>;

    /// Follows a change of the plan; what that took, without what was done to find out what to send.
    ///
    /// # Errors
    /// As before.
    fn change(&mut self, change: PlanChange) -> Result<Spent>;
}

/// What a load came to.
pub struct Loaded {
    /// Elements or rules.
    pub objects: usize,
    /// What was sent.
    pub bytes: usize,
    /// What it took.
    pub spent: Spent,
}
