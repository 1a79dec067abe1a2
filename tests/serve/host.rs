//! What the daemon sets on its host (rows H10, J13, J14): here, on its network namespace, which has times of its own.

use crate::daemon::{Daemon, give_addresses};

const EMPTY: &str = "apiVersion: v1\nkind: List\nitems: []\n";
const ESTABLISHED: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";

fn established() -> String {
    std::fs::read_to_string(ESTABLISHED).unwrap().trim().into()
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
