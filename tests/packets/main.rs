//! Packets: real connections through the rules, in network namespaces.
//!
//! This ring has a `main` of its own, since a process must enter its namespaces before it has threads.

mod affinity;
mod cases;
mod churn;
mod clients;
mod coexistence;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod conntrack;
mod counters;
mod foreign;
mod ground;
mod healing;
mod iptables;
mod iptables_cases;
mod keep_sending;
mod localhost;
mod node_addresses;
mod random;
mod scene;
mod top;
mod traced;
mod userspace;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use svcmap::lab;

use crate::common::unsteady::tried_twice;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of the time they wait: for packets that are dropped to not come back.
    arguments.test_threads.get_or_insert(8);
    if let Err(error) = lab::enter() {
        eprintln!("packets: none of these tests can run here: {error}");
        return ExitCode::FAILURE;
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(ground::trials());
    trials.extend(cases::trials());
    trials.extend(foreign::trials());
    trials.extend(churn::trials());
    trials.extend(healing::trials());
    trials.extend(affinity::trials());
    trials.extend(clients::trials());
    trials.extend(conntrack::trials());
    trials.extend(coexistence::trials());
    trials.extend(commands::trials());
    trials.extend(compare::trials());
    trials.extend(counters::trials());
    trials.extend(iptables::trials());
    trials.extend(iptables_cases::trials());
    trials.extend(keep_sending::trials());
    trials.extend(localhost::trials());
    trials.extend(node_addresses::trials());
    trials.extend(top::trials());
    trials.extend(userspace::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test that may fail once, see [`tried_twice`].
fn trial(name: impl Into<String>, test: impl Fn() -> anyhow::Result<()> + Send + 'static) -> Trial {
    let name = name.into();
    Trial::test(name.clone(), move || tried_twice(&name, test))
}
