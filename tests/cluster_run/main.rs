//! `svcmap run` on a real cluster's API server, with the kernel of a network namespace in which both are.

#[path = "../common/mod.rs"]
mod common;

#[allow(dead_code)]
#[path = "../serve/client.rs"]
mod client;
mod daemon;
#[allow(dead_code)]
#[path = "../serve/exposition.rs"]
mod exposition;
mod metrics;
mod node;
mod objects;
mod peer;
mod rights;
mod scenes;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use common::api_server::{Options, trial};
use libtest_mimic::Arguments;

/// Set in the namespace.
const INSIDE: &str = "SVCMAP_TEST_CLUSTER";
/// A node with one address, from which everything else would be reached. Endpoints are at home here, too.
const NODE: &str = "set -e; ip link set lo up; ip link add eth0 type veth peer name far; ip addr add 192.0.2.1/24 dev eth0; \
                    ip addr add 2001:db8::1/64 dev eth0 nodad; ip addr add 10.244.0.1/16 dev lo; ip link set far up; ip link set eth0 up; \
                    ip route add default dev eth0; exec \"$@\"";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1); // they share the namespace
    let uncached = Options { flags: vec!["--watch-cache=false".into()], ..Options::default() };
    let trials = vec![
        trial("a_service_lives_and_dies", Options::default(), scenes::a_service_lives_and_dies),
        trial("events_are_written", Options::default(), scenes::events_are_written),
        trial("kube_proxy_programs_the_same", Options::default(), peer::kube_proxy_programs_the_same),
        trial("two_thousand_services_at_once", Options::default(), scenes::two_thousand_services_at_once),
        trial("the_api_server_is_killed", Options::default(), scenes::the_api_server_is_killed),
        trial("the_history_is_compacted", uncached, scenes::the_history_is_compacted),
        trial("metrics_are_told_as_by_kube_proxy", Options::default(), metrics::are_told_as_by_kube_proxy),
        trial("rules_follow_the_node", Options::default(), node::rules_follow),
        trial("rights_suffice_and_tokens_are_replaced", Options::default(), rights::suffice_and_tokens_are_replaced),
    ];
    // Only now: the server is built by the first trial, for which the rest of the world may be needed.
    if std::env::var_os(INSIDE).is_none() && !arguments.list {
        let error = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "--", "sh", "-c", NODE, "sh"])
            .args(std::env::args_os())
            .env(INSIDE, "1")
            .exec();
        eprintln!("unshare: {error}");
        return ExitCode::FAILURE;
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
