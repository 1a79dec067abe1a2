//! Keeps the kernel in step with the plan: virtual servers and addresses by netlink, sets and rules by the programs that
//! kube-proxy uses, too.
//!
//! The whole is worked out anew for each change (row J5), and what differs is sent, in an order in which nothing is missing that
//! somebody looks up: sets, rules, addresses, virtual servers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use super::companions::companions;
use super::names::{DEVICE, Set};
use super::servers::{Ours, Servers};
use super::sets::{self, Sets};
use super::settings::Settings;
use super::state::{Key, Server, State};
use crate::config::host;
use crate::dataplane::{Dataplane, Progress};
use crate::iptables::kernel as rules;
use crate::netlink::dummy::Interfaces;
use crate::netlink::ipvs::Step;
use crate::nftables::program::{Applied, Rest, SyncError};
use crate::objects::Family;
use crate::plan::{NodePlan, PlanChange, PortPlan};

/// What the mode needs: translated packets are tracked, so that they can be masqueraded; nothing sticks to a real server
/// that is gone or getting no connections any more; the node forwards.
const KERNEL_SETTINGS: [(&str, &str); 4] = [
    ("/proc/sys/net/ipv4/vs/conntrack", "1"),
    ("/proc/sys/net/ipv4/vs/expire_nodest_conn", "1"),
    ("/proc/sys/net/ipv4/vs/expire_quiescent_template", "1"),
    ("/proc/sys/net/ipv4/ip_forward", "1"),
];
/// Only the interface that has an address answers ARP for it.
const STRICT_ARP: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/conf/all/arp_ignore", "1"), ("/proc/sys/net/ipv4/conf/all/arp_announce", "2")];

/// What is programmed.
#[derive(Debug)]
pub struct Programmer {
    settings: Settings,
    servers: Servers,
    interfaces: Interfaces,
    sets: Sets,
    progress: Progress,
    own: Vec<IpAddr>,
    states: [Option<State>; 2],
    /// The families of which there were sets when all was looked at.
    found: [bool; 2],
}

impl Programmer {
    /// Opens connections in the current network namespace. Nothing is written yet.
    ///
    /// # Errors
    /// The kernel has no IPVS, or does not let itself be asked.
    pub fn open(settings: Settings) -> Result<Programmer, SyncError> {
        let missing = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => SyncError::Refused("this kernel has no IPVS (module ip_vs)".into()),
            _ => SyncError::Refused(format!("IPVS: {error}")),
        };
        Ok(Programmer {
            settings,
            servers: Servers::open().map_err(missing)?,
            interfaces: Interfaces::open().map_err(missing)?,
            sets: Sets::default(),
            progress: Progress::default(),
            own: Vec::new(),
            states: [None, None],
            found: [false; 2],
        })
    }

    /// How many things of each kind were programmed.
    pub fn made(&self) -> BTreeMap<&'static str, usize> {
        let mut made = BTreeMap::new();
        for state in self.states.iter().flatten() {
            let rules = companions(&self.progress.plan().node, state.family);
            for (kind, count) in [
                ("virtual servers", state.servers.len()),
                ("real servers", state.servers.values().map(|server| server.destinations.len()).sum()),
                ("set entries", state.sets.values().map(BTreeSet::len).sum()),
                ("addresses", state.addresses.len()),
                ("rules", rules.rules()),
                ("chains", rules.chains()),
            ] {
                *made.entry(kind).or_default() += count;
            }
        }
        made
    }

    /// What is wanted now, for each family that has Services, or had: in the sets of an earlier process, entries of Services
    /// that are gone would go on deciding.
    fn wanted(&self) -> [Option<State>; 2] {
        Family::BOTH.map(|family| {
            let has = self.progress.plan().ports.keys().any(|id| id.family == family);
            let had = self.states[family as usize].is_some() || self.found[family as usize];
            (has || had).then(|| State::new(self.progress.plan(), family, &self.own, &self.settings))
        })
    }

    fn prepare(&mut self) -> Result<(), SyncError> {
        let strict = if self.settings.strict_arp { &STRICT_ARP[..] } else { &[] };
        for (path, value) in KERNEL_SETTINGS.iter().chain(strict) {
            let found = std::fs::read_to_string(path).unwrap_or_default();
            if found.trim() != *value {
                let cannot = |error| SyncError::Refused(format!("{path} cannot be set to {value}: {error}"));
                std::fs::write(path, value).map_err(cannot)?;
            }
        }
        let seconds = self.settings.timeouts.map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
        if seconds != [0; 3] {
            self.servers.set_timeouts(seconds)?;
        }
        self.interfaces.add_dummy(DEVICE).map_err(|error| interface(DEVICE, &error))?;
        Ok(())
    }

    /// The interface's number and addresses, and those of all other interfaces.
    fn addresses() -> Result<(u32, BTreeSet<IpAddr>, Vec<IpAddr>), SyncError> {
        let all = host::addresses_by_interface().map_err(|error| interface("addresses", &error))?;
        let number = nix::net::if_::if_nametoindex(DEVICE).unwrap_or(0);
        let (ours, own): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name == DEVICE);
        let is_given = |ip: &IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let ours = ours.into_iter().map(|(_, ip)| ip).filter(is_given).collect();
        Ok((number, ours, own.into_iter().map(|(_, ip)| ip).collect()))
    }

    /// Sends what differs; `ours` where the kernel has to be read first.
    fn bring(&mut self, ours: Option<Ours>) -> Result<Applied, SyncError> {
        let mut applied = Applied::default();
        let started = Instant::now();
        let wanted = self.wanted();
        applied.encode = started.elapsed();
        let started = Instant::now();
        for state in wanted.iter().flatten() {
            let change = self.sets.bring(state)?;
            applied.added += change.added;
            applied.deleted += change.deleted;
            applied.bytes += change.text.len();
            if ours.is_some() || self.states[state.family as usize].is_none() {
                applied.bytes += rules::load(state.family, &companions(&self.progress.plan().node, state.family))?;
            }
        }
        self.bring_addresses(&wanted, &mut applied)?;
        let servers = all_servers(&wanted);
        let steps = match &ours {
            Some(ours) => self.servers.replace(&servers, ours)?,
            None => self.servers.change(&all_servers(&self.states), &servers)?,
        };
        self.carry_out(&steps, &mut applied)?;
        applied.kernel = started.elapsed();
        applied.longest = applied.kernel;
        applied.transactions = usize::from(applied.bytes > 0);
        self.states = wanted;
        self.progress.arrived();
        Ok(applied)
    }

    fn bring_addresses(&mut self, wanted: &[Option<State>; 2], applied: &mut Applied) -> Result<(), SyncError> {
        let wanted: BTreeSet<IpAddr> = wanted.iter().flatten().flat_map(|state| &state.addresses).copied().collect();
        let before: BTreeSet<IpAddr> =
            self.states.iter().flatten().flat_map(|state| &state.addresses).copied().collect();
        if wanted == before && self.states.iter().any(Option::is_some) {
            return Ok(());
        }
        let (number, there, _) = Self::addresses()?;
        let (more, less) = (wanted.difference(&there), there.difference(&wanted));
        applied.added += more.clone().count();
        applied.deleted += less.clone().count();
        let (bytes, refused) = self.interfaces.change(number, more, less).map_err(|error| interface(DEVICE, &error))?;
        applied.bytes += bytes;
        refused.map_or(Ok(()), |(ip, error)| Err(interface(&format!("{ip} on {DEVICE}"), &error)))
    }

    fn carry_out(&mut self, steps: &[Step], applied: &mut Applied) -> Result<(), SyncError> {
        let is_deletion = |step: &&Step| matches!(step, Step::DeleteService(_) | Step::DeleteDestination(..));
        let deleted = steps.iter().filter(is_deletion).count();
        applied.messages += steps.len();
        applied.deleted += deleted;
        applied.added += steps.len() - deleted;
        applied.bytes += self.servers.carry_out(steps)?;
        Ok(())
    }
}

