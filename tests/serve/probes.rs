//! `/healthz` and `/livez` (rows I9, I10, I12, cases H07–H10).

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::client::get;
use crate::common::usurper::usurp;
use crate::daemon::{Daemon, HEALTHZ, METRICS, give_addresses};

const EMPTY: &str = "apiVersion: v1\nkind: List\nitems: []\n";
const WEB: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n";

fn node(metadata: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n1{metadata}}}\nspec: {{{spec}}}\n")
}

netns_test! {
    fn probes_are_told_about_the_node() {
        give_addresses();
        let mut daemon = Daemon::start(EMPTY, &[]);
        let well = daemon.wait_for(HEALTHZ, "/healthz", |answer| answer.status == 200);
        assert_eq!(well.header("Content-Type"), Some("application/json"));
        let body: Value = serde_json::from_str(&well.body).unwrap();
        assert_eq!(body["nodeEligible"], true, "{body}");
        assert_eq!(body["lastUpdated"], body["currentTime"], "{body}");
        assert_eq!(get("[::1]:10256", "/livez").unwrap().status, 200, "0.0.0.0 stands for both families");
        assert_eq!(get(HEALTHZ, "/").unwrap().status, 404);
        for (case, node, status) in [
            ("H07", node("", "taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]"), 503),
            ("H08", node("", "taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]"), 200),
            ("H09", node(", deletionTimestamp: '2026-11-30T00:00:00Z'", ""), 503),
            ("and back", node("", ""), 200),
        ] {
            daemon.tell(&node);
            let answer = daemon.wait_for(HEALTHZ, "/healthz", |answer| answer.status == status);
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(body["nodeEligible"], status == 200, "{case}: {body}");
            let alive = get(HEALTHZ, "/livez").unwrap();
            assert_eq!(alive.status, 200, "{case}: {alive:?}");
            assert!(!alive.body.contains("nodeEligible"), "{case}: {alive:?}");
        }
        daemon.stop();
    }
}

netns_test! {
    /// H10: a kernel that cannot be programmed for twice the sync period makes the proxy ill, until it can.
    fn a_proxy_that_falls_behind_is_ill() {
        give_addresses();
        let mut daemon = Daemon::start_configured(EMPTY, "nftables: {syncPeriod: 200ms, minSyncPeriod: 100ms}\n");
        daemon.wait_for(HEALTHZ, "/healthz", |answer| answer.status == 200);
        daemon.wait_for_log("synced");
        let usurper = usurp();
        daemon.tell(WEB);
        daemon.wait_for_log("trying again in");
        // the node is unfit before that, as soon as it is seen that somebody has changed the rules
        daemon.wait_for(HEALTHZ, "/livez", |answer| answer.status == 503);
        let ill = get(HEALTHZ, "/healthz").unwrap();
        assert_eq!(ill.status, 503);
        let body: Value = serde_json::from_str(&ill.body).unwrap();
        assert_ne!(body["lastUpdated"], body["currentTime"], "{body}");
        assert_eq!((&body["healthy"], &body["status"]["IPv6"]["healthy"]), (&false.into(), &false.into()), "{body}");
        let metrics = get(METRICS, "/metrics").unwrap().body;
        for series in [
            "kubeproxy_proxy_livez_total{code=\"503\"} 1",
            "kubeproxy_sync_proxy_rules_service_changes_pending 1",
        ] {
            assert!(metrics.lines().any(|line| line == series), "{series}: {metrics}");
        }
        assert!(!metrics.contains("nftables_sync_failures_total{ip_family=\"IPv4\"} 0"), "{metrics}");
        assert!(!metrics.contains("svcmap_refused_transactions_total 0"), "{metrics}");
        drop(usurper);
        daemon.wait_for(HEALTHZ, "/healthz", |answer| answer.status == 200);
        daemon.stop();
    }
}

netns_test! {
    /// Row I12.
    fn an_address_that_is_taken_is_had_later_or_is_fatal() {
        give_addresses();
        let taken = TcpListener::bind("127.0.0.1:10249").unwrap();
        let log = Daemon::run_to_the_end(EMPTY, &["--bind-address-hard-fail"], 1);
        assert!(log.contains("metrics cannot be served on 127.0.0.1:10249: Address already in use"), "{log}");
        let mut daemon = Daemon::start(EMPTY, &[]);
        daemon.wait_for(HEALTHZ, "/healthz", |answer| answer.status == 200);
        daemon.wait_for_log("metrics cannot be served on 127.0.0.1:10249");
        drop(taken);
        daemon.wait_for(METRICS, "/proxyMode", |answer| answer.status == 200);
        daemon.stop();
    }
}

netns_test! {
    /// A probe that gets no answer ends the process.
    fn probes_are_answered_beside_many_who_say_nothing() {
        give_addresses();
        let mut daemon = Daemon::start(EMPTY, &[]);
        daemon.wait_for(HEALTHZ, "/livez", |answer| answer.status == 200);
        let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(HEALTHZ).unwrap()).collect();
        assert_eq!(get(HEALTHZ, "/livez").unwrap().status, 200);
        // that one was not waited for, and the first had to go
        let (first, last) = (&silent[0], &silent[299]);
        last.set_nonblocking(true).unwrap();
        assert_eq!((&*last).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(matches!((&*first).read(&mut [0]), Ok(0) | Err(_)), "the first is still open");
        daemon.stop();
    }
}

netns_test! {
    fn an_empty_address_means_no_server() {
        give_addresses();
        let mut daemon = Daemon::start(WEB, &["--healthz-bind-address=", "--metrics-bind-address="]);
        daemon.wait_for_log("synced");
        assert!(get(HEALTHZ, "/healthz").is_err() && get(METRICS, "/metrics").is_err());
        assert!(!daemon.log().contains("serving "), "{}", daemon.log());
        daemon.stop();
    }
}
