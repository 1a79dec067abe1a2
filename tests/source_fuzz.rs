//! Whatever the input is, reading it ends with objects and problems, never with a panic, and what is wrong with one
//! object never costs another.

use std::io::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use svcmap::source::generate::{Families, Options, generate};
use svcmap::source::{Format, Loaded, load, write};

fn load_bytes(bytes: &[u8], suffix: &str) -> Loaded {
    let mut file = tempfile::NamedTempFile::with_suffix(suffix).expect("a temporary file");
    file.write_all(bytes).expect("writing the file");
    load(&[file.path().to_path_buf()]).expect("the file is there")
}

/// Objects of every kind, with every field that is read.
fn objects() -> Vec<Value> {
    let meta = |name: &str| json!({"name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let mut slice_meta = meta("web-1");
    slice_meta["labels"] = json!({"kubernetes.io/service-name": "web"});
    let mut pod_meta = meta("pod");
    pod_meta["labels"] = json!({"app": "db"});
    vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("web"), "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd96::1"],
            "ipFamilies": ["IPv4", "IPv6"], "externalIPs": ["1.1.1.1"], "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080, "targetPort": "http"}],
            "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "selector": {"app": "web"}, "publishNotReadyAddresses": true,
        }, "status": {"loadBalancer": {"ingress": [{"ip": "2.2.2.2", "ipMode": "VIP"}]}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("db"), "spec": {
            "clusterIP": "10.96.0.2", "selector": {"app": "db"}, "ports": [{"port": 5432, "targetPort": "sql"}],
        }}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice_meta,
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n1",
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "n1"}]}}]}),
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": meta("old"), "subsets": [{
            "addresses": [{"ip": "10.0.0.2", "nodeName": "n1"}], "notReadyAddresses": [{"ip": "10.0.0.3"}],
            "ports": [{"name": "x", "port": 81, "protocol": "UDP"}]}]}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1",
            "labels": {"topology.kubernetes.io/zone": "a"}},
            "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.2"}]}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": {"nodeName": "n1",
            "containers": [{"ports": [{"name": "sql", "containerPort": 5432, "protocol": "TCP"}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.4", "podIPs": [{"ip": "10.0.0.4"}],
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "k"},
            "spec": {"cidrs": ["10.96.0.0/12"]}}),
    ]
}

/// The number of places in a value where something else can stand.
fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(places).sum(),
        Value::Object(fields) => fields.values().map(places).sum(),
        _ => 0,
    }
}

/// Puts something else at one of the places, counted from the root.
fn replace(value: &mut Value, place: &mut usize, by: &Value) {
    if *place == 0 {
        *value = by.clone();
    }
    *place = place.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, place, by)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, place, by)),
        _ => {}
    }
}

fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u32..70_000).prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no such numbers", |n| n.is_finite()).prop_map(Value::from),
        "\\PC{0,80}".prop_map(Value::from),
        prop::sample::select(vec!["", "None", "10.0.0.999", "::", "127.0.0.1", "10.0.0.0/33", "FQDN", "Local", "-1"])
            .prop_map(Value::from),
        Just(json!([])),
        Just(json!([null, 1, "x", [], {}])),
        Just(json!({})),
        Just(json!({"x": {"y": [1]}})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        load_bytes(&bytes, ".yaml");
    }

    #[test]
    fn arbitrary_text_is_no_panic(text in "[-:{}\\[\\],\"'&*!|>%#@`a-z0-9. \n\t]{0,300}") {
        load_bytes(text.as_bytes(), ".yaml");
    }

    /// Any value at any place of one object, in YAML and in JSON: the other objects are all there.
    #[test]
    fn a_wrong_value_costs_nobody_else(which in 0usize..7, place in any::<prop::sample::Index>(), value in junk()) {
        let mut all = objects();
        let others: Vec<Value> = all.iter().enumerate().filter(|(i, _)| *i != which).map(|(_, o)| o.clone()).collect();
        let mut at = place.index(places(&all[which]));
        replace(&mut all[which], &mut at, &value);

        let list = |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let want = load_bytes(list(&others).as_bytes(), ".json").snapshot;
        let yaml: String = all.iter().map(|o| format!("---\n{}", serde_saphyr::to_string(o).unwrap())).collect();
        for (text, suffix) in [(list(&all), ".json"), (yaml, ".yaml")] {
            let loaded = load_bytes(text.as_bytes(), suffix);
            for service in &want.services {
                prop_assert!(loaded.snapshot.services.contains(service), "{service:?}\n{text}");
            }
            for node in &want.nodes {
                prop_assert!(loaded.snapshot.nodes.contains(node), "{node:?}\n{text}");
            }
            for slice in want.slices.iter().filter(|slice| slice.key.name == "web-1") {
                prop_assert!(loaded.snapshot.slices.contains(slice), "{slice:?}\n{text}");
            }
            for problem in &loaded.problems {
                let line = problem.to_string();
                prop_assert!(line.len() < 600 && !line.contains('\n'), "{line:?}");
            }
        }
    }

    /// A good file with some bytes gone, changed or put in.
    #[test]
    fn damaged_manifests_are_no_panic(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, "[-:{}\"'&*|> \n\\x00a]{0,8}"), 1..6),
        json in any::<bool>(),
    ) {
        let options = Options { services: 3, endpoints: 3, family: Families::Dual, ..Options::default() };
        let mut bytes = Vec::new();
        let format = if json { Format::Json } else { Format::Yaml };
        write(&generate(&options).unwrap(), format, &mut bytes).unwrap();
        for (at, length, text) in &cuts {
            let start = at.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, text.bytes());
        }
        let loaded = load_bytes(&bytes, ".yaml");
        prop_assert!(loaded.snapshot.services.len() <= 3 * cuts.len() + 3);
    }
}
