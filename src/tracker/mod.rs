//! Which Service ports a change of the objects touches.
//!
//! The tracker holds the objects. What comes in marks the Services it touches; [`Tracker::take`] plans those again
//! and says what came out different. The cost of a change is the size of the Services it touches, never that of the
//! cluster.

mod claims;
mod flows;
mod report;
mod store;
mod touched;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use ipnet::IpNet;
use smallvec::SmallVec;

use crate::config::ProxyConfig;
use crate::objects::{EndpointSlice, Family, Node, Service, ServiceKey, SliceKey};
use crate::plan::{Claim, NodePlan, PlanChange, PortId, PortPlan};
use crate::policy::flows::Serving;
use crate::policy::health::HealthCheck;
use crate::policy::{self, Context, Warning};
use crate::source::{Change, Snapshot};

pub use report::{Seen, Stranded};

use claims::Claims;
use report::Report;
use store::{ServiceId, SliceId, Store, compact_service, compact_slice};
use touched::Touched;

/// The objects as they are known, and what of them has not been planned yet.
#[derive(Debug)]
pub struct Tracker {
    config: ProxyConfig,
    own_node: Arc<str>,
    node: Option<Node>,
    service_cidrs: Vec<IpNet>,
    store: Store,
    claims: Claims,
    /// What the plans that were taken last were made with; none before the first time.
    planned: Option<Context>,
    /// Whether the context may differ from `planned`.
    node_touched: bool,
    touched: Touched,
    /// The UDP frontends whose flows nobody has looked after yet.
    unsettled: BTreeSet<Claim>,
    warnings: Vec<Warning>,
    report: Report,
}

/// What was true of a Service when its plan was taken last.
#[derive(Debug)]
struct Before {
    plans: Vec<PortPlan>,
    flows: Vec<(Claim, Serving)>,
    claims: SmallVec<[Claim; 4]>,
    check: Option<HealthCheck>,
    created: Option<i64>,
}

/// How much is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services of every type.
    pub services: usize,
    /// Those of them that are proxied: not headless, no DNS alias, and not another proxy's (rows A1, A2).
    pub proxied: usize,
    /// EndpointSlices.
    pub slices: usize,
    /// Endpoints in them, in whatever state.
    pub endpoints: usize,
}

impl Tracker {
    /// A tracker for the node that the configuration names, without any object. The first [`Tracker::take`] gives the
    /// node's part of the plan.
    pub fn new(config: ProxyConfig) -> Tracker {
        Tracker {
            own_node: config.node_name.as_str().into(),
            config,
            node: None,
            service_cidrs: Vec::new(),
            store: Store::default(),
            claims: Claims::default(),
            planned: None,
            node_touched: true,
            touched: Touched::default(),
            unsettled: BTreeSet::new(),
            warnings: Vec::new(),
            report: Report::default(),
        }
    }

