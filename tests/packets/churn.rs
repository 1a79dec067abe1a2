//! Connections are made all the time while a Service's endpoints change: none of them may be lost.
//!
//! A packet may meet the maps of before a transaction and, a moment later, those of after it. The rules have to send it
//! to an endpoint in every mixture.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Outcome};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{Stack, address, snapshot};
use crate::common::fixture;
use crate::random::Random;
use crate::scene::{PATIENCE, Scene, ask, document, target};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    let churn = |name, locals, remotes, sizes| {
        trial(name, move || fixture::in_a_lab(|lab| Churn { locals, remotes, sizes }.run(lab)))
    };
    vec![
        churn("churn::few_endpoints", 3, 9, (1, 12)),
        // More than 64: sizes in steps, slots that stay empty, and draws that are made again.
        churn("churn::many_endpoints", 3, 90, (60, 90)),
        trial("churn::between_two_states", || fixture::in_a_lab(between_two_states)),
    ]
}

const CHANGES: usize = 200;
/// So that a good number of connections meets every state.
const PAUSE: Duration = Duration::from_millis(3);
/// Connections that meet one state, at most. All of them together are fewer than the lab has source ports: one that is
/// used again too soon meets what its server remembers of it, and is refused a first time.
const CONNECTIONS: usize = 200;

struct Churn {
    locals: usize,
    remotes: usize,
    /// The fewest and the most endpoints at a time.
    sizes: (usize, usize),
}

/// A client that connects as often as it can.
struct Client {
    from: IpAddr,
    to: SocketAddr,
    only_local: bool,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    changes: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Churn {
    fn run(&self, lab: &mut Lab) -> Result<()> {
        let all = self.universe();
        let scene = Scene::new(lab, Stack::Dual, &all.join(" "), &["203.0.113.2"])?;
        let _servers = scene.serve(Protocol::Tcp, 8080)?;
        let Scene { lab, mut proxy, .. } = scene;
        let mut sync = |endpoints: &[String]| proxy.sync(snapshot(&document(Stack::Dual, &objects(endpoints))));
        let (mut random, mut now) = (Random(0x5eed), vec![all[0].clone()]);
        self.step(&all, &mut now, &mut random);
        sync(&now)?;

        let resent_before = resent(lab)?;
        let (seen, stop) = (Seen::default(), AtomicBool::new(false));
        let clients = clients();
        let changed = thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| connect_until(lab, client, &stop, &seen));
            }
            let changed = (0..CHANGES).try_for_each(|_| {
                self.step(&all, &mut now, &mut random);
                let applied = sync(&now)?;
                ensure!(applied.added + applied.deleted > 0, "a change of the endpoints that changed nothing");
                seen.changes.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PAUSE);
                Ok(())
            });
            stop.store(true, Ordering::Relaxed);
            changed
        });
        changed?;
        let (connections, wrong) = (seen.connections.into_inner(), seen.wrong.into_inner().expect("no client panics"));
        ensure!(wrong.is_empty(), "of {connections} connections, these were lost:\n{}", wrong.join("\n"));
        // TCP sends a lost packet again, and hides the loss.
        let resent = resent(lab)? - resent_before;
        ensure!(resent == 0, "of {connections} connections, {resent} first packets were lost and sent again");
        ensure!(connections > CHANGES, "only {connections} connections in {CHANGES} changes");
        only_these_answer(lab, &now)
    }

    fn universe(&self) -> Vec<String> {
        let locals = (1..=self.locals).map(|n| format!("L{n}"));
        locals.chain((self.locals + 1..=self.locals + self.remotes).map(|n| format!("R{n}"))).collect()
    }

    /// Adds, removes or replaces one endpoint, or replaces all of them. There is always a local one.
    fn step(&self, all: &[String], now: &mut Vec<String>, random: &mut Random) {
        let before = now.clone();
        let (fewest, most) = self.sizes;
        let absent: Vec<&String> = all.iter().filter(|endpoint| !before.contains(endpoint)).collect();
        let newcomer = (!absent.is_empty()).then(|| absent[random.below(absent.len())].clone());
        match (random.below(4), newcomer) {
            (0, Some(endpoint)) if now.len() < most => now.push(endpoint),
            (1, _) if now.len() > fewest => drop(now.remove(random.below(before.len()))),
            (2, Some(endpoint)) => now[random.below(before.len())] = endpoint,
            _ => {
                let mut pool = all.to_vec();
                let size = fewest + random.below(most - fewest + 1);
                *now = (0..size).map(|_| pool.remove(random.below(pool.len()))).collect();
            }
        }
        if !now.iter().any(|endpoint| endpoint.starts_with('L')) {
            now[0] = all[random.below(self.locals)].clone();
        }
        if BTreeSet::from_iter(now.iter()) == BTreeSet::from_iter(&before) {
            self.step(all, now, random);
        }
    }
}

