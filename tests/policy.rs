//! The policy ring: the plan alone says what becomes of every connection of the behavioural cases.

mod common;

use std::net::IpAddr;

use common::cases::{Case, Changes, Cost, Home, Look, NAMESPACE, NODE_IPS, Outcome, Stack, address};
use common::interpreter::{Packet, outcome};
use svcmap::netlink::model::Op;
use svcmap::nftables::state::State;
use svcmap::nftables::transaction::Transaction;
use svcmap::objects::{Family, Protocol, ServiceKey};
use svcmap::plan::{Plan, PlanChange};
use svcmap::tracker::Tracker;

/// A node that has been brought to the last step of a case.
struct World {
    tracker: Tracker,
    plan: Plan,
    changes: Changes,
}

impl World {
    fn new(case: &Case, stack: Stack) -> World {
        let mut world =
            World { tracker: Tracker::new(case.config(stack)), plan: Plan::default(), changes: Changes::default() };
        for step in 0..case.steps.len() {
            world.tracker.replace(case.snapshot(step, stack));
            let (change, _) = world.tracker.take();
            world.changes = world.merge(change);
        }
        world
    }

    /// Takes the change into the plan, and says which Services it touches.
    fn merge(&mut self, change: PlanChange) -> Changes {
        let mut changes = Changes::default();
        let name = |service: &str| service.rsplit('/').next().unwrap_or(service).to_owned();
        if let Some(node) = change.node {
            self.plan.node = node;
        }
        for id in change.removed {
            let port = self.plan.ports.remove(&id).expect("what is removed was there");
            changes.udp |= port.protocol == Protocol::Udp;
            changes.removed.insert(name(id.name.service()));
        }
        for port in change.changed {
            changes.udp |= port.protocol == Protocol::Udp;
            let service = name(port.id.name.service());
            match self.plan.ports.insert(port.id.clone(), port) {
                None => changes.added.insert(service),
                Some(_) => changes.changed.insert(service),
            };
        }
        changes
    }
}

fn local_addresses() -> Vec<IpAddr> {
    let addresses = NODE_IPS.iter().chain(&["127.0.0.1"]);
    addresses.flat_map(|ip| Family::BOTH.map(|family| address(ip, family))).collect()
}

/// What is wrong with a case in a stack, a line each.
fn failures(case: &Case, stack: Stack) -> Vec<String> {
    let world = World::new(case, stack);
    let plan = &world.plan;
    match case.look(stack) {
        Look::Nothing if plan.ports.is_empty() => Vec::new(),
        Look::Nothing => vec![format!("expected no Service, seen {:#?}", plan.ports)],
        Look::Change(expected, local) => {
            let mut failures = Vec::new();
            if world.changes != expected {
                failures.push(format!("expected {expected:?}, seen {:?}", world.changes));
            }
            for (family, (service, expected)) in stack.families().iter().flat_map(|f| local.iter().map(move |l| (f, l)))
            {
                let seen = world.tracker.local_ready(&ServiceKey::new(NAMESPACE, service), *family);
                if seen != *expected {
                    failures.push(format!("expected {expected} local {family} endpoints of {service}, seen {seen}"));
                }
            }
            failures
        }
        Look::Stranded(expect) => {
            let seen = stack.families().iter().map(|family| (*family, world.tracker.stranded(*family)));
            let wrong = seen.filter(|(_, seen)| *seen != expect);
            wrong.map(|(family, seen)| format!("{family}: expected {expect:?}, seen {seen:?}")).collect()
        }
        Look::Restored => {
            let [first, last] = first_and_restored(case, stack);
            if first == last { Vec::new() } else { vec![format!("expected\n{first}\nseen\n{last}")] }
        }
        Look::Cost { collected, expect } => {
            let seen = cost(case, stack, collected);
            if seen == expect { Vec::new() } else { vec![format!("expected {expect:?}, seen {seen:?}")] }
        }
        Look::Flows(flows) => {
            assert!(!flows.is_empty(), "{}: no flow", case.id);
            let run = |flow: &common::cases::Flow| {
                let (source, home) = (flow.from.ip, flow.from.home);
                let packet = Packet { source, home, to: flow.to, protocol: flow.protocol };
                let seen = outcome(plan, &local_addresses(), &packet);
                (seen != flow.expect).then(|| format!("{flow}: expected {}, seen {seen}", flow.expect))
            };
            flows.iter().filter_map(run).collect()
        }
    }
}

/// What the last step sends, or what collecting sends after it.
fn cost(case: &Case, stack: Stack, collected: bool) -> Option<Cost> {
    let (mut tracker, mut state) = (Tracker::new(case.config(stack)), State::default());
    // what is always there
    state.advance(tracker.take().0);
    let mut last = Transaction::default();
    for step in 0..case.steps.len() {
        tracker.replace(case.snapshot(step, stack));
        last = state.advance(tracker.take().0);
    }
    if collected {
        last = state.collect();
    }
    let elements = |op: &&Op| matches!(op, Op::AddElements { .. } | Op::DeleteElements { .. });
    let other = last.ops.iter().filter(|op| !elements(op)).count();
    let cost = Cost { added: last.elements_added(), deleted: last.elements_deleted(), other };
    (!last.is_empty()).then_some(cost)
}

/// What is programmed after the first step, and after the last one where whatever nothing leads to was deleted before it.
fn first_and_restored(case: &Case, stack: Stack) -> [String; 2] {
    let (mut tracker, mut state) = (Tracker::new(case.config(stack)), State::default());
    let states = (0..case.steps.len()).map(|step| {
        state.collect();
        tracker.replace(case.snapshot(step, stack));
        state.advance(tracker.take().0);
        let mut text = Vec::new();
        svcmap::nftables::text::write(&state, &mut text).expect("memory");
        String::from_utf8(text).expect("text")
    });
    let mut states: Vec<String> = states.collect();
    let last = states.pop().expect("a step");
    [states.swap_remove(0), last]
}

#[test]
fn every_case_holds_in_the_plan() {
    let (mut rows, mut wrong) = (0, String::new());
    for case in Case::all() {
        if let Some(why) = case.excluded_from("policy") {
            eprintln!("{} cannot run in the policy ring: {why}", case.id);
            continue;
        }
        rows += 1;
        for stack in Stack::ALL {
            let failures = failures(&case, stack);
            if !failures.is_empty() {
                wrong += &case.complaint(stack, &failures);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(rows > 100, "only {rows} cases were found");
}

/// The interpreter and the loader can tell outcomes apart: a table that expects the wrong thing fails.
#[test]
fn a_wrong_expectation_is_seen() {
    let cases = Case::all();
    let flows = |id: &str| match cases.iter().find(|case| case.id == id).expect("the case").look(Stack::Dual) {
        Look::Flows(flows) => flows,
        other => panic!("{other:?}"),
    };
    let expectations = ["C01", "C02", "C04", "C06", "C07"].map(|id| flows(id)[0].expect.clone());
    for (at, a) in expectations.iter().enumerate() {
        for b in &expectations[at + 1..] {
            assert_ne!(a, b);
        }
    }
    let twins = flows("C01");
    assert_eq!(
        twins.iter().map(|flow| flow.to.to_string()).collect::<Vec<_>>(),
        ["172.30.0.41:80", "[fd00:5c::ac1e:29]:80"]
    );
    assert_eq!(twins[1].from.home, Home::Pod);
    assert!(
        matches!(&twins[1].expect, Outcome::Endpoints(e) if e.contains_key(&"[fd00:5c::ab4:1]:8080".parse().unwrap()))
    );
}
