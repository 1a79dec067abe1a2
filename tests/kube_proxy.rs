//! What was written for kube-proxy is understood: its flags, all of them, and the configurations of clusters as they are.

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::api_server;
use serde_json::Value;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kube-proxy");
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const NODE: [&str; 4] =
    ["--hostname-override=n1", "--node-ip=192.168.0.2", "--node-ip=fd00::2", "--detect-local-mode=ClusterCIDR"];

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(DATA).join(name)).unwrap()
}

/// The effective configuration that these arguments come to, and the warnings.
fn effective(arguments: &[&str]) -> (Value, Vec<String>) {
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap")).arg("config").args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    let warnings = said.lines().map(|line| line.strip_prefix("warning: ").unwrap_or_else(|| panic!("{said}")).into());
    (serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap(), warnings.collect())
}

/// Arguments beside a flag, so that nothing of the machine counts, and the flag is not given twice.
fn node_beside(flag: &str) -> Vec<&'static str> {
    let name = flag.split('=').next().unwrap();
    NODE.into_iter().filter(|argument| !argument.starts_with(name)).collect()
}

#[test]
fn every_flag_does_what_it_says_or_says_what_it_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config");
    std::fs::write(&config, "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n").unwrap();
    let (table, mut seen) = (read("flags.txt"), 0);
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let (flag, wanted) = line.split_once("  ").map_or((line, ""), |(flag, wanted)| (flag, wanted.trim()));
        seen += 1;
        if wanted == "[run]" {
            runs_and_ends(flag);
            continue;
        }
        let flag = flag.replace("CONFIG", config.to_str().unwrap());
        let (base, _) = effective(&node_beside(&flag));
        let (changed, warnings) = effective(&[&node_beside(&flag)[..], &[&flag]].concat());
        if !wanted.is_empty() {
            assert!(warnings.iter().any(|warning| warning.contains(wanted)), "{flag}: {warnings:?}");
            continue;
        }
        // `config` has no use for a cluster's address, and the file has nothing else in it than the flags beside it
        let aside = ["--master", "--config", "--iptables-localhost-nodeports", "--proxy-mode"];
        assert!(changed != base || aside.iter().any(|name| flag.starts_with(name)), "{flag} changes nothing");
        let about_the_node = |warning: &String| warning.contains("is ignored, because --config");
        assert!(warnings.iter().all(about_the_node), "{flag}: {warnings:?}");
    }
    assert_eq!(seen, 60, "{DATA}/flags.txt lists every flag once");
}

/// By what kube-proxy 1.36 itself says of its flags and of the fields of its configuration.
#[test]
fn nothing_that_kube_proxy_has_is_missing() {
    let Some(told) = api_server::ask("nothing_that_kube_proxy_has_is_missing", &["kube-proxy"]) else { return };
    let told = told.unwrap();
    let all = |kind: &str| -> BTreeSet<String> {
        told.lines().filter_map(|line| Some(line.strip_prefix(kind)?.trim().replace('_', "-"))).collect()
    };
    let table = read("flags.txt");
    let name = |line: &str| Some(line.strip_prefix("--")?.split(['=', ' ']).next()?.to_owned());
    let ours: BTreeSet<String> = table.lines().filter_map(name).collect();
    let missing: Vec<_> = all("flag ").difference(&ours).cloned().collect();
    assert_eq!(missing, [""; 0], "flags that {DATA}/flags.txt does not have");
    // the program of the tests has no log in JSON, help and version come with the command, and one flag is gone since 1.35
    let more = ["help", "log-json-info-buffer-size", "log-json-split-stream", "proxy-port-range", "version"];
    let gone: Vec<_> = ours.difference(&all("flag ")).cloned().collect();
    assert_eq!(gone, more, "flags that kube-proxy does not have any more");

    let (default, _) = effective(&NODE);
    let fields = all("field ");
    assert!(fields.len() > 60, "{fields:?}");
    for field in &fields {
        assert!(default.pointer(&format!("/{}", field.replace('.', "/"))).is_some(), "{field} is not known");
    }
}

/// Flags that make `run` do something else than run.
fn runs_and_ends(flag: &str) {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--", env!("CARGO_BIN_EXE_svcmap"), "run"])
        .args(NODE)
        .arg(flag)
        .output()
        .expect("unshare is needed (package util-linux)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{flag}: {said}");
    assert!(!said.contains("unexpected argument"), "{flag}: {said}");
}

