//! The behavioural cases through the chains of iptables: kube-proxy's layout decides as the maps do, but for the rows that say
//! why not.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use svcmap::iptables::Programmer;
use svcmap::lab::Lab;

use crate::common::cases::{Case, Look, Stack};
use crate::common::fixture;
use crate::common::flows::{check, listens, places};
use crate::common::proxy::Proxy;
use crate::iptables::{clear, missing};
use crate::trial;

/// Both families at once: what differs between them is told by the ring of the maps.
const STACK: Stack = Stack::Dual;

/// A trial for each case that has packets to send.
pub fn trials() -> Vec<Trial> {
    let missing = missing("nft").err();
    if let Some(why) = &missing {
        eprintln!("cannot run here: cases through iptables: {why:#}");
    }
    let has_packets = |case: &Case| matches!(case.look(STACK), Look::Flows(_) | Look::Nothing);
    let is_apt = |case: &Case| has_packets(case) && case.excluded_from("packets").is_none();
    let trial = |case: Case| {
        let why = case.excluded_from("iptables").map(str::to_owned);
        let case = Arc::new(case);
        let name = format!("iptables::cases::{}", case.id);
        let ignored = missing.is_some() || why.is_some();
        trial(name, move || fixture::in_a_lab(|lab| run(&case, lab))).with_ignored_flag(ignored)
    };
    Case::all().into_iter().filter(is_apt).map(trial).collect()
}

fn run(case: &Case, lab: &mut Lab) -> Result<()> {
    let flows = match case.look(STACK) {
        Look::Flows(flows) => flows,
        _ => Vec::new(),
    };
    lab.settle(&places(case, STACK, &flows))?;
    let last = case.steps.len() - 1;
    let mut proxy = Proxy::of(Programmer::default(), case.config(STACK));
    for step in 0..=last {
        let snapshot = case.snapshot(step, STACK);
        lab.node().run(|| proxy.sync(snapshot)).with_context(|| format!("step {step}"))?;
    }
    let rules = lab.node().command("iptables-save", &[], "")?;
    if flows.is_empty() {
        ensure!(!rules.contains("KUBE-SVC-"), "{}\nexpected no Service, seen\n{rules}", case.row);
    }
    let _servers = lab.serve(&listens(&case.snapshot(last, STACK), &flows))?;
    let packets = flows.iter().map(|flow| check(lab, flow));
    let wrong: Vec<String> = packets.filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    if !wrong.is_empty() {
        let objects = case.manifests(last, STACK);
        bail!("{}\n{}\nThe objects:\n{objects}\nThe rules of IPv4:\n{rules}", case.row, wrong.join("\n"));
    }
    clear(lab.node())
}
