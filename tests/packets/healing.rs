//! Somebody else edits svcmap's tables on a live node, in many ways: each time the daemon says who it was and puts it
//! right, while clients go on connecting.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Outcome};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{Stack, address};
use crate::common::daemon::Daemon;
use crate::common::damages::{DAMAGES, OBJECTS};
use crate::common::fixture;
use crate::scene::{Scene, ask, target};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![trial("healing::every_edit_is_named_and_put_right", || fixture::in_a_lab(every_edit))]
}

/// How long a client waits for an answer: shorter than it takes TCP to send its first packet again.
const SHORT: Duration = Duration::from_millis(500);

fn every_edit(lab: &mut Lab) -> Result<()> {
    let scene = Scene::new(lab, Stack::Dual, "L1 R2 R3", &["203.0.113.2"])?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let lab = scene.lab;
    let mut daemon = Daemon::start(lab, Stack::Dual, &OBJECTS)?;
    daemon.wait_for(" synced", 1)?;
    let right = listing(lab)?;
    let (stop, asked, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut times = BTreeMap::new();
    thread::scope(|scope| {
        let client = scope.spawn(|| connect_until(lab, &stop, &asked, &failed));
        let healed = (|| {
            for (done, (damage, _)) in DAMAGES.iter().enumerate() {
                let started = Instant::now();
                lab.node().command("nft", &["-f", "-"], damage).with_context(|| damage.to_string())?;
                daemon.wait_for("put right", done + 1).with_context(|| format!("after {damage:?}"))?;
                times.insert(started.elapsed(), *damage);
                daemon.wait_for("nft (process ", done + 1).with_context(|| format!("after {damage:?}"))?;
                let healed = listing(lab)?;
                ensure!(healed == right, "after {damage:?}:\n{healed:#?}\nand not\n{right:#?}");
                ask(lab, address("203.0.113.2", Family::V4), Protocol::Tcp, target("5.6.7.8", 80, Family::V4))
                    .with_context(|| format!("after {damage:?}"))?;
            }
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        client.join().expect("it does not panic");
        healed
    })?;
    let (asked, failed) = (asked.into_inner(), failed.into_inner());
    let (longest, of) = times.last_key_value().context("nothing was damaged")?;
    println!(
        "{} edits; {failed} of {asked} connections failed; the longest repair took {longest:?}: {of:?}",
        DAMAGES.len()
    );
    ensure!(asked > 0, "nobody connected meanwhile");
    daemon.stop()
}

/// Connects as often as it can, and counts what is not answered.
fn connect_until(lab: &Lab, stop: &AtomicBool, asked: &AtomicUsize, failed: &AtomicUsize) {
    let from: IpAddr = address("10.0.0.2", Family::V4);
    while !stop.load(Ordering::Relaxed) {
        // a connection that is translated half of the time breaks, and that is an error
        let outcome = lab.probe(from, Protocol::Tcp, target("172.30.0.41", 80, Family::V4), SHORT);
        asked.fetch_add(1, Ordering::Relaxed);
        failed.fetch_add(usize::from(!matches!(outcome, Ok(Outcome::Answered(_)))), Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
    }
}

/// What `nft` lists, whatever the order of elements.
fn listing(lab: &Lab) -> Result<Vec<String>> {
    let text = lab.node().command("nft", &["list", "ruleset"], "")?;
    let braces = |c: char| c == '{' || c == '}' || c == ',' || c == '\n';
    let mut parts: Vec<String> = text.split(braces).map(|part| part.trim().to_owned()).collect();
    parts.sort_unstable();
    Ok(parts)
}
