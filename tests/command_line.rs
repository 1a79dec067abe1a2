//! How commands end, whatever becomes of their output.

use std::process::{Command, Output, Stdio};

const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/web.yaml");

/// Runs svcmap with a standard output that nobody reads any more.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(arguments)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

#[test]
fn a_reader_that_has_enough_is_no_reason_to_complain() {
    let node = ["--hostname-override", "n1", "--node-ip", "192.168.0.2", "--cluster-cidr", "10.244.0.0/16"];
    for arguments in [
        &["version"][..],
        &["config", "--hostname-override", "n1"],
        &["completions", "bash"],
        &["generate", "--services", "5"],
        &["generate", "--services", "5", "-o", "json"],
        &[&["render", "-f", WEB], &node[..]].concat(),
    ] {
        let output = unread(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        let complaints: Vec<_> = said.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert!(complaints.is_empty(), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}
