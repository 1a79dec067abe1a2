//! The kernel's numbers: which Service ports there are, and what was counted for each.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::netlink::{Connection, ReadError};
use crate::nftables::state::State;
use crate::nftables::{counts, read};
use crate::objects::Protocol;
use crate::plan::{NodePlan, PortName};

/// Reads the kernel again and again.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    /// The ruleset's generation when the state was read.
    generation: Option<u32>,
    state: State,
    changed: HashMap<PortName, Instant>,
}

/// What one look at the kernel found.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When.
    pub at: Instant,
    /// Whether there is a table of this version at all.
    pub has_table: bool,
    /// The Service ports by their names.
    pub ports: BTreeMap<PortName, Port>,
}

/// A Service port, both families together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The transport protocol.
    pub protocol: Protocol,
    /// How many addresses and node ports lead to it.
    pub frontends: usize,
    /// How many endpoints it has, by family ([`Family::V4`](crate::objects::Family::V4), then V6); none in a family that it does not have.
    pub endpoints: [Option<usize>; 2],
    /// New connections since its counters were made; none where nothing counts.
    pub connections: Option<u64>,
    /// When it was last seen to change: not before the first reading.
    pub changed: Option<Instant>,
}

impl Reader {
    /// A reader that has not read anything.
    pub fn new(connection: Connection) -> Reader {
        Reader { connection, generation: None, state: State::default(), changed: HashMap::new() }
    }

    /// Looks at the kernel. The plan is only read where somebody has changed the ruleset since the last time.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(&mut self) -> Result<Reading, ReadError> {
        let generation = self.connection.generation()?;
        if self.generation != Some(generation) {
            match read::read(&mut self.connection, &NodePlan::default()) {
                Ok(reading) => self.take_over(reading.state, generation),
                // changes come faster than they can be read: the plan of a moment ago has to do
                Err(ReadError::Unsteady(_)) if self.generation.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        let mut ports = self.ports();
        for (name, count) in counts::read(&mut self.connection)? {
            if let Some(port) = ports.get_mut(&name) {
                port.connections = Some(count);
            }
        }
        let has_table = self.state.families().next().is_some();
        Ok(Reading { at: Instant::now(), has_table, ports })
    }

    fn take_over(&mut self, state: State, generation: u32) {
        if self.generation.is_some() {
            self.note_changes(&state);
        }
        (self.state, self.generation) = (state, Some(generation));
    }

    fn note_changes(&mut self, after: &State) {
        let now = Instant::now();
        for port in after.ports().filter(|port| self.state.port(&port.id) != Some(port)) {
            self.changed.insert(port.id.name.clone(), now);
        }
        for port in self.state.ports().filter(|port| after.port(&port.id).is_none()) {
            self.changed.insert(port.id.name.clone(), now);
        }
    }

    fn ports(&self) -> BTreeMap<PortName, Port> {
        let mut ports: BTreeMap<PortName, Port> = BTreeMap::new();
        for plan in self.state.ports() {
            let port = ports.entry(plan.id.name.clone()).or_insert_with(|| Port {
                protocol: plan.protocol,
                frontends: 0,
                endpoints: [None; 2],
                connections: None,
                changed: self.changed.get(&plan.id.name).copied(),
            });
            port.frontends += plan.frontends.len();
            port.endpoints[plan.id.family as usize] = Some(plan.cluster.len().max(plan.local.len()));
        }
        ports
    }
}
