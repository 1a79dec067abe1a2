//! The behavioural cases through virtual servers: what IPVS cannot say has its own outcome in `ipvs.faults`, and everything else
//! is as in the other modes.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use svcmap::ipvs::{Programmer, Settings};
use svcmap::lab::Lab;

use crate::common::cases::{Case, Faults, Look, Stack};
use crate::common::fixture;
use crate::common::flows::{check_patiently, listens, places};
use crate::common::proxy::Proxy;
use crate::machine::Test;
use crate::scenes::{SHORT, ipvsadm};

/// Of the cases in which IPVS does as the other modes, one in so many is a sample.
const SAMPLE: usize = 6;

/// A test for each case that has packets to send: of one family each, in turn, since what differs between them is told by the
/// ring of the maps, and an emulated machine takes its time. Where no test is asked for by name, those that IPVS has faults in
/// are run, and a sample of the others; `cargo test --test ipvs cases` runs them all.
pub fn tests() -> Vec<Test> {
    let faults = Arc::new(Faults::read("ipvs.faults"));
    let cases: Vec<Case> = Case::all();
    faults.check(&cases);
    let has_packets = |case: &Case| matches!(case.look(Stack::Dual), Look::Flows(_) | Look::Nothing);
    let is_apt = |case: &Case| has_packets(case) && case.excluded_from("packets").is_none();
    let test = |(at, (case, stack)): (usize, (Case, Stack))| {
        let faults = faults.clone();
        let always = faults.has(&case) || at % SAMPLE == 0;
        let name = format!("emulated::cases::{}::{}", case.id, format!("{stack:?}").to_lowercase());
        Test {
            name,
            alone: false,
            always,
            run: Box::new(move || fixture::in_a_lab(|lab| run(&case, stack, &faults, lab))),
        }
    };
    let stacks = [Stack::V4, Stack::V6].into_iter().cycle();
    cases.into_iter().filter(is_apt).zip(stacks).enumerate().map(test).collect()
}

/// The node has the virtual servers of the case before, which are not the ones wanted: the proxy has to find out what to change.
fn run(case: &Case, stack: Stack, faults: &Faults, lab: &mut Lab) -> Result<()> {
    let flows = faults.flows(case, stack);
    lab.settle(&places(case, stack, &flows))?;
    let last = case.steps.len() - 1;
    let programmer = lab.node().run(|| Programmer::open(Settings::default()))?;
    let mut proxy = Proxy::of(programmer, case.config(stack));
    for step in 0..=last {
        let snapshot = case.snapshot(step, stack);
        lab.node().run(|| proxy.sync(snapshot)).with_context(|| format!("step {step}"))?;
    }
    if flows.is_empty() {
        let servers = ipvsadm(lab, &["-Ln"])?;
        ensure!(!servers.contains("Masq"), "{}\nexpected no Service, seen\n{servers}", case.row);
    }
    let _servers = lab.serve(&listens(&case.snapshot(last, stack), &flows))?;
    let packets = flows.iter().map(|flow| check_patiently(lab, flow, SHORT));
    let wrong: Vec<String> = packets.filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    if !wrong.is_empty() {
        let servers = ipvsadm(lab, &["-Ln"])?;
        let objects = case.manifests(last, stack);
        bail!("{}\n{}\nThe objects:\n{objects}\nThe virtual servers:\n{servers}", case.row, wrong.join("\n"));
    }
    Ok(())
}
