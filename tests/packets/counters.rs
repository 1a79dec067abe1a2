//! Counters of new connections: what they count, and what they outlive.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use svcmap::config::ProxyConfig;
use svcmap::lab::{Lab, Outcome};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::names::Map;
use svcmap::nftables::transaction::set_ref;
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{NodeSettings, Stack, address};
use crate::common::fixture;
use crate::scene::{PATIENCE, Scene, ask, target};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("counters::every_new_connection_is_counted_once", || fixture::in_a_lab(counted_once)),
        trial("counters::counts_outlive_changes_and_restarts", || fixture::in_a_lab(outlive)),
        trial("counters::switching_them_loses_no_connection", || fixture::in_a_lab(switched)),
    ]
}

const ENDPOINTS: &str = "L1 L2 R3 R4";
const SERVICE: &str = "service svc port=80@3001 vip=5.6.7.8";
const LOCAL: &str = "service local ip=172.30.0.42 vip=5.6.7.9 eTP=Local affinity=10800";

fn config(counters: bool) -> ProxyConfig {
    ProxyConfig { counters, ..NodeSettings::default().config(Stack::Dual) }
}

fn scene(lab: &mut Lab) -> Result<Scene<'_>> {
    let mut scene = Scene::new(lab, Stack::Dual, ENDPOINTS, &["203.0.113.2"])?;
    scene.restart_with(config(true))?;
    Ok(scene)
}

/// Packets counted for each element of a family, under the Service port's name and its own key.
fn counts(lab: &Lab, family: Family) -> Result<BTreeMap<String, u64>> {
    lab.node().run(|| {
        let mut connection = Connection::open(CodecKind::Native)?;
        let mut counts = BTreeMap::new();
        for map in [Map::Connections, Map::NodePortConnections] {
            for element in connection.elements(&set_ref(family, map))? {
                let name = element.comment.as_deref().unwrap_or_default();
                let port = u16::from_be_bytes(element.key[element.key.len() - 4..][..2].try_into()?);
                let key = match (map, family) {
                    (Map::NodePortConnections, _) => port,
                    (_, Family::V4) => element.key[3].into(),
                    (_, Family::V6) => u16::from_be_bytes(element.key[14..16].try_into()?),
                };
                counts.insert(format!("{name} {key}"), element.counter.context("an element without a counter")?.0);
            }
        }
        Ok(counts)
    })
}

fn connect(scene: &Scene, family: Family, from: &str, to: &str, port: u16, times: usize) -> Result<()> {
    for _ in 0..times {
        ask(scene.lab, address(from, family), Protocol::Tcp, target(to, port, family))?;
    }
    Ok(())
}

/// A TCP connection has some ten packets; the counter sees the first.
fn counted_once(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&[SERVICE, &format!("slice svc {ENDPOINTS}"), LOCAL, "slice local L1 R3"])?;
    let zeros = counts(scene.lab, Family::V4)?;
    ensure!(zeros.len() == 5 && zeros.values().all(|count| *count == 0), "before any connection: {zeros:?}");
    for family in Family::BOTH {
        connect(&scene, family, "10.0.0.2", "172.30.0.41", 80, 3)?;
        connect(&scene, family, "203.0.113.2", "5.6.7.8", 80, 5)?;
        connect(&scene, family, "203.0.113.2", "192.168.0.2", 3001, 7)?;
        connect(&scene, family, "192.168.0.2", "172.30.0.41", 80, 11)?;
        connect(&scene, family, "203.0.113.2", "5.6.7.9", 80, 2)?;
        connect(&scene, family, "10.0.0.2", "5.6.7.9", 80, 2)?;
    }
    let seen = counts(scene.lab, Family::V4)?;
    let wanted = [("local 42", 0), ("local 9", 4), ("svc 3001", 7), ("svc 41", 14), ("svc 8", 5)]
        .map(|(key, n)| (format!("ns/{key}"), n));
    ensure!(seen == BTreeMap::from(wanted), "IPv4: {seen:?}");
    let v6 = counts(scene.lab, Family::V6)?.values().sum::<u64>();
    ensure!(v6 == 30, "IPv6: {v6} connections of 30");
    Ok(())
}

