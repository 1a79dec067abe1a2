//! What the kernel has learned of clients with session affinity, when a timeout or a size is edited (behaviour rows D8,
//! D9). The cases are in `clients.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use svcmap::config::ProxyConfig;
use svcmap::lab::Lab;
use svcmap::netlink::model::SetRef;
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::rule::nf_family;
use svcmap::objects::Protocol;

use crate::common::cases::{NodeSettings, Stack, address};
use crate::fixture;
use crate::scene::{Scene, ask, target};
use crate::trial;

/// A name, and what is done in a lab in one family.
type Test = (&'static str, fn(&mut Lab, Stack) -> Result<()>);

pub fn trials() -> Vec<Trial> {
    let tests: [Test; 2] = [
        ("D08_another_timeout_gives_clients_the_life_that_is_left", timeout_edited),
        ("D09_another_size_forgets_nobody", resized),
    ];
    let in_family = |(name, test): Test| {
        [Stack::V4, Stack::V6].map(|stack| {
            let name = format!("affinity::{name}::{}", format!("{stack:?}").to_lowercase());
            trial(name, move || fixture::in_a_lab(|lab| test(lab, stack)))
        })
    };
    tests.into_iter().flat_map(in_family).collect()
}

const ENDPOINTS: &str = "L1 L2 R3";
const SLICE: &str = "slice svc L1 L2 R3";
const STICKY: &str = "service svc port=80@3001 vip=5.6.7.8 affinity=10800";

/// The clients' endpoints.
type Picks = BTreeMap<IpAddr, SocketAddr>;

fn scene(lab: &mut Lab, stack: Stack) -> Result<Scene<'_>> {
    let clients: Vec<String> = (10..30).map(|n| format!("203.0.113.{n}")).collect();
    Scene::new(lab, stack, ENDPOINTS, &clients.iter().map(String::as_str).collect::<Vec<_>>())
}

/// One connection of each client.
fn tcp(scene: &Scene) -> Result<Picks> {
    let to = target("172.30.0.41", 80, scene.family());
    let clients = (10..30).map(|n| address(&format!("203.0.113.{n}"), scene.family()));
    clients.map(|from| Ok((from, ask(scene.lab, from, Protocol::Tcp, to)?.by))).collect()
}

/// What the kernel has learned: its timeout and what is left of it, in milliseconds.
fn learned(scene: &Scene) -> Result<Vec<(u64, u64)>> {
    let nf = nf_family(scene.family());
    scene.lab.node().run(|| {
        let mut connection = Connection::open(CodecKind::Native)?;
        let mut learned = Vec::new();
        for set in connection.sets(nf, "svcmap")?.into_iter().filter(|set| set.name.starts_with("affinity-")) {
            let set = SetRef { family: nf, table: set.table, name: set.name };
            let entries = connection.elements(&set)?.into_iter();
            learned.extend(entries.filter_map(|entry| Some((entry.timeout_ms?, entry.expiration_ms?))));
        }
        Ok(learned)
    })
}

/// Row D8.
fn timeout_edited(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let service = |seconds: u64| format!("service svc affinity={seconds}");
    scene.sync(&[&service(1000), SLICE])?;
    let before = tcp(&scene)?;
    sleep(Duration::from_millis(1300));
    for seconds in [500, 2000] {
        scene.sync(&[&service(seconds), SLICE])?;
        let learned = learned(&scene)?;
        ensure!(learned.len() == 20, "20 clients, seen {}", learned.len());
        let right = |(timeout, left): &(u64, u64)| {
            // learned more than a second ago, and on no machine minutes
            *timeout == seconds * 1000 && *left <= seconds * 1000 - 1200 && *left > seconds * 1000 - 400_000
        };
        ensure!(learned.iter().all(right), "{seconds} s: {learned:?}");
    }
    scene.restart()?;
    scene.sync(&[&service(3000), SLICE])?;
    ensure!(learned(&scene)?.iter().all(|(timeout, _)| *timeout == 3_000_000), "edited while svcmap was away");
    let after = tcp(&scene)?;
    ensure!(after == before, "within every timeout: expected {before:?}, seen {after:?}");
    sleep(Duration::from_millis(1300));
    scene.sync(&[&service(1), SLICE])?;
    let left = learned(&scene)?;
    ensure!(left.is_empty(), "over by now: {left:?}");
    tcp(&scene)?;
    Ok(())
}

/// Rows D6, D9.
fn resized(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&[STICKY, SLICE])?;
    let before = tcp(&scene)?;
    for affinity_clients in [Some(100_000), Some(70_000), None] {
        scene.restart_with(ProxyConfig { affinity_clients, ..NodeSettings::default().config(stack) })?;
        let applied = scene.sync(&[STICKY, SLICE])?;
        ensure!(applied.transactions == 1, "made again in {applied:?}");
        let after = tcp(&scene)?;
        ensure!(after == before, "{affinity_clients:?}: expected {before:?}, seen {after:?}");
    }
    Ok(())
}
