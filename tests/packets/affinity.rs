//! What the kernel learns of clients with session affinity: of several connections at once (behaviour row D1), and when a
//! timeout or a size is edited (rows D8, D9); and that nobody sees how. The cases are in `clients.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use svcmap::config::ProxyConfig;
use svcmap::lab::Lab;
use svcmap::netlink::model::SetRef;
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::rule::{ip_word, nf_family};
use svcmap::objects::Protocol;

use crate::common::cases::{NodeSettings, Stack, address};
use crate::common::fixture;
use crate::scene::{Scene, ask, target};
use crate::trial;

/// A name, and what is done in a lab in one family.
type Test = (&'static str, fn(&mut Lab, Stack) -> Result<()>);

pub fn trials() -> Vec<Trial> {
    let tests: [Test; 6] = [
        ("D01_a_connection_that_is_overtaken_gets_the_same_endpoint", overtaken),
        ("no_packet_leaves_with_a_number_as_its_priority", priorities),
        ("D08_another_timeout_gives_clients_the_life_that_is_left", timeout_edited),
        ("D08_another_timeout_of_many_clients_is_one_of_new_connections", timeout_of_many_edited),
        ("A04_new_connections_keep_an_endpoint_past_the_timeout", kept_past_the_timeout),
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

/// Row D1: another connection of the client is a moment ahead. Rules put in between note what it got.
fn overtaken(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let mut servers = scene.serve(Protocol::Tcp, 8080)?;
    servers.extend(scene.serve(Protocol::Tcp, 8443)?);
    scene.sync(&["service svc affinity=10800", "slice svc#a port=8080 L1 R3", "slice svc#b port=8443 L1 L2"])?;
    let (node, table) = (scene.lab.node(), ip_word(scene.family()));
    let nft = |script: &str| node.command("nft", &["-a", "-f", "-"], script);
    let listed = nft(&format!("list table {table} svcmap"))?;
    let found = |what: &str, rest: &str| -> Result<String> {
        let lines = listed.lines().map(str::trim).filter(|line| line.contains(rest));
        let mut words = lines.filter_map(|line| line.split_once(what)?.1.split_whitespace().next());
        words.next().map(str::to_owned).with_context(|| format!("{what}{rest} in {listed}"))
    };
    let (chain, map) = (found("chain ", "sticky-draw-")?, found("map ", "map affinity-")?);
    let picking = found("# handle ", "numgen random mod 4 map")?;
    let ahead = format!("insert rule {table} svcmap {chain} position {picking}");
    nft(&format!(
        "{ahead} meta priority set 7300:3\n{ahead} update @{map} {{ {table} saddr timeout 1h : meta priority }}"
    ))?;
    let picks: BTreeSet<SocketAddr> = tcp(&scene)?.into_values().collect();
    ensure!(picks.len() == 1, "the other connection's endpoint, and not {picks:?}");
    scene.restart()?; // which puts the rules right
    scene.sync(&["service svc affinity=10800", "slice svc#a port=8080 L1 R3", "slice svc#b port=8443 L1 L2"])?;
    let after: BTreeSet<SocketAddr> = tcp(&scene)?.into_values().collect();
    ensure!(after == picks, "{picks:?} is what was noted, and not {after:?}");
    Ok(())
}

/// Counts packets whose priority is a number, behind where they get one and before they leave.
const WATCH: &str = "table inet watch {
    counter inside { }
    counter outside { }
    chain prerouting { type filter hook prerouting priority dstnat + 1; meta priority & ff00:0 == 7300:0 counter name inside; }
    chain output { type filter hook output priority -99; meta priority & ff00:0 == 7300:0 counter name inside; }
    chain postrouting { type filter hook postrouting priority 200; meta priority & ff00:0 == 7300:0 counter name outside; }
}";

fn priorities(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&[STICKY, SLICE])?;
    scene.lab.node().command("nft", &["-f", "-"], WATCH)?;
    let (to, node) = (target("172.30.0.41", 80, scene.family()), address("192.168.0.2", scene.family()));
    tcp(&scene)?;
    (0..10).try_for_each(|_| ask(scene.lab, node, Protocol::Tcp, to).map(drop))?;
    let counted = scene.lab.node().command("nft", &["list", "table", "inet", "watch"], "")?;
    scene.lab.node().command("nft", &["delete", "table", "inet", "watch"], "")?;
    let packets: Vec<&str> = counted.lines().filter_map(|line| line.trim().strip_prefix("packets ")).collect();
    let [inside, outside] = packets[..] else { anyhow::bail!("two counters in {counted}") };
    ensure!(inside.starts_with("30 "), "one packet of each connection has a number: {inside}");
    ensure!(outside.starts_with("0 "), "packets left with a number: {outside}");
    Ok(())
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

/// Row D3, case A04: a connection every half of the timeout, until it has passed. Where the machine was too slow for that,
/// it says nothing, and is tried again with more time.
fn kept_past_the_timeout(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let to = target("172.30.0.41", 80, scene.family());
    for seconds in [2, 8, 32] {
        scene.sync(&[&format!("service svc affinity={seconds}"), SLICE])?;
        let timeout = Duration::from_secs(seconds);
        let (began, mut picks) = (Instant::now(), Picks::new());
        let mut slowest = Duration::ZERO;
        let mut last: BTreeMap<IpAddr, Instant> = BTreeMap::new();
        let mut moved = Vec::new();
        while began.elapsed() < timeout * 2 {
            for from in (10..30).map(|n| address(&format!("203.0.113.{n}"), scene.family())) {
                let now = Instant::now();
                let by = ask(scene.lab, from, Protocol::Tcp, to)?.by;
                slowest = slowest.max(last.insert(from, now).map_or(Duration::ZERO, |before| before.elapsed()));
                if *picks.entry(from).or_insert(by) != by {
                    moved.push((from, by));
                }
            }
            sleep(timeout / 2);
        }
        if slowest < timeout.mul_f64(0.9) {
            ensure!(moved.is_empty(), "{seconds} s, at most {slowest:?} between connections: {moved:?} of {picks:?}");
            return Ok(());
        }
        eprintln!("{seconds} s say nothing on a machine that lets {slowest:?} pass between connections");
    }
    anyhow::bail!("cannot run here: the machine is too slow for any timeout")
}

/// Row D8: maps for very many clients are not read. The next connection gives a client the new timeout.
fn timeout_of_many_edited(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = scene(lab, stack)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let service = |seconds: u64| format!("service svc affinity={seconds}");
    scene.restart_with(ProxyConfig { affinity_clients: Some(100_000), ..NodeSettings::default().config(stack) })?;
    scene.sync(&[&service(3000), SLICE])?;
    let before = tcp(&scene)?;
    scene.sync(&[&service(9000), SLICE])?;
    let known = learned(&scene)?;
    ensure!(known.len() == 20 && known.iter().all(|(_, left)| *left <= 3_000_000), "they stay: {known:?}");
    let after = tcp(&scene)?;
    ensure!(after == before, "expected {before:?}, seen {after:?}");
    let known = learned(&scene)?;
    ensure!(known.iter().all(|(_, left)| *left > 6_000_000), "refreshed by a connection: {known:?}");
    // with more time left than their own timeout says: kernels refuse to add them again as they are
    scene.restart()?;
    scene.sync(&[&service(9000), SLICE])?;
    let known = learned(&scene)?;
    ensure!(known.len() == 20 && known.iter().all(|(_, left)| *left > 6_000_000), "carried over: {known:?}");
    let after = tcp(&scene)?;
    ensure!(after == before, "expected {before:?}, seen {after:?}");
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
