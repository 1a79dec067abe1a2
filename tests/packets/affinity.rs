//! Session affinity (behaviour rows D, cases A): twenty clients connect, and who answers each is remembered.
//!
//! Twenty, since an endpoint that is picked anew may by chance be the one of before; that all twenty are is out of the
//! question.

use std::collections::{BTreeMap, BTreeSet};
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
    let tests: [Test; 11] = [
        ("A01_a_client_stays_with_its_endpoint", stays),
        ("A03_after_the_timeout_it_may_get_another", forgets),
        ("A04_every_new_connection_begins_the_time_anew", refreshes),
        ("A05_it_can_be_switched_on_and_off", switches),
        ("A06_a_client_of_an_endpoint_that_left_gets_another", endpoint_leaves),
        ("A07_local_policy_stays_within_the_node", stays_local),
        ("D08_another_timeout_gives_clients_the_life_that_is_left", timeout_edited),
        ("D09_another_size_forgets_nobody", resized),
        ("A09_ports_are_independent", ports),
        ("A10_all_addresses_of_a_port_lead_to_the_same_endpoint", addresses),
        ("A11_a_restart_forgets_nobody", restarts),
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
fn round(scene: &Scene, protocol: Protocol, to: &str, port: u16) -> Result<Picks> {
    let family = scene.family();
    let clients = (10..30).map(|n| address(&format!("203.0.113.{n}"), family));
    clients.map(|from| Ok((from, ask(scene.lab, from, protocol, target(to, port, family))?.by))).collect()
}

fn tcp(scene: &Scene) -> Result<Picks> {
    round(scene, Protocol::Tcp, "172.30.0.41", 80)
}

/// The first picks, and the same in the next three rounds.
fn sticky_picks(scene: &Scene, protocol: Protocol, to: &str, port: u16) -> Result<Picks> {
    let first = round(scene, protocol, to, port)?;
    for _ in 0..3 {
        let again = round(scene, protocol, to, port)?;
        ensure!(again == first, "{protocol}/{to}:{port}: expected the same endpoints again, {first:?}, seen {again:?}");
    }
    Ok(first)
}

fn stays(lab: &mut Lab, stack: Stack) -> Result<()> {
    for (protocol, name) in [(Protocol::Tcp, "TCP"), (Protocol::Udp, "UDP"), (Protocol::Sctp, "SCTP")] {
        let mut scene = scene(lab, stack)?;
        let _servers = scene.serve(protocol, 8080)?;
        let service = format!("service svc port=80/{name} affinity=10800");
        scene.sync(&[&service, &format!("slice svc port=8080/{name} {ENDPOINTS}")])?;
        let picks = sticky_picks(&scene, protocol, "172.30.0.41", 80)?;
        let different: BTreeSet<_> = picks.values().collect();
        ensure!(different.len() > 1, "case A02, {name}: all clients have the endpoint {different:?}");
    }
    Ok(())
}

fn forgets(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&["service svc affinity=1", SLICE])?;
    let before = tcp(&scene)?;
    sleep(Duration::from_millis(1500));
    let after = tcp(&scene)?;
    ensure!(after != before, "after the timeout, all clients still have the endpoints {before:?}");
    Ok(())
}

fn refreshes(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&["service svc affinity=3", SLICE])?;
    let before = tcp(&scene)?;
    for second in 1..=5 {
        sleep(Duration::from_secs(1));
        let after = tcp(&scene)?;
        ensure!(after == before, "after {second} s of connecting: expected {before:?}, seen {after:?}");
    }
    Ok(())
}

