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
use crate::daemon::Daemon;
use crate::fixture;
use crate::scene::{Scene, ask, target};
use crate::trial;

const OBJECTS: [&str; 7] = [
    "service svc ip=172.30.0.41 port=80@3001 vip=5.6.7.8",
    "slice svc L1 R2 R3",
    "service local ip=172.30.0.42 port=80@3002 vip=5.6.7.9 eTP=Local ranges=203.0.113.0/24",
    "slice local L1 R2",
    "service none ip=172.30.0.43 port=80",
    "service sticky ip=172.30.0.44 port=80 affinity=600",
    "slice sticky L1 R2",
];

/// Edits, each one transaction of `nft`.
const DAMAGES: [&str; 36] = [
    "flush ruleset",
    "delete table ip svcmap",
    "delete table ip6 svcmap",
    "delete table ip svcmap\nadd table ip svcmap",
    "add table ip svcmap { flags dormant; }",
    // elements
    "delete element ip svcmap services { 172.30.0.41 . tcp . 80 }",
    "delete element ip svcmap services { 172.30.0.41 . tcp . 80 }\nadd element ip svcmap services { 172.30.0.41 . tcp . 80 : drop }",
    "add element ip svcmap services { 172.30.0.99 . tcp . 80 comment \"default/ghost:\" : goto pick-3 }",
    "delete element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 0 }",
    "delete element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 0 }\nadd element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 0 : 10.180.9.9 . 8080 }",
    "add element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 77 : 10.180.9.9 . 8080 }",
    "delete element ip svcmap nodeports { tcp . 3001 }",
    "delete element ip svcmap no-endpoints { 172.30.0.43 . tcp . 80 }",
    "delete element ip svcmap short-circuit { 5.6.7.9 . tcp . 80 }",
    "delete element ip svcmap cluster-ips { 172.30.0.41 }",
    "flush map ip svcmap services",
    "flush map ip svcmap endpoints",
    "flush set ip svcmap hairpin",
    "flush set ip svcmap allowed",
    "flush set ip svcmap firewalled",
    "add element ip svcmap nodeport-ips { 198.51.100.0/24 }",
    // chains and rules
    "flush chain ip svcmap dispatch",
    "insert rule ip svcmap dispatch drop",
    "flush chain ip svcmap nat-postrouting",
    "insert rule ip svcmap nat-prerouting accept",
    "flush chain ip svcmap pick-3",
    "add rule ip svcmap verdicts counter accept",
    "add chain ip svcmap guard-prerouting { policy drop; }",
    "add chain ip svcmap nat-prerouting { policy drop; }",
    "delete chain ip svcmap nat-prerouting",
    "delete chain ip svcmap nat-prerouting\nadd chain ip svcmap nat-prerouting { type nat hook prerouting priority 100; }",
    "add chain ip svcmap mine { type filter hook prerouting priority -150; policy drop; }",
    "add chain ip svcmap mine\nadd rule ip svcmap mine drop\ninsert rule ip svcmap dispatch jump mine",
    // maps
    "add chain ip svcmap mine\nadd map ip svcmap vm { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump mine }; }",
    "add set ip svcmap mine { type ipv4_addr; elements = { 10.0.0.2 }; }\ninsert rule ip svcmap dispatch ip saddr @mine drop",
    "delete table ip svcmap\nadd table ip svcmap\nadd map ip svcmap services { type ipv4_addr . inet_service : verdict; }",
];

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
            for (done, damage) in DAMAGES.iter().enumerate() {
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
