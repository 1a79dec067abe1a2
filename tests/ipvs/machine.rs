//! In the machine and out of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};

use crate::scenes::Scene;

/// Says in the machine that this is it.
const HERE: &str = "SVCMAP_IN_THE_MACHINE";
/// The status of `tests/vm/run` where there was no machine.
const NO_MACHINE: i32 = 125;

/// Why there is no machine.
pub struct Missing(pub String);

/// What became of a case: its name, and what went wrong.
pub type Outcome = (String, Result<(), String>);

/// Whether this is the program in the machine.
pub fn is_here() -> bool {
    std::env::var_os(HERE).is_some()
}

/// Runs all cases, and says what became of each: a line each, the newlines in it written as `\n`.
pub fn run(scenes: &[(&'static str, Scene)]) -> ExitCode {
    for (name, scene) in scenes {
        let result = catch_unwind(AssertUnwindSafe(scene));
        let error = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some("panicked; see standard error".to_owned()),
        };
        println!("{name}\t{}", error.unwrap_or_default().replace('\n', "\\n"));
    }
    ExitCode::SUCCESS
}

/// Starts the machine, and waits for the outcomes.
pub fn start() -> Result<Vec<Outcome>, Missing> {
    let program = std::env::current_exe().expect("a program knows where it stands");
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vm/run"))
        .args(["--timeout", "600", "--", "env", &format!("{HERE}=1")])
        .arg(program)
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| Missing(format!("tests/vm/run: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_MACHINE) {
        return Err(Missing(said.trim().to_owned()));
    }
    eprint!("{said}");
    let line = |line: &str| {
        let (name, error) = line.split_once('\t')?;
        let error = error.replace("\\n", "\n");
        Some((name.to_owned(), if error.is_empty() { Ok(()) } else { Err(error) }))
    };
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(line).collect())
}
