//! The mode ipvs in a kernel that has IPVS: Debian's, in an emulated machine (`tests/vm/run`), started once for all tests.
//!
//! This program is what runs in the machine, too: it starts itself there, and tells here what became of each test.

mod cases;
#[path = "../common/mod.rs"]
mod common;
mod daemon;
mod machine;
mod scenes;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::machine::{Missing, Test, is_here, is_wanted};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut tests = all();
    if !arguments.list {
        tests.retain(|test| is_wanted(test, &arguments));
    }
    if is_here() {
        return machine::run(tests);
    }
    let is_needed = !arguments.list && !tests.is_empty();
    let outcomes = if is_needed { machine::start() } else { Ok(Vec::new()) };
    if let Err(Missing(why)) = &outcomes {
        eprintln!("cannot run here: ipvs: {why}");
    }
    let trial = |Test { name, .. }| {
        let outcome = outcomes.as_ref().ok().and_then(|all| all.iter().find(|(known, _)| *known == name));
        let outcome =
            outcome.map_or_else(|| Err("the machine ended before it".to_owned()), |(_, outcome)| outcome.clone());
        Trial::test(name, move || outcome.map_err(Failed::from)).with_ignored_flag(outcomes.is_err())
    };
    let trials = tests.into_iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// All tests.
fn all() -> Vec<Test> {
    let scenes = scenes::ALL.iter().chain(daemon::ALL);
    let test = |(name, scene): &(&str, scenes::Scene)| {
        let scene = *scene;
        Test { name: format!("emulated::{name}"), alone: true, always: true, run: Box::new(scene) }
    };
    scenes.map(test).chain(cases::tests()).collect()
}
