//! In the machine and out of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

use anyhow::Result;
use libtest_mimic::Arguments;

use crate::common::unsteady::tried_twice;

/// Says in the machine that this is it.
const HERE: &str = "SVCMAP_IN_THE_MACHINE";
/// The status of `tests/vm/run` where there was no machine.
const NO_MACHINE: i32 = 125;
/// How many tests of those that do not need the machine for themselves run at once: most of the time they wait.
const AT_ONCE: usize = 8;

/// One test, run in the machine.
pub struct Test {
    /// Its name.
    pub name: String,
    /// Whether nothing else runs meanwhile.
    pub alone: bool,
    /// Whether it is run also where no test is asked for by name.
    pub always: bool,
    /// What is done.
    pub run: Box<dyn Fn() -> Result<()> + Send>,
}

/// Why there is no machine.
pub struct Missing(pub String);

/// What became of a test: its name, and what went wrong.
pub type Outcome = (String, Result<(), String>);

/// Whether this is the program in the machine.
pub fn is_here() -> bool {
    std::env::var_os(HERE).is_some()
}

/// Whether a test is one of those that were asked for.
pub fn is_wanted(test: &Test, arguments: &Arguments) -> bool {
    let is_meant = |word: &String| if arguments.exact { test.name == *word } else { test.name.contains(word.as_str()) };
    arguments.filter.as_ref().map_or(test.always, is_meant) && !arguments.skip.iter().any(is_meant)
}

/// Runs the tests, and says what became of each: a line each, the newlines in it written as `\n`.
pub fn run(tests: Vec<Test>) -> ExitCode {
    let (alone, others): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| test.alone);
    alone.into_iter().for_each(|test| try_out(&test));
    let others = Mutex::new(others.into_iter());
    let next = || others.lock().expect("nothing panics with it").next();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| std::iter::from_fn(next).for_each(|test| try_out(&test)));
        }
    });
    ExitCode::SUCCESS
}

fn try_out(test: &Test) {
    let result = catch_unwind(AssertUnwindSafe(|| tried_twice(&test.name, &test.run)));
    let error = match result {
        Ok(Ok(())) => None,
        Ok(Err(failed)) => failed.message().map(str::to_owned),
        Err(_) => Some("panicked; see standard error".to_owned()),
    };
    println!("{}\t{}", test.name, error.unwrap_or_default().replace('\n', "\\n"));
}

/// Starts the machine with the arguments of this program, and waits for the outcomes.
pub fn start() -> Result<Vec<Outcome>, Missing> {
    let program = std::env::current_exe().expect("a program knows where it stands");
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vm/run"))
        .args(["--timeout", "1800", "--", "env", &format!("{HERE}=1")])
        .arg(program)
        .args(std::env::args_os().skip(1))
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
