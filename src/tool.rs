//! Programs of the system that are run where the kernel's own interface is theirs alone.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::thread;

/// Where `ip`, `nft` and `iptables` stand, which is in no ordinary user's path.
const ALSO: &str = "/usr/sbin:/sbin";

/// Runs a program with this standard input, in the network namespace of the calling thread, and waits for it.
///
/// # Errors
/// It cannot be started; `NotFound` where it is not installed.
pub fn run(program: &str, args: &[&str], input: &str) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:{ALSO}"));
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    thread::scope(|scope| {
        // A program that fails early closes its input; its exit status tells that better than our error would.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output()
    })
}

/// As [`run`]; what the program printed, or nothing where it is not installed.
///
/// # Errors
/// What it, or the system, said where it failed.
pub fn output_of(program: &str, args: &[&str], input: &str) -> Result<Option<String>, String> {
    match run(program, args, input) {
        Ok(output) if output.status.success() => Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned())),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// As [`run`], for a program that has to be there and to succeed; what it printed.
///
/// # Errors
/// It is not installed, or failed; with what it said.
pub fn needed(program: &str, args: &[&str], input: &str) -> Result<String, String> {
    output_of(program, args, input)?.ok_or_else(|| format!("{program} is not installed"))
}
