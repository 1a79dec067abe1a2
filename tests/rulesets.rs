//! The rulesets under `rulesets/` are what svcmap makes of the manifests of the test data.
//!
//! After a change that is meant to change them: `UPDATE_RULESETS=1 cargo test --test rulesets`, and read the diff.

use std::path::{Path, PathBuf};

use svcmap::config::ProxyConfig;
use svcmap::iptables::ruleset::render;
use svcmap::ipvs;
use svcmap::nftables::state::State;
use svcmap::nftables::text;
use svcmap::plan::{Plan, PlanChange};
use svcmap::source::{Snapshot, load};
use svcmap::tracker::Tracker;
use svcmap::userspace;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The node that the rulesets are made for.
fn config() -> ProxyConfig {
    ProxyConfig {
        node_name: "n1".into(),
        node_ips: vec!["192.168.0.2".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        cluster_cidrs: vec!["10.128.0.0/9".parse().unwrap(), "fd10::/48".parse().unwrap()],
        ..ProxyConfig::default()
    }
}

fn plan(snapshot: Snapshot) -> PlanChange {
    let mut tracker = Tracker::new(config());
    tracker.replace(snapshot);
    tracker.take().0
}

fn nftables(plan: PlanChange) -> String {
    let mut state = State::default();
    state.advance(plan);
    let mut out = Vec::new();
    text::write(&state, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn iptables(plan: PlanChange) -> String {
    render(plan.node.unwrap(), plan.changed)
}

fn ipvs(plan: PlanChange) -> String {
    let plan = Plan::new(plan.node.unwrap(), plan.changed);
    ipvs::text::render(&plan, &ipvs::Settings::default(), None)
}

fn userspace(plan: PlanChange) -> String {
    userspace::render::render(&Plan::new(plan.node.unwrap(), plan.changed), None)
}

/// What should stand under `rulesets/`.
fn wanted() -> Vec<(PathBuf, String)> {
    let mut files = vec![(root().join("rulesets/skeleton.nft"), nftables(plan(Snapshot::default())))];
    let directory = std::fs::read_dir(root().join("tests/data/manifests")).unwrap();
    for manifest in directory.map(|entry| entry.unwrap().path()) {
        let name = manifest.file_stem().unwrap().to_owned();
        let loaded = load(&[manifest]).unwrap();
        assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
        let path = root().join("rulesets").join(name);
        let plan = plan(loaded.snapshot);
        files.push((path.with_extension("nft"), nftables(plan.clone())));
        files.push((path.with_extension("iptables"), iptables(plan.clone())));
        files.push((path.with_extension("ipvs"), ipvs(plan.clone())));
        files.push((path.with_extension("userspace"), userspace(plan)));
    }
    files
}

#[test]
fn rulesets_are_what_the_manifests_come_to() {
    let update = std::env::var_os("UPDATE_RULESETS").is_some();
    let wanted = wanted();
    for (path, text) in &wanted {
        if update {
            std::fs::write(path, text).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(there == *text, "{} is not what svcmap makes; if that is meant: UPDATE_RULESETS=1", path.display());
    }
    for file in std::fs::read_dir(root().join("rulesets")).unwrap().map(|entry| entry.unwrap().path()) {
        let known = wanted.iter().any(|(path, _)| *path == file);
        assert!(
            known
                || file
                    .extension()
                    .is_none_or(|e| !["nft", "iptables", "ipvs", "userspace"].iter().any(|one| e == *one)),
            "{}: nothing makes it any more",
            file.display()
        );
    }
}
