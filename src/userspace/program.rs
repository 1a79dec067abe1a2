//! Keeps the doors and the table in step with the plan.
//!
//! What is new is opened first, then the table leads there, and only then is closed what nobody is led to any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Instant;

use super::doors::Doors;
use super::table::{TABLE, Table};
use super::{Places, doors_of, refusal, text};
use crate::config::host;
use crate::dataplane::{Dataplane, Progress};
use crate::netlink::model::{Op, SetRef};
use crate::netlink::{CodecKind, Connection};
use crate::nftables::program::{Applied, Rest, SyncError};
use crate::nftables::rule::nf_family;
use crate::objects::{Family, FamilyOf, Protocol};
use crate::plan::{Claim, NodePlan, Plan, PlanChange, PortId, PortPlan};
use crate::tool;

/// What is programmed.
#[derive(Debug)]
pub struct Programmer {
    connection: Connection,
    doors: Doors,
    progress: Progress,
    /// Where the doors of each family are opened.
    addresses: BTreeMap<Family, IpAddr>,
    loaded: BTreeMap<Family, Table>,
    /// The kernel's count of changes of rules when ours were there; zero where it is not known.
    generation: u32,
    /// The doors behind each UDP frontend.
    udp: HashMap<Claim, Vec<SocketAddr>>,
    /// The Service ports that lack a door.
    shut: BTreeSet<PortId>,
    /// Those that nothing can be done for, and that were named.
    refused: BTreeSet<PortId>,
}

impl Programmer {
    /// One for the current network namespace, with the ports that may be listened on, where there is a choice. Nothing is
    /// opened or written yet.
    ///
    /// # Errors
    /// Those of sockets and threads.
    pub fn open(range: Option<RangeInclusive<u16>>) -> io::Result<Programmer> {
        Ok(Programmer {
            connection: Connection::open(CodecKind::default())?,
            doors: Doors::new(range)?,
            progress: Progress::default(),
            addresses: BTreeMap::new(),
            loaded: BTreeMap::new(),
            generation: 0,
            udp: HashMap::new(),
            shut: BTreeSet::new(),
            refused: BTreeSet::new(),
        })
    }

    /// How many listening sockets, elements of sets and maps, and rules there are.
    pub fn made(&self) -> BTreeMap<&'static str, usize> {
        let elements = |table: &Table| table.elements.values().map(BTreeMap::len).sum::<usize>();
        BTreeMap::from([
            ("listeners", self.doors.places().len()),
            ("elements", self.loaded.values().map(elements).sum()),
            ("rules", self.loaded.values().map(|table| table.rules).sum()),
        ])
    }

    fn bring_all(&mut self) -> Result<Applied, SyncError> {
        let started = Instant::now();
        self.choose_addresses();
        self.doors.follow(self.progress.plan());
        self.open_doors();
        let plan = self.progress.plan();
        let is_wanted: BTreeSet<_> = plan.ports.values().flat_map(doors_of).collect();
        let places: Places = self.doors.places().into_iter().filter(|(door, _)| is_wanted.contains(door)).collect();
        self.udp = udp_doors(plan, &places);
        let wanted = Family::BOTH.map(|family| Table::new(plan, family, &places));
        let scripts: Vec<String> = wanted.iter().map(|table| self.script(table)).collect();
        let script = scripts.concat();
        let mut applied = Applied { encode: started.elapsed(), ..Applied::default() };
        if !script.is_empty() {
            applied += self.load(&script, &wanted)?;
        }
        self.loaded = wanted.into_iter().map(|table| (table.family, table)).collect();
        self.doors.close_all_but(|door| is_wanted.contains(door));
        self.progress.arrived();
        Ok(applied)
    }

    /// The node's own address as the plan has it, if the host has that; else the one that was used before, else the one that
    /// others reach it by. A host that has none of a family has nobody to serve in it but itself.
    fn choose_addresses(&mut self) {
        let (all, usable) = (host::all_addresses().unwrap_or_default(), host::addresses().unwrap_or_default());
        for family in Family::BOTH {
            let planned = self.progress.plan().node.node_ips.iter();
            let before = self.addresses.get(&family).into_iter();
            let mut known = planned.chain(before).filter(|ip| ip.family() == family && all.contains(ip));
            let known = known.next().or_else(|| usable.iter().find(|ip| ip.family() == family));
            let loopback = match family {
                Family::V4 => IpAddr::from([127, 0, 0, 1]),
                Family::V6 => std::net::Ipv6Addr::LOCALHOST.into(),
            };
            self.addresses.insert(family, known.copied().unwrap_or(loopback));
        }
    }

    /// One that cannot be opened is a Service port that nobody is led to, until the next look.
    fn open_doors(&mut self) {
        let before = std::mem::take(&mut self.shut);
        for port in self.progress.plan().ports.values() {
            if let Some(why) = refusal(port)
                && self.refused.insert(port.id.clone())
            {
                tracing::warn!("{why}");
            }
            for door in doors_of(port) {
                let Err(error) = self.doors.open(&door, port.protocol, self.addresses[&port.id.family]) else {
                    continue;
                };
                if !before.contains(&port.id) && !self.shut.contains(&port.id) {
                    tracing::error!(
                        "Service {}: there is no port to listen on: {error}; it is tried again",
                        port.id.name
                    );
                }
                self.shut.insert(port.id.clone());
            }
        }
        let ports = &self.progress.plan().ports;
        self.refused.retain(|id| ports.contains_key(id));
    }

    /// What makes a table of what there is of it.
    fn script(&self, wanted: &Table) -> String {
        match self.loaded.get(&wanted.family) {
            Some(before) if before == wanted => String::new(),
            Some(before) if before.frame == wanted.frame => text::change(before, wanted),
            _ => text::whole(wanted),
        }
    }

    /// One transaction for both families.
    fn load(&mut self, script: &str, wanted: &[Table]) -> Result<Applied, SyncError> {
        let before: usize = self.loaded.values().map(Table::len).sum();
        let is_change = !script.starts_with("add table");
        let after: usize = wanted.iter().map(Table::len).sum();
        self.generation = 0;
        let started = Instant::now();
        tool::needed("nft", &["-f", "-"], script).map_err(SyncError::Refused)?;
        let taken = started.elapsed();
        self.generation = self.connection.generation()?;
        let elements = |verb: &str| {
            script.lines().filter(|line| line.starts_with(verb)).map(|line| line.matches(", ").count() + 1).sum()
        };
        let (added, deleted) =
            if is_change { (elements("add element"), elements("delete element")) } else { (after, before) };
        Ok(Applied {
            transactions: 1,
            messages: script.lines().count(),
            bytes: script.len(),
            added,
            deleted,
            kernel: taken,
            longest: taken,
            ..Applied::default()
        })
    }

    /// Whether the kernel holds as many elements as were added. Rules are not looked at.
    fn holds(&mut self, table: &Table) -> Result<bool, SyncError> {
        for (set, elements) in table.elements.iter().filter(|(set, _)| set.is_counted()) {
            let set = SetRef { family: nf_family(table.family), table: TABLE.into(), name: set.name().into() };
            // a table that is not there has no sets
            if self.connection.elements(&set).map_or(0, |found| found.len()) != elements.len() {
                return Ok(false);
            }
        }
        let rules = self.connection.rules(nf_family(table.family), TABLE)?.len();
        Ok(rules == table.rules)
    }
}