    /// Takes in one change. What says nothing new touches nothing, and neither does another node's object.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Service(service) => {
                self.set_service(service);
            }
            Change::ServiceGone(key) => {
                if let Some(id) = self.store.find_service(&key) {
                    self.remove_service(id);
                }
            }
            Change::Slice(slice) => {
                self.set_slice(slice);
            }
            Change::SliceGone(key) => {
                if let Some(id) = self.store.find_slice(&key) {
                    self.remove_slice(id);
                }
            }
            Change::OnlyServices(keys) => self.keep_services(&keys),
            Change::OnlySlices(keys) => self.keep_slices(&keys),
            Change::Node(node) if *node.name == *self.own_node => self.set_node(Some(node)),
            Change::Node(_) => {}
            Change::ServiceCidrs(networks) => self.set_service_cidrs(networks),
        }
    }

    /// Takes in the whole state: what is held and not in it is gone.
    pub fn replace(&mut self, snapshot: Snapshot) {
        let Snapshot { services, slices, nodes, service_cidrs } = snapshot;
        self.store.make_room(services.len(), slices.len());
        let held = self.store.service_ids().filter(|id| self.store.service(*id).is_some()).collect();
        let kept = services.into_iter().map(|service| self.set_service(service)).collect();
        without(held, kept).into_iter().for_each(|id| self.remove_service(id));
        let held = self.store.slice_ids().collect();
        let kept = slices.into_iter().map(|slice| self.set_slice(slice)).collect();
        without(held, kept).into_iter().for_each(|id| self.remove_slice(id));
        self.set_node(nodes.into_iter().find(|node| *node.name == *self.own_node));
        self.set_service_cidrs(service_cidrs);
    }

    /// Whether [`Tracker::take`] has anything to look at.
    pub fn is_touched(&self) -> bool {
        self.node_touched || !self.touched.is_empty()
    }

    /// What the changes since the last time did to the plan, and what the operator should know of them.
    ///
    /// Where several Services ask for one address, the plan of each is made again as soon as the owner changes.
    pub fn take(&mut self) -> (PlanChange, Vec<Warning>) {
        let contested = self.settle_claims();
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(contested);
        let mut change = PlanChange::default();
        let before = self.planned.take();
        let now = match before.clone() {
            Some(context) if !self.node_touched => context,
            _ => Context::new(&self.config, self.node.as_ref(), &self.service_cidrs),
        };
        self.node_touched = false;
        if before.as_ref().is_none_or(|before| before.node != now.node) {
            change.node = Some(now.node.clone());
            self.unsettle_node_ports(before.as_ref(), &now);
        }
        let known = before.as_ref().map_or(&[][..], |before| &before.warnings);
        warnings.extend(now.warnings.iter().filter(|warning| !known.contains(warning)).cloned());

        let touched = self.touched.take();
        if let Some(before) = before.filter(|before| before.changes_services(&now)) {
            let is_touched = |id: &ServiceId| touched.binary_search_by_key(id, |(touched, _)| *touched).is_ok();
            let untouched = self.store.service_ids().filter(|id| !is_touched(id));
            for id in untouched.collect::<Vec<_>>() {
                let (before, now) = (self.plan(&before, id), self.plan(&now, id));
                self.report.replan(&before, &now);
                compare(before, now, &mut change);
            }
        }
        change.changed.reserve(touched.len());
        for (id, before) in touched {
            let flows = self.flows(&now, id);
            let check = self.check(id);
            let check_before = before.as_ref().and_then(|before| before.check);
            match before {
                None => {
                    self.unsettle_between(&[], &flows);
                    let start = change.changed.len();
                    self.plan_into(&now, id, &mut change.changed);
                    self.report.replan(&[], &change.changed[start..]);
                }
                Some(before) => {
                    self.unsettle_between(&before.flows, &flows);
                    let plans = self.plan(&now, id);
                    self.report.replan(&before.plans, &plans);
                    compare(before.plans, plans, &mut change);
                }
            }
            if check != check_before {
                self.report.checks.insert(self.store.key(id).clone(), check);
            }
            self.store.prune(id);
        }
        self.planned = Some(now);
        (change, warnings)
    }

    /// The whole plan, for a kernel of which it is not known what it holds; nothing before the first
    /// [`Tracker::take`]. It is what was taken as long as nothing was touched since.
    pub fn whole(&self) -> Option<(NodePlan, Vec<PortPlan>)> {
        let context = self.planned.as_ref()?;
        let mut ports = Vec::new();
        self.store.service_ids().for_each(|id| self.plan_into(context, id, &mut ports));
        Some((context.node.clone(), ports))
    }

    /// How much is held.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    /// How many ready endpoints of one family a Service has on this node: what its health check node port answers
    /// (row I3).
    pub fn local_ready(&self, service: &ServiceKey, family: Family) -> usize {
        let id = self.store.find_service(service);
        id.map_or(0, |id| policy::health::local_ready(&self.own_node, &self.store.slices(id), family))
    }

    /// Removes the Services that are not among these.
    fn keep_services(&mut self, keys: &HashSet<ServiceKey>) {
        let goes = |id: &ServiceId| self.store.service(*id).is_some_and(|service| !keys.contains(&service.key));
        for id in self.store.service_ids().filter(goes).collect::<Vec<_>>() {
            self.remove_service(id);
        }
    }

    /// Removes the EndpointSlices that are not among these.
    fn keep_slices(&mut self, keys: &HashSet<SliceKey>) {
        let goes = |id: &SliceId| !keys.contains(&self.store.slice(*id).key);
        for id in self.store.slice_ids().filter(goes).collect::<Vec<_>>() {
            self.remove_slice(id);
        }
    }

    fn set_service(&mut self, service: Service) -> ServiceId {
        let service = compact_service(service);
        let known = self.store.find_service(&service.key);
        if let Some(id) = known.filter(|id| self.store.service(*id) == Some(&service)) {
            return id;
        }
        self.report.seen.services += 1;
        self.warnings.extend(policy::frontends::collisions(&service));
        self.warnings.extend(policy::source_ranges::open_families(&service));
        match known {
            Some(id) => {
                self.touch(id);
                self.store.set_service(id, service);
                id
            }
            None => {
                let id = self.store.add_service(service);
                self.touched.push(id, None);
                id
            }
        }
    }

    fn remove_service(&mut self, id: ServiceId) {
        self.touch(id);
        self.report.seen.services += 1;
        self.store.clear_service(id);
    }

    fn set_slice(&mut self, slice: EndpointSlice) -> SliceId {
        let slice = compact_slice(slice, &self.own_node);
        let known = self.store.find_slice(&slice.key);
        if let Some(id) = known {
            let held = self.store.slice(id);
            if *held == slice {
                return id;
            }
            if held.service != slice.service {
                let service = held.service_key();
                self.touch_key(&service);
            }
        }
        let service = self.touch_key(&slice.service_key());
        self.report.seen.slices += 1;
        self.store.set_slice(known, service, slice)
    }

    fn remove_slice(&mut self, id: SliceId) {
        let service = self.store.slice(id).service_key();
        let service = self.touch_key(&service);
        self.report.seen.slices += 1;
        self.store.remove_slice(id, service);
    }

    fn set_node(&mut self, node: Option<Node>) {
        if self.node != node {
            self.node = node;
            self.node_touched = true;
        }
    }

    fn set_service_cidrs(&mut self, networks: Vec<IpNet>) {
        if self.service_cidrs != networks {
            self.service_cidrs = networks;
            self.node_touched = true;
        }
    }

    fn touch_key(&mut self, key: &ServiceKey) -> ServiceId {
        let id = self.store.service_id(key);
        self.touch(id);
        id
    }

    /// Marks the Service, and keeps what is true of it now. It must be called before anything of it changes.
    fn touch(&mut self, id: ServiceId) {
        if !self.touched.contains(id) {
            let before = self.planned.as_ref().map(|context| {
                Box::new(Before {
                    plans: self.plan(context, id),
                    flows: self.flows(context, id),
                    claims: self.claims_of(id),
                    check: self.check(id),
                    created: self.store.service(id).and_then(|service| service.created),
                })
            });
            self.touched.push(id, before);
        }
    }

    fn plan(&self, context: &Context, id: ServiceId) -> Vec<PortPlan> {
        let mut plans = Vec::new();
        self.plan_into(context, id, &mut plans);
        plans
    }

    fn plan_into(&self, context: &Context, id: ServiceId, plans: &mut Vec<PortPlan>) {
        let Some(service) = self.store.service(id) else { return };
        let wins = |claim: &Claim| self.claims.owner(claim) == Some(id);
        policy::plan_uncontested(context, service, &self.store.slices(id), wins, plans);
    }

    fn claims_of(&self, id: ServiceId) -> SmallVec<[Claim; 4]> {
        self.store.service(id).map(policy::frontends::claims).unwrap_or_default()
    }

    /// Brings the claims up to date, marks the other Services whose addresses this may give or take, and says who
    /// loses what to whom.
    fn settle_claims(&mut self) -> Vec<Warning> {
        let (mut dropped, mut raised) = (Vec::new(), Vec::new());
        for (id, before) in self.touched.iter() {
            let now = self.claims_of(id);
            let Some(before) = before else {
                raised.extend(now.into_iter().map(|claim| (claim, id)));
                continue;
            };
            let same_age = self.store.service(id).is_none_or(|service| service.created == before.created);
            if now != before.claims || !same_age {
                let sets = [&before.claims, &now].map(|claims| claims.iter().copied().collect::<HashSet<Claim>>());
                let stays = |claim: &&Claim| same_age && sets.iter().all(|set| set.contains(*claim));
                dropped.extend(before.claims.iter().filter(|claim| !stays(claim)).map(|claim| (*claim, id)));
                raised.extend(now.iter().filter(|claim| !stays(claim)).map(|claim| (*claim, id)));
            }
        }
        let changed = || dropped.iter().chain(&raised).map(|(claim, _)| claim);
        let rivals: Vec<ServiceId> = changed().flat_map(|claim| self.claims.claimants(claim)).copied().collect();
        rivals.into_iter().for_each(|rival| self.touch(rival));
        let known: BTreeSet<_> = changed().flat_map(|claim| self.claims.disputes(claim)).collect();
        for (claim, id) in &dropped {
            self.claims.remove(claim, *id);
        }
        self.claims.reserve(raised.len());
        let store = &self.store;
        for (claim, id) in &raised {
            self.claims.add(*claim, *id, |a, b| store.age(a) < store.age(b));
        }
        let contested: BTreeSet<Claim> = changed().filter(|claim| self.claims.is_contested(claim)).copied().collect();
        let disputes = contested.iter().flat_map(|claim| self.claims.disputes(claim));
        let name = |id| store.key(id).clone();
        disputes
            .filter(|dispute| !known.contains(dispute))
            .map(|(claim, winner, loser)| Warning::Contested { claim, winner: name(winner), loser: name(loser) })
            .collect()
    }
}

/// The first list without what is in the second.
fn without<T: Ord>(list: Vec<T>, mut other: Vec<T>) -> Vec<T> {
    other.sort_unstable();
    list.into_iter().filter(|item| other.binary_search(item).is_err()).collect()
}

/// Adds what became of a Service's plans to the change.
fn compare(before: Vec<PortPlan>, now: Vec<PortPlan>, change: &mut PlanChange) {
    if before.is_empty() {
        return change.changed.extend(now);
    }
    let mut before: BTreeMap<PortId, PortPlan> = before.into_iter().map(|plan| (plan.id.clone(), plan)).collect();
    for plan in now {
        if before.remove(&plan.id).as_ref() != Some(&plan) {
            change.changed.push(plan);
        }
    }
    change.removed.extend(before.into_keys());
}

#[cfg(test)]
mod tests;
