//! The Service ports that are programmed, held compactly.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use slab::Slab;

use crate::plan::{PortId, PortPlan};

/// Service ports, found by what they are. The index holds nothing but positions, since a plan says itself whose it is.
#[derive(Clone, Default)]
pub struct Ports {
    plans: Slab<PortPlan>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Ports {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// One of them.
    pub fn get(&self, id: &PortId) -> Option<&PortPlan> {
        if self.is_empty() {
            return None;
        }
        let at = self.index.find(self.hasher.hash_one(id), |at| self.plans[*at as usize].id == *id)?;
        Some(&self.plans[*at as usize])
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &PortPlan> {
        self.plans.iter().map(|(_, plan)| plan)
    }

    /// Those from a position on, with their positions, which stay while nothing is removed.
    pub fn iter_from(&self, position: usize) -> impl Iterator<Item = (usize, &PortPlan)> {
        (position..self.plans.capacity()).filter_map(|at| Some((at, self.plans.get(at)?)))
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        self.plans.reserve(more);
        let (plans, hasher) = (&self.plans, &self.hasher);
        self.index.reserve(more, |at| hasher.hash_one(&plans[*at as usize].id));
    }

    /// Adds one that is not there.
    pub fn insert(&mut self, plan: PortPlan) {
        debug_assert!(self.get(&plan.id).is_none());
        let hash = self.hasher.hash_one(&plan.id);
        let at = self.plans.insert(plan) as u32;
        let (plans, hasher) = (&self.plans, &self.hasher);
        self.index.insert_unique(hash, at, |at| hasher.hash_one(&plans[*at as usize].id));
    }

    /// Takes one out.
    pub fn remove(&mut self, id: &PortId) -> Option<PortPlan> {
        if self.is_empty() {
            return None;
        }
        let found = self.index.find_entry(self.hasher.hash_one(id), |at| self.plans[*at as usize].id == *id);
        let (at, _) = found.ok()?.remove();
        Some(self.plans.remove(at as usize))
    }
}

impl Extend<PortPlan> for Ports {
    fn extend<T: IntoIterator<Item = PortPlan>>(&mut self, plans: T) {
        let plans = plans.into_iter();
        self.reserve(plans.size_hint().0);
        plans.for_each(|plan| self.insert(plan));
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Family, ServiceKey};
    use crate::plan::PortName;

    fn plan(number: usize) -> PortPlan {
        PortPlan::bare(PortId {
            name: PortName::new(&ServiceKey::new("ns", &format!("s{number}")), ""),
            family: Family::V4,
        })
    }

    #[test]
    fn what_is_taken_out_is_gone_and_the_rest_is_found() {
        let mut ports = Ports::default();
        assert!(ports.get(&plan(0).id).is_none() && ports.remove(&plan(0).id).is_none());
        ports.extend((0..1000).map(plan));
        for number in (0..1000).step_by(3) {
            assert_eq!(ports.remove(&plan(number).id), Some(plan(number)));
            assert_eq!(ports.remove(&plan(number).id), None);
        }
        assert!((0..1000).all(|number| ports.get(&plan(number).id).is_some() == (number % 3 != 0)));
        (1000..1200).for_each(|number| ports.insert(plan(number)));
        let whole: Vec<&PortPlan> = ports.iter().collect();
        assert_eq!(whole.len(), 666 + 200);
        let middle = ports.iter_from(0).nth(399).map_or(0, |(at, _)| at + 1);
        let halves: Vec<&PortPlan> =
            ports.iter_from(0).take(400).chain(ports.iter_from(middle)).map(|(_, plan)| plan).collect();
        assert_eq!(halves, whole);
    }
}
