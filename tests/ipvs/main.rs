//! The mode ipvs in a kernel that has IPVS: Debian's, in an emulated machine (`tests/vm/run`), started once for all cases.
//!
//! This program is what runs in the machine, too: it starts itself there, and tells here what became of each case.

#[path = "../common/mod.rs"]
mod common;
mod machine;
mod scenes;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    if machine::is_here() {
        return machine::run(scenes::ALL);
    }
    let arguments = Arguments::from_args();
    let is_list = arguments.list;
    let outcomes = if is_list { Ok(Vec::new()) } else { machine::start() };
    if let Err(machine::Missing(why)) = &outcomes {
        eprintln!("cannot run here: ipvs: {why}");
    }
    let trial = |(name, _): &(&'static str, scenes::Scene)| {
        let outcome = outcomes.as_ref().ok().and_then(|all| all.iter().find(|(known, _)| known == name));
        let outcome =
            outcome.map_or_else(|| Err("the machine ended before it".to_owned()), |(_, outcome)| outcome.clone());
        Trial::test(format!("ipvs::{name}"), move || outcome.map_err(Failed::from)).with_ignored_flag(outcomes.is_err())
    };
    let trials = scenes::ALL.iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