fn only_these_answer(lab: &Lab, endpoints: &[String]) -> Result<()> {
    for client in clients() {
        let family = if client.to.is_ipv4() { Family::V4 } else { Family::V6 };
        let current: Vec<IpAddr> =
            endpoints.iter().map(|name| address(&format!("10.180.0.{}", &name[1..]), family)).collect();
        for _ in 0..100 {
            let by = ask(lab, client.from, Protocol::Tcp, client.to)?.by.ip();
            ensure!(current.contains(&by), "{} -> {}: {by} answered, which is gone", client.from, client.to);
        }
    }
    Ok(())
}

/// The mixture that only few packets ever meet, held still: the chain of before the transaction, which knows of six
/// endpoints, and the endpoints of after it, of which one is left.
fn between_two_states(lab: &mut Lab) -> Result<()> {
    let all = ["L1", "L2", "L3", "R4", "R5", "R6"].map(str::to_owned);
    let mut scene = Scene::new(lab, Stack::Dual, &all.join(" "), &["203.0.113.2"])?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.proxy.sync(snapshot(&document(Stack::Dual, &objects(&all))))?;
    let mut deleted = 0;
    for table in ["ip svcmap", "ip6 svcmap"] {
        for map in ["endpoints", "nodeport-endpoints"] {
            let listing = scene.lab.node().command("nft", &["list", "map", table, map], "")?;
            let keys: Vec<&str> = listing.lines().filter_map(slot_key).filter(|key| !is_first_slot(key)).collect();
            deleted += keys.len();
            let script = format!("delete element {table} {map} {{ {} }}", keys.join(", "));
            scene.lab.node().command("nft", &["-f", "-"], &script)?;
        }
    }
    // Per family: the ClusterIPs and VIPs of two Services, and the node ports of two; five endpoints less of the
    // cluster everywhere, and two less of the node where that pool is used.
    ensure!(deleted >= 2 * 6 * 5, "only {deleted} elements were deleted");
    for client in clients() {
        for _ in 0..50 {
            ask(scene.lab, client.from, Protocol::Tcp, client.to)?;
        }
    }
    Ok(())
}

/// The key of an element that `nft list` prints on a line of its own, or behind `elements = {`.
fn slot_key(line: &str) -> Option<&str> {
    let element = line.trim().trim_start_matches("elements = {");
    let (key, _) = element.split_once(" : ")?;
    let key = key.split(" comment ").next()?.trim();
    (key.contains(" . ") && !key.starts_with("typeof")).then_some(key)
}

fn is_first_slot(key: &str) -> bool {
    key.ends_with(" . 0") || key.ends_with(" . 1000000")
}

fn objects(endpoints: &[String]) -> [String; 4] {
    let endpoints = endpoints.join(" ");
    [
        "service svc ip=172.30.0.41 port=80@3001 vip=5.6.7.8".to_owned(),
        format!("slice svc {endpoints}"),
        "service local ip=172.30.0.42 port=80@3002 vip=5.6.7.9 eTP=Local".to_owned(),
        format!("slice local {endpoints}"),
    ]
}

fn clients() -> Vec<Client> {
    let clients = |family| {
        let client = |from, to, port, only_local| Client {
            from: address(from, family),
            to: target(to, port, family),
            only_local,
        };
        [
            client("10.0.0.2", "172.30.0.41", 80, false),
            client("192.168.0.2", "5.6.7.8", 80, false),
            client("203.0.113.2", "192.168.0.2", 3001, false),
            client("203.0.113.2", "5.6.7.9", 80, true),
        ]
    };
    Family::BOTH.into_iter().flat_map(clients).collect()
}

/// How many first packets of TCP connections the clients' kernels have sent again so far.
fn resent(lab: &Lab) -> Result<u64> {
    let homes = clients().into_iter().map(|client| client.from);
    let counts = homes.map(|from| -> Result<u64> {
        let text = lab.home(from).run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))?;
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
        let (names, values) = (lines.next().into_iter().flatten(), lines.next().into_iter().flatten());
        let value = names.zip(values).find(|(name, _)| *name == "TCPSynRetrans").map(|(_, value)| value.parse::<u64>());
        Ok(value.context("the kernel does not count TCPSynRetrans")??)
    });
    counts.sum()
}

fn connect_until(lab: &Lab, client: &Client, stop: &AtomicBool, seen: &Seen) {
    let wrong = |text: String| {
        let mut wrong = seen.wrong.lock().expect("no client panics");
        wrong.push(text);
        wrong.len() < 5
    };
    let result = lab.probe_while(client.from, Protocol::Tcp, client.to, PATIENCE, |outcome| {
        let number = seen.connections.fetch_add(1, Ordering::Relaxed);
        while number >= (seen.changes.load(Ordering::Relaxed) + 1) * CONNECTIONS && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(100));
        }
        let right = match &outcome {
            Outcome::Answered(answer) => !client.only_local || answer.name.starts_with("pod"),
            _ => false,
        };
        (right || wrong(format!("{} -> {}: {outcome}", client.from, client.to))) && !stop.load(Ordering::Relaxed)
    });
    if let Err(error) = result {
        wrong(format!("{error:#}"));
    }
}
