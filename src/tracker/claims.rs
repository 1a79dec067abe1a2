//! Which of several Services has an address and port that all of them ask for (behaviour row A11).

use hashbrown::HashMap;

use super::store::ServiceId;
use crate::plan::Claim;

/// Who asks for what, and who has it: of several Services the oldest.
///
/// Nearly everything is asked for by one Service only, and costs one entry.
#[derive(Debug, Default)]
pub struct Claims {
    owners: HashMap<Claim, ServiceId>,
    /// What several ask for: all of them, the oldest first.
    contested: HashMap<Claim, Vec<ServiceId>>,
}

impl Claims {
    /// The Service that has it.
    pub fn owner(&self, claim: &Claim) -> Option<ServiceId> {
        self.owners.get(claim).copied()
    }

    /// All Services that ask for it, the one that has it first.
    pub fn claimants(&self, claim: &Claim) -> &[ServiceId] {
        match self.contested.get(claim) {
            Some(claimants) => claimants,
            None => self.owners.get(claim).map_or(&[], std::slice::from_ref),
        }
    }

    /// Who loses what to whom: the claim, the Service that has it, and each that does not get it.
    pub fn disputes(&self, claim: &Claim) -> impl Iterator<Item = (Claim, ServiceId, ServiceId)> + '_ {
        let claim = *claim;
        let contested = self.contested.get(&claim).map_or(&[][..], Vec::as_slice);
        contested.iter().skip(1).map(move |loser| (claim, contested[0], *loser))
    }

    /// Whether several Services ask for it.
    pub fn is_contested(&self, claim: &Claim) -> bool {
        self.contested.contains_key(claim)
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        self.owners.reserve(more);
    }

    /// The Service asks for it from now on. `older` says whether the first of two Services goes before the second.
    pub fn add(&mut self, claim: Claim, service: ServiceId, older: impl Fn(ServiceId, ServiceId) -> bool) {
        let owner = *self.owners.entry(claim).or_insert(service);
        if owner == service {
            return;
        }
        let claimants = self.contested.entry(claim).or_insert_with(|| vec![owner]);
        if !claimants.contains(&service) {
            let at = claimants.partition_point(|other| older(*other, service));
            claimants.insert(at, service);
            self.owners.insert(claim, claimants[0]);
        }
    }

    /// The Service does not ask for it any more.
    pub fn remove(&mut self, claim: &Claim, service: ServiceId) {
        if let Some(claimants) = self.contested.get_mut(claim) {
            claimants.retain(|other| *other != service);
            self.owners.insert(*claim, claimants[0]);
            if claimants.len() == 1 {
                self.contested.remove(claim);
            }
        } else if self.owner(claim) == Some(service) {
            self.owners.remove(claim);
        }
    }
}
