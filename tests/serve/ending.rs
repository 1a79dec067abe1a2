//! How the daemon ends, and what it does and says when it begins where another one ended.

use std::process::Command;

use crate::daemon::{Daemon, give_addresses};

const ONE: &str =
    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}";

netns_test! {
    fn every_signal_to_end_is_answered_and_the_next_start_says_that_it_adopts() {
        give_addresses();
        let adopted = "adopted 1 Service: the kernel holds what it should, so that nothing had to be sent";
        for (signal, line) in [("TERM", "synced"), ("INT", adopted), ("HUP", adopted)] {
            // whoever runs the tests by nohup or in the background has made it ignore some of them
            let mut daemon = Daemon::start_by(&["env", "--default-signal"], ONE);
            daemon.wait_for_log(line);
            let log = daemon.stop_by(signal);
            assert!(log.contains("stopped; what is programmed stays"), "{signal}: {log}");
        }
    }
}

netns_test! {
    /// As `nohup` starts it.
    fn a_terminal_that_closes_does_not_end_what_was_told_not_to_mind() {
        give_addresses();
        let mut daemon = Daemon::start_by(&["nohup"], ONE);
        daemon.wait_for_log("synced");
        daemon.signal("HUP");
        daemon.tell(&ONE.replace("10.96.0.1", "10.96.0.2"));
        let log = daemon.path("log");
        daemon.wait("another sync", || std::fs::read_to_string(&log).unwrap().matches("synced").count() == 2);
        daemon.stop();
    }
}

/// Whether the kernel holds something for this address.
fn is_programmed(address: &str) -> bool {
    let output = Command::new("nft")
        .args(["list", "ruleset"])
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .expect("nft is needed (package nftables)");
    String::from_utf8_lossy(&output.stdout).contains(address)
}

netns_test! {
    /// The volume with the rest of the Services may not be mounted yet.
    fn an_empty_directory_at_the_start_takes_nothing_away_until_a_manifest_comes() {
        give_addresses();
        let mut daemon = Daemon::start(ONE, &[]);
        daemon.wait_for_log("synced");
        daemon.stop();
        let empty = tempfile::tempdir().unwrap();
        let other = ONE.replace("web", "other").replace("10.96.0.1", "10.96.0.2");
        let mut daemon = Daemon::start(&other, &["-f", empty.path().to_str().expect("a path that is text")]);
        daemon.wait_for_log("in this directory; it is waited for");
        daemon.wait("the other Service", || is_programmed("10.96.0.2"));
        assert!(is_programmed("10.96.0.1"), "{}", daemon.log());
        std::fs::write(empty.path().join("more.yaml"), ONE.replace("web", "more").replace("10.96.0.1", "10.96.0.3")).unwrap();
        daemon.wait("the third Service", || is_programmed("10.96.0.3"));
        daemon.wait("the end of the first", || !is_programmed("10.96.0.1"));
        daemon.stop();
    }
}
