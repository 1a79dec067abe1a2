//! Which Service ports a change of the objects touches.
//!
//! The tracker holds the objects. What comes in marks the Services it touches; [`Tracker::take`] plans those again
//! and says what came out different. The cost of a change is the size of the Services it touches, never that of the
//! cluster.

mod claims;
mod flows;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashSet;
use ipnet::IpNet;

use crate::config::ProxyConfig;
use crate::objects::{EndpointSlice, Family, Node, Service, ServiceKey};
use crate::plan::{Claim, NodePlan, PlanChange, PortId, PortPlan};
use crate::policy::flows::Serving;
use crate::policy::{self, Context, Warning};
use crate::source::{Change, Snapshot};

use claims::Claims;
use store::{ServiceId, SliceId, Store, compact_service, compact_slice};

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
    /// The Services to plan again.
    touched: BTreeMap<ServiceId, Before>,
    /// The UDP frontends whose flows nobody has looked after yet.
    unsettled: BTreeSet<Claim>,
    warnings: Vec<Warning>,
}

/// What was true of a Service when its plan was taken last.
#[derive(Debug)]
struct Before {
    plans: Vec<PortPlan>,
    flows: Vec<(Claim, Serving)>,
    claims: Vec<Claim>,
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
            touched: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            warnings: Vec::new(),
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
            Change::Node(node) if *node.name == *self.own_node => self.set_node(Some(node)),
            Change::Node(_) => {}
            Change::ServiceCidrs(networks) => self.set_service_cidrs(networks),
        }
    }

    /// Takes in the whole state: what is held and not in it is gone.
    pub fn replace(&mut self, snapshot: Snapshot) {
        let Snapshot { services, slices, nodes, service_cidrs } = snapshot;
        let kept: HashSet<ServiceId> = services.into_iter().map(|service| self.set_service(service)).collect();
        let is_gone = |id: &ServiceId| self.store.service(*id).is_some() && !kept.contains(id);
        for id in self.store.service_ids().filter(is_gone).collect::<Vec<_>>() {
            self.remove_service(id);
        }
        let kept: HashSet<SliceId> = slices.into_iter().map(|slice| self.set_slice(slice)).collect();
        for id in self.store.slice_ids().filter(|id| !kept.contains(id)).collect::<Vec<_>>() {
            self.remove_slice(id);
        }
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
        }
        let known = before.as_ref().map_or(&[][..], |before| &before.warnings);
        warnings.extend(now.warnings.iter().filter(|warning| !known.contains(warning)).cloned());

        let touched = std::mem::take(&mut self.touched);
        if let Some(before) = before.filter(|before| before.changes_services(&now)) {
            for id in self.store.service_ids().filter(|id| !touched.contains_key(id)) {
                compare(self.plan(&before, id), self.plan(&now, id), &mut change);
            }
        }
        for (id, before) in touched {
            self.unsettle_between(&before.flows, &self.flows(&now, id));
            compare(before.plans, self.plan(&now, id), &mut change);
            self.store.prune(id);
        }
        self.planned = Some(now);
        (change, warnings)
    }

    /// The whole plan, for a kernel of which it is not known what it holds; nothing before the first
    /// [`Tracker::take`]. It is what was taken as long as nothing was touched since.
    pub fn whole(&self) -> Option<(NodePlan, Vec<PortPlan>)> {
        let context = self.planned.as_ref()?;
        let ports = self.store.service_ids().flat_map(|id| self.plan(context, id)).collect();
        Some((context.node.clone(), ports))
    }

    /// How much is held.
    pub fn counts(&self) -> Counts {
        let services = || self.store.service_ids().filter_map(|id| self.store.service(id));
        Counts {
            services: services().count(),
            proxied: services().filter(|service| policy::selection::is_proxied(service)).count(),
            slices: self.store.slice_ids().count(),
            endpoints: self.store.slice_ids().map(|id| self.store.slice(id).endpoints.len()).sum(),
        }
    }

    /// How many ready endpoints of one family a Service has on this node: what its health check node port answers
    /// (row I3).
    pub fn local_ready(&self, service: &ServiceKey, family: Family) -> usize {
        let id = self.store.find_service(service);
        id.map_or(0, |id| policy::health::local_ready(&self.own_node, &self.store.slices(id), family))
    }

    fn set_service(&mut self, service: Service) -> ServiceId {
        let service = compact_service(service);
        let id = self.store.service_id(&service.key);
        if self.store.service(id) != Some(&service) {
            self.touch(id);
            self.warnings.extend(policy::frontends::collisions(&service));
            self.warnings.extend(policy::source_ranges::open_families(&service));
            self.store.set_service(id, service);
        }
        id
    }

    fn remove_service(&mut self, id: ServiceId) {
        self.touch(id);
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
        self.store.set_slice(known, service, slice)
    }

    fn remove_slice(&mut self, id: SliceId) {
        let service = self.store.slice(id).service_key();
        let service = self.touch_key(&service);
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
        if !self.touched.contains_key(&id) {
            let before = Before {
                plans: self.planned.as_ref().map_or(Vec::new(), |context| self.plan(context, id)),
                flows: self.planned.as_ref().map_or(Vec::new(), |context| self.flows(context, id)),
                claims: self.planned.as_ref().map_or(Vec::new(), |_| self.claims_of(id)),
                created: self.store.service(id).and_then(|service| service.created),
            };
            self.touched.insert(id, before);
        }
    }

    fn plan(&self, context: &Context, id: ServiceId) -> Vec<PortPlan> {
        let Some(service) = self.store.service(id) else { return Vec::new() };
        let wins = |claim: &Claim| self.claims.owner(claim) == Some(id);
        policy::plan_uncontested(context, service, &self.store.slices(id), wins)
    }

    fn claims_of(&self, id: ServiceId) -> Vec<Claim> {
        self.store.service(id).map_or(Vec::new(), policy::frontends::claims)
    }

    /// Brings the claims up to date, marks the other Services whose addresses this may give or take, and says who
    /// loses what to whom.
    fn settle_claims(&mut self) -> Vec<Warning> {
        let (mut dropped, mut raised) = (Vec::new(), Vec::new());
        for (id, before) in &self.touched {
            let now = self.claims_of(*id);
            let same_age = self.store.service(*id).is_none_or(|service| service.created == before.created);
            if now != before.claims || !same_age {
                let stays = |claim: &&Claim| same_age && now.contains(claim) && before.claims.contains(claim);
                dropped.extend(before.claims.iter().filter(|claim| !stays(claim)).map(|claim| (*claim, *id)));
                raised.extend(now.iter().filter(|claim| !stays(claim)).map(|claim| (*claim, *id)));
            }
        }
        let changed: BTreeSet<Claim> = dropped.iter().chain(&raised).map(|(claim, _)| *claim).collect();
        for rival in changed.iter().flat_map(|claim| self.claims.claimants(claim).to_vec()).collect::<Vec<_>>() {
            self.touch(rival);
        }
        let known: BTreeSet<_> = changed.iter().flat_map(|claim| self.claims.disputes(claim)).collect();
        for (claim, id) in &dropped {
            self.claims.remove(claim, *id);
        }
        let store = &self.store;
        for (claim, id) in raised {
            self.claims.add(claim, id, |a, b| store.age(a) < store.age(b));
        }
        let disputes = changed.iter().flat_map(|claim| self.claims.disputes(claim));
        let name = |id| store.key(id).clone();
        disputes
            .filter(|dispute| !known.contains(dispute))
            .map(|(claim, winner, loser)| Warning::Contested { claim, winner: name(winner), loser: name(loser) })
            .collect()
    }
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
