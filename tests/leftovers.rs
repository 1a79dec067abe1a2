//! What kube-proxy left is taken away, and nothing else (behaviour row J12).

#[macro_use]
mod common;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::usurper::usurp;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/web.yaml");
const DUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/dual-stack.yaml");
const NODE: [&str; 6] = ["--hostname-override", "n1", "--node-ip", "192.168.0.2", "--cluster-cidr", "10.244.0.0/16"];
const FOREIGN: &str = include_str!("data/leftovers/foreign.rules");
const CANARIES: &str = include_str!("data/leftovers/canaries.rules");
const FOREIGN_TABLES: &str = include_str!("data/foreign/calico.nft");
const VARIANTS: [&str; 4] = ["iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"];

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    // nobody but us is in the namespace, and an ordinary user may not take the host's lock
    command
        .args(arguments)
        .env("XTABLES_LOCKFILE", "/dev/null")
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = command(program, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{input}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn svcmap(arguments: &[&str]) -> Output {
    command(env!("CARGO_BIN_EXE_svcmap"), arguments).output().unwrap()
}

/// Adds rules to those that the variant holds.
fn restore(variant: &str, rules: &str) {
    run(&format!("{variant}-restore"), &["--noflush"], rules);
}

/// All that all variants hold, without what depends on the time.
fn rules() -> String {
    let mut all = String::new();
    for variant in VARIANTS {
        let saved = run(&format!("{variant}-save"), &[], "");
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        writeln!(all, "{variant}").unwrap();
        lines.for_each(|line| writeln!(all, "{}", line.split(" [").next().unwrap()).unwrap());
    }
    all
}

fn tables() -> Vec<String> {
    let listed = run("nft", &["list", "tables"], "");
    let of_iptables = |line: &str| ["filter", "nat", "mangle"].iter().any(|name| line.ends_with(&format!(" {name}")));
    listed.lines().filter(|line| !of_iptables(line)).map(String::from).collect()
}

/// Makes what others have, in all variants.
fn make_foreign() {
    VARIANTS.iter().for_each(|variant| restore(variant, FOREIGN));
    run("nft", &["-f", "-"], FOREIGN_TABLES);
}

/// Makes what kube-proxy leaves: of its mode iptables in all variants, of nftables, and the interface of ipvs.
fn make_leftovers() {
    let node = [&NODE[..], &["--node-ip", "fd00::2"]].concat();
    let output = svcmap(&[&["render", "--mode", "iptables", "-f", DUAL], &node[..]].concat());
    let rendered = text(&output.stdout);
    let (v4, v6) = rendered.split_once("\n# IPv6").expect("both families");
    for (part, rules) in [("iptables", v4), ("ip6tables", v6.split_once('\n').expect("more than a heading").1)] {
        for variant in ["nft", "legacy"] {
            restore(&format!("{part}-{variant}"), &format!("{rules}\n"));
            restore(&format!("{part}-{variant}"), CANARIES);
        }
    }
    run("nft", &["-f", "-"], include_str!("data/leftovers/kube-proxy.nft"));
    // dummy interfaces are not in every kernel; of whatever kind it is, the name is kube-proxy's
    run("ip", &["link", "add", "kube-ipvs0", "type", "veth", "peer", "name", "other"], "");
    run("ip", &["addr", "add", "10.96.0.10/32", "dev", "kube-ipvs0"], "");
}

fn has_interface() -> bool {
    std::fs::read_to_string("/proc/thread-self/net/dev").unwrap().contains("kube-ipvs0:")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

netns_test! {
    /// Where svcmap itself lays its rules out as kube-proxy does.
    fn tables_go_alone() {
        make_foreign();
        let before = tables();
        make_leftovers();
        let full = rules();
        let report = svcmap::leftovers::remove_nftables();
        assert_eq!((report.removed.len(), report.troubles.as_slice()), (2, &[][..]), "{report:?}");
        assert_eq!((tables(), rules()), (before, full));
        assert!(has_interface());
    }
}

netns_test! {
    fn what_kube_proxy_left_goes_and_all_else_stays() {
        make_foreign();
        let (before, before_tables) = (rules(), tables());
        make_leftovers();
        let full = rules();
        for chain in ["KUBE-SVC-", "KUBE-SEP-", "KUBE-POSTROUTING", "KUBE-PROXY-CANARY"] {
            assert!(full.matches(chain).count() >= 4, "{chain} is not in all variants:\n{full}");
        }
        assert_eq!(tables().len(), before_tables.len() + 2);

        let output = svcmap(&["cleanup", "--kube-proxy"]);
        let (said, complaints) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), complaints.as_str()), (Some(0), ""), "{said}");
        assert_eq!(rules(), before, "{said}");
        assert_eq!(tables(), before_tables, "{said}");
        assert!(!has_interface());
        for what in ["table ip kube-proxy\n", "table ip6 kube-proxy\n", "interface kube-ipvs0\n", "table ip nat, and ",
            "table ip6 filter, and ", "table iptables nat, and ", "table ip6tables mangle, and "] {
            assert!(said.contains(what), "{what}: {said}");
        }
        let output = svcmap(&["cleanup", "--kube-proxy"]);
        assert_eq!(text(&output.stdout), "there is nothing of kube-proxy's: nothing removed\n");
        assert_eq!((output.status.code(), rules()), (Some(0), before));
    }
}

