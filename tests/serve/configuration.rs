//! A configuration file that changes while the daemon runs (row J11).

use std::os::unix::fs::symlink;

use crate::daemon::{Daemon, METRICS, give_addresses};

const EMPTY: &str = "apiVersion: v1\nkind: List\nitems: []\n";
const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/// How often the daemon has begun, by its log.
fn starts(daemon: &Daemon) -> usize {
    daemon.log().matches("serving metrics on").count()
}

netns_test! {
    fn a_daemon_begins_anew_with_another_configuration() {
        give_addresses();
        let mut daemon = Daemon::start_configured(EMPTY, "");
        let process = daemon.id();
        let write = |daemon: &Daemon, text: &str| std::fs::write(daemon.path("config.yaml"), text).unwrap();
        let is_shown = |body: &str, what: &str| body.contains(what);
        daemon.wait_for_log("synced");
        daemon.wait_for(METRICS, "/configz", |answer| is_shown(&answer.body, "10.0.0.0/8"));

        write(&daemon, &format!("{HEAD}clusterCIDR: 10.0.0.0/8\n# the same\n"));
        write(&daemon, &format!("{HEAD}clusterCIDR: 10.0.0.0/8\nmode: magic\n"));
        daemon.wait_for_log("the former one holds on: mode: \"magic\" is none of");
        daemon.wait_for(METRICS, "/configz", |answer| is_shown(&answer.body, "10.0.0.0/8"));
        assert_eq!(starts(&daemon), 1, "{}", daemon.log());

        write(&daemon, &format!("{HEAD}clusterCIDR: 10.64.0.0/10\n"));
        daemon.wait_for(METRICS, "/configz", |answer| is_shown(&answer.body, "10.64.0.0/10"));
        assert!(daemon.log().contains("the configuration has changed (clusterCIDR): starting anew"), "{}", daemon.log());
        assert_eq!((starts(&daemon), daemon.id()), (2, process), "the same process");
        let listed = std::process::Command::new("nft").args(["list", "table", "ip", "svcmap"]).output().unwrap();
        assert!(listed.status.success(), "its tables are there");
        daemon.stop();
    }
}

netns_test! {
    /// As kubelets replace what is mounted from a ConfigMap: the link to the directory that holds it is another.
    fn a_config_map_that_is_mounted_is_followed() {
        give_addresses();
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (name, cidr) in [("1", "10.0.0.0/8"), ("2", "10.64.0.0/10")] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("config.conf"), format!("{HEAD}clusterCIDR: {cidr}\n")).unwrap();
        }
        symlink("1", at("..data")).unwrap();
        symlink("..data/config.conf", at("config.conf")).unwrap();
        let mut daemon = Daemon::start(EMPTY, &["--config", at("config.conf").to_str().unwrap()]);
        daemon.wait_for(METRICS, "/configz", |answer| answer.body.contains("10.0.0.0/8"));
        symlink("2", at("..new")).unwrap();
        std::fs::rename(at("..new"), at("..data")).unwrap();
        daemon.wait_for(METRICS, "/configz", |answer| answer.body.contains("10.64.0.0/10"));
        daemon.stop();
    }
}
