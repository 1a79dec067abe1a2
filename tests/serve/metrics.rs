//! `/metrics` and what else the metrics server has (row I11, section K).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::get;
use crate::daemon::{Daemon, HEALTHZ, METRICS, give_addresses};
use crate::exposition::{Metric, parse};

/// A Service with an internal traffic policy that no endpoint here fulfils, and an ordinary one.
const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {name: near}
spec: {clusterIP: 10.96.0.1, internalTrafficPolicy: Local, ports: [{name: a, port: 80}, {name: b, port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: far}
spec: {clusterIP: 10.96.0.2, ports: [{name: a, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: near-1, labels: {kubernetes.io/service-name: near}}
addressType: IPv4
ports: [{name: a, port: 8080}, {name: b, port: 8081}]
endpoints: [{addresses: [10.0.1.1], nodeName: n2}]
";

/// Names, types and labels, as dashboards that were made for kube-proxy know them.
const EXPECTED: [(&str, &str, &[&str]); 19] = [
    ("kubeproxy_network_programming_duration_seconds", "histogram", &["ip_family"]),
    ("kubeproxy_sync_proxy_rules_duration_seconds", "histogram", &["ip_family"]),
    ("kubeproxy_sync_full_proxy_rules_duration_seconds", "histogram", &["ip_family"]),
    ("kubeproxy_sync_partial_proxy_rules_duration_seconds", "histogram", &["ip_family"]),
    ("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "gauge", &["ip_family"]),
    ("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "gauge", &["ip_family"]),
    ("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "gauge", &[]),
    ("kubeproxy_sync_proxy_rules_endpoint_changes_total", "counter", &[]),
    ("kubeproxy_sync_proxy_rules_service_changes_pending", "gauge", &[]),
    ("kubeproxy_sync_proxy_rules_service_changes_total", "counter", &[]),
    ("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "counter", &["ip_family"]),
    ("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", "counter", &["ip_family"]),
    ("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "gauge", &["ip_family", "traffic_policy"]),
    ("kubeproxy_conntrack_reconciler_sync_duration_seconds", "histogram", &["ip_family"]),
    ("kubeproxy_conntrack_reconciler_deleted_entries_total", "counter", &["ip_family"]),
    ("kubeproxy_proxy_healthz_total", "counter", &["code"]),
    ("kubeproxy_proxy_livez_total", "counter", &["code"]),
    ("process_cpu_seconds_total", "counter", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
];

fn value(metrics: &BTreeMap<String, Metric>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let metric = name.strip_suffix("_count").filter(|base| metrics.contains_key(*base)).unwrap_or(name);
    let series = &metrics.get(metric).unwrap_or_else(|| panic!("no {metric}")).series;
    *series.get(&(name.to_owned(), labels)).unwrap_or_else(|| panic!("{name} is not among {series:?}"))
}

netns_test! {
    fn metrics_are_those_that_dashboards_know() {
        give_addresses();
        let mut daemon = Daemon::start(OBJECTS, &[]);
        daemon.wait_for_log("synced");
        // the change that the second sync takes in: only then is there something of every kind
        daemon.tell(&OBJECTS.replace("nodeName: n2", "nodeName: n3, conditions: {ready: false}"));
        let partial = "svcmap_elements_deleted_total 2\n";
        let answer = daemon.wait_for(METRICS, "/metrics", |answer| answer.body.contains(partial));
        assert_eq!(answer.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let metrics = parse(&answer.body);
        for (name, kind, labels) in EXPECTED {
            let metric = metrics.get(name).unwrap_or_else(|| panic!("no {name} in {}", answer.body));
            assert_eq!(metric.kind, kind, "{name}");
            for (_, seen) in metric.series.keys() {
                let seen: Vec<&str> = seen.keys().map(String::as_str).filter(|label| *label != "le").collect();
                assert_eq!(seen, labels, "{name}");
            }
        }
        for (name, metric) in &metrics {
            assert!(!metric.series.is_empty() && !metric.help.is_empty(), "{name} says nothing: {metric:?}");
        }
        let buckets: Vec<f64> = (0..15).map(|n| 0.001 * f64::powi(2.0, n)).chain([f64::INFINITY]).collect();
        let mut seen: Vec<f64> = metrics["kubeproxy_sync_proxy_rules_duration_seconds"]
            .series
            .keys()
            .filter(|(_, labels)| labels.get("ip_family").is_some_and(|family| family == "IPv6"))
            .filter_map(|(_, labels)| labels.get("le")?.parse().ok())
            .collect();
        seen.sort_by(f64::total_cmp);
        assert_eq!(seen, buckets);
        daemon.stop();
    }
}

netns_test! {
    fn metrics_say_what_happened() {
        give_addresses();
        let mut daemon = Daemon::start(OBJECTS, &[]);
        let first = "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1\n";
        let answer = daemon.wait_for(METRICS, "/metrics", |answer| answer.body.contains(first));
        let metrics = parse(&answer.body);
        let of = |name: &str, labels: &[(&str, &str)]| value(&metrics, name, labels);
        let (v4, v6) = (("ip_family", "IPv4"), ("ip_family", "IPv6"));
        let no_local = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
        assert_eq!(of(no_local, &[v4, ("traffic_policy", "internal")]), 1.0, "a Service counts once");
        assert_eq!(of(no_local, &[v4, ("traffic_policy", "external")]), 0.0);
        assert_eq!(of(no_local, &[v6, ("traffic_policy", "internal")]), 0.0);
        for (kind, count) in [("Service", 2.0), ("ProxiedService", 2.0), ("EndpointSlice", 1.0), ("Endpoint", 1.0)] {
            assert_eq!(of("svcmap_objects", &[("kind", kind)]), count, "{kind}");
        }
        let changes = "kubeproxy_sync_proxy_rules_service_changes_total";
        assert_eq!(of(changes, &[]), 2.0);
        assert_eq!(of("kubeproxy_sync_proxy_rules_service_changes_pending", &[]), 0.0);
        assert_eq!(of("kubeproxy_sync_proxy_rules_endpoint_changes_total", &[]), 1.0);
        for name in ["svcmap_transactions_total", "svcmap_sent_bytes_total", "svcmap_elements_added_total"] {
            assert!(of(name, &[]) > 0.0, "{name}");
        }
        let (added, transactions) = (of("svcmap_elements_added_total", &[]), of("svcmap_transactions_total", &[]));

        // an endpoint that is here, now
        daemon.tell(&OBJECTS.replace("n2", "n1"));
        let second = "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1\n";
        let answer = daemon.wait_for(METRICS, "/metrics", |answer| answer.body.contains(second));
        let metrics = parse(&answer.body);
        let of = |name: &str, labels: &[(&str, &str)]| value(&metrics, name, labels);
        assert_eq!(of(no_local, &[v4, ("traffic_policy", "internal")]), 0.0);
        assert_eq!(of(changes, &[]), 2.0, "no Service changed");
        assert_eq!(of("kubeproxy_sync_proxy_rules_endpoint_changes_total", &[]), 2.0);
        assert_eq!(of("kubeproxy_sync_proxy_rules_duration_seconds_count", &[v4]), 2.0);
        assert!(of("svcmap_elements_added_total", &[]) > added);
        assert_eq!(of("svcmap_transactions_total", &[]), transactions + 1.0);
        daemon.stop();
    }
}

netns_test! {
    fn the_metrics_server_says_what_runs() {
        give_addresses();
        let mut daemon = Daemon::start_configured(OBJECTS, "nftables: {masqueradeBit: 7, syncPeriod: 40s}\n");
        let mode = daemon.wait_for(METRICS, "/proxyMode", |_| true);
        assert_eq!((mode.status, mode.body.as_str()), (200, "nftables"));
        for path in ["/healthz", "/livez"] {
            let answer = get(METRICS, path).unwrap();
            assert_eq!((answer.status, answer.body.as_str()), (200, "ok"), "{path}");
        }
        let answer = get(METRICS, "/configz").unwrap();
        assert_eq!(answer.header("Content-Type"), Some("application/json"));
        let shown: Value = serde_json::from_str(&answer.body).unwrap();
        let shown = &shown["kubeproxy.config.k8s.io"];
        assert_eq!(shown["kind"], "KubeProxyConfiguration");
        assert_eq!(shown["mode"], "nftables");
        assert_eq!(shown["nftables"]["masqueradeBit"], 7);
        assert_eq!(shown["nftables"]["syncPeriod"], "40s");
        assert_eq!(shown["clusterCIDR"], "10.0.0.0/8");
        assert_eq!(shown["healthzBindAddress"], "0.0.0.0:10256");
        assert_eq!(get(METRICS, "/nothing").unwrap().status, 404);
        daemon.stop();
    }
}

netns_test! {
    /// KEP-3466: what all components of Kubernetes tell of their health.
    fn health_is_told_as_metrics_too() {
        give_addresses();
        let mut daemon = Daemon::start(OBJECTS, &[]);
        daemon.wait_for_log("synced");
        daemon.wait_for(HEALTHZ, "/healthz", |answer| answer.status == 200);
        let answer = daemon.wait_for(METRICS, "/metrics/slis", |answer| answer.status == 200);
        let metrics = parse(&answer.body);
        for kind in ["healthz", "livez"] {
            assert_eq!(value(&metrics, "kubernetes_healthcheck", &[("name", "sync-loop"), ("type", kind)]), 1.0);
        }
        let healthz = |status| {
            let labels = [("name", "sync-loop"), ("status", status), ("type", "healthz")];
            value(&metrics, "kubernetes_healthchecks_total", &labels)
        };
        assert!(healthz("success") >= 1.0 && healthz("error") == 0.0, "{}", answer.body);
        daemon.stop();
    }
}

/// A Service whose endpoint is at home here, and one that nobody asks.
const COUNTED: &str = "
apiVersion: v1
kind: Service
metadata: {name: asked}
spec: {clusterIP: 10.96.0.1, ports: [{name: web, port: 80}, {name: more, port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: idle}
spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: asked-1, labels: {kubernetes.io/service-name: asked}}
addressType: IPv4
ports: [{name: web, port: 8080}, {name: more, port: 8080}]
endpoints: [{addresses: [192.168.0.2], nodeName: n1}]
";

netns_test! {
    fn connections_are_told_by_service_port_as_far_as_there_is_room() {
        give_addresses();
        let routed = std::process::Command::new("ip").args(["route", "add", "10.96.0.0/16", "dev", "lo"]).status();
        assert!(routed.unwrap().success());
        let _endpoint = std::net::TcpListener::bind("192.168.0.2:8080").unwrap();
        let mut daemon = Daemon::start(COUNTED, &["--counters", "--metrics-services=1"]);
        daemon.wait_for_log("synced");
        let connect = |port: u16, times: usize| {
            (0..times).for_each(|_| drop(std::net::TcpStream::connect(("10.96.0.1", port)).unwrap()));
        };
        connect(80, 3);
        let web = [("namespace", "default"), ("port", "web"), ("service", "asked")];
        let told = |daemon: &mut Daemon| parse(&daemon.wait_for(METRICS, "/metrics", |answer| answer.status == 200).body);
        let metrics = told(&mut daemon);
        assert_eq!(value(&metrics, "svcmap_service_connections_total", &web), 3.0);
        assert_eq!(value(&metrics, "svcmap_other_service_connections_total", &[]), 0.0);
        connect(81, 2);
        connect(80, 1);
        let metrics = told(&mut daemon);
        assert_eq!(value(&metrics, "svcmap_service_connections_total", &web), 4.0);
        assert_eq!(value(&metrics, "svcmap_other_service_connections_total", &[]), 2.0);
        assert_eq!(metrics["svcmap_service_connections_total"].series.len(), 1);
        daemon.stop();
    }
}
