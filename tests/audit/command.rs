//! The command: what it prints, and how it ends.

use crate::common::program::with_input;
use crate::peers::{IPTABLES, NFTABLES};
use crate::{RULESETS, sample};

/// Runs `svcmap audit`: its status, output and messages.
pub fn audit(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    with_input(&[&["audit"], arguments].concat(), input)
}

#[test]
fn the_command_says_what_there_is_and_ends_accordingly() {
    let services = format!("{RULESETS}/services.yaml");
    let text = sample("kube-proxy-1.36.nft");
    let (status, said, errors) = audit(&["--ruleset", "-", "-f", &services], &text);
    assert_eq!(status, Some(0), "{said}{errors}");
    let expected = "\
kube-proxy (nftables): 6 Service ports

default/web:http (IPv4, tcp)
  cluster IP   10.96.1.5:80/tcp                policy Cluster; masquerade off-cluster
  external IP  203.0.113.5:80/tcp              policy Cluster; masquerade yes
  node port    IPv4 node port 30080/tcp        policy Cluster; masquerade yes
  endpoints    10.244.1.2:8080, 10.244.2.2:8080, 10.244.2.3:8080 (33.3 % each)
";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.ends_with("\ndifferences: 0\n\nfindings: 0\n"), "{said}");
    for expected in [
        "  external IP  203.0.113.7:443/tcp             policy Local, but Cluster for pods and the node; masquerade no; only from 198.51.100.0/24\n",
        "  external IP  203.0.113.9:80/tcp              dropped: no endpoints on this node\n",
        "  cluster IP   10.96.1.8:80/tcp                refused: no endpoints\n",
        "shop/sticky (IPv4, tcp, session affinity 10800 s)\n",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    let (status, said, _) = audit(&["--ruleset", "-", "-f", &services], &text.replace("30080", "30088"));
    assert_eq!(status, Some(1), "{said}");
    let expected = "
differences: 2
default/web:http:
  + ip node port IPv4 node port 30080/tcp
  - ip node port IPv4 node port 30088/tcp
";
    assert!(said.contains(expected), "{said}");
    let (status, _, errors) = audit(&["--ruleset", "-"], "nonsense");
    assert_eq!(status, Some(2));
    assert!(
        errors.contains("nothing that nft list ruleset, iptables-save, ipvsadm -Sn or ipset save prints"),
        "{errors}"
    );
}

#[test]
fn two_rulesets_are_compared_and_programs_get_json() {
    let [old, new] = [IPTABLES, NFTABLES[3]].map(|name| format!("{RULESETS}/{name}"));
    let (status, said, errors) = audit(&["--ruleset", &old, "--ruleset", &new, "-o", "json"], "");
    assert_eq!(status, Some(0), "{said}{errors}");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["layouts"][0], "kube-proxy (iptables)");
    assert_eq!(said["services"].as_array().unwrap().len(), 6);
    assert_eq!(said["services"][0]["endpoints"][0]["endpoint"], "10.244.1.2:8080");
    assert_eq!(said["differences"].as_array().unwrap().len(), 0);
    let limit = said["notLookedFor"][0].as_str().unwrap();
    assert!(limit.starts_with("rules of nftables that drop or divert"), "{limit}");
    let (status, _, errors) = audit(&["--ruleset", &old, "--ruleset", &new, "--ruleset", &new], "");
    assert_eq!(status, Some(2), "{errors}");
}

/// What was found instead is shown as it stands in the text.
#[test]
fn words_of_a_listing_are_shown_as_they_stand_there() {
    for (text, expected) in [
        ("*nat\ntable ip x {\n}\n", "a table was expected, not \"*nat\""),
        ("table ip x {\n\t;;\n\t} }\n", "a table was expected, not \"}\""),
        ("table ip x {\n", "a set, a map or a chain was expected, not the end of the text"),
        ("table ip x \"y\"\n", "\"{\" was expected, not \"y\""),
    ] {
        let (status, _, errors) = audit(&["--ruleset", "-"], text);
        assert_eq!(status, Some(2), "{errors}");
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
}
