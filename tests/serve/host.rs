//! What the daemon sets on its host (rows H10, J13, J14): here, on its network namespace, which has times of its own.

use crate::daemon::{Daemon, HEALTHZ, give_addresses};

const EMPTY: &str = "apiVersion: v1\nkind: List\nitems: []\n";
const ESTABLISHED: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";

fn established() -> String {
    std::fs::read_to_string(ESTABLISHED).unwrap().trim().into()
}

netns_test! {
    /// As `docs/migration.md` says of containers: more than one privilege is only wanted for the host's own settings.
    fn one_capability_suffices() {
        give_addresses();
        let way = ["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all,+net_admin"];
        let mut daemon = Daemon::start_by(&way, EMPTY);
        daemon.wait_for_log(" synced");
        daemon.wait_for(HEALTHZ, "/healthz", |answer| answer.status == 200);
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
        assert!(status.contains("CapEff:\t0000000000001000\n"), "{status}");
        // also to notice what others do
        let flushed = std::process::Command::new("nft").args(["flush", "ruleset"]).status();
        assert!(flushed.expect("nft is needed (package nftables)").success());
        daemon.wait_for_log("have been put right");
        let log = daemon.log();
        let mut warnings = log.lines().filter(|line| line.contains(" WARN svcmap::cli") || line.contains(" ERROR "));
        assert!(warnings.all(|line| line.contains("cannot be set to")), "{log}");
        daemon.stop();
    }
}

netns_test! {
    /// The limit belongs to the host, and cannot be set from within a namespace: a warning, and everything goes on.
    fn what_can_be_set_is_set_and_the_rest_is_said() {
        give_addresses();
        std::fs::write(ESTABLISHED, "1234").unwrap();
        let mut daemon = Daemon::start(EMPTY, &["--conntrack-tcp-timeout-established=2h"]);
        daemon.wait_for_log("synced");
        assert_eq!(established(), "7200");
        assert!(daemon.log().contains("/proc/sys/net/netfilter/nf_conntrack_max cannot be set to "), "{}", daemon.log());
        daemon.stop();
        let log = Daemon::run_to_the_end(EMPTY, &["--init-only", "--conntrack-tcp-timeout-established=3h"], 0);
        assert_eq!(established(), "10800");
        assert!(!log.contains("synced"), "{log}");
    }
}
