//! What `render --mode iptables` prints, loaded by `iptables-restore`: both variants take it, and packets go where it says.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Namespace, Outcome};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{LOCAL_NODE, Stack, address};
use crate::common::daemon::Daemon;
use crate::common::fixture;
use crate::scene::{PATIENCE, Scene, ask, document, target};
use crate::trial;

/// The variants of iptables: the one of nf_tables, and the one of ip_tables, which not every kernel has any more.
const VARIANTS: [&str; 2] = ["nft", "legacy"];

pub fn trials() -> Vec<Trial> {
    let of = |variant: &'static str| {
        let missing = missing(variant).err();
        if let Some(why) = &missing {
            eprintln!("cannot run here: iptables::{variant}: {why:#}");
        }
        let accepted = trial(format!("iptables::{variant}_takes_the_rulesets"), move || accepted(variant));
        let packets = move || fixture::in_a_lab(move |lab| packets(lab, variant));
        let packets = trial(format!("iptables::packets_through_{variant}"), packets);
        let programmed = move || fixture::in_a_lab(move |lab| programmed(lab, variant));
        let programmed = trial(format!("iptables::{variant}_programs_changes_next_to_others"), programmed);
        [accepted, packets, programmed].map(|trial| trial.with_ignored_flag(missing.is_some()))
    };
    VARIANTS.into_iter().flat_map(of).collect()
}

/// Tables without rules.
const EMPTY: &str = "*nat\nCOMMIT\n*filter\nCOMMIT\n";

/// The rules of somebody else, one of which has to stay the first.
const FOREIGN: &str = "*nat\n:MINE - [0:0]\n-A PREROUTING -p tcp --dport 4444 -j MINE\n-A MINE -j RETURN\nCOMMIT\n\
                       *filter\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n";

/// A directory in which the programs without a variant in their names are those of one, and the path that has it first.
fn programs(variant: &str) -> Result<(tempfile::TempDir, String)> {
    let directory = tempfile::tempdir()?;
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    for program in ["iptables", "ip6tables"] {
        for verb in ["restore", "save"] {
            let name = format!("{program}-{variant}-{verb}");
            let found = path.split(':').map(|place| Path::new(place).join(&name)).find(|file| file.exists());
            std::os::unix::fs::symlink(found.context(name)?, directory.path().join(format!("{program}-{verb}")))?;
        }
    }
    let path = format!("{}:{path}", directory.path().display());
    Ok((directory, path))
}

/// `apply`, `run` and `cleanup`: changes reach the packets, and nobody else's rules are touched.
fn programmed(lab: &mut Lab, variant: &'static str) -> Result<()> {
    let scene = Scene::new(lab, Stack::Dual, "L1 R2", &["203.0.113.2"])?;
    let lab = scene.lab;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let (directory, path) = programs(variant)?;
    let lock = directory.path().join("lock").display().to_string();
    let environment = [("PATH", path.as_str()), ("XTABLES_LOCKFILE", lock.as_str())];
    let variables = environment.map(|(name, value)| format!("{name}={value}"));
    let run = |program: &str, arguments: &[&str], input: &str| {
        let all = [&variables.each_ref().map(String::as_str)[..], &[program], arguments].concat();
        lab.node().command("env", &all, input)
    };
    let rules = || run("iptables-save", &[], "");
    load(lab.node(), variant, FOREIGN, &[])?;
    let svcmap = |arguments: &[&str], input: &str| run(env!("CARGO_BIN_EXE_svcmap"), arguments, input);
    let node = ["--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.0.0.0/8,fd00:5c::a00:0/104"];
    let apply = [&["apply", "--mode", "iptables", "-f", "-"], &node[..]].concat();
    let service = "service svc port=80@3001";
    let answers_from = |ip: &str| -> Result<()> {
        for family in Family::BOTH {
            let by = ask(lab, address("10.0.0.2", family), Protocol::Tcp, target("172.30.0.41", 80, family))?.by.ip();
            ensure!(by == address(ip, family), "{by} answers, not {ip}");
        }
        Ok(())
    };
    svcmap(&apply, &document(Stack::Dual, &[service, "slice svc L1"]))?;
    answers_from("10.180.0.1")?;
    svcmap(&apply, &document(Stack::Dual, &[service, "slice svc R2"]))?;
    answers_from("10.180.0.2")?;
    let saved = rules()?;
    ensure!(saved.matches("-A PREROUTING").count() == 2 && saved.matches("-A KUBE-SEP-").count() == 2, "{saved}");

    // what the daemon sends after its start is what differs; the maps, which were served before, are not beside it for long
    let maps = [&["-c", "\"$0\" \"$@\" 2>&1", env!("CARGO_BIN_EXE_svcmap"), "apply", "-f", "-"], &node[..]].concat();
    let said = run("sh", &maps, &document(Stack::Dual, &[service, "slice svc R2"]))?;
    ensure!(variant != "nft" || said.contains("table ip nat serves Services, too"), "{said}");
    let objects = [service, "slice svc R2"];
    let arguments = ["--proxy-mode", "iptables"];
    let mut daemon = Daemon::start_where(lab, &environment, &arguments, Stack::Dual, &objects)?;
    daemon.wait_for("removed what another mode left: table ip6 svcmap", 1)?;
    let tables = lab.node().command("nft", &["list", "tables"], "")?;
    ensure!(!tables.contains("svcmap"), "{tables}");
    daemon.tell(Stack::Dual, &[service, "slice svc L1"])?;
    daemon.wait_for("synced", 2)?;
    answers_from("10.180.0.1")?;
    ensure!(rules()?.matches("-A KUBE-SEP-").count() == 2, "{}", rules()?);
    daemon.stop()?;
    ensure!(rules()?.contains("-A PREROUTING -p tcp -m tcp --dport 4444 -j MINE"), "{}", rules()?);

    svcmap(&["cleanup", "--mode", "iptables"], "")?;
    let left = rules()?;
    ensure!(!left.contains("KUBE-"), "{left}");
    ensure!(left.contains("--dport 4444 -j MINE") && left.contains("--dport 22 -j ACCEPT"), "{left}");
    load(lab.node(), variant, EMPTY, &[])
}