fn outlive(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let of = |scene: &Scene, key: &str| -> Result<Option<u64>> { Ok(counts(scene.lab, Family::V4)?.get(key).copied()) };
    let expect = |scene: &Scene, wanted: Option<u64>, when: &str| {
        let seen = of(scene, "ns/svc 41")?;
        ensure!(seen == wanted, "{when}: expected {wanted:?}, seen {seen:?}");
        Ok(())
    };
    scene.sync(&[SERVICE, "slice svc L1 L2 R3"])?;
    connect(&scene, Family::V4, "10.0.0.2", "172.30.0.41", 80, 4)?;
    expect(&scene, Some(4), "three endpoints")?;
    scene.sync(&[SERVICE, "slice svc L1 L2 R4"])?;
    expect(&scene, Some(4), "an endpoint replaced: the verdict is the same")?;
    scene.sync(&[SERVICE, "slice svc L1 L2"])?;
    expect(&scene, Some(4), "an endpoint gone: another verdict")?;
    connect(&scene, Family::V4, "10.0.0.2", "172.30.0.41", 80, 2)?;
    scene.sync(&["service svc port=80@3001 vip=5.6.7.8 affinity=10800", "slice svc L1 L2"])?;
    expect(&scene, Some(6), "affinity switched on")?;
    scene.restart_with(config(true))?;
    let applied = scene.sync(&["service svc port=80@3001 vip=5.6.7.8 affinity=10800", "slice svc L1 L2"])?;
    ensure!(applied.messages == 0, "a restart without any change sent {applied:?}");
    scene.restart_with(config(true))?;
    scene.sync(&[SERVICE, &format!("slice svc {ENDPOINTS}")])?;
    expect(&scene, Some(6), "a restart that found other endpoints")?;
    scene.sync(&[SERVICE])?;
    scene.sync(&[SERVICE, &format!("slice svc {ENDPOINTS}")])?;
    expect(&scene, Some(6), "no endpoint for a moment")?;
    // More Services than the maps have room for: the table is made again.
    let more: Vec<String> = (0..2100)
        .flat_map(|n| {
            let ip = format!("172.30.{}.{}", 1 + n / 200, 1 + n % 200);
            [format!("service more{n} ip={ip} vip=5.7.{}.{}", n / 200, 1 + n % 200), format!("slice more{n} L1")]
        })
        .collect();
    let now = [vec![SERVICE.to_owned(), format!("slice svc {ENDPOINTS}")], more].concat();
    scene.sync(&now.iter().map(String::as_str).collect::<Vec<_>>())?;
    expect(&scene, Some(6), "the table made again")?;
    // The address goes to another Service, which begins at zero.
    scene.sync(&["service other ip=172.30.0.41", "slice other L1"])?;
    let other = of(&scene, "ns/other 41")?;
    ensure!(other == Some(0), "the address of another Service: expected 0, seen {other:?}");
    Ok(())
}

fn switched(lab: &mut Lab) -> Result<()> {
    const SWITCHES: usize = 40;
    let mut scene = scene(lab)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let objects = [SERVICE, "slice svc L1 L2 R3"];
    scene.sync(&objects)?;
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lab = scene.lab;
    let result = thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = [("10.0.0.2", "172.30.0.41"), ("203.0.113.2", "5.6.7.8")]
            .into_iter()
            .flat_map(|pair| Family::BOTH.map(|family| (pair, family)))
            .map(|((from, to), family)| {
                let (stop, made) = (&stop, &made);
                scope.spawn(move || {
                    let mut wrong = None;
                    lab.probe_while(address(from, family), Protocol::Tcp, target(to, 80, family), PATIENCE, |seen| {
                        made.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(std::time::Duration::from_micros(300));
                        if !matches!(seen, Outcome::Answered(_)) {
                            wrong = Some(seen);
                        }
                        wrong.is_none() && !stop.load(Ordering::Relaxed)
                    })?;
                    ensure!(wrong.is_none(), "{from} -> {to}, {family}: {}", wrong.unwrap());
                    Ok(())
                })
            })
            .collect();
        let switched = (0..SWITCHES).try_for_each(|turn| {
            let on = turn % 2 == 1;
            scene.restart_with(config(on))?;
            let applied = scene.sync(&objects)?;
            ensure!(applied.transactions <= 2, "switched in {applied:?}");
            let counted = !counts(lab, Family::V4)?.is_empty();
            ensure!(counted == on, "counters are {}", if counted { "there" } else { "missing" });
            thread::sleep(std::time::Duration::from_millis(5));
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().try_for_each(|client| client.join().expect("no client panics"))?;
        switched
    });
    result?;
    let made = made.into_inner();
    ensure!(made > SWITCHES, "only {made} connections in {SWITCHES} switches");
    Ok(())
}
