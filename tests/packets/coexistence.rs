//! Beside the tables of others, as they make them (`tests/data/foreign`): Services work, whoever came first, and nothing
//! of the others' changes, neither their tables nor what these do.
//!
//! A packet that several tables look at has to be let through by all of them. Where one by its nature lets some of the
//! Services' traffic not through, that is what is expected here: its owner has to be told of Services.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Listen, Outcome, Place, Server};
use svcmap::objects::Protocol;

use crate::common::cases::{Stack, address};
use crate::common::fixture;
use crate::scene::{PATIENCE, Scene, target};
use crate::trial;

/// What a table lets through of the Services' traffic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lets {
    /// All of it.
    All,
    /// What comes from pods and from the node; the rest is refused.
    Inside,
    /// What comes from the node; the rest is dropped.
    Unforwarded,
}

/// Somebody's tables.
#[derive(Clone, Copy)]
struct Foreign {
    file: &'static str,
    lets: Lets,
    /// Of [`EMPTY`], what they drop before svcmap can refuse it, if they were made after svcmap's. Of chains of the same
    /// hook and priority, the kernel asks the one first that came last.
    drops_first: &'static [usize],
}

pub fn trials() -> Vec<Trial> {
    let foreign = |file, lets, drops_first| Foreign { file, lets, drops_first };
    let all = [
        foreign("calico", Lets::All, &[]),
        foreign("docker-flannel", Lets::All, &[1]),
        foreign("firewalld", Lets::All, &[]),
        foreign("marks", Lets::All, &[]),
        // ports of Services would have to be opened in the zone
        foreign("firewalld-strict", Lets::Inside, &[]),
        // pods would have to be let through, as network plugins see to
        foreign("docker", Lets::Unforwarded, &[0, 1]),
    ];
    let in_family = |foreign: Foreign| {
        [Stack::V4, Stack::V6].map(|stack| {
            let name = format!("coexistence::{}::{}", foreign.file, format!("{stack:?}").to_lowercase());
            trial(name, move || fixture::in_a_lab(|lab| beside(lab, stack, foreign)))
        })
    };
    all.into_iter().flat_map(in_family).collect()
}

/// For packets that are dropped.
const SHORT: Duration = Duration::from_millis(250);
/// For packets that may be answered, refused or dropped. TCP over IPv6 hears of an ICMP error only when it sends its first
/// packet again, after a second, and after another two if that was lost on a busy machine.
const LONG: Duration = Duration::from_millis(3500);

const OBJECTS: [&str; 4] = [
    "service svc port=web:80@30080,dns:53/UDP@30053 vip=5.6.7.8",
    "slice svc port=web:8080,dns:8080/UDP L1 R2",
    "service empty ip=172.30.0.42 port=web:80,dns:53/UDP@30054 vip=5.6.7.9",
    "slice empty port=web:8080,dns:8080/UDP u@R2",
];

const POD: &str = "10.0.0.2";
const NODE: &str = "192.168.0.2";
const OUTSIDE: &str = "203.0.113.2";
const ENDPOINT: &str = "10.180.0.1";

/// Who connects to the Service, at which of its addresses.
const SERVED: [(&str, &str, u16, u16); 5] = [
    (POD, "172.30.0.41", 80, 53),
    (NODE, "172.30.0.41", 80, 53),
    (ENDPOINT, "172.30.0.41", 80, 53),
    (OUTSIDE, "5.6.7.8", 80, 53),
    (OUTSIDE, NODE, 30080, 30053),
];

/// Who connects to a Service without endpoints.
const EMPTY: [(&str, &str, Protocol, u16); 3] = [
    (POD, "172.30.0.42", Protocol::Tcp, 80),
    (OUTSIDE, "5.6.7.9", Protocol::Udp, 53),
    (OUTSIDE, NODE, Protocol::Udp, 30054),
];

/// What has nothing to do with Services: a pod to the world, somebody to the node, on a port that firewalls have open
/// and on another, and a pod to one on another node.
const OTHERS: [(&str, &str, u16); 4] =
    [(POD, "198.51.100.9", 80), (OUTSIDE, NODE, 22), (OUTSIDE, NODE, 8099), (POD, "10.180.0.2", 8080)];

/// The Services' traffic.
fn services_work(scene: &Scene, lets: Lets) -> Result<()> {
    let family = scene.family();
    let endpoints = [1, 2].map(|number| target(&format!("10.180.0.{number}"), 8080, family));
    for (from, to, tcp, udp) in SERVED {
        let blocked = match lets {
            Lets::All => None,
            Lets::Inside => (from == OUTSIDE).then_some(Outcome::Unreachable),
            Lets::Unforwarded => (from != NODE).then_some(Outcome::TimedOut),
        };
        for (protocol, port) in [(Protocol::Tcp, tcp), (Protocol::Udp, udp)] {
            let patience = if blocked == Some(Outcome::TimedOut) { SHORT } else { PATIENCE };
            let seen = scene.lab.probe(address(from, family), protocol, target(to, port, family), patience)?;
            let right = match (&blocked, &seen) {
                (Some(blocked), seen) => blocked == seen,
                (None, Outcome::Answered(answer)) => {
                    // an endpoint that is its own client, and whoever is outside
                    let is_masqueraded = from == OUTSIDE || from == ENDPOINT && answer.by == endpoints[0];
                    let source = match is_masqueraded || from == NODE {
                        true => scene.lab.place_of(answer.seen.ip()) == Place::Node,
                        false => answer.seen.ip() == address(from, family),
                    };
                    endpoints.contains(&answer.by) && source
                }
                _ => false,
            };
            ensure!(right, "{from} -> {to}:{port}/{protocol}: seen: {seen}");
        }
    }
    Ok(())
}