#[test]
fn what_is_no_value_of_a_flag_is_refused_by_its_name() {
    for flag in [
        "--ipvs-strict-arp=maybe",
        "--v=much",
        "--feature-gates=A",
        "--feature-gates=A=yes",
        "--vmodule=a=b",
        "--ipvs-tcp-timeout=soon",
        "--proxy-mode=kernelspace",
        "--bind-address=x",
        "--logging-format=xml",
        "--ipvs-exclude-cidrs=x",
        "--no-such-flag=1",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_svcmap")).arg("config").args(NODE).arg(flag).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flag}: {said}");
        let value = flag.rsplit('=').next().unwrap();
        assert!(said.contains(value) || said.contains(flag.trim_end_matches("=1")), "{flag}: {said}");
    }
}

/// The fields of flags that give a port only, and of those that the other modes share with this one.
#[test]
fn fields_that_flags_come_to() {
    for (flags, pointer, wanted) in [
        (&["--healthz-port=10300"][..], "/healthzBindAddress", "0.0.0.0:10300"),
        (&["--healthz-bind-address=127.0.0.1", "--healthz-port=10300"], "/healthzBindAddress", "127.0.0.1:10300"),
        (&["--healthz-bind-address=127.0.0.1:5", "--healthz-port=10300"], "/healthzBindAddress", "127.0.0.1:5"),
        (&["--metrics-port=0"], "/metricsBindAddress", ""),
        (&["--bind-address=fd00::7"], "/metricsBindAddress", "[::1]:10249"),
        (&["--iptables-min-sync-period=0s"], "/nftables/minSyncPeriod", "0s"),
        (&["--proxy-mode=nftables", "--iptables-sync-period=1m"], "/nftables/syncPeriod", "1m0s"),
        (&["--proxy-mode=ipvs", "--ipvs-sync-period=1m"], "/nftables/syncPeriod", "1m0s"),
        (&["--proxy-mode=ipvs", "--ipvs-sync-period=1m", "--iptables-sync-period=7s"], "/nftables/syncPeriod", "1m0s"),
        (&["--iptables-min-sync-period=7s", "--proxy-mode=ipvs"], "/nftables/minSyncPeriod", "1s"),
        (&["--ipvs-sync-period=1m"], "/nftables/syncPeriod", "30s"),
        (&["--proxy-mode=ipvs"], "/mode", "ipvs"),
        (&[], "/mode", "nftables"),
    ] {
        let (found, _) = effective(&[&NODE[..], flags].concat());
        assert_eq!(found.pointer(pointer).and_then(Value::as_str), Some(wanted), "{flags:?}");
    }
    let (found, _) = effective(&[&NODE[..], &["--iptables-masquerade-bit=10"]].concat());
    assert_eq!(found.pointer("/nftables/masqueradeBit"), Some(&10.into()));
    let (_, warnings) = effective(&[&NODE[..], &["--proxy-mode=nftables", "--iptables-masquerade-bit=10"]].concat());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("iptables.masqueradeBit is set, and has no effect where mode is nftables"));
}

/// Flags in the other ways to write them that kube-proxy takes.
#[test]
fn flags_are_spelled_in_several_ways() {
    for (flags, plain) in [
        (
            &["--masquerade_all=T", "--bind_address=fd00::7"][..],
            &["--masquerade-all=true", "--bind-address=fd00::7"][..],
        ),
        (&["--bind-address-hard-fail=1"], &["--bind-address-hard-fail"]),
        (&["--conntrack-tcp-be-liberal=0"], &["--conntrack-tcp-be-liberal=false"]),
        (&["--feature-gates=A=TRUE", "--profiling=t"], &["--feature-gates=A=true", "--profiling"]),
        (&["-v=2"], &["--v", "2"]),
        (&["-v2", "--v=4", "--oom-score-adj=1", "--oom-score-adj=2"], &["-v", "4", "--oom-score-adj=2"]),
        (&["--nodeport-addresses=", "--proxy-mode=", "--kubeconfig=", "--feature-gates="], &[]),
    ] {
        let of = |flags: &[&str]| effective(&[&NODE[..], flags].concat());
        assert_eq!(of(flags), of(plain), "{flags:?}");
    }
    let nobody = ["--hostname-override=", "--node-ip=192.168.0.2"];
    assert_eq!(effective(&nobody), effective(&nobody[1..]), "no name stands for the host's");
}

/// The configuration within a ConfigMap, as a file.
fn unpack(name: &str, directory: &Path) -> PathBuf {
    let map: Value = serde_saphyr::from_str(&read(name)).unwrap();
    let data = map["data"].as_object().unwrap();
    let text = ["config.conf", "config"].iter().find_map(|key| data.get(*key)).and_then(Value::as_str).unwrap();
    let path = directory.join("config.conf");
    std::fs::write(&path, text).unwrap();
    path
}

