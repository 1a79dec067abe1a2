//! Snapshots are written as manifests that read back as the same snapshot.

use svcmap::objects::{
    Conditions, Endpoint, EndpointSlice, Family, Hints, Node, Protocol, Service, ServiceKey, ServicePort, ServiceType,
    SliceKey, SlicePort, Target, TrafficPolicy,
};
use svcmap::source::generate::{Families, Options, generate};
use svcmap::source::{Format, Snapshot, load, write};

/// Writes the snapshot, reads it back and compares.
fn assert_reads_back(snapshot: &Snapshot, case: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (format, name) in [(Format::Yaml, "cluster.yaml"), (Format::Json, "cluster.json")] {
        let mut text = Vec::new();
        write(snapshot, format, &mut text).expect("writing to memory");
        let path = dir.path().join(name);
        std::fs::write(&path, &text).expect("writing the file");
        let loaded = load(&[path]).expect("the file is there");
        assert_eq!(loaded.problems, [], "{case}, {name}");
        let read = loaded.snapshot;
        assert_eq!(read.services, snapshot.services, "{case}, {name}");
        assert_eq!(read.slices, snapshot.slices, "{case}, {name}");
        assert_eq!(read.nodes, snapshot.nodes, "{case}, {name}");
        assert_eq!(read.service_cidrs, snapshot.service_cidrs, "{case}, {name}");
    }
}

#[test]
fn generated_clusters_read_back() {
    let small = Options { services: 12, endpoints: 3, ..Options::default() };
    for options in [
        small.clone(),
        Options { family: Families::Ipv6, node_ports: true, ..small.clone() },
        Options { family: Families::Dual, load_balancers: true, external_local: true, ..small.clone() },
        Options { affinity: true, local_fraction: Some(0.5), node: "worker".into(), ..small.clone() },
        Options { services: 2, endpoints: 250, ..small.clone() },
        Options { services: 0, ..small.clone() },
        Options { endpoints: 0, ..small },
    ] {
        let snapshot = generate(&options).expect("it fits");
        assert_eq!(snapshot.services.len(), options.services);
        assert_eq!(generate(&options).as_ref(), Ok(&snapshot), "twice the same: {options:?}");
        assert_reads_back(&snapshot, &format!("{options:?}"));
    }
}

/// Everything that a snapshot can say, and text that YAML would take for something else.
#[test]
fn every_field_reads_back() {
    let bare = bare_service();
    let headless =
        Service { key: ServiceKey::new("default", "headless"), kind: ServiceType::ClusterIp, ..bare.clone() };
    let node = Node {
        name: "n1".into(),
        addresses: vec!["192.168.0.2".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        pod_cidrs: vec!["10.1.0.0/24".parse().unwrap()],
        zone: Some("off".into()),
        leaving: true,
    };
    let bare_node = Node { name: "n2".into(), ..Node::default() };
    let snapshot = Snapshot {
        services: vec![full_service(), bare, headless],
        slices: vec![full_slice()],
        nodes: vec![node, bare_node],
        service_cidrs: vec!["172.30.0.0/16".parse().unwrap(), "fd96::/108".parse().unwrap()],
    };
    assert_reads_back(&snapshot, "by hand");
}

fn full_service() -> Service {
    let port = |name: &str, protocol, port, node_port, target| ServicePort {
        name: name.into(),
        protocol,
        port,
        node_port,
        target,
    };
    Service {
        key: ServiceKey::new("null", "123"),
        created: Some(1_767_225_600),
        other_proxy: true,
        kind: ServiceType::LoadBalancer,
        cluster_ips: vec!["fd00::1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
        external_ips: vec!["1.1.1.1".parse().unwrap()],
        load_balancer_ips: vec!["2.2.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        source_ranges: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        ports: vec![
            port("yes", Protocol::Tcp, 80, 30_080, Target::Named("http".into())),
            port("0x1f", Protocol::Udp, 80, 0, Target::Number(53)),
            port("1e3", Protocol::Sctp, 65_535, 0, Target::Number(65_535)),
        ],
        internal_policy: TrafficPolicy::Local,
        external_policy: TrafficPolicy::Local,
        affinity: Some(86_400),
        health_check_node_port: 32_000,
        selector: [("a", "true"), ("b", "~"), ("c", ""), ("d", "- x: {y"), ("e", "1_000"), ("f", "1.10"), ("g", "#")]
            .map(|(k, v)| (k.into(), v.into()))
            .to_vec(),
        publish_not_ready: true,
        pass_without_endpoints: Some(true),
    }
}

fn bare_service() -> Service {
    Service {
        key: ServiceKey::new("default", "bare"),
        created: None,
        other_proxy: false,
        kind: ServiceType::ExternalName,
        cluster_ips: vec![],
        external_ips: vec![],
        load_balancer_ips: vec![],
        source_ranges: vec![],
        ports: vec![],
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: 0,
        selector: vec![],
        publish_not_ready: false,
        pass_without_endpoints: Some(false),
    }
}

fn full_slice() -> EndpointSlice {
    let conditions = Conditions { ready: false, serving: false, terminating: true };
    let hints = Hints { zones: vec!["on".into()], nodes: vec!["n1".into(), "2".into()] };
    EndpointSlice {
        key: SliceKey { namespace: "null".into(), name: "123-x".into() },
        service: "123".into(),
        family: Family::V6,
        ports: vec![
            SlicePort { name: "".into(), protocol: Protocol::Udp, port: 53 },
            SlicePort { name: "yes".into(), protocol: Protocol::Sctp, port: 1 },
        ],
        endpoints: vec![
            Endpoint {
                address: "fd01::1".parse().unwrap(),
                conditions,
                node: Some("1.5".into()),
                hints: Some(Box::new(hints)),
            },
            Endpoint {
                address: "fd01::2".parse().unwrap(),
                conditions: Conditions::default(),
                node: None,
                hints: None,
            },
        ],
    }
}
