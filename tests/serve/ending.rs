//! How the daemon ends, and what it says when it begins where another one ended.

use crate::daemon::{Daemon, give_addresses};

const ONE: &str =
    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}";

netns_test! {
    fn every_signal_to_end_is_answered_and_the_next_start_says_that_it_adopts() {
        give_addresses();
        let adopted = "adopted 1 Service: the kernel holds what it should, so that nothing had to be sent";
        for (signal, line) in [("TERM", "synced"), ("INT", adopted), ("HUP", adopted)] {
            let mut daemon = Daemon::start(ONE, &[]);
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
