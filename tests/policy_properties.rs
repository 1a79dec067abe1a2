//! Properties of plans and of the tracker under random histories.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;

use svcmap::objects::{FamilyOf, Service, ServiceKey};
use svcmap::plan::{Claim, Frontend, Plan, PlanChange, PoolKind, PortId, PortPlan};
use svcmap::policy::{Context, plan_service};
use svcmap::tracker::Tracker;

use common::history::{Model, Step, config, step};

/// What every Service would answer on if it were alone, and of several that would, the one that must get it.
fn rightful_owners(model: &Model) -> BTreeMap<Claim, ServiceKey> {
    let context = Context::new(&config(), model.node.as_ref(), &model.service_cidrs);
    let mut by_age: Vec<&Service> = model.services.values().collect();
    by_age.sort_by_key(|service| (service.created.unwrap_or(i64::MAX), service.key.clone()));
    let mut owners = BTreeMap::new();
    for service in by_age {
        for port in plan_service(&context, service, &[]) {
            for claim in claims(&port) {
                owners.entry(claim).or_insert_with(|| service.key.clone());
            }
        }
    }
    owners
}

fn claims(port: &PortPlan) -> impl Iterator<Item = Claim> + '_ {
    port.frontends.iter().map(|frontend| Claim::new(port.id.family, port.protocol, frontend.address))
}

/// Takes a change into a plan; everything in it must be one.
fn merge(plan: &mut Plan, change: PlanChange) -> Result<(), TestCaseError> {
    if let Some(node) = change.node {
        plan.node = node;
    }
    for id in change.removed {
        prop_assert!(plan.ports.remove(&id).is_some(), "{} was not there", id.name);
    }
    for port in change.changed {
        prop_assert_ne!(plan.ports.get(&port.id), Some(&port), "no difference");
        plan.ports.insert(port.id.clone(), port);
    }
    Ok(())
}

fn fresh(model: &Model) -> Result<Plan, TestCaseError> {
    let (mut tracker, mut plan) = (Tracker::new(config()), Plan::default());
    tracker.replace(model.snapshot());
    merge(&mut plan, tracker.take().0)?;
    Ok(plan)
}

fn check_port(id: &PortId, port: &PortPlan) -> Result<(), TestCaseError> {
    prop_assert_eq!(id, &port.id);
    prop_assert!(!port.frontends.is_empty(), "{} answers nowhere", id.name);
    prop_assert!(port.frontends.windows(2).all(|pair| pair[0].address < pair[1].address), "order of frontends");
    let uses = |kind| {
        let uses = |f: &Frontend| f.pool == kind || (kind == PoolKind::Cluster && f.short_circuit);
        port.frontends.iter().any(uses)
    };
    for kind in [PoolKind::Cluster, PoolKind::Local] {
        let pool = port.pool(kind);
        prop_assert!(pool.is_empty() || uses(kind), "{}: nobody uses {:?}", id.name, pool);
        let place = |endpoint: &svcmap::plan::Endpoint| (endpoint.ip, endpoint.port);
        prop_assert!(pool.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])), "order of endpoints: {:?}", pool);
        prop_assert!(pool.iter().all(|endpoint| endpoint.ip.family() == id.family), "family of {:?}", pool);
    }
    prop_assert!(port.local.iter().all(|endpoint| endpoint.local), "{:?}", port.local);
    for frontend in &port.frontends {
        prop_assert_eq!(frontend.no_endpoints.is_some(), port.pool(frontend.pool).is_empty(), "{:?}", frontend);
        prop_assert!(frontend.address.ip().is_none_or(|ip: IpAddr| ip.family() == id.family), "{:?}", frontend);
    }
    Ok(())
}

fn check(plan: &Plan, model: &Model) -> Result<(), TestCaseError> {
    for (id, port) in &plan.ports {
        check_port(id, port)?;
    }
    let mut owners = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for (port, claim) in plan.ports.values().flat_map(|port| claims(port).map(move |claim| (port, claim))) {
        if owners.insert(claim, port.id.name.service().to_owned()).is_some() {
            twice.insert(claim);
        }
    }
    prop_assert!(twice.is_empty(), "two have {:?}", twice);
    let expected =
        rightful_owners(model).into_iter().map(|(claim, key)| (claim, key.to_string())).collect::<BTreeMap<_, _>>();
    prop_assert_eq!(owners, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened before: what the tracker has said adds up to what a new one says of the objects as they are.
    #[test]
    fn a_history_leads_to_the_plan_of_its_last_objects(steps in vec(step(), 0..30)) {
        let (mut tracker, mut model, mut plan) = (Tracker::new(config()), Model::default(), Plan::default());
        for step in steps.into_iter().chain([Step::Take]) {
            match step {
                Step::Edit(edit) => {
                    if let Some(change) = model.edited(&edit) {
                        model.apply(change.clone());
                        tracker.apply(change);
                    }
                }
                Step::Apply(change) => {
                    model.apply(change.clone());
                    tracker.apply(change);
                }
                Step::Replace(snapshot) => {
                    model.replace(snapshot.clone());
                    tracker.replace(snapshot);
                }
                Step::Take => {
                    merge(&mut plan, tracker.take().0)?;
                    check(&plan, &model)?;
                    let fresh = fresh(&model)?;
                    prop_assert_eq!(&plan, &fresh);
                    let (node, ports) = tracker.whole().expect("a plan that was taken");
                    let ports = ports.into_iter().map(|port| (port.id.clone(), port)).collect();
                    prop_assert_eq!(&plan, &Plan { node, ports });
                }
            }
        }
        tracker.replace(model.snapshot());
        prop_assert!(!tracker.is_touched(), "what is held already touches nothing");
        let (change, warnings) = tracker.take();
        prop_assert!(change.is_empty() && warnings.is_empty());
        prop_assert_eq!(tracker.counts().services, model.services.len());
        prop_assert_eq!(tracker.counts().endpoints, model.slices.values().map(|s| s.endpoints.len()).sum::<usize>());
    }
}
