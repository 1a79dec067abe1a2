//! The behavioural cases, each connection of them made for real.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use svcmap::lab::Lab;

use crate::common::cases::{Case, Look, Stack};
use crate::common::fixture;
use crate::common::flows::{check, listens, places};
use crate::common::proxy::Proxy;
use crate::traced;
use crate::trial;

/// A trial for each case and stack that has packets to send.
pub fn trials() -> Vec<Trial> {
    // What a change costs is not seen in packets, and has no expectation for them.
    let has_packets = |case: &Case| matches!(case.look(Stack::V4), Look::Flows(_) | Look::Nothing);
    Case::all().into_iter().filter(has_packets).map(Arc::new).flat_map(in_all_stacks).collect()
}

fn in_all_stacks(case: Arc<Case>) -> [Trial; 3] {
    let why = case.excluded_from("packets");
    if let Some(why) = why {
        eprintln!("cannot run here: case {}: {why}", case.id);
    }
    let ignored = why.is_some();
    Stack::ALL.map(|stack| {
        let name = format!("cases::{}::{}", case.id, format!("{stack:?}").to_lowercase());
        let case = case.clone();
        trial(name, move || fixture::in_a_lab(|lab| run(&case, stack, lab))).with_ignored_flag(ignored)
    })
}

fn run(case: &Case, stack: Stack, lab: &mut Lab) -> Result<()> {
    let last = case.steps.len() - 1;
    let snapshot = case.snapshot(last, stack);
    let Look::Flows(flows) = case.look(stack) else {
        return nothing_is_programmed(case, stack, lab);
    };
    ensure!(!flows.is_empty(), "no packet to send");
    lab.settle(&places(case, stack, &flows))?;
    let mut proxy = start(case, stack, lab)?;
    for step in 0..=last {
        proxy.sync(case.snapshot(step, stack)).with_context(|| format!("step {step}"))?;
    }
    let _servers = lab.serve(&listens(&snapshot, &flows))?;
    let packets = flows.iter().map(|flow| check(lab, flow));
    let mut wrong: Vec<String> = packets.filter_map(Result::err).map(|e| format!("{e:#}")).collect();
    if wrong.is_empty() {
        // the tracer has to say the same of the rules that the packets met
        let (ruleset, node) = (traced::ruleset(lab)?, traced::node(lab)?);
        let traces = flows.iter().map(|flow| traced::check(lab, &ruleset, &node, flow));
        wrong.extend(traces.filter_map(Result::err).map(|e| format!("{e:#}")));
        let explained = flows.iter().map(|flow| traced::check_explanation(lab, &ruleset, flow));
        wrong.extend(explained.filter_map(Result::err).map(|e| format!("{e:#}")));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let rules = lab.node().command("nft", &["list", "ruleset"], "").unwrap_or_else(|error| format!("{error:#}"));
    bail!("{}\n{}\nThe objects:\n{}\nThe rules:\n{rules}", case.row, wrong.join("\n"), case.manifests(last, stack))
}

/// The steps leave no element of a map or set that stands for a Service.
fn nothing_is_programmed(case: &Case, stack: Stack, lab: &Lab) -> Result<()> {
    let mut proxy = start(case, stack, lab)?;
    for step in 0..case.steps.len() {
        proxy.sync(case.snapshot(step, stack))?;
    }
    let rules = lab.node().command("nft", &["list", "ruleset"], "")?;
    let of_services: Vec<&str> = rules.lines().filter(|line| line.contains("comment \"ns/")).collect();
    ensure!(of_services.is_empty(), "{}\nexpected no Service, seen\n{}", case.row, of_services.join("\n"));
    ensure!(rules.contains("table ip svcmap"), "there is no table at all:\n{rules}");
    Ok(())
}

/// In one family, the node has no rules yet. In two, it has those of the case before, which are not the ones wanted: the
/// proxy has to find out what to change.
fn start(case: &Case, stack: Stack, lab: &Lab) -> Result<Proxy> {
    let mut proxy = Proxy::start(lab, case.config(stack))?;
    if stack != Stack::Dual {
        proxy.clean()?;
    }
    Ok(proxy)
}