fn switches(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let spreads = |scene: &Scene| {
        let (first, second) = (tcp(scene)?, tcp(scene)?);
        ensure!(first != second, "without affinity, all clients got the same endpoints again: {first:?}");
        Ok(())
    };
    scene.sync(&["service svc", SLICE])?;
    spreads(&scene)?;
    scene.sync(&["service svc affinity=10800", SLICE])?;
    let first = sticky_picks(&scene, Protocol::Tcp, "172.30.0.41", 80)?;
    scene.sync(&["service svc", SLICE])?;
    spreads(&scene)?;
    // What was learned before is of no use now: some of it may have left meanwhile, and nobody has kept account.
    scene.sync(&["service svc affinity=10800", SLICE])?;
    let second = sticky_picks(&scene, Protocol::Tcp, "172.30.0.41", 80)?;
    ensure!(first != second, "what was learned before it was switched off is still known: {first:?}");
    // Nor is it when the Service was away, and came back with fewer endpoints.
    scene.sync(&[])?;
    scene.sync(&["service svc affinity=10800", "slice svc L1 L2"])?;
    let third = sticky_picks(&scene, Protocol::Tcp, "172.30.0.41", 80)?;
    let gone = target("10.180.0.3", 8080, scene.family());
    ensure!(third.values().all(|endpoint| *endpoint != gone), "{gone} is not an endpoint any more: {third:?}");
    // Another timeout (row D8) forgets nobody who is still within it.
    scene.sync(&["service svc affinity=3600", SLICE])?;
    sticky_picks(&scene, Protocol::Tcp, "172.30.0.41", 80)?;
    Ok(())
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
        ensure!(learned.len() == 40, "20 clients in two maps, seen {}", learned.len());
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

/// Row D4.
fn endpoint_leaves(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&[STICKY, SLICE])?;
    let before = sticky_picks(&scene, Protocol::Tcp, "5.6.7.8", 80)?;
    scene.sync(&[STICKY, "slice svc L1 R3"])?;
    let after = sticky_picks(&scene, Protocol::Tcp, "5.6.7.8", 80)?;
    let gone = target("10.180.0.2", 8080, scene.family());
    for (client, endpoint) in &before {
        let now = after[client];
        ensure!(now != gone, "{client} still gets {gone}, which left");
        ensure!(*endpoint == gone || now == *endpoint, "{client} had {endpoint}, which is still there, and got {now}");
    }
    // Unready for a moment, and back: who got another endpoint meanwhile stays there.
    scene.sync(&[STICKY, SLICE])?;
    let back = sticky_picks(&scene, Protocol::Tcp, "5.6.7.8", 80)?;
    ensure!(back == after, "an endpoint that came back took clients: expected {after:?}, seen {back:?}");
    Ok(())
}

/// Row D5.
fn stays_local(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&["service svc vip=5.6.7.8 eTP=Local affinity=10800", SLICE])?;
    // Through the ClusterIP, a client may have an endpoint on the other node; not through the VIP.
    sticky_picks(&scene, Protocol::Tcp, "172.30.0.41", 80)?;
    let picks = sticky_picks(&scene, Protocol::Tcp, "5.6.7.8", 80)?;
    let remote = target("10.180.0.3", 8080, scene.family());
    ensure!(picks.values().all(|endpoint| *endpoint != remote), "the other node's {remote} is among {picks:?}");
    let different: BTreeSet<_> = picks.values().collect();
    ensure!(different.len() == 2, "of two local endpoints, the clients have {different:?}");
    Ok(())
}

fn ports(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = (scene.serve(Protocol::Tcp, 8080)?, scene.serve(Protocol::Tcp, 8443)?);
    let service = "service svc port=http:80,https:443 affinity=10800";
    scene.sync(&[service, "slice svc port=http:8080,https:8443 L1 L2 R3"])?;
    let http = sticky_picks(&scene, Protocol::Tcp, "172.30.0.41", 80)?;
    let https = sticky_picks(&scene, Protocol::Tcp, "172.30.0.41", 443)?;
    ensure!(https.values().all(|endpoint| endpoint.port() == 8443), "port 443 leads to {https:?}");
    let pods = |picks: &Picks| picks.values().map(SocketAddr::ip).collect::<Vec<_>>();
    ensure!(pods(&http) != pods(&https), "both ports lead every client to the same pod: {http:?}");
    Ok(())
}

/// Row D1.
fn addresses(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&[STICKY, SLICE])?;
    let picks = sticky_picks(&scene, Protocol::Tcp, "192.168.0.2", 3001)?;
    for (to, port) in [("172.30.0.41", 80), ("5.6.7.8", 80)] {
        let others = round(&scene, Protocol::Tcp, to, port)?;
        ensure!(others == picks, "the node port leads to {picks:?}, {to}:{port} to {others:?}");
    }
    Ok(())
}

/// Row D6.
fn restarts(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&[STICKY, SLICE])?;
    let before = tcp(&scene)?;
    scene.restart()?;
    let applied = scene.sync(&[STICKY, SLICE])?;
    ensure!(applied.messages == 0, "a restart without any change sent {applied:?}");
    let after = tcp(&scene)?;
    ensure!(after == before, "expected {before:?}, seen {after:?}");
    // Another Service has nothing to do with it.
    scene.sync(&[STICKY, SLICE, "service other ip=172.30.0.43", "slice other L1"])?;
    let later = tcp(&scene)?;
    ensure!(later == before, "after another Service came: expected {before:?}, seen {later:?}");
    Ok(())
}
