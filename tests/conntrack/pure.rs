//! The cases by the rules alone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use svcmap::conntrack::Criteria;
use svcmap::netlink::conntrack::Flow;
use svcmap::objects::Family;
use svcmap::plan::Claim;
use svcmap::tracker::Tracker;

use crate::common::cases::{NODE_IPS, Stack, Step, Tracked, address};

/// A node: what the proxy knows, and what the kernel holds.
struct Node {
    tracker: Tracker,
    held: BTreeSet<Claim>,
    /// Whether the kernel has to be read before the next sync.
    reads: bool,
}

fn own_addresses() -> Vec<IpAddr> {
    Family::BOTH.into_iter().flat_map(|family| NODE_IPS.map(|ip| address(ip, family))).collect()
}

impl Node {
    /// What is stale after the step.
    fn step(&mut self, case: &Tracked, step: &Step, stack: Stack) -> Criteria {
        match step {
            Step::Restart => {
                self.tracker = Tracker::new(case.config(stack));
                self.reads = true;
                return Criteria::default();
            }
            Step::Sync(given) | Step::Failure(given) => self.tracker.replace(case.snapshot(given, stack)),
        }
        self.tracker.take();
        if matches!(step, Step::Failure(_)) {
            return Criteria::default();
        }
        if std::mem::take(&mut self.reads) {
            self.tracker.unsettle(self.held.iter().copied());
        }
        let (_, ports) = self.tracker.whole().expect("a plan was taken");
        let udp = ports.iter().filter(|port| port.protocol == svcmap::objects::Protocol::Udp);
        self.held = udp.flat_map(|port| port.claims()).collect();
        let own = own_addresses();
        Criteria::new(self.tracker.settle(&own), own)
    }
}

#[test]
fn every_case_holds() {
    let (mut rows, mut wrong) = (0, String::new());
    for case in Tracked::all() {
        if let Some(why) = case.excluded_from("policy") {
            eprintln!("{} cannot run by the rules alone: {why}", case.id);
            continue;
        }
        rows += 1;
        for stack in Stack::ALL {
            let mut node = Node { tracker: Tracker::new(case.config(stack)), held: BTreeSet::new(), reads: true };
            let flows = case.flows(stack);
            let mut there = vec![true; flows.len()];
            for (number, step) in case.steps.iter().enumerate() {
                let criteria = node.step(&case, step, stack);
                if number < case.begins_before() {
                    continue;
                }
                for (flow, there) in flows.iter().zip(&mut there) {
                    let flow = Flow { destination: flow.destination, answerer: flow.answerer };
                    *there &= !criteria.is_stale(&flow);
                }
            }
            let others = flows.iter().zip(there).filter(|(_, there)| *there != case.stays);
            let seen = |there| if there { "it stays" } else { "it ends" };
            let failures: Vec<String> = others.map(|(flow, there)| format!("{flow:?}: {}", seen(there))).collect();
            if !failures.is_empty() {
                wrong += &case.complaint(stack, &failures);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(rows > 60, "only {rows} cases were found");
}