impl Dataplane for Programmer {
    fn check(&mut self) -> Result<(), SyncError> {
        tool::needed("nft", &["--version"], "").map(drop).map_err(SyncError::Refused)
    }

    fn set_rest(&mut self, rest: Rest) {
        self.progress.set_rest(rest);
    }

    fn answers_for(&self, claim: &Claim) -> Option<Vec<SocketAddr>> {
        self.udp.get(claim).cloned()
    }

    fn is_in_step(&self) -> bool {
        self.progress.is_in_step()
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        let generation = self.connection.generation()?;
        let before = (self.addresses.clone(), self.shut.len());
        self.choose_addresses();
        if before.1 > 0 {
            self.open_doors();
        }
        if !self.progress.is_in_step() || self.addresses != before.0 || self.shut.len() < before.1 {
            return Ok(false);
        }
        if generation == self.generation {
            return Ok(true);
        }
        let tables: Vec<Table> = self.loaded.values().cloned().collect();
        for table in &tables {
            if !self.holds(table)? {
                return Ok(false);
            }
        }
        self.generation = generation;
        Ok(true)
    }

    fn replace(&mut self, node: NodePlan, ports: Vec<PortPlan>) -> Result<Applied, SyncError> {
        self.progress.replace("userspace", node, ports)?;
        self.loaded.clear();
        self.bring_all()
    }

    fn change(&mut self, change: PlanChange) -> Result<Applied, SyncError> {
        self.progress.change(change)?;
        self.bring_all()
    }

    /// Connections to loopback addresses are led to the node's own address, and never leave it.
    fn serves_loopback(&self) -> bool {
        false
    }
}

/// Whichever of a Service port's doors a client came through, it may stay there.
fn udp_doors(plan: &Plan, places: &Places) -> HashMap<Claim, Vec<SocketAddr>> {
    let mut doors = HashMap::new();
    for port in plan.ports.values().filter(|port| port.protocol == Protocol::Udp) {
        let places: Vec<_> = doors_of(port).filter_map(|door| places.get(&door).copied()).collect();
        doors.extend(port.claims().map(|claim| (claim, places.clone())));
    }
    doors
}

/// Removes the tables that a process left, or still has; in which families there were any.
///
/// # Errors
/// The kernel refuses, or cannot be asked.
pub fn cleanup() -> Result<Vec<Family>, SyncError> {
    let mut connection =
        Connection::open(CodecKind::default()).map_err(|error| SyncError::Refused(error.to_string()))?;
    let tables = connection.tables()?;
    let is_there =
        |family: &Family| tables.iter().any(|table| table.family == nf_family(*family) && table.name == TABLE);
    let found: Vec<Family> = Family::BOTH.into_iter().filter(is_there).collect();
    let delete = |family: &Family| Op::DeleteTable { family: nf_family(*family), name: TABLE.into() };
    let ops: Vec<Op> = found.iter().map(delete).collect();
    if !ops.is_empty() {
        connection.commit(&ops).map_err(|error| SyncError::Commit { object: None, error: Box::new(error) })?;
    }
    Ok(found)
}
