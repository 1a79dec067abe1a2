//! The Services to plan again.

use super::Before;
use super::store::ServiceId;

/// Services to plan again, each once, and what was true of each when its plan was taken last; nothing where there was
/// no plan.
#[derive(Debug, Default)]
pub struct Touched {
    services: Vec<(ServiceId, Option<Box<Before>>)>,
    /// By Service: whether it is in the list.
    listed: Vec<bool>,
}

impl Touched {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Whether the Service is in the list.
    pub fn contains(&self, id: ServiceId) -> bool {
        self.listed.get(id.index()).is_some_and(|listed| *listed)
    }

    /// Adds a Service that is not in the list.
    pub fn push(&mut self, id: ServiceId, before: Option<Box<Before>>) {
        if self.listed.len() <= id.index() {
            self.listed.resize(id.index() + 1, false);
        }
        self.listed[id.index()] = true;
        self.services.push((id, before));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ServiceId, Option<&Before>)> {
        self.services.iter().map(|(id, before)| (*id, before.as_deref()))
    }

    /// Takes all of them, in the order of their numbers.
    pub fn take(&mut self) -> Vec<(ServiceId, Option<Box<Before>>)> {
        let mut services = std::mem::take(&mut self.services);
        services.iter().for_each(|(id, _)| self.listed[id.index()] = false);
        services.sort_unstable_by_key(|(id, _)| *id);
        services
    }
}
