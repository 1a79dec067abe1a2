//! How commands end, and what they say before they do.

#[macro_use]
mod common;

use std::process::{Command, Output, Stdio};

use common::program::with_input;

const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/web.yaml");

/// Runs svcmap with a standard output that nobody reads any more.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(arguments)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

#[test]
fn a_reader_that_has_enough_is_no_reason_to_complain() {
    let node = ["--hostname-override", "n1", "--node-ip", "192.168.0.2", "--cluster-cidr", "10.244.0.0/16"];
    for arguments in [
        &["version"][..],
        &["config", "--hostname-override", "n1"],
        &["completions", "bash"],
        &["generate", "--services", "5"],
        &["generate", "--services", "5", "-o", "json"],
        &[&["render", "-f", WEB], &node[..]].concat(),
    ] {
        let output = unread(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        let complaints: Vec<_> = said.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert!(complaints.is_empty(), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

const ONE: &str =
    "{apiVersion: v1, kind: Service, metadata: {name: one}, spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}}";

#[test]
fn strict_takes_every_problem_of_an_object_as_a_reason_to_stop() {
    let two = ONE.replace("one", "two");
    let wrong = ONE.replace("10.96.0.9", "10.96.0.300");
    let render = ["render", "--strict", "-f", "-"];
    let (status, ruleset, said) = with_input(&render, ONE);
    assert_eq!(status, Some(0), "{said}");
    assert!(ruleset.contains("10.96.0.9 . tcp . 80"), "{ruleset}");
    for (manifests, complaint) in [
        (format!("{ONE}\n---\n{two}"), "Service default/two: 10.96.0.9:80/tcp belongs to Service default/one"),
        (wrong, "Service default/one: spec.clusterIP: \"10.96.0.300\" is not an IP address"),
        (ONE.replace("apiVersion: v1, ", ""), "Service default/one: apiVersion: is missing; v1 is read"),
    ] {
        let (status, ruleset, said) = with_input(&render, &manifests);
        assert_eq!((status, ruleset.as_str()), (Some(2), ""), "{manifests}: {said}");
        assert!(said.contains(complaint), "{manifests}: {said}");
        assert!(said.contains("--strict was given"), "{manifests}: {said}");
    }
}

#[test]
fn a_daemon_that_cannot_begin_ends_with_1() {
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(["run", "-f", "/no/such/file", "--hostname-override", "n1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
}

/// Runs svcmap outside of any pod; its status and messages.
fn outside(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(arguments)
        .args(["--hostname-override", "n1", "--node-ip", "192.168.0.2"])
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn without_any_input_it_is_said_what_could_be_given() {
    for (command, status) in [("run", 1), ("render", 2), ("apply", 2), ("diff", 2)] {
        let (found, said) = outside(&[command]);
        assert_eq!(found, Some(status), "{command}: {said}");
        for hint in ["-f PATH", "--kubeconfig FILE", "--master URL", "KUBERNETES_SERVICE_HOST"] {
            assert!(said.contains(hint), "{command}: {said}");
        }
    }
}

#[test]
fn manifests_and_a_cluster_are_not_followed_at_once() {
    for cluster in [["--kubeconfig", "x"], ["--master", "https://192.0.2.1"]] {
        for command in ["run", "render", "apply", "diff"] {
            let (status, said) = outside(&[&[command, "-f", WEB], &cluster[..]].concat());
            assert_eq!(status, Some(2), "{said}");
            assert!(said.contains("cannot be used with"), "{said}");
        }
    }
}

#[test]
fn a_cluster_that_cannot_be_reached_is_named() {
    for (arguments, complaint) in [
        (["--kubeconfig", "/no/such/file"], "error: kubeconfig /no/such/file: "),
        (["--master", "https://127.0.0.1:1"], "error: https://127.0.0.1:1/: Services cannot be read: "),
        (["--master", "localhost"], "error: --master localhost: not a URL such as https://192.0.2.1:6443"),
    ] {
        let (status, said) = outside(&[&["render"], &arguments[..]].concat());
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(complaint), "{said}");
    }
}

#[test]
fn devices_are_no_manifests() {
    for device in ["/dev/zero", "/dev/full"] {
        let (status, _, said) = with_input(&["render", "-f", device], "");
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("this is a device, not a file"), "{said}");
    }
}

#[test]
fn the_modes_of_kube_proxy_are_rendered() {
    let (status, rules, _) = with_input(&["render", "--mode", "iptables", "-f", "-"], ONE);
    assert_eq!(status, Some(0));
    assert!(rules.contains("-d 10.96.0.9 --dport 80 -j REJECT"), "{rules}");
    let (status, servers, _) = with_input(&["render", "--mode", "ipvs", "--part", "ipvsadm", "-f", "-"], ONE);
    assert_eq!((status, servers.as_str()), (Some(0), "-A -t 10.96.0.9:80 -s rr\n"));
    let (status, _, said) = with_input(&["render", "--part", "ipvsadm", "-f", "-"], ONE);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--part: only the mode ipvs is in parts"), "{said}");
}

/// A configuration that was written for one of kube-proxy's other modes chooses the mode, unless the flag does.
#[test]
fn a_file_chooses_the_mode_that_is_run_where_nobody_else_does() {
    let directory = tempfile::tempdir().unwrap();
    let [file, written] = ["config", "written"].map(|name| directory.path().join(name));
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    std::fs::write(&file, format!("{head}mode: ipvs\nipvs: {{scheduler: wrr}}\n")).unwrap();
    for (flags, mode, told) in [
        (&[][..], "ipvs", "what the configuration says"),
        (&["--mode", "nftables"], "nftables", "mode: ipvs does not count"),
        (&["--mode", "ipvs"], "ipvs", ""),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
            .args(["run", "--hostname-override=n1", "--node-ip=192.168.0.2", "--config"])
            .arg(&file)
            .arg("--write-config-to")
            .arg(&written)
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(told) && (said.is_empty() == told.is_empty()), "{said}");
        let line = format!("mode: {mode}");
        assert!(std::fs::read_to_string(&written).unwrap().lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn rules_in_the_layout_of_kube_proxy_are_not_taken_for_its_leftovers() {
    for mode in ["iptables", "ipvs"] {
        let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
            .args(["run", "--mode", mode, "--remove-kube-proxy", "-f", WEB, "--hostname-override", "n1"])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{mode}: {errors}");
        assert!(errors.contains("--remove-kube-proxy: in this mode"), "{mode}: {errors}");
    }
}

#[test]
fn messages_that_nobody_takes_are_no_reason_to_fail() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(["render", "-f", WEB, "--hostname-override", "n1"])
        .stderr(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("map services"));
}

#[test]
fn a_pipe_is_read_once_and_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("cluster.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, ONE));
    let (status, ruleset, said) = with_input(&["render", "-f", pipe.to_str().unwrap()], "");
    assert_eq!(status, Some(0), "{said}");
    assert!(ruleset.contains("10.96.0.9 . tcp . 80"), "{ruleset}");
    writer.join().unwrap().unwrap();
}

#[test]
fn an_input_without_services_is_said_so_and_null_is_no_mistake() {
    let pod = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
    let (status, _, said) = with_input(&["render", "--strict", "-f", "-"], &format!("null\n---\n{pod}\n---\n~\n"));
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("no Service in the input"), "{said}");
    let (_, _, said) = with_input(&["render", "-f", "-"], &format!("null\n---\n{ONE}"));
    assert!(!said.contains("no Service in the input") && !said.contains("null"), "{said}");
}

#[test]
fn a_generated_node_has_a_name_that_nodes_can_have() {
    for (name, status) in [("BAD NAME", 2), ("-a", 2), ("worker-1.example", 0)] {
        let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
            .args(["generate", "--services", "1", &format!("--node={name}")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(status), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Runs svcmap with a standard output that has no room.
fn unprinted(arguments: &[&str]) -> (Option<i32>, String) {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap")).args(arguments).stdout(full).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

netns_test! {
    fn a_result_that_cannot_be_printed_is_a_failure_and_no_answer() {
        let node = ["--hostname-override", "n1", "--node-ip", "192.168.0.2", "--cluster-cidr", "10.244.0.0/16"];
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rulesets/kube-proxy-1.36.nft");
        let manifests = [&["-f", WEB], &node[..]].concat();
        let way = ["--from", "10.244.1.9", "--to", "10.96.1.5:80"];
        // of the last three 1 is an answer: there is something to look at
        for (status, arguments) in [
            (1, vec!["version"]),
            (1, vec!["completions", "bash"]),
            (1, vec!["generate", "--services", "5"]),
            (1, [&["config"], &node[..]].concat()),
            (1, [&["render"], &manifests[..]].concat()),
            (1, [&["apply"], &manifests[..]].concat()),
            (1, vec!["top", "--once", "--interval", "0s"]),
            (1, vec!["cleanup"]),
            (2, [&["explain"], &manifests[..], &way].concat()),
            (2, [&["explain", "-o", "json"], &manifests[..], &way].concat()),
            (2, [&["diff"], &manifests[..]].concat()),
            (2, [&["diff", "-o", "json"], &manifests[..]].concat()),
            (2, vec!["audit", "--ruleset", rules]),
            (2, vec!["audit", "--ruleset", rules, "-o", "json"]),
        ] {
            let (found, said) = unprinted(&arguments);
            assert_eq!(found, Some(status), "{arguments:?}: {said}");
            assert!(said.contains("error: standard output: No space left on device"), "{arguments:?}: {said}");
        }
        // nor does it matter to an answer who reads it
        assert_eq!(unread(&["audit", "--ruleset", rules, "--node-ip", "192.168.0.2"]).status.code(), Some(0));
        assert_eq!(unread(&[&["diff"], &manifests[..]].concat()).status.code(), Some(1));
    }
}

/// As some editors and systems write them: a mark at the beginning, and two characters at the end of a line.
#[test]
fn marks_and_line_ends_of_other_systems_are_read() {
    let elsewhere = |text: &str| [text.replace('\n', "\r\n"), format!("\u{feff}{text}"), format!("\r\n{text}")];
    let manifests = std::fs::read_to_string(WEB).unwrap();
    let (_, rules, _) = with_input(&["render", "-f", "-"], &manifests);
    for text in elsewhere(&manifests) {
        assert_eq!(with_input(&["render", "-f", "-"], &text).1, rules);
    }
    let sample =
        |name: &str| std::fs::read_to_string(format!("{}/tests/data/rulesets/{name}", env!("CARGO_MANIFEST_DIR")));
    let listings = ["kube-proxy-1.36.nft", "kube-proxy-real.json", "kube-proxy-iptables.save", "kube-proxy-ipvs.save"];
    for listing in listings.map(|name| sample(name).unwrap()).into_iter().chain([rules]) {
        let audited = with_input(&["audit", "--ruleset", "-"], &listing);
        assert!(audited.1.contains("10.96.1.5:80/tcp"), "{audited:?}");
        for text in elsewhere(&listing) {
            assert_eq!(with_input(&["audit", "--ruleset", "-"], &text), audited);
        }
    }
}

/// As kube-proxy has it, what is given empty is not given.
#[test]
fn empty_flags_are_none() {
    let (status, plain, _) = with_input(&["render", "-f", WEB], "");
    assert_eq!(status, Some(0));
    for empty in [
        &["--config="][..],
        &["--config", ""],
        &["--config", "/no/such/file", "--config="],
        &["--config=/no/such/file", "--config", ""],
        &["--kubeconfig="],
        &["--master="],
        &["--master", "https://192.0.2.1", "--master="],
        &["--detect-local-mode="],
    ] {
        let (status, rules, said) = with_input(&[&["render", "-f", WEB], empty].concat(), "");
        assert_eq!((status, rules == plain), (Some(0), true), "{empty:?}: {said}");
    }
    let (status, _, said) = with_input(&["render", "-f", WEB, "--config=", "--config=/no/such/file"], "");
    assert_eq!(status, Some(2), "{said}");
}

/// A Service whose sources cannot be read is not opened to everybody, and another one gets its address: both is said.
#[test]
fn an_address_that_is_left_to_another_service_is_said_so() {
    let balanced = |name: &str, cluster: u8, created: &str, ranges: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, creationTimestamp: {created:?}}}, spec: {{type: \
             LoadBalancer, clusterIP: 10.96.0.{cluster}, ports: [{{port: 80}}]{ranges}}}, status: {{loadBalancer: \
             {{ingress: [{{ip: 192.0.2.80}}]}}}}}}\n---\n"
        )
    };
    let old = balanced("old", 1, "2020-01-01T00:00:00Z", ", loadBalancerSourceRanges: [everybody]");
    let young = balanced("young", 2, "2021-01-01T00:00:00Z", "");
    let (status, rules, said) = with_input(&["render", "-f", "-"], &format!("{old}{young}"));
    assert_eq!(status, Some(0), "{said}");
    assert!(rules.contains("192.0.2.80 . tcp . 80 comment \"default/young\""), "{rules}");
    let told = "Service default/old: status.loadBalancer.ingress: is left out, because no entry of \
                loadBalancerSourceRanges can be read; another Service that asks for the same address gets it";
    assert!(said.contains(told), "{said}");
}

#[test]
fn one_thing_is_no_plural() {
    let (_, rules, _) = with_input(&["render", "-f", "-"], ONE);
    let (status, said, _) = with_input(&["audit", "--ruleset", "-"], &rules);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("svcmap: 1 Service port\n"), "{said}");
}
