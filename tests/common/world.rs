//! The rules of svcmap for some objects, without a kernel.

use svcmap::config::ProxyConfig;
use svcmap::netlink::model::Op;
use svcmap::nftables::state::State;
use svcmap::source::Snapshot;
use svcmap::trace::Ruleset;
use svcmap::tracker::Tracker;

use super::cases::{Case, Given, NodeSettings, Stack, manifests, snapshot};

/// The rules that svcmap brings a kernel to that has none of its own.
pub struct World {
    tracker: Tracker,
    pub state: State,
    pub ruleset: Ruleset,
    /// The transactions that did it.
    pub transactions: Vec<Vec<Op>>,
}

impl World {
    /// A world without objects.
    pub fn new(config: ProxyConfig) -> World {
        World {
            tracker: Tracker::new(config),
            state: State::default(),
            ruleset: Ruleset::default(),
            transactions: Vec::new(),
        }
    }

    /// Makes these the objects that there are, and cleans up after the others.
    pub fn sync(&mut self, snapshot: Snapshot) {
        self.tracker.replace(snapshot);
        let (change, _) = self.tracker.take();
        for transaction in [self.state.advance(change), self.state.collect()] {
            self.ruleset.apply(&transaction.ops).expect("a kernel takes the transaction");
            self.transactions.push(transaction.ops);
        }
    }

    /// The world after a case's last step.
    pub fn of(case: &Case, stack: Stack) -> World {
        let mut world = World::new(case.config(stack));
        (0..case.steps.len()).for_each(|step| world.sync(case.snapshot(step, stack)));
        world
    }

    /// The world of objects in the notation of the cases.
    pub fn with(objects: &[&str], stack: Stack, config: ProxyConfig) -> World {
        let mut given = Given::new("now");
        objects.iter().for_each(|line| given.add(line));
        let mut world = World::new(config);
        world.sync(snapshot(&manifests(&NodeSettings::default(), &given, stack)));
        world
    }
}
