//! `svcmap explain`: what it says of rules that would be made, of the kernel's, and of rules that it does not understand.

#[macro_use]
mod common;

use std::process::Command;

use svcmap::explain::explanation::Question;
use svcmap::explain::{Explanation, Surroundings, explain};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::objects::Protocol;
use svcmap::trace::Ruleset;

const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/web.yaml");
const NODE: [&str; 6] = ["--hostname-override", "n1", "--node-ip", "192.168.0.2", "--cluster-cidr", "10.244.0.0/16"];

/// Runs `svcmap explain` with these arguments: its status, its output and its messages.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap")).arg("explain").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn of_web(from: &str, to: &str) -> String {
    let (status, said, errors) = run(&[&["-f", WEB, "--from", from, "--to", to], &NODE[..]].concat());
    assert_eq!(status, Some(0), "{errors}");
    said
}

#[test]
fn a_pods_connection_is_followed_to_the_pick() {
    let said = of_web("10.244.1.9", "10.96.1.5:80");
    let expected = "\
tcp 10.244.1.9 -> 10.96.1.5:80: from a pod, through an interface that is not known
prerouting
  ip svcmap nat-prerouting rule 1: jump dispatch
  ip svcmap dispatch rule 1: services { 10.96.1.5 . tcp . 80 : goto cluster-3 }   # default/web:http
  ip svcmap dispatch rule 1: goto cluster-3
  ip svcmap cluster-3 rule 1: pod-cidrs { 10.244.0.0/16 }
  ip svcmap cluster-3 rule 1: goto pick-3
  [1/3]
    ip svcmap pick-3 rule 1: draws 0 of 3
    ip svcmap pick-3 rule 1: endpoints { 10.96.1.5 . tcp . 80 . 0 : 10.244.1.2 . 8080 }
    ip svcmap pick-3 rule 1: to 10.244.1.2:8080
    => 10.244.1.2:8080
";
    assert!(said.starts_with(expected), "{said}");
    let expected = "
outcome
       1/3  10.244.1.2:8080
       1/3  10.244.2.2:8080
       1/3  10.244.2.3:8080
";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn the_first_rule_that_other_clients_differ_in_is_said() {
    let said = of_web("10.244.1.9", "10.96.1.5:80");
    let (_, others) = said.split_once("other clients\n").expect("other clients are named");
    assert!(others.contains("outside (192.0.2.1): 1/3 10.244.1.2:8080, masqueraded;"), "{others}");
    let parts = "    here  prerouting: ip svcmap cluster-3 rule 1: pod-cidrs { 10.244.0.0/16 }
    there prerouting: ip svcmap cluster-3 rule 2: mark 0x00004000
";
    assert!(others.contains(parts), "{others}");
    assert!(of_web("10.244.1.9", "10.96.1.5:81").contains("  outside (192.0.2.1): the same\n"));
}

#[test]
fn programs_get_it_as_json() {
    let arguments = ["-f", WEB, "--from", "10.244.1.9", "--to", "10.96.1.5:443/TCP", "-o", "json"];
    let (status, said, errors) = run(&[&arguments[..], &NODE[..]].concat());
    assert_eq!(status, Some(0), "{errors}");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["client"], "pod");
    let outcomes = said["possibilities"][0]["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 3);
    assert_eq!(outcomes[0]["endpoint"], "10.244.1.2:8443");
    assert_eq!(outcomes[0]["masqueraded"], false);
    assert_eq!(said["possibilities"][0]["ways"][0]["steps"][1]["service"], "default/web:https");
    assert_eq!(said["others"][0]["client"], "node");
}

#[test]
fn what_is_asked_wrongly_is_said() {
    for (to, complaint) in [
        ("10.96.1.5", "is not an address and a port"),
        ("10.96.1.5:80/icmp", "\"icmp\" is no protocol of Services"),
        ("[fd00::1]:80", "are of different families"),
    ] {
        let (status, _, errors) = run(&[&["-f", WEB, "--from", "10.244.1.9", "--to", to], &NODE[..]].concat());
        assert_eq!(status, Some(2), "{errors}");
        assert!(errors.contains(complaint), "{to}: {errors}");
    }
}

