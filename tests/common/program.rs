//! The program itself, as a user runs it.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs svcmap for the node n1, with a text on its standard input; its status, output and messages.
pub fn with_input(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(arguments)
        .args(["--hostname-override", "n1", "--node-ip", "192.168.0.2", "--cluster-cidr", "10.244.0.0/16"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
