//! The tracer ring: every connection of the behavioural cases is traced through the rules that svcmap would send for
//! their objects. No kernel is needed for it.

mod common;

use std::collections::BTreeMap;

use common::cases::{Case, Flow, Look, NodeSettings, Outcome, Stack, address};
use common::trace::{expected, node, packet};
use common::world::World;
use svcmap::objects::Family;
use svcmap::trace::{self, Event, Ruleset, Share, trace};

/// The world of some objects, in IPv4.
fn with(objects: &[&str]) -> World {
    World::with(objects, Stack::V4, NodeSettings::default().config(Stack::V4))
}

/// What is wrong with a connection, if anything is.
fn check(ruleset: &Ruleset, flow: &Flow) -> Option<String> {
    match trace(ruleset, &node(), &packet(flow)) {
        Err(refusal) => Some(format!("{flow}: expected {}, refused: {refusal}", flow.expect)),
        Ok(trace) if trace.outcomes() == expected(flow) => None,
        Ok(trace) => {
            let ways: String = trace.ways.iter().map(ToString::to_string).collect();
            Some(format!("{flow}: expected {}, seen\n{ways}", flow.expect))
        }
    }
}

#[test]
fn every_case_holds_in_the_rules() {
    let (mut flows_seen, mut wrong) = (0, String::new());
    for case in Case::all() {
        if let Some(why) = case.excluded_from("trace") {
            eprintln!("{} cannot run in the tracer ring: {why}", case.id);
            continue;
        }
        for stack in Stack::ALL {
            let world = World::of(&case, stack);
            let failures: Vec<String> = match case.look(stack) {
                Look::Change(..) | Look::Cost { .. } | Look::Stranded(_) | Look::Restored => {
                    panic!("{}: this is no connection, and the row has to say so", case.id)
                }
                Look::Nothing => world.state.ports().map(|port| format!("{:?} is programmed", port.id)).collect(),
                Look::Flows(flows) => {
                    flows_seen += flows.len();
                    flows.iter().filter_map(|flow| check(&world.ruleset, flow)).collect()
                }
            };
            if !failures.is_empty() {
                wrong += &case.complaint(stack, &failures);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(flows_seen > 800, "only {flows_seen} connections were traced");
}

/// The script that `render` prints is read back, and traced as what would be sent.
#[test]
fn every_case_holds_in_the_script() {
    let (mut flows_seen, mut wrong) = (0, String::new());
    for case in Case::all().iter().filter(|case| case.excluded_from("trace").is_none()) {
        let Look::Flows(flows) = case.look(Stack::Dual) else { continue };
        let world = World::of(case, Stack::Dual);
        let mut script = Vec::new();
        svcmap::nftables::text::write(&world.state, &mut script).unwrap();
        let listing = svcmap::listing::read(&String::from_utf8(script).unwrap()).unwrap();
        assert!(listing.notes.is_empty(), "{}: {:?}", case.id, listing.notes);
        flows_seen += flows.len();
        let failures: Vec<String> = flows.iter().filter_map(|flow| check(&listing.ruleset, flow)).collect();
        if !failures.is_empty() {
            wrong += &case.complaint(Stack::Dual, &failures);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(flows_seen > 400, "only {flows_seen} connections were traced");
}

/// A ring that cannot fail proves nothing: with another Service's rules, most cases are wrong.
#[test]
fn a_wrong_ruleset_is_seen() {
    let cases = Case::all();
    let case = cases.iter().find(|case| case.id == "C01").expect("the case");
    let Look::Flows(flows) = case.look(Stack::V4) else { panic!("C01 is about a connection") };
    let other = with(&["service svc", "slice svc R2"]);
    let failure = check(&other.ruleset, &flows[0]).expect("another endpoint answers");
    assert!(failure.contains("10.180.0.2:8080"), "{failure}");
    assert!(check(&Ruleset::default(), &flows[0]).is_some_and(|failure| failure.contains("untouched")));
}

fn pod_to_service() -> trace::Packet {
    packet(&Flow {
        from: common::cases::Client {
            name: "P".into(),
            ip: address("10.0.0.2", Family::V4),
            home: common::cases::Home::Pod,
        },
        to: "172.30.0.41:80".parse().unwrap(),
        protocol: svcmap::objects::Protocol::Tcp,
        expect: Outcome::Untouched,
    })
}

/// Of a shape with empty slots: three draws, then the first slot.
#[test]
fn the_spread_over_many_endpoints_is_exact() {
    let endpoints: String = (1..=101).map(|n| format!(" R{n}")).collect();
    let world = with(&["service svc", &format!("slice svc{endpoints}")]);
    let outcomes = trace(&world.ruleset, &node(), &pod_to_service()).unwrap().outcomes();
    assert_eq!(outcomes.len(), 101);
    // 104 slots, three of them empty: 1/104 + 3/104 · 1/104 + (3/104)² · 1/104, and the first gets (3/104)³ on top
    let of = 104u128.pow(3);
    let draw = Share::new(104 * 104 + 3 * 104 + 9, of);
    let first = draw.checked_add(Share::new(27, of)).unwrap();
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    outcomes.values().for_each(|share| *shares.entry(share.to_string()).or_default() += 1);
    assert_eq!(shares, BTreeMap::from([(draw.to_string(), 100), (first.to_string(), 1)]));
}

/// A client that was learned goes where it went before, and nobody else does.
#[test]
fn what_rules_learn_is_traced() {
    let mut world = with(&["service svc affinity=10800", "slice svc L1 R2 R3"]);
    let client = pod_to_service();
    let first = trace(&world.ruleset, &node(), &client).unwrap();
    assert_eq!(first.outcomes().len(), 3);
    let way = &first.ways[1];
    assert_eq!(way.learned.len(), 1, "the number of its endpoint: {way}");
    world.ruleset.learn(way).unwrap();
    let again = trace(&world.ruleset, &node(), &client).unwrap();
    assert_eq!(again.outcomes(), BTreeMap::from([(way.outcome, Share::ALL)]));
    let other = trace::Packet { source: "10.0.0.3".parse().unwrap(), ..client };
    assert_eq!(trace(&world.ruleset, &node(), &other).unwrap().outcomes().len(), 3);
}

/// Counting is an effect on a set, and none on the packet.
#[test]
fn counted_connections_are_traced() {
    let config = svcmap::config::ProxyConfig { counters: true, ..NodeSettings::default().config(Stack::V4) };
    let world = World::with(&["service svc", "slice svc L1 R2 R3"], Stack::V4, config);
    assert_eq!(trace(&world.ruleset, &node(), &pod_to_service()).unwrap().outcomes().len(), 3);
}

/// The steps of the README's example.
#[test]
fn the_steps_say_what_happened() {
    let world = with(&["service svc", "slice svc L1 R2 R3"]);
    let trace = trace(&world.ruleset, &node(), &pod_to_service()).unwrap();
    let way = &trace.ways[1];
    assert_eq!(way.share, Share::new(1, 3));
    let steps: Vec<String> = way.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "prerouting: ip svcmap nat-prerouting, rule 1: jump dispatch",
            "prerouting: ip svcmap dispatch, rule 1: element \"ns/svc\" of services",
            "prerouting: ip svcmap dispatch, rule 1: goto cluster-3",
            "prerouting: ip svcmap cluster-3, rule 1: element 0a000000 of pod-cidrs",
            "prerouting: ip svcmap cluster-3, rule 1: goto pick-3",
            "prerouting: ip svcmap pick-3, rule 1: draws 1 of 3",
            "prerouting: ip svcmap pick-3, rule 1: element ac1e0029060000000050000001000000 of endpoints",
            "prerouting: ip svcmap pick-3, rule 1: to 10.180.0.2:8080",
        ]
    );
    let matched = way.steps.iter().filter(|step| matches!(step.event, Event::Matched { .. })).count();
    assert_eq!(matched, 3);
}