#[test]
fn listings_of_kube_proxy_are_followed() {
    for generation in ["1.29", "1.34", "1.36", "1.37", "shared-map"] {
        let path = format!("{}/tests/data/rulesets/kube-proxy-{generation}.nft", env!("CARGO_MANIFEST_DIR"));
        let question = ["--ruleset", &path, "--from", "192.0.2.7", "--to", "203.0.113.5:80"];
        let (status, said, errors) = run(&[&question[..], &NODE[..]].concat());
        assert_eq!(status, Some(0), "{errors}");
        let expected = "
outcome
       1/3  10.244.1.2:8080, masqueraded
       1/3  10.244.2.2:8080, masqueraded
       1/3  10.244.2.3:8080, masqueraded
";
        assert!(said.contains(expected), "{generation}: {said}");
    }
}

/// Loads an nft script, and explains the pod's connection through what the kernel then holds.
fn loaded(script: &str) -> Explanation {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let status = Command::new("nft").arg("-f").arg(file.path()).env("PATH", path).status().expect("nft is needed");
    assert!(status.success(), "nft does not take\n{script}");
    let ruleset = Ruleset::read(&mut Connection::open(CodecKind::Native).unwrap()).unwrap();
    let mut surroundings = Surroundings::with_addresses(&["192.168.0.2".parse().unwrap()]);
    surroundings.pods = vec!["10.244.0.0/16".parse().unwrap()];
    let question = Question {
        from: "10.244.1.9".parse().unwrap(),
        to: "10.96.1.5:80".parse().unwrap(),
        protocol: Protocol::Tcp,
        interface: None,
    };
    explain(&ruleset, &surroundings, &question)
}

netns_test! {
    fn where_it_is_not_known_whether_a_rule_matches_both_possibilities_are_followed() {
        let said = loaded(
            "table ip host {\n chain in {\n type filter hook prerouting priority raw;\n limit rate 5/second drop\n }\n}\n\
             table ip other {\n chain nat {\n type nat hook prerouting priority dstnat;\n meta l4proto tcp dnat to 10.0.0.7:8080\n }\n}\n",
        );
        assert_eq!(said.possibilities.len(), 2, "{said}");
        let outcomes = said.possibilities.iter().map(|possible| possible.outcomes[0].text.as_str());
        assert_eq!(outcomes.collect::<Vec<_>>(), ["10.0.0.7:8080", "dropped"], "{said}");
        let text = said.to_string();
        assert!(text.contains("ip host in, rule 1 (handle 2) matches (limit is not understood)"), "{text}");
        assert!(text.contains("ip host in, rule 1 (handle 2) does not match (limit is not understood)"), "{text}");
    }
}

netns_test! {
    /// Where the same comes of both possibilities, it is told once; and the rule is named.
    fn possibilities_that_come_to_the_same_are_one() {
        let said = loaded(
            "table ip host {\n chain in {\n type filter hook prerouting priority raw;\n limit rate 5/second accept\n \
             meta cpu 0 accept\n ip ttl 9 accept\n }\n}\n\
             table ip last {\n chain in {\n type filter hook prerouting priority 0;\n meta cpu 1 drop\n }\n}\n",
        );
        assert_eq!(said.possibilities.len(), 2, "{said}");
        let outcomes = said.possibilities.iter().map(|possible| possible.outcomes[0].text.as_str());
        assert_eq!(outcomes.collect::<Vec<_>>(), ["untouched", "dropped"], "{said}");
        let text = said.to_string();
        for rule in ["rule 1 (handle 2) matches (limit", "rule 2 (handle 3) matches (meta cpu", "rule 3 (handle 4) matches (payload"] {
            assert_eq!(text.matches(&format!("  whether or not ip host in, {rule}")).count(), 2, "{text}");
        }
        assert!(text.contains("  if ip last in, rule 1 (handle 2) matches (meta cpu is not understood)"), "{text}");
        let outside = &said.others[1];
        assert!(outside.same, "{said}");
        let node = said.others[0].outcomes.join(" or ");
        assert!(node == "untouched" || said.others[0].same, "{said}");
    }
}

netns_test! {
    fn where_it_is_not_known_what_a_rule_does_the_way_there_is_told() {
        let said = loaded(
            "table ip host {\n chain on { ip daddr set 10.0.0.9 comment \"to the inspector\"; }\n\
             chain in {\n type filter hook prerouting priority raw;\n jump on\n }\n}\n",
        );
        let [only] = said.possibilities.as_slice() else { panic!("{said}") };
        let stopped = only.stopped.as_deref().unwrap_or_else(|| panic!("{said}"));
        assert!(stopped.starts_with("ip host on, rule 1 (handle 3)"), "{said}");
        assert!(stopped.contains("is not understood (its comment: \"to the inspector\")"), "{said}");
        assert!(said.to_string().contains("ip host in rule 1: jump on"), "{said}");
    }
}

