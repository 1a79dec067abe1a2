//! Keeps the kernel in step with the plan by `iptables-restore`.
//!
//! The rules are loaded next to those of others, and after that only what differs: the chains of all Services together, and
//! those of the Services that changed (row J4). What is in the kernel already is not understood, only replaced.

use std::collections::BTreeMap;
use std::time::Instant;

use super::kernel;
use super::ruleset::Ruleset;
use super::saved::Saved;
use crate::dataplane::{Dataplane, Progress};
use crate::nftables::program::{Applied, Rest, SyncError};
use crate::objects::Family;
use crate::plan::{NodePlan, PlanChange, PortPlan};

/// What is programmed.
#[derive(Debug, Default)]
pub struct Programmer {
    progress: Progress,
    loaded: BTreeMap<Family, Ruleset>,
}

impl Programmer {
    /// Makes the rules of a family what the plan says. A family that has no Services and nothing of ours is left alone: its
    /// programs may not even be there.
    fn bring(&mut self, family: Family, applied: &mut Applied) -> Result<(), SyncError> {
        let plan = self.progress.plan();
        let has_services = plan.ports.keys().any(|id| id.family == family);
        let started = Instant::now();
        let wanted = Ruleset::new(plan, family);
        let text = match self.loaded.get(&family) {
            Some(before) if *before == wanted => return Ok(()),
            Some(before) if before.has_jumps_of(&wanted) => wanted.change_from(before),
            _ => match kernel::save(family) {
                Ok(saved) if !has_services && saved.iter().all(Saved::is_empty) => return Ok(()),
                Err(_) if !has_services => return Ok(()),
                saved => wanted.onto(&saved?),
            },
        };
        applied.encode += started.elapsed();
        let started = Instant::now();
        self.loaded.remove(&family);
        kernel::restore(family, &text)?;
        let taken = started.elapsed();
        *applied += Applied {
            transactions: 1,
            messages: text.lines().count(),
            bytes: text.len(),
            added: text.lines().filter(|line| line.starts_with("-A ") || line.starts_with("-I ")).count(),
            deleted: text.lines().filter(|line| line.starts_with("-D ") || line.starts_with("-X ")).count(),
            kernel: taken,
            longest: taken,
            ..Applied::default()
        };
        self.loaded.insert(family, wanted);
        Ok(())
    }

    fn bring_all(&mut self) -> Result<Applied, SyncError> {
        let mut applied = Applied::default();
        for family in Family::BOTH {
            self.bring(family, &mut applied)?;
        }
        self.progress.arrived();
        Ok(applied)
    }
}

impl Dataplane for Programmer {
    fn check(&mut self) -> Result<(), SyncError> {
        kernel::save(Family::V4).map(drop)
    }

    fn set_rest(&mut self, rest: Rest) {
        self.progress.set_rest(rest);
    }

    fn is_in_step(&self) -> bool {
        self.progress.is_in_step()
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        for (family, rules) in &self.loaded {
            if !kernel::holds(*family, rules)? {
                return Ok(false);
            }
        }
        Ok(self.progress.is_in_step())
    }

    fn replace(&mut self, node: NodePlan, ports: Vec<PortPlan>) -> Result<Applied, SyncError> {
        self.progress.replace("iptables", node, ports)?;
        self.loaded.clear();
        self.bring_all()
    }

    fn change(&mut self, change: PlanChange) -> Result<Applied, SyncError> {
        self.progress.change(change)?;
        self.bring_all()
    }

    fn serves_loopback(&self) -> bool {
        self.progress.plan().node.localhost_node_ports
    }
}