netns_test! {
    /// As network plugins do: they have no chain of their own that masquerades.
    fn what_somebody_else_leads_to_stays() {
        make_leftovers();
        for variant in VARIANTS {
            restore(variant, "*nat\n:KUBE-HOSTPORTS - [0:0]\n-A KUBE-HOSTPORTS -j KUBE-MARK-MASQ\nCOMMIT\n");
        }
        assert_eq!(svcmap(&["cleanup", "--kube-proxy"]).status.code(), Some(0));
        let left = rules();
        for line in ["-A KUBE-HOSTPORTS -j KUBE-MARK-MASQ", "-j KUBE-POSTROUTING", "-A KUBE-MARK-MASQ -j MARK"] {
            assert_eq!(left.matches(line).count(), 4, "{line}: {left}");
        }
        for chain in ["KUBE-SERVICES", "KUBE-SVC-", "KUBE-SEP-", "KUBE-NODEPORTS"] {
            assert!(!left.contains(chain), "{chain}: {left}");
        }
    }
}

netns_test! {
    fn run_cleanup_takes_svcmaps_tables_too() {
        make_foreign();
        let before = rules();
        make_leftovers();
        assert!(svcmap(&[&["apply", "-f", WEB], &NODE[..]].concat()).status.success());
        assert!(tables().iter().any(|table| table == "table ip svcmap"));
        let output = svcmap(&["run", "--cleanup"]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
        assert!(said.contains("removed table ip svcmap\n") && said.contains("removed table ip kube-proxy\n"), "{said}");
        assert!(tables().iter().all(|table| !table.contains("svcmap") && !table.contains("kube-proxy")));
        assert_eq!(rules(), before);
    }
}

netns_test! {
    fn a_daemon_takes_over_once_its_own_rules_are_in_force() {
        run("ip", &["link", "set", "lo", "up"], "");
        make_foreign();
        let before = rules();
        make_leftovers();
        let full = rules();
        let has_tables = || tables().iter().any(|table| table.contains("kube-proxy"));

        // with manifests nobody is replaced, unless that is asked for
        let daemon = Daemon::start(&[]);
        daemon.wait_for("synced");
        drop(daemon);
        assert!(rules() == full && has_tables(), "somebody else's rules went");

        let usurper = usurp();
        let daemon = Daemon::start(&["--remove-kube-proxy"]);
        daemon.wait_for("trying again in");
        assert!(rules() == full && has_tables(), "there are no rules of svcmap's yet");
        drop(usurper);
        daemon.wait_for("removed what kube-proxy left: interface kube-ipvs0");
        assert!(tables().iter().any(|table| table == "table ip svcmap"));
        assert_eq!(rules(), before);
        assert!(!has_tables());
    }
}

/// `svcmap run` with manifests.
struct Daemon {
    child: Child,
    directory: tempfile::TempDir,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Daemon {
        let directory = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let arguments = [&["run", "-f", WEB], &NODE[..], arguments].concat();
        let child = command(env!("CARGO_BIN_EXE_svcmap"), &arguments).stderr(log).spawn().unwrap();
        Daemon { child, directory }
    }

    fn wait_for(&self, line: &str) {
        let started = Instant::now();
        loop {
            let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap();
            if log.contains(line) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{line:?}: not within {PATIENCE:?}:\n{log}");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