/// The number that is drawn goes through the connection's mark to the map.
#[test]
fn the_proposed_shared_map_is_followed() {
    let path = format!("{}/tests/data/rulesets/kube-proxy-shared-map.nft", env!("CARGO_MANIFEST_DIR"));
    let question = ["--ruleset", &path, "--from", "10.244.1.9", "--to", "10.96.1.7:443"];
    let (status, said, errors) = run(&[&question[..], &NODE[..]].concat());
    assert_eq!(status, Some(0), "{errors}");
    let expected = "\noutcome\n       1/2  10.244.1.5:8443\n       1/2  10.244.2.5:8443\n";
    assert!(said.contains(expected), "{said}");
}

/// Where pods are told by the interface that their packets come in through, the rules themselves say which.
#[test]
fn pods_are_told_by_the_interface_that_rules_name() {
    let node = ["--hostname-override", "n1", "--node-ip", "192.168.0.2", "--detect-local-mode", "InterfaceNamePrefix"];
    let arguments = [&["render", "-f", WEB, "--pod-interface-name-prefix", "veth"], &node[..]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), output.stdout).unwrap();
    let path = file.path().to_str().unwrap();
    for (interface, who) in [("veth7", "from a pod"), ("eth0", "from outside")] {
        let question = [
            "--ruleset",
            path,
            "--node-ip",
            "192.168.0.2",
            "--from",
            "10.244.1.9",
            "--to",
            "10.96.1.5:80",
            "--interface",
            interface,
        ];
        let (status, said, errors) = run(&question);
        assert_eq!(status, Some(0), "{errors}");
        assert!(said.lines().next().unwrap().contains(who), "{interface}: {said}");
    }
}

/// A node may have more addresses than the one of each family that its rules know by number.
#[test]
fn every_address_of_the_node_is_its_own() {
    let manifests = std::fs::read_to_string(WEB).unwrap();
    let node = "
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  addresses:
  - {type: InternalIP, address: 192.168.0.2}
  - {type: ExternalIP, address: 192.168.0.3}
";
    let [plain, with_node] = [manifests.clone(), manifests + node].map(|text| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    });
    for (manifests, flags) in [
        (&with_node, &["--nodeport-addresses", "192.168.0.0/16"][..]),
        (&plain, &["--nodeport-addresses", "192.168.0.0/16", "--node-ip", "192.168.0.2", "--node-ip", "192.168.0.3"]),
        (&plain, &["--nodeport-addresses", "192.168.0.2/32,192.168.0.3/32", "--node-ip", "192.168.0.2"]),
    ] {
        let manifests = manifests.path().to_str().unwrap();
        let common = ["-f", manifests, "--hostname-override", "n1", "--cluster-cidr", "10.244.0.0/16"];
        for node_port in ["192.168.0.2:30080", "192.168.0.3:30080"] {
            let question = ["--from", "192.0.2.1", "--to", node_port];
            let (status, said, errors) = run(&[&common[..], flags, &question].concat());
            assert_eq!(status, Some(0), "{errors}");
            assert!(said.contains("1/3  10.244.1.2:8080, masqueraded"), "{flags:?}, {node_port}: {said}");
        }
        let question = ["--from", "192.168.0.3", "--to", "10.96.1.5:80"];
        let (_, said, _) = run(&[&common[..], flags, &question].concat());
        assert!(said.contains("from the node itself"), "{flags:?}: {said}");
    }
}

/// A bridge is told by its whole name, from the plan as from its rules.
#[test]
fn a_bridge_is_no_beginning_of_names() {
    let node = [&NODE[..], &["--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0"]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap")).args(["render", "-f", WEB]).args(&node).output().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), output.stdout).unwrap();
    let listing = ["--ruleset", file.path().to_str().unwrap(), "--node-ip", "192.168.0.2"];
    for rules in [&[&["-f", WEB], &node[..]].concat()[..], &listing] {
        for (interface, who) in [("cni0", "from a pod"), ("cni01", "from outside")] {
            let question = ["--from", "10.99.1.9", "--to", "10.96.1.5:80", "--interface", interface];
            let (status, said, errors) = run(&[rules, &question].concat());
            assert_eq!(status, Some(0), "{errors}");
            assert!(said.lines().next().unwrap().contains(who), "{interface}: {said}");
        }
    }
}
