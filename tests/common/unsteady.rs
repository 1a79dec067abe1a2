//! Tests that wait for packets and programs, on a machine that may stand still for seconds.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use libtest_mimic::Failed;

/// How many tests of one program may fail once. What is broken makes more of them fail than that, or the same one twice.
const SPARE: usize = 3;

static FAILED: AtomicUsize = AtomicUsize::new(0);

/// Runs a test, and a second time if it fails; that it did is said in a line that `./dev test` repeats at its end. An error is
/// shown with all its causes.
pub fn tried_twice(name: &str, test: impl Fn() -> Result<()>) -> Result<(), Failed> {
    let shown = |error: anyhow::Error| Failed::from(format!("{error:#}"));
    let Err(first) = test() else { return Ok(()) };
    if FAILED.fetch_add(1, Ordering::Relaxed) >= SPARE {
        return Err(shown(first));
    }
    eprintln!("{}", line(name, &format!("{first:#}")));
    test().map_err(shown)
}

fn line(name: &str, error: &dyn Display) -> String {
    format!("unsteady: {name} failed, and is tried again: {}", error.to_string().replace('\n', " | "))
}