/// What finds no endpoint is refused by svcmap, but for what was dropped before.
fn empty_is_refused(scene: &Scene, dropped: &[usize]) -> Result<()> {
    for (number, (from, to, protocol, port)) in EMPTY.into_iter().enumerate() {
        let (expected, patience) =
            if dropped.contains(&number) { (Outcome::TimedOut, SHORT) } else { (Outcome::Refused, PATIENCE) };
        let to = target(to, port, scene.family());
        let seen = scene.lab.probe(address(from, scene.family()), protocol, to, patience)?;
        ensure!(seen == expected, "{from} -> {to}/{protocol}, without endpoints: expected {expected}, seen: {seen}");
    }
    Ok(())
}

/// What becomes of the others' traffic: the outcome, and the source that is seen.
fn others(scene: &Scene) -> Result<Vec<(String, Option<IpAddr>)>> {
    let family = scene.family();
    let outcome = |(from, to, port)| {
        let seen = scene.lab.probe(address(from, family), Protocol::Tcp, target(to, port, family), LONG)?;
        Ok(match seen {
            Outcome::Answered(answer) => (format!("{} answers", answer.by), Some(answer.seen.ip())),
            other => (other.to_string(), None),
        })
    };
    OTHERS.into_iter().map(outcome).collect()
}

fn servers(scene: &Scene) -> Result<Vec<Server>> {
    let mut servers = scene.serve(Protocol::Tcp, 8080)?;
    servers.extend(scene.serve(Protocol::Udp, 8080)?);
    let others = OTHERS[..3].iter();
    let listen =
        |(_, to, port): &(_, &str, u16)| Listen { protocol: Protocol::Tcp, address: target(to, *port, scene.family()) };
    servers.extend(scene.lab.serve(&others.map(listen).collect::<Vec<_>>())?);
    Ok(servers)
}

/// Everybody else's tables, with the kernel's numbers of all that is in them, and without what is counted.
fn tables_of_others(lab: &Lab) -> Result<String> {
    let tables = lab.node().command("nft", &["list", "tables"], "")?;
    let foreign = tables.lines().filter(|line| !line.ends_with(" svcmap"));
    let list = |table: &str| {
        let words: Vec<&str> = ["-s", "-a", "list"].into_iter().chain(table.split_whitespace()).collect();
        lab.node().command("nft", &words, "")
    };
    foreign.map(list).collect()
}

fn nft(lab: &Lab, script: &str) -> Result<()> {
    lab.node().command("nft", &["-f", "-"], script).map(drop)
}

fn beside(lab: &mut Lab, stack: Stack, by: Foreign) -> Result<()> {
    let Foreign { file, lets, drops_first } = by;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/foreign/{file}.nft"));
    let tables = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut scene = Scene::new(lab, stack, "L1 R2", &[OUTSIDE])?;
    let _servers = servers(&scene)?;
    nft(scene.lab, &tables)?;
    let (alone, before) = (others(&scene)?, tables_of_others(scene.lab)?);
    ensure!(!before.is_empty() && alone.iter().any(|(_, seen)| seen.is_some()), "{alone:?} beside\n{before}");
    let unchanged = |scene: &Scene, listing: &str, what: &str| -> Result<()> {
        let (now, after) = (others(scene)?, tables_of_others(scene.lab)?);
        ensure!(now == alone, "{what}: of others' traffic, expected {alone:?}, seen {now:?}");
        ensure!(after == listing, "{what}: others' tables were\n{listing}\nand are\n{after}");
        Ok(())
    };

    scene.sync(&OBJECTS)?;
    services_work(&scene, lets).context("svcmap came second")?;
    empty_is_refused(&scene, &[]).context("svcmap came second")?;
    unchanged(&scene, &before, "svcmap came second")?;
    scene.proxy.clean()?;
    unchanged(&scene, &before, "svcmap went")?;

    nft(scene.lab, "flush ruleset")?;
    scene.restart()?;
    scene.sync(&OBJECTS)?;
    nft(scene.lab, &tables)?;
    services_work(&scene, lets).context("svcmap came first")?;
    empty_is_refused(&scene, drops_first).context("svcmap came first")?;

    nft(scene.lab, &format!("flush ruleset\n{tables}"))?;
    let before = tables_of_others(scene.lab)?;
    scene.restart()?;
    scene.sync(&OBJECTS)?;
    services_work(&scene, lets).context("everything was flushed, svcmap's too")?;
    unchanged(&scene, &before, "everything was flushed, svcmap's too")?;
    nft(scene.lab, "flush ruleset")
}
