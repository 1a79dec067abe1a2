//! Tests in a network namespace of their own, inside a user namespace: no privilege needed, nothing outside touched.

use std::io::Write as _;
use std::process::Command;

const INSIDE: &str = "SVCMAP_TEST_NETNS";
const UNSHARE: [&str; 4] = ["--user", "--map-root-user", "--net", "--"];

/// Runs `body` in fresh user and network namespaces: the test program calls itself there, for the one test of that
/// name. Fails where the machine forbids such namespaces, and says so.
pub fn run(module: &str, test: &str, body: impl FnOnce()) {
    run_through(&[], module, test, body);
}

/// As [`run`], with a command in between that runs the one that it is given.
pub fn run_through(command: &[&str], module: &str, test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    if let Err(why) = available() {
        panic!("{test} cannot run: this machine gives no user and network namespaces: {why}");
    }
    // The module's path begins with the crate's name, the test's does not.
    let path = match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{test}"),
        None => test.to_string(),
    };
    let output = Command::new("unshare")
        .args(UNSHARE)
        .args(command)
        .arg(std::env::current_exe().expect("the test's own path"))
        .args(["--exact", &path, "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    let text = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    // Its closing line is about the one test that ours is, and would be counted beside ours.
    for line in text.lines().filter(|line| !line.starts_with("test result:")) {
        println!("{line}");
        if line.contains("cannot run here: ") {
            // past what keeps the output of tests that pass: `./dev test` tells these at its end
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    assert!(output.status.success(), "{path} failed inside its namespace");
    assert!(text.contains("1 passed"), "{path} did not run inside its namespace");
}

fn available() -> Result<(), String> {
    let output =
        Command::new("unshare").args(UNSHARE).arg("true").output().map_err(|error| format!("unshare: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_string()) }
}

/// Defines a test that runs in a network namespace of its own, see [`run`].
macro_rules! netns_test {
    ($(#[$attribute:meta])* fn $name:ident() $body:block) => {
        #[test]
        $(#[$attribute])*
        fn $name() {
            $crate::common::netns::run(module_path!(), stringify!($name), || $body);
        }
    };
}