/// Empties the tables.
pub fn clear(namespace: &Namespace) -> Result<()> {
    load(namespace, "nft", EMPTY, &[])
}

/// Why a variant cannot run here, if it cannot.
pub fn missing(variant: &str) -> Result<()> {
    let namespace = Namespace::new("probe")?;
    load(&namespace, variant, EMPTY, &[])
}

/// Loads both families' parts of a text.
fn load(namespace: &Namespace, variant: &str, text: &str, arguments: &[&str]) -> Result<()> {
    let (v4, v6) = text.find("# IPv6").map_or((text, text), |at| text.split_at(at));
    // a lock of our own: the host's is root's
    let lock = tempfile::NamedTempFile::new()?;
    let lock = format!("XTABLES_LOCKFILE={}", lock.path().display());
    for (program, text) in [("iptables", v4), ("ip6tables", v6)] {
        let program = format!("{program}-{variant}-restore");
        namespace.command("env", &[&[lock.as_str(), program.as_str()], arguments].concat(), text)?;
    }
    Ok(())
}

fn accepted(variant: &str) -> Result<()> {
    let namespace = Namespace::new("node")?;
    for name in ["policies", "web", "dual-stack"] {
        let path = format!("{}/rulesets/{name}.iptables", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).context(path)?;
        load(&namespace, variant, &text, &["--test"]).context(name)?;
        // legacy's test knows nothing of the kernel
        load(&namespace, variant, &text, &[]).context(name)?;
    }
    Ok(())
}

fn packets(lab: &mut Lab, variant: &str) -> Result<()> {
    let scene = Scene::new(lab, Stack::Dual, "L1 R2", &["203.0.113.2"])?;
    let lab = scene.lab;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let objects = [
        "service svc port=80@3001",
        "slice svc L1 R2",
        "service local ip=172.30.0.42 port=80@3002 eTP=Local",
        "slice local L1 R2",
        "service sticky ip=172.30.0.43 port=80@3003 affinity=10800",
        "slice sticky L1 R2",
        "service empty ip=172.30.0.44 port=80@3004",
    ];
    let node = ["--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.0.0.0/8,fd00:5c::a00:0/104"];
    let render = [&["render", "--mode", "iptables", "-f", "-"], &node[..]].concat();
    let text = lab.node().command(env!("CARGO_BIN_EXE_svcmap"), &render, &document(Stack::Dual, &objects))?;
    load(lab.node(), variant, &text, &[])?;
    let result = Family::BOTH.into_iter().try_for_each(|family| requests(lab, family));
    load(lab.node(), variant, EMPTY, &[])?;
    result
}

fn requests(lab: &Lab, family: Family) -> Result<()> {
    let (pod, outside) = (address("10.0.0.2", family), address("203.0.113.2", family));
    let of_node = |port| target("192.168.0.2", port, family);
    let cluster_ip = |ip| target(ip, 80, family);
    let mut seen = [0, 0];
    for _ in 0..20 {
        let answer = ask(lab, pod, Protocol::Tcp, cluster_ip("172.30.0.41"))?;
        ensure!(answer.seen.ip() == pod, "a pod was seen as {}", answer.seen);
        seen[usize::from(answer.by.ip() == address("10.180.0.2", family))] += 1;
    }
    ensure!(seen[0] > 0 && seen[1] > 0, "of 20 connections, the endpoints got {seen:?}");
    let answer = ask(lab, outside, Protocol::Tcp, cluster_ip("172.30.0.41"))?;
    ensure!(answer.masqueraded(), "a client outside was seen as {} at a ClusterIP", answer.seen);
    let answer = ask(lab, outside, Protocol::Tcp, of_node(3001))?;
    ensure!(answer.masqueraded(), "a client outside was seen as {} at a node port", answer.seen);
    let local = address("10.180.0.1", family);
    for _ in 0..10 {
        let answer = ask(lab, outside, Protocol::Tcp, of_node(3002))?;
        ensure!(answer.by.ip() == local && answer.seen.ip() == outside, "policy Local: {answer:?}");
    }
    let first = ask(lab, pod, Protocol::Tcp, cluster_ip("172.30.0.43"))?.by;
    for _ in 0..10 {
        let again = ask(lab, pod, Protocol::Tcp, cluster_ip("172.30.0.43"))?.by;
        ensure!(again == first, "session affinity: {first}, then {again}");
    }
    for to in [cluster_ip("172.30.0.44"), of_node(3004)] {
        let outcome = lab.probe(pod, Protocol::Tcp, to, PATIENCE)?;
        ensure!(outcome == Outcome::Refused, "{to}, without endpoints: {outcome}");
    }
    // a pod that is its own endpoint: it gets itself half of the times
    let to = cluster_ip("172.30.0.42");
    let answers = (0..40).map(|_| ask(lab, local, Protocol::Tcp, to));
    let mut itself = answers.filter(|answer| answer.as_ref().map_or(true, |answer| answer.by.ip() == local));
    let hairpin = itself.next().context("a pod never reached itself")??;
    ensure!(hairpin.masqueraded(), "a pod that reaches itself was seen as {}", hairpin.seen);
    Ok(())
}
