//! What a large cluster costs the tracker in memory: one test, since it looks at the whole process.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;

use svcmap::config::ProxyConfig;
use svcmap::objects::{
    Conditions, Endpoint, EndpointSlice, Family, Hints, Protocol, Service, ServiceKey, ServicePort, ServiceType,
    SliceKey, SlicePort, Target, TrafficPolicy,
};
use svcmap::source::Change;
use svcmap::tracker::Tracker;

const CHILD: &str = "SVCMAP_TEST_TRACKER_MEMORY";
const MARK: &str = "held per Service: ";

/// Bytes that may be held per Service, everything that is per slice included, and per endpoint.
const SERVICE_BUDGET: usize = 600;
const ENDPOINT_BUDGET: usize = 250;

fn service(number: u32) -> Service {
    Service {
        key: ServiceKey::new("a-namespace", &format!("some-service-{number}")),
        created: Some(1),
        other_proxy: false,
        kind: ServiceType::ClusterIp,
        cluster_ips: vec![IpAddr::V4(Ipv4Addr::from(0x0a60_0000 + number))],
        external_ips: Vec::new(),
        load_balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        ports: vec![ServicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
            target: Target::Named("http".into()),
        }],
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: 0,
        selector: vec![("app.kubernetes.io/name".into(), format!("some-service-{number}").into())],
        publish_not_ready: false,
        pass_without_endpoints: None,
    }
}

fn slice(number: u32, endpoints: u32, hints: bool, nodes: &[Arc<str>]) -> EndpointSlice {
    let endpoint = |n: u32| {
        let node = nodes[(number + n) as usize % nodes.len()].clone();
        let hint = Hints { zones: vec!["europe-west3-a".into()], nodes: Vec::new() };
        Endpoint {
            address: IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + number * endpoints + n)),
            conditions: Conditions::default(),
            node: Some(node),
            hints: hints.then(|| Box::new(hint)),
        }
    };
    EndpointSlice {
        key: SliceKey { namespace: "a-namespace".into(), name: format!("some-service-{number}-x7k2p").into() },
        service: format!("some-service-{number}").into(),
        family: Family::V4,
        ports: vec![SlicePort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 }],
        endpoints: (0..endpoints).map(endpoint).collect(),
    }
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.split_whitespace().next().expect("a number").parse::<usize>().expect("a number") * 1024
}

/// Loads a cluster, a hundred Services at a time, and returns what it holds in bytes per Service.
fn held(services: u32, endpoints: u32, hints: bool) -> usize {
    let nodes: Vec<Arc<str>> = (0..1000).map(|n| Arc::from(format!("node-{n}"))).collect();
    let mut tracker = Tracker::new(ProxyConfig { node_name: "node-0".into(), ..ProxyConfig::default() });
    let before = resident();
    for number in 0..services {
        tracker.apply(Change::Service(service(number)));
        tracker.apply(Change::Slice(slice(number, endpoints, hints, &nodes)));
        if number % 100 == 99 {
            assert_eq!(tracker.take().0.changed.len(), 100);
        }
    }
    let held = resident().saturating_sub(before) / services as usize;
    assert_eq!(tracker.counts().endpoints, (services * endpoints) as usize);
    held
}

/// The same in a process of its own, where nothing was held and given back before.
fn held_in_a_process(services: u32, endpoints: u32, hints: bool) -> usize {
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_large_cluster_stays_within_its_budget", "--nocapture"])
        .env(CHILD, format!("{services} {endpoints} {hints}"))
        .output()
        .expect("this program again");
    let output = String::from_utf8_lossy(&child.stdout).into_owned();
    let held = output.lines().find_map(|line| line.split_once(MARK)?.1.parse().ok());
    held.unwrap_or_else(|| panic!("no figure in {output:?}, {:?}", String::from_utf8_lossy(&child.stderr)))
}

#[test]
fn a_large_cluster_stays_within_its_budget() {
    if let Ok(arguments) = std::env::var(CHILD) {
        let mut words = arguments.split(' ');
        let mut word = || words.next().expect("three arguments");
        let (services, endpoints) = (word().parse().expect("a number"), word().parse().expect("a number"));
        println!("\n{MARK}{}", held(services, endpoints, word() == "true"));
        return;
    }
    for (services, endpoints, hints) in [(100_000, 1, false), (100_000, 10, false), (20_000, 10, true)] {
        let held = held_in_a_process(services, endpoints, hints);
        println!("{services} Services x {endpoints} endpoints, hints {hints}: {held} bytes per Service");
        let budget = SERVICE_BUDGET + ENDPOINT_BUDGET * endpoints as usize;
        assert!(held <= budget, "{held} bytes per Service of {endpoints} endpoints, of {budget}");
        assert!(held > 48 * endpoints as usize, "{held} bytes per Service cannot be: the measurement is broken");
    }
}