fn all_servers(states: &[Option<State>; 2]) -> BTreeMap<Key, Server> {
    states.iter().flatten().flat_map(|state| state.servers.clone()).collect()
}

fn interface(what: &str, error: &io::Error) -> SyncError {
    SyncError::Refused(format!("{what}: {error}"))
}

impl Dataplane for Programmer {
    fn check(&mut self) -> Result<(), SyncError> {
        self.servers.read()?;
        sets::names()?;
        rules::save(Family::V4).map(drop)
    }

    fn set_rest(&mut self, rest: Rest) {
        self.progress.set_rest(rest);
    }

    fn is_in_step(&self) -> bool {
        self.progress.is_in_step()
    }

    fn is_untouched(&mut self) -> Result<bool, SyncError> {
        let there = self.servers.read()?;
        let wanted = all_servers(&self.states);
        if !wanted.keys().all(|key| there.contains_key(key)) {
            return Ok(false);
        }
        for state in self.states.iter().flatten() {
            if !rules::holds(state.family, &companions(&self.progress.plan().node, state.family))? {
                return Ok(false);
            }
        }
        let (_, addresses, _) = Self::addresses()?;
        Ok(self.progress.is_in_step()
            && self.states.iter().flatten().all(|state| state.addresses.is_subset(&addresses)))
    }

    fn replace(&mut self, node: NodePlan, ports: Vec<PortPlan>) -> Result<Applied, SyncError> {
        self.progress.replace("ipvs", node, ports)?;
        self.states = [None, None];
        self.sets.forget();
        self.prepare()?;
        let (_, addresses, own) = Self::addresses()?;
        self.own = own;
        let sets = sets::all()?;
        self.found = Family::BOTH.map(|family| Set::ALL.iter().any(|set| sets.contains_key(&set.name(family))));
        let ours = Ours::new(addresses, &sets, &self.settings.exclude);
        self.bring(Some(ours))
    }

    fn change(&mut self, change: PlanChange) -> Result<Applied, SyncError> {
        if change.node.is_some() {
            return Err(SyncError::OutOfStep);
        }
        self.progress.change(change)?;
        self.bring(None)
    }

    fn collect(&mut self) -> Result<Applied, SyncError> {
        if !self.progress.is_in_step() {
            return Err(SyncError::OutOfStep);
        }
        let mut applied = Applied::default();
        let steps = self.servers.collect(&all_servers(&self.states))?;
        self.carry_out(&steps, &mut applied)?;
        Ok(applied)
    }

    fn has_leftovers(&self) -> bool {
        self.servers.is_waiting()
    }

    /// IPVS does not serve them.
    fn serves_loopback(&self) -> bool {
        false
    }
}
