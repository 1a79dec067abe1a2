//! Virtual servers in the kernel: what it takes to make them what they should be.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

use super::names::Set;
use super::state::{Key, Server};
use crate::netlink::ipvs::{Ipvs, Scheduling, Service, Step};
use crate::nftables::program::SyncError;
use crate::objects::{Family, Protocol};

/// The virtual servers of a node.
#[derive(Debug)]
pub struct Servers {
    kernel: Ipvs,
    /// Those that have a real server which only keeps the connections that it has.
    leaving: BTreeSet<Key>,
}

/// How virtual servers are told that are ours, where the kernel says nothing of who made them.
#[derive(Debug, Default)]
pub struct Ours {
    /// The addresses of the interface.
    pub addresses: BTreeSet<IpAddr>,
    node_ports: BTreeSet<(Protocol, u16)>,
    exclude: Vec<IpNet>,
}

impl Ours {
    /// By the interface's addresses and the sets of node ports, but for what is excluded.
    pub fn new(addresses: BTreeSet<IpAddr>, sets: &BTreeMap<String, Vec<String>>, exclude: &[IpNet]) -> Ours {
        let mut node_ports = BTreeSet::new();
        for protocol in Protocol::ALL {
            for set in [Set::NodePort(protocol), Set::NodePortLocal(protocol)] {
                let entries = Family::BOTH.iter().filter_map(|family| sets.get(&set.name(*family)));
                for entry in entries.flatten() {
                    let number = entry.rsplit(':').next().and_then(|number| number.parse().ok());
                    node_ports.extend(number.map(|number| (protocol, number)));
                }
            }
        }
        Ours { addresses, node_ports, exclude: exclude.to_vec() }
    }

    fn has(&self, key: &Key) -> bool {
        let ip = key.address.ip();
        let is_known = self.addresses.contains(&ip) || self.node_ports.contains(&(key.protocol, key.address.port()));
        is_known && !self.exclude.iter().any(|prefix| prefix.contains(&ip))
    }
}

impl Servers {
    /// Opens a connection in the current network namespace.
    ///
    /// # Errors
    /// The kernel has no IPVS.
    pub fn open() -> io::Result<Servers> {
        Ok(Servers { kernel: Ipvs::open()?, leaving: BTreeSet::new() })
    }

    /// The kernel's times for sessions, in seconds.
    ///
    /// # Errors
    /// Those of asking.
    pub fn set_timeouts(&mut self, seconds: [u32; 3]) -> Result<(), SyncError> {
        self.kernel.set_timeouts(seconds).map_err(refused)
    }

    /// All virtual servers that there are.
    ///
    /// # Errors
    /// Those of asking.
    pub fn read(&mut self) -> Result<BTreeMap<Key, Scheduling>, SyncError> {
        let all = self.kernel.services().map_err(refused)?;
        let key = |service: Service| {
            Some(Key { protocol: Protocol::from_number(service.protocol)?, address: service.address })
        };
        Ok(all.into_iter().filter_map(|(service, scheduling)| Some((key(service)?, scheduling))).collect())
    }

    /// The steps from those that there are to those that are wanted: what is ours and not wanted goes.
    ///
    /// # Errors
    /// Those of asking.
    pub fn replace(&mut self, wanted: &BTreeMap<Key, Server>, ours: &Ours) -> Result<Vec<Step>, SyncError> {
        let there = self.read()?;
        let mut steps: Vec<Step> = Vec::new();
        let gone = there.keys().filter(|key| !wanted.contains_key(key) && ours.has(key));
        steps.extend(gone.map(|key| Step::DeleteService(service(key))));
        for (key, server) in wanted {
            self.bring(key, there.get(key), server, &mut steps)?;
        }
        Ok(steps)
    }

    /// The steps from those that were programmed to those that are wanted.
    ///
    /// # Errors
    /// Those of asking.
    pub fn change(
        &mut self,
        before: &BTreeMap<Key, Server>,
        wanted: &BTreeMap<Key, Server>,
    ) -> Result<Vec<Step>, SyncError> {
        let mut steps = Vec::new();
        let gone = before.keys().filter(|key| !wanted.contains_key(key));
        steps.extend(gone.map(|key| Step::DeleteService(service(key))));
        for (key, server) in wanted.iter().filter(|(key, server)| before.get(key) != Some(*server)) {
            self.bring(key, before.get(key).map(scheduling).as_ref(), server, &mut steps)?;
        }
        Ok(steps)
    }

