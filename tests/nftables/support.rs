//! Clusters, and the kernel as `nft` shows it.

use std::io::Write;
use std::process::{Command, Stdio};

use svcmap::config::ProxyConfig;
use svcmap::netlink::CodecKind;
use svcmap::nftables::program::Programmer;
use svcmap::nftables::state::State;
use svcmap::nftables::text;
use svcmap::plan::{NodePlan, PlanChange, PortPlan};
use svcmap::source::generate::{self, Families, Options};
use svcmap::source::{Snapshot, load};
use svcmap::tracker::Tracker;

/// The whole plan of a node.
pub type Whole = (NodePlan, Vec<PortPlan>);

/// A configuration that makes use of everything a ruleset can hold.
pub fn config() -> ProxyConfig {
    ProxyConfig {
        node_name: "n1".into(),
        node_ips: vec!["192.168.0.2".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        cluster_cidrs: generate::pod_cidrs().to_vec(),
        ..ProxyConfig::default()
    }
}

/// What objects come to.
pub fn plan(snapshot: Snapshot, config: ProxyConfig) -> Whole {
    let mut tracker = Tracker::new(config);
    tracker.replace(snapshot);
    tracker.take();
    tracker.whole().expect("a plan was taken")
}

/// A dual-stack cluster with node ports, load balancers, affinity and the policy Local, in turns.
pub fn rich_cluster(services: usize) -> Snapshot {
    let options = Options {
        services,
        endpoints: 3,
        family: Families::Dual,
        node_ports: true,
        load_balancers: true,
        affinity: true,
        external_local: true,
        local_fraction: Some(0.4),
        ..Options::default()
    };
    let mut snapshot = generate::generate(&options).unwrap();
    for (i, service) in snapshot.services.iter_mut().enumerate() {
        if i % 2 == 0 {
            service.affinity = None;
        }
        if i % 3 == 0 {
            service.external_policy = svcmap::objects::TrafficPolicy::Cluster;
        }
        if i % 4 == 1 {
            service.internal_policy = svcmap::objects::TrafficPolicy::Local;
        }
        if i % 5 == 1 {
            service.source_ranges = ["192.0.2.0/24", "2001:db8:7::/48"].map(|range| range.parse().unwrap()).to_vec();
        }
    }
    let orphans: Vec<_> = snapshot.services.iter().step_by(7).map(|service| service.key.clone()).collect();
    snapshot.slices.retain(|slice| !orphans.contains(&slice.service_key()));
    snapshot
}

/// Manifests of the test data by their names.
pub fn manifests() -> Vec<(String, Snapshot)> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests");
    let mut all: Vec<_> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| (path.display().to_string(), load(&[path]).unwrap().snapshot))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!all.is_empty(), "no manifests in {}", directory.display());
    all
}

/// Programs the kernel from whatever it holds.
pub fn apply(whole: Whole) -> Programmer {
    let mut programmer = Programmer::open(CodecKind::Native).unwrap();
    programmer.replace(whole.0, whole.1).unwrap();
    programmer.collect().unwrap();
    programmer
}

/// The plan as a script.
pub fn render((node, changed): Whole) -> String {
    let mut state = State::default();
    state.advance(PlanChange { node: Some(node), changed, removed: Vec::new() });
    let mut out = Vec::new();
    text::write(&state, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Runs nft with a script on its standard input; what it prints.
pub fn nft(arguments: &[&str], script: &str) -> String {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nft is needed (package nftables)");
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {arguments:?}: {}: {errors}\n{script:.2000}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// `nft list ruleset`, as it stands.
pub fn listing() -> String {
    nft(&["list", "ruleset"], "")
}

/// The listing with chains and maps in the order of their names, and elements in that of their text: the kernel keeps
/// the order in which they were made.
pub fn sorted_listing() -> String {
    sorted(&listing())
}

/// See [`sorted_listing`].
pub fn sorted(listing: &str) -> String {
    let mut tables: Vec<String> = Vec::new();
    for table in listing.split("\n}\n").filter(|table| !table.trim().is_empty()) {
        let mut blocks: Vec<String> = table.split("\n\n").map(sorted_elements).collect();
        blocks[1..].sort_unstable();
        tables.push(blocks.join("\n\n"));
    }
    tables.sort();
    tables.join("\n}\n")
}

fn sorted_elements(block: &str) -> String {
    let Some((head, rest)) = block.split_once("elements = { ") else { return block.into() };
    let (elements, tail) = rest.split_once(" }").unwrap_or((rest, ""));
    let mut elements: Vec<&str> = elements.split(',').map(str::trim).collect();
    elements.sort_unstable();
    format!("{head}elements = {{ {} }}{tail}", elements.join(",\n"))
}

/// Fails with the first lines that differ.
pub fn assert_same(left: &str, right: &str, what: &str) {
    if left == right {
        return;
    }
    let differing: Vec<String> = left
        .lines()
        .zip(right.lines())
        .enumerate()
        .filter(|(_, (a, b))| a != b)
        .take(8)
        .map(|(number, (a, b))| format!("line {}:\n  {a}\n  {b}", number + 1))
        .collect();
    let (a, b) = (left.lines().count(), right.lines().count());
    panic!("{what}: the listings differ ({a} and {b} lines)\n{}", differing.join("\n"));
}
