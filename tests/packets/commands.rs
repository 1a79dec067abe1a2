//! The program itself: what `apply` programs is what packets meet, and `cleanup` takes it away.

use std::process::Command;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Listen, Outcome};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{LOCAL_NODE, Stack, address};
use crate::common::fixture;
use crate::scene::{PATIENCE, Scene, document, target};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("commands::apply_diff_and_cleanup", || fixture::in_a_lab(apply_diff_and_cleanup)),
        trial("commands::demo", demo),
    ]
}

const FOREIGN: &str = "table ip admin { chain input { type filter hook input priority 0; tcp dport 22 accept; }; }\n";

fn svcmap(lab: &Lab, arguments: &[&str], input: &str) -> Result<String> {
    let node = ["--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.0.0.0/8,fd00:5c::a00:0/104"];
    let node = if arguments.contains(&"-f") { &node[..] } else { &[] };
    lab.node().command(env!("CARGO_BIN_EXE_svcmap"), &[arguments, node].concat(), input)
}

fn apply_diff_and_cleanup(lab: &mut Lab) -> Result<()> {
    let scene = Scene::new(lab, Stack::Dual, "L1 R2", &["203.0.113.2"])?;
    let lab = scene.lab;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let to = Family::BOTH.map(|family| target("172.30.0.41", 80, family));
    let _untouched = lab.serve(&to.map(|address| Listen { protocol: Protocol::Tcp, address }))?;
    let who_answers = || -> Result<[String; 2]> {
        let ask = |family: Family| lab.probe(address("10.0.0.2", family), Protocol::Tcp, to[family as usize], PATIENCE);
        let name = |outcome| match outcome {
            Outcome::Answered(answer) => answer.by.ip().to_string(),
            other => other.to_string(),
        };
        Ok([name(ask(Family::V4)?), name(ask(Family::V6)?)])
    };
    let untouched = to.map(|address| address.ip().to_string());
    ensure!(who_answers()? == untouched, "before apply, somebody else than the address itself answers");
    lab.node().command("nft", &["-f", "-"], FOREIGN)?;

    let objects = document(Stack::Dual, &["service svc", "slice svc L1"]);
    let said = svcmap(lab, &["apply", "-f", "-"], &objects)?;
    ensure!(said.contains("1 service,"), "apply says {said:?}");
    let l1 = Family::BOTH.map(|family| address("10.180.0.1", family).to_string());
    ensure!(who_answers()? == l1, "after apply, {:?} answer", who_answers()?);
    svcmap(lab, &["diff", "-f", "-"], &objects)?;

    let changed = document(Stack::Dual, &["service svc", "slice svc R2"]);
    ensure!(svcmap(lab, &["diff", "-f", "-"], &changed).is_err(), "diff sees no difference between two endpoints");
    svcmap(lab, &["apply", "-f", "-"], &changed)?;
    let r2 = Family::BOTH.map(|family| address("10.180.0.2", family).to_string());
    ensure!(who_answers()? == r2, "after the second apply, {:?} answer", who_answers()?);

    ensure!(svcmap(lab, &["apply", "-f", "-"], "kind: [\n").is_err(), "apply takes a document that is none");
    ensure!(who_answers()? == r2, "after an apply that failed, {:?} answer", who_answers()?);

    svcmap(lab, &["cleanup"], "")?;
    ensure!(who_answers()? == untouched, "after cleanup, {:?} answer", who_answers()?);
    let rules = lab.node().command("nft", &["list", "ruleset"], "")?;
    ensure!(rules.contains("table ip admin") && !rules.contains("svcmap"), "cleanup left\n{rules}");
    lab.node().command("nft", &["delete", "table", "ip", "admin"], "")?;
    Ok(())
}

/// The demonstration makes namespaces of its own, also from within ours.
fn demo() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap")).args(["demo", "--requests", "40"]).output()?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {errors}\n{said}", output.status);
    for part in ["map services {", "goto cluster-3", "chain pick-3 {", "map affinity-", "web-1", "web-2", "web-3"] {
        ensure!(said.contains(part), "no {part:?} in\n{said}");
    }
    ensure!(said.ends_with("\n400 of 400 requests were answered by an endpoint of their Service.\n"), "{said}");
    Ok(())
}