/// The effective configuration of a ConfigMap as it is, and the warnings.
fn of_config_map(name: &str) -> (Value, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let config = unpack(name, directory.path());
    effective(&["--config", config.to_str().unwrap(), "--hostname-override=n1", "--node-ip=192.168.0.2", "--v=2"])
}

fn of_arguments(name: &str) -> (Value, Vec<String>) {
    let text = read(name);
    let arguments = text.lines().filter(|line| !line.starts_with('#')).chain(["--node-ip=192.168.0.2"]);
    effective(&arguments.collect::<Vec<_>>())
}

fn assert_fields(found: &Value, wanted: &[(&str, Value)]) {
    for (pointer, value) in wanted {
        assert_eq!(found.pointer(pointer), Some(value), "{pointer}");
    }
}

#[test]
fn kubeadms_config_map_is_understood() {
    let (found, warnings) = of_config_map("kubeadm.yaml");
    assert_eq!(warnings, [""; 0]);
    assert_fields(
        &found,
        &[
            ("/clusterCIDR", "10.244.0.0/16".into()),
            ("/clientConnection/kubeconfig", "/var/lib/kube-proxy/kubeconfig.conf".into()),
            ("/healthzBindAddress", "0.0.0.0:10256".into()),
            ("/conntrack/min", 131_072.into()),
            ("/nftables/syncPeriod", "30s".into()),
        ],
    );
}

#[test]
fn a_config_map_for_iptables_is_understood() {
    let (found, warnings) = of_config_map("eks.yaml");
    assert_eq!(
        warnings,
        [
            "mode: iptables is what the configuration says, and what is run; --mode nftables serves the same Services from maps"
        ]
    );
    assert_fields(&found, &[("/metricsBindAddress", "0.0.0.0:10249".into()), ("/oomScoreAdj", (-998).into())]);
}

#[test]
fn a_config_map_for_ipvs_is_understood() {
    let (found, warnings) = of_config_map("ipvs.yaml");
    let fields: Vec<&str> = warnings.iter().map(|warning| warning.split([' ', ':']).next().unwrap()).collect();
    assert_eq!(fields, ["mode"], "{warnings:?}");
    assert_fields(
        &found,
        &[
            ("/nftables/masqueradeAll", true.into()),
            ("/nftables/masqueradeBit", 13.into()),
            ("/nftables/minSyncPeriod", "5s".into()),
            ("/nftables/syncPeriod", "40s".into()),
        ],
    );
}

#[test]
fn the_arguments_of_k3s_are_understood() {
    let (found, warnings) = of_arguments("k3s.args");
    assert_eq!(
        warnings,
        [
            "mode: iptables is what the configuration says, and what is run; --mode nftables serves the same Services from maps"
        ]
    );
    let wanted = [("/clusterCIDR", "10.42.0.0/16".into()), ("/conntrack/maxPerCore", 0.into())];
    assert_fields(&found, &wanted);
}

#[test]
fn the_arguments_of_managed_clusters_are_understood() {
    let (found, warnings) = of_arguments("gke.args");
    assert_eq!(warnings, [""; 0]);
    assert_fields(&found, &[("/nftables/minSyncPeriod", "10s".into()), ("/detectLocalMode", "NodeCIDR".into())]);
    let (found, warnings) = of_arguments("aks.args");
    assert_eq!(warnings, [""; 0]);
    assert_fields(&found, &[("/metricsBindAddress", "0.0.0.0:10249".into()), ("/logging/verbosity", 3.into())]);
}

netns_test! {
    fn a_daemon_runs_with_kubeadms_config_map() {
        let directory = tempfile::tempdir().unwrap();
        let config = unpack("kubeadm.yaml", directory.path());
        let log = directory.path().join("log");
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_svcmap"))
            .args(["run", "--hostname-override=n1", "--node-ip=192.168.0.2", "--logging-format=json"])
            .args(["-f", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/web.yaml"), "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let logged = || std::fs::read_to_string(&log).unwrap();
        while !logged().contains("synced") && daemon.try_wait().unwrap().is_none() && started.elapsed() < PATIENCE {
            sleep(Duration::from_millis(20));
        }
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(logged().contains("synced"), "{}", logged());
        logged().lines().for_each(|line| drop(serde_json::from_str::<Value>(line).expect(line)));
        let listed = Command::new("nft").args(["list", "table", "ip", "svcmap"]).output().unwrap();
        assert!(String::from_utf8_lossy(&listed.stdout).contains("10.244.0.0/16"), "pods are not told from others");
    }
}
