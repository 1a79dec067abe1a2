//! Service ports that the kernel refuses (row J9): they must not keep the others from being served. Each family is by itself
//! (behaviour row B10).

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{PlanChange, PortId, PortPlan};

/// How many more are set aside in one sync. Each takes reading the kernel's tables once more.
const MOST: usize = 20;

/// The ports that are set aside, and what was said of them.
#[derive(Debug, Default)]
pub struct Aside {
    held: BTreeSet<PortId>,
    /// What was reported of each, also of those that are being tried again.
    told: BTreeMap<PortId, String>,
    /// How many more may be set aside in this sync.
    left: usize,
}

/// What became of a port that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is set aside; what is wrong with it is news.
    News,
    /// It is set aside, again for the same reason.
    Known,
    /// That it was left out did not help, or there have been too many.
    Useless,
}

impl Aside {
    /// Begins a sync. The ports that the change is about are tried again: says whether any of them was set aside.
    pub fn begin(&mut self, change: &PlanChange) -> bool {
        self.left = MOST;
        let named = change.changed.iter().map(|port| &port.id).chain(&change.removed);
        let mut any = false;
        named.for_each(|id| any |= self.held.remove(id));
        any
    }

    /// Begins a sync in which all are tried again.
    pub fn begin_anew(&mut self) {
        self.left = MOST;
        self.held.clear();
    }

    /// Sets a port aside for what the kernel said.
    pub fn add(&mut self, id: &PortId, reason: &str) -> Outcome {
        if self.left == 0 || !self.held.insert(id.clone()) {
            return Outcome::Useless;
        }
        self.left -= 1;
        match self.told.insert(id.clone(), reason.into()) {
            Some(known) if known == reason => Outcome::Known,
            _ => Outcome::News,
        }
    }

    /// Takes the ports that are set aside out of a plan.
    pub fn without(&self, ports: Vec<PortPlan>) -> Vec<PortPlan> {
        if self.held.is_empty() {
            return ports;
        }
        ports.into_iter().filter(|port| !self.held.contains(&port.id)).collect()
    }

    /// The ports that are set aside.
    pub fn held(&self) -> &BTreeSet<PortId> {
        &self.held
    }

    /// After a sync that succeeded: the ports that were reported and are not set aside any more.
    pub fn recovered(&mut self) -> Vec<PortId> {
        let back: Vec<PortId> = self.told.keys().filter(|id| !self.held.contains(*id)).cloned().collect();
        back.iter().for_each(|id| drop(self.told.remove(id)));
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Family;
    use crate::plan::PortName;

    fn port(name: &str) -> PortId {
        PortId { name: PortName::parse(name), family: Family::V4 }
    }

    fn gone(name: &str) -> PlanChange {
        PlanChange { removed: vec![port(name)], ..PlanChange::default() }
    }

    #[test]
    fn what_is_refused_again_for_the_same_reason_is_no_news() {
        let (mut aside, name) = (Aside::default(), port("a/b"));
        aside.begin(&PlanChange::default());
        assert_eq!(aside.add(&name, "no room"), Outcome::News);
        assert_eq!(aside.add(&name, "no room"), Outcome::Useless, "it is left out already");
        aside.begin_anew();
        assert_eq!(aside.add(&name, "no room"), Outcome::Known);
        aside.begin_anew();
        assert_eq!(aside.add(&name, "not so"), Outcome::News);
        aside.begin_anew();
        assert_eq!(aside.recovered(), [name]);
        assert_eq!(aside.recovered(), []);
    }

    #[test]
    fn a_change_of_the_service_gives_it_another_chance() {
        let (mut aside, name) = (Aside::default(), port("a/b"));
        aside.begin(&PlanChange::default());
        aside.add(&name, "no room");
        assert!(!aside.begin(&gone("a/c")));
        assert!(aside.held().contains(&name));
        assert!(aside.begin(&gone("a/b")));
        assert!(aside.held().is_empty());
    }

    /// Row B10.
    #[test]
    fn the_other_family_goes_on() {
        let plan = |family| PortPlan::bare(PortId { name: PortName::parse("a/b"), family });
        let mut aside = Aside::default();
        aside.begin(&PlanChange::default());
        aside.add(&port("a/b"), "no room");
        let left = aside.without(Family::BOTH.map(plan).into());
        assert_eq!(left.iter().map(|port| port.id.family).collect::<Vec<_>>(), [Family::V6]);
    }

    #[test]
    fn one_sync_does_not_try_for_ever() {
        let mut aside = Aside::default();
        aside.begin(&PlanChange::default());
        let outcomes = (0..=MOST).map(|n| aside.add(&port(&format!("a/{n}")), "no"));
        assert_eq!(outcomes.filter(|outcome| *outcome == Outcome::Useless).count(), 1);
    }
}
