//! `svcmap compare`: what it measures, what it draws, and what it says of differences and of modes that cannot be run here.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::iptables::missing;
use crate::trial;

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests");
/// A cluster that takes no time.
const SMALL: [&str; 4] = ["--services", "6", "--endpoints", "2"];

pub fn trials() -> Vec<Trial> {
    let with_iptables = |name: &str, test: fn() -> Result<()>| {
        let trial = trial(format!("compare::{name}"), test);
        trial.with_ignored_flag(missing("nft").is_err())
    };
    vec![
        with_iptables("prints_a_row_for_each_mode_and_size", compared),
        trial("compare::counts_what_the_userspace_mode_is_made_of", carried),
        with_iptables("sees_connections_fare_alike", alike),
        with_iptables("ends_with_1_where_modes_disagree", disagreeing),
        trial("compare::goes_on_without_iptables", without_iptables),
        trial("compare::goes_on_without_ipvs", without_ipvs),
        trial("compare::names_what_is_wrong_with_a_list_of_differences", wrong_list),
    ]
}

fn svcmap(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_svcmap")).arg("compare").args(arguments).output()?)
}

fn json(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

fn compared() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let plot = directory.path().join("compared.svg").display().to_string();
    let sizes = ["--services", "6,12", "--endpoints", "2", "--only", "costs", "-o", "json", "--plot", &plot];
    let output = svcmap(&sizes)?;
    ensure!(output.status.success(), "{output:?}");
    let report = json(&output)?;
    let rows = report["rows"].as_array().context("rows")?;
    let seen: Vec<_> = rows.iter().map(|row| (row["services"].as_u64(), row["mode"].as_str())).collect();
    let expected = [6, 12].map(|services| ["nftables", "iptables"].map(|mode| (Some(services), Some(mode))));
    ensure!(seen == expected.concat(), "{report}");
    for row in rows {
        for number in [
            "/endpoints",
            "/objects",
            "/kinds/rules",
            "/kinds/chains",
            "/bytes",
            "/load/clock",
            "/add_service/clock",
            "/remove_service/clock",
            "/replace_endpoint/clock",
            "/control_plane/clock",
            "/connection/direct",
            "/connection/first",
            "/connection/middle",
            "/connection/last",
            "/packet/direct",
            "/packet/first",
            "/packet/middle",
            "/packet/last",
        ] {
            ensure!(row.pointer(number).and_then(Value::as_f64).is_some_and(|n| n > 0.0), "{number} in {row}");
        }
        ensure!(row["kernel_memory"].is_i64(), "{row}");
    }
    let drawn = std::fs::read_to_string(&plot)?;
    for text in ["<svg", "nftables", "iptables", "load everything", "new connection, last Service", "kernel memory"] {
        ensure!(drawn.contains(text), "{text} is not in {drawn}");
    }
    Ok(())
}

/// A socket for each Service port, and what leads there.
fn carried() -> Result<()> {
    let output = svcmap(&[&SMALL[..], &["--only", "costs", "-o", "json", "--modes", "userspace"]].concat())?;
    ensure!(output.status.success(), "{output:?}");
    let kinds = &json(&output)?["rows"][0]["kinds"];
    let count = |kind: &str| kinds[kind].as_u64().unwrap_or_default();
    // in the map of where clients are led, and in the sets of sockets and of ClusterIPs
    ensure!(count("listeners") == 6 && count("elements") >= 18 && count("rules") > 0, "{kinds}");
    Ok(())
}

/// The manifests' Services by every kind of client.
fn behaviour(more: &[&str]) -> Result<Output> {
    let manifests = ["--only", "behaviour", "-o", "json", "-f", MANIFESTS];
    let node = ["--hostname-override", "n1", "--cluster-cidr", "10.128.0.0/9,fd10::/48"];
    svcmap(&[&manifests[..], &node, more].concat())
}

/// Every frontend by every kind of client; where the modes differ, it is known why.
fn alike() -> Result<()> {
    let output = behaviour(&[])?;
    ensure!(output.status.success(), "{output:?}");
    let report = json(&output)?;
    let observations = report["behaviour"].as_array().context("behaviour")?;
    ensure!(observations.len() > 60, "only {} were tried", observations.len());
    let has = |mode: &str, outcome: &str| observations.iter().any(|seen| seen["outcomes"][mode] == outcome);
    for mode in ["nftables", "iptables"] {
        for outcome in
            ["no answer", "refused", "endpoints of this node, source kept", "endpoints of all nodes, masqueraded"]
        {
            ensure!(has(mode, outcome), "{mode}: never {outcome}");
        }
    }
    let known = observations.iter().filter(|seen| seen["known"].is_string());
    ensure!(known.count() > 0, "that the node is not refused in iptables is not seen");
    Ok(())
}

/// The same with a list that knows of nothing: what differs is a reason to fail.
fn disagreeing() -> Result<()> {
    let list = tempfile::NamedTempFile::new()?;
    let list = list.path().to_string_lossy();
    let output = behaviour(&["--known", &list])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let report = json(&output)?;
    let observations = report["behaviour"].as_array().context("behaviour")?;
    let differ: Vec<_> =
        observations.iter().filter(|seen| seen["outcomes"]["nftables"] != seen["outcomes"]["iptables"]).collect();
    ensure!(!differ.is_empty() && differ.iter().all(|seen| seen["known"].is_null()), "{differ:?}");
    Ok(())
}

fn wrong_list() -> Result<()> {
    let list = tempfile::NamedTempFile::new()?;
    std::fs::write(list.path(), "# no columns\niptables | external\n")?;
    let output = svcmap(&["--known", &list.path().to_string_lossy()])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && said.contains("line 2: expected mode |"), "{output:?}");
    Ok(())
}

/// On a machine that has no iptables, the other mode is measured all the same.
fn without_iptables() -> Result<()> {
    let script = "mount --make-rprivate / && mount -t tmpfs none /usr/sbin && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_svcmap"), "compare", "-o", "json"])
        .args(SMALL)
        .output()?;
    went_on(&output, "iptables", "iptables-restore")
}

/// In a kernel without IPVS, too, and it is said what is missing.
fn without_ipvs() -> Result<()> {
    let output = svcmap(&[&SMALL[..], &["--only", "costs", "-o", "json", "--modes", "nftables,ipvs"]].concat())?;
    if output.status.success() {
        eprintln!("cannot run here: compare::goes_on_without_ipvs: this kernel has IPVS");
        return Ok(());
    }
    went_on(&output, "ipvs", "this kernel has no IPVS")
}

fn went_on(output: &Output, missing: &str, why: &str) -> Result<()> {
    let report = json(output)?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    ensure!(report["rows"][0]["mode"] == "nftables" && report["rows"][1].is_null(), "{report}");
    ensure!(report["not_run"][0]["mode"] == missing, "{report}");
    ensure!(report["not_run"][0]["why"].as_str().is_some_and(|said| said.contains(why)), "{report}");
    Ok(())
}
