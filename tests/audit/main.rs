//! `svcmap audit`: what was laid out is read back as the Services that it was laid out for, whoever laid it out.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
mod command;
mod damage;
mod honest;
mod iptables;
mod ipvs;
mod live;
mod others;
mod peers;
mod round_trip;
mod rules;
mod size;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::cases::{Case, Stack};
use common::world::World;
use svcmap::audit::findings::findings;
use svcmap::audit::readers::{self, Reading};
use svcmap::audit::{Port, compare};
use svcmap::config::ProxyConfig;
use svcmap::explain::Surroundings;
use svcmap::nftables::text;
use svcmap::plan::PortId;
use svcmap::source::generate::{Families, Options, generate, pod_cidrs};
use svcmap::source::load;

/// What is found in a text where nothing is known of the node, a line each.
fn found(text: &str) -> String {
    let reading = readers::read(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    said(&reading, &Surroundings::default())
}

/// What is found in a reading, a line each.
fn said(reading: &Reading, surroundings: &Surroundings) -> String {
    findings(reading, surroundings).iter().map(|one| format!("{one}\n")).collect()
}

/// Each edit of a text, from what to what, is found in words that have these in them.
fn said_of_edits(text: &str, edits: &[(&str, &str, &str)]) {
    let mut wrong = String::new();
    for (from, to, expected) in edits {
        assert!(text.contains(from), "there is no {from:?}");
        let said = found(&text.replacen(from, to, 1));
        if !said.contains(expected) {
            wrong += &format!("{from:?} -> {to:?}: expected {expected:?}, said\n{said}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What a world's plan means.
fn wanted(world: &World) -> BTreeMap<PortId, Port> {
    world.state.ports().map(|port| (port.id.clone(), Port::of_plan(world.state.node(), port))).collect()
}

/// The world of some manifests, on the node `n1`.
fn of_manifests(path: &Path) -> World {
    let mut world = World::new(ProxyConfig {
        node_name: "n1".into(),
        node_ips: ["192.168.0.2", "2001:db8::1"].map(|ip| ip.parse().unwrap()).to_vec(),
        cluster_cidrs: ["10.128.0.0/14", "fd10::/48"].map(|net| net.parse().unwrap()).to_vec(),
        ..ProxyConfig::default()
    });
    let loaded = load(&[path.to_owned()]).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    world.sync(loaded.snapshot);
    world
}

/// A generated world with everything that Services may have.
fn generated(services: usize, external_local: bool) -> World {
    let options = Options {
        services,
        endpoints: 4,
        family: Families::Dual,
        local_fraction: Some(0.3),
        node_ports: true,
        load_balancers: true,
        affinity: true,
        external_local,
        ..Options::default()
    };
    let config = ProxyConfig { node_name: "n1".into(), cluster_cidrs: pod_cidrs().to_vec(), ..ProxyConfig::default() };
    let mut world = World::new(config);
    world.sync(generate(&options).unwrap());
    world
}

fn manifests() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    files
}

/// All worlds, by what they are called.
fn worlds() -> Vec<(String, World)> {
    let mut worlds: Vec<(String, World)> =
        manifests().iter().map(|path| (path.display().to_string(), of_manifests(path))).collect();
    worlds.extend(
        [false, true].map(|local| (format!("generated, external policy Local: {local}"), generated(150, local))),
    );
    let cases = Case::all().into_iter().filter(|case| case.excluded_from("trace").is_none());
    worlds.extend(cases.map(|case| (case.id.clone(), World::of(&case, Stack::Dual))));
    worlds
}

fn script(world: &World) -> String {
    let mut script = Vec::new();
    text::write(&world.state, &mut script).unwrap();
    String::from_utf8(script).unwrap()
}

/// What is wrong with a reading of a world, if anything is.
fn check(name: &str, reading: &Reading, wanted: &BTreeMap<PortId, Port>) -> String {
    let mut wrong = String::new();
    for difference in compare(&reading.ports, wanted) {
        wrong += &format!("{name}: {difference:?}\n");
    }
    for finding in &reading.findings {
        wrong += &format!("{name}: {finding}\n");
    }
    // compare is proved by equality: it must not overlook anything
    if wrong.is_empty() && reading.ports.len() != wanted.len() {
        wrong += &format!("{name}: {} of {} ports\n", reading.ports.len(), wanted.len());
    }
    for (id, port) in wanted.iter().filter(|_| wrong.is_empty()) {
        if !reading.ports[id].means_the_same(port) {
            return format!("{name}: {id:?}\nwanted {port:?}\nread   {:?}\n", reading.ports[id]);
        }
    }
    wrong
}

const RULESETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rulesets");

fn sample(name: &str) -> String {
    let path = Path::new(RULESETS).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What the Services mean that all samples are made for.
fn of_samples() -> BTreeMap<PortId, Port> {
    let mut world = World::new(ProxyConfig {
        node_name: "n1".into(),
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..ProxyConfig::default()
    });
    let loaded = load(&[Path::new(RULESETS).join("services.yaml")]).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    world.sync(loaded.snapshot);
    let wanted = wanted(&world);
    assert_eq!(wanted.len(), 6);
    wanted
}

/// What the objects mean that the real kube-proxy was given, but for the Service of the API server itself.
fn of_cluster() -> BTreeMap<PortId, Port> {
    let mut world = World::new(ProxyConfig {
        node_name: "n1".into(),
        cluster_cidrs: ["10.244.0.0/16", "fd00:10:244::/48"].map(|net| net.parse().unwrap()).to_vec(),
        ..ProxyConfig::default()
    });
    world.sync(load(&[Path::new(RULESETS).join("cluster.yaml")]).unwrap().snapshot);
    let wanted = wanted(&world);
    assert_eq!(wanted.len(), 16);
    wanted
}

/// Runs a program with an input in the current network namespace; its output.
fn program(name: &str, arguments: &[&str], input: &str) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new(name)
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name} is needed: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{name} {arguments:?} fails");
    String::from_utf8(output.stdout).unwrap()
}

/// All differences and findings, a line each.
fn everything(reading: &Reading, wanted: &BTreeMap<PortId, Port>) -> String {
    let differences =
        compare(&reading.ports, wanted).into_iter().map(|one| format!("{} {} {}", one.service, one.sign, one.what));
    let found = findings(reading, &Surroundings::default()).into_iter().map(|one| format!("{:?}: {one}", one.kind));
    differences.chain(found).collect::<Vec<_>>().join("\n")
}