    /// The steps for the real servers that have no connections left.
    ///
    /// # Errors
    /// Those of asking.
    pub fn collect(&mut self, wanted: &BTreeMap<Key, Server>) -> Result<Vec<Step>, SyncError> {
        let mut steps = Vec::new();
        for key in std::mem::take(&mut self.leaving) {
            if let Some(server) = wanted.get(&key) {
                self.bring(&key, Some(&scheduling(server)), server, &mut steps)?;
            }
        }
        Ok(steps)
    }

    /// Whether a real server is waited for.
    pub fn is_waiting(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Carries steps out; how many bytes that took.
    ///
    /// # Errors
    /// The first that was refused; the others have been carried out.
    pub fn carry_out(&mut self, steps: &[Step]) -> Result<usize, SyncError> {
        let (bytes, refusals) = self.kernel.carry_out(steps).map_err(refused)?;
        match refusals.first() {
            None => Ok(bytes),
            Some((at, errno)) => {
                let (what, reason) = (&steps[*at], io::Error::from_raw_os_error(*errno));
                Err(SyncError::Refused(format!("IPVS refuses {}: {reason}{}", words(what), hint(what, *errno))))
            }
        }
    }

    /// The steps for one virtual server. A real server that is not wanted any more goes at once if it has no connections, and
    /// else gets none any more, until it has none; flows of UDP have no end that could be waited for.
    fn bring(
        &mut self,
        key: &Key,
        there: Option<&Scheduling>,
        wanted: &Server,
        steps: &mut Vec<Step>,
    ) -> Result<(), SyncError> {
        let id = service(key);
        let mut destinations = Vec::new();
        match there {
            None => steps.push(Step::AddService(id, scheduling(wanted))),
            Some(there) => {
                destinations = self.kernel.destinations(&id).map_err(refused)?;
                if *there != scheduling(wanted) {
                    steps.push(Step::ChangeService(id, scheduling(wanted)));
                }
            }
        }
        self.leaving.remove(key);
        for address in &wanted.destinations {
            match destinations.iter().find(|destination| destination.address == *address) {
                None => steps.push(Step::AddDestination(id, *address, 1)),
                Some(destination) if destination.weight != 1 => steps.push(Step::Weigh(id, *address, 1)),
                Some(_) => {}
            }
        }
        for gone in destinations.iter().filter(|destination| !wanted.destinations.contains(&destination.address)) {
            if key.protocol == Protocol::Udp || gone.connections == 0 {
                steps.push(Step::DeleteDestination(id, gone.address));
                continue;
            }
            self.leaving.insert(*key);
            if gone.weight != 0 {
                steps.push(Step::Weigh(id, gone.address, 0));
            }
        }
        Ok(())
    }
}

fn service(key: &Key) -> Service {
    Service { protocol: key.protocol.number(), address: key.address }
}

fn scheduling(server: &Server) -> Scheduling {
    Scheduling { scheduler: server.scheduler.clone(), flags: server.flags, persistence: server.persistence }
}

fn words(step: &Step) -> String {
    let named = |service: &Service| {
        let protocol =
            Protocol::from_number(service.protocol).map_or_else(String::new, |protocol| protocol.to_string());
        format!("virtual server {}/{protocol}", service.address)
    };
    match step {
        Step::AddService(id, _) => named(id),
        Step::ChangeService(id, _) => format!("a change of {}", named(id)),
        Step::DeleteService(id) => format!("to delete {}", named(id)),
        Step::AddDestination(id, address, _) => format!("real server {address} of {}", named(id)),
        Step::Weigh(id, address, _) => format!("another weight of real server {address} of {}", named(id)),
        Step::DeleteDestination(id, address) => format!("to delete real server {address} of {}", named(id)),
    }
}

fn hint(step: &Step, errno: i32) -> String {
    match step {
        Step::AddService(_, Scheduling { scheduler, .. }) if errno == libc::ENOENT => {
            format!(" (the kernel has no scheduler {scheduler}: module ip_vs_{scheduler})")
        }
        _ => String::new(),
    }
}

fn refused(error: io::Error) -> SyncError {
    SyncError::Refused(format!("IPVS: {error}"))
}
