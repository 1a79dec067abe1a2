//! kube-proxy's rulesets, in the layout of each generation and mode, say the same Services.

use svcmap::audit::compare;
use svcmap::audit::readers::{self, Layout};

use crate::{check, everything, of_cluster, of_samples, program, sample};

pub const NFTABLES: [&str; 4] =
    ["kube-proxy-1.29.nft", "kube-proxy-1.34.nft", "kube-proxy-1.36.nft", "kube-proxy-1.37.nft"];
pub const SHARED_MAP: [&str; 2] = ["kube-proxy-shared-map.nft", "kube-proxy-shared-map.json"];
pub const IPTABLES: &str = "kube-proxy-iptables.save";

#[test]
fn all_generations_of_kube_proxy_say_the_same_services() {
    let wanted = of_samples();
    let mut wrong = String::new();
    for (name, layout) in NFTABLES
        .map(|name| (name, Layout::KubeProxyNftables))
        .into_iter()
        .chain([(IPTABLES, Layout::KubeProxyIptables)])
    {
        let reading = readers::read(&sample(name)).unwrap();
        assert_eq!(reading.layouts, [layout], "{name}");
        wrong += &check(name, &reading, &wanted);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Nothing in the shared map tells names of Services, so that ClusterIPs are ports of their own until they are compared.
#[test]
fn the_proposed_shared_map_says_the_same_services() {
    for name in SHARED_MAP {
        let reading = readers::read(&sample(name)).unwrap();
        assert_eq!(reading.layouts, [Layout::KubeProxyNftables], "{name}");
        assert_eq!(everything(&reading, &of_samples()), "", "{name}");
        let nameless = reading.ports.keys().filter(|id| id.name.as_str().starts_with("?/")).count();
        assert_eq!((nameless, reading.ports.len()), (4, 9), "{name}");
    }
    let edits = [
        (
            "80 . 0x00000001 : 10.244.2.2 . 8080",
            "80 . 0x00000007 : 10.244.2.2 . 8080",
            "no endpoint with the number 1 of 3",
        ),
        (
            "80 . 0x00000001 : 10.244.2.2 . 8080",
            "80 . 0x00000007 : 10.244.2.2 . 8080",
            "nothing draws: 10.96.1.5:80/tcp has 1",
        ),
        ("80 . 0x00000001 : 10.244.2.2", "80 . 0x00000001 : 10.244.1.2", "Uneven"),
        ("80 . 0x00000001 : 10.244.2.2", "80 . 0x00000001 : 10.244.2.9", "default/web:http - endpoint 10.244.2.9:8080"),
        ("80 : goto dispatch-3", "80 : goto dispatch-4", "there is no chain dispatch-4"),
        ("80 : goto dispatch-3", "80 : goto dispatch-2", "nothing draws: 10.96.1.5:80/tcp has 1"),
        ("random mod 3 dnat ip to ip daddr", "random mod 2 dnat ip to ip daddr", "dispatch-3 does not draw one of 3"),
    ];
    for (from, to, expected) in edits {
        let text = sample(SHARED_MAP[0]);
        assert!(text.contains(from), "there is no {from:?}");
        let said = everything(&readers::read(&text.replacen(from, to, 1)).unwrap(), &of_samples());
        assert!(said.contains(expected), "{from:?} -> {to:?}: expected {expected:?}, said\n{said}");
    }
}

/// What kube-proxy 1.36.1 programmed for the objects of `cluster.yaml`: listings of nft and iptables-save. `README.md`
/// beside them says how they are made again; `tests/cluster_run` compares what it programs now.
#[test]
fn listings_of_the_real_kube_proxy_say_the_services_of_its_cluster() {
    let wanted = of_cluster();
    let mut wrong = String::new();
    for (name, layout) in [
        ("kube-proxy-real.nft", Layout::KubeProxyNftables),
        ("kube-proxy-real.json", Layout::KubeProxyNftables),
        ("kube-proxy-real.save", Layout::KubeProxyIptables),
    ] {
        let mut reading = readers::read(&sample(name)).unwrap();
        assert_eq!(reading.layouts, [layout], "{name}");
        // the Service of the API server itself
        reading.ports.retain(|id, _| id.name.as_str() != "default/kubernetes:https");
        wrong += &check(name, &reading, &wanted);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// In this mode, the policy Local holds for pods and the node as well; and there is no dropping where no endpoint is on
/// the node, but endpoints elsewhere are used.
#[test]
fn the_mode_ipvs_says_the_same_services_but_for_what_it_does_otherwise() {
    let reading = readers::read(&sample("kube-proxy-ipvs.save")).unwrap();
    assert_eq!((reading.layouts.as_slice(), reading.findings.as_slice()), (&[Layout::KubeProxyIpvs][..], &[][..]));
    let found: Vec<String> = compare(&reading.ports, &of_samples())
        .iter()
        .map(|one| format!("{} {} {}", one.service, one.sign, one.what))
        .collect();
    let expected = [
        "shop/api:tls ~ 203.0.113.7:443/tcp: policy Local, wanted Local, but Cluster for pods and the node",
        "shop/api:tls ~ IPv4 node port 30443/tcp: policy Local, wanted Local, but Cluster for pods and the node",
        "shop/away:p - endpoint of this node 10.244.2.6:80",
        "shop/away:p ~ 203.0.113.9:80/tcp: policy Local, wanted Local, but Cluster for pods and the node; endpoints, wanted drop",
    ];
    assert_eq!(found, expected);
}

netns_test! {
    fn what_the_programs_list_of_the_samples_is_read_as_the_samples_are() {
        let wanted = of_samples();
        let mut wrong = String::new();
        for name in NFTABLES {
            program("nft", &["-f", "-"], &format!("flush ruleset\n{}", sample(name)));
            for arguments in [&["list", "ruleset"][..], &["-j", "list", "ruleset"], &["-a", "list", "ruleset"]] {
                let reading = readers::read(&program("nft", arguments, "")).unwrap();
                wrong += &check(&format!("{name} {arguments:?}"), &reading, &wanted);
            }
        }
        program("nft", &["flush", "ruleset"], "");
        for variant in ["nft", "legacy"] {
            program(&format!("iptables-{variant}-restore"), &[], &sample(IPTABLES));
            for arguments in [&[][..], &["-c"]] {
                let text = program(&format!("iptables-{variant}-save"), arguments, "");
                wrong += &check(&format!("iptables-{variant}-save {arguments:?}"), &readers::read(&text).unwrap(), &wanted);
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// An edit of a text, and what has to be said of it then: a difference's sign and a part of it, or a finding's kind.
type Edit = (&'static str, &'static str, &'static str, &'static str);

/// A reading that overlooked something would pass every test above.
#[test]
fn edits_of_the_samples_are_found() {
    let edits: [Edit; 14] = [
        ("kube-proxy-1.29.nft", "dnat to 10.244.1.2:8080", "dnat to 10.244.1.77:8080", "- endpoint 10.244.1.77:8080"),
        (
            "kube-proxy-1.29.nft",
            "10.96.1.5 . tcp . 80 : goto",
            "10.96.1.5 . tcp . 81 : goto",
            "+ cluster IP 10.96.1.5:80/tcp",
        ),
        ("kube-proxy-1.34.nft", "timeout 3h", "timeout 1h", "session affinity: 3600 s, wanted 10800 s"),
        ("kube-proxy-1.34.nft", "tcp . 30080 : goto", "tcp . 30099 : goto", "- node port IPv4 node port 30099/tcp"),
        (
            "kube-proxy-1.34.nft",
            "203.0.113.9 . tcp . 80 comment \"shop/away:p\" : drop",
            "203.0.113.99 . tcp . 80 comment \"shop/away:p\" : drop",
            "endpoints, wanted drop",
        ),
        ("kube-proxy-1.36.nft", "0 : 10.244.1.2 . 8080", "0 : 10.244.2.2 . 8080", "Uneven"),
        (
            "kube-proxy-1.36.nft",
            "ip saddr != { 198.51.100.0/24 }",
            "ip saddr != { 198.51.100.0/25 }",
            "sources 198.51.100.0/25, wanted 198.51.100.0/24",
        ),
        (
            "kube-proxy-1.36.nft",
            "ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta",
            "ip daddr @cluster-ips meta",
            "masquerade yes, wanted off-cluster",
        ),
        ("kube-proxy-1.37.nft", "dnat to 10.244.1.3:53", "dnat to 10.244.1.3:5353", "+ endpoint 10.244.1.3:53"),
        (
            "kube-proxy-1.37.nft",
            "10.96.0.10 . udp . 53 : goto service-FY5PMXPG",
            "10.96.0.10 . udp . 53 : goto gone",
            "NotUnderstood",
        ),
        (IPTABLES, "--probability 0.33333333333", "--probability 0.6", "Uneven"),
        (
            IPTABLES,
            "default/web:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC",
            "default/web:http cluster IP\" -m tcp --dport 82 -j KUBE-SVC",
            "+ cluster IP 10.96.1.5:80/tcp",
        ),
        (IPTABLES, "--to-destination 10.244.1.4:80", "--to-destination 10.244.1.4:81", "- endpoint 10.244.1.4:81"),
        (IPTABLES, "--reject-with icmp-port-unreachable", "--no-such-thing x", "NotUnderstood"),
    ];
    let wanted = of_samples();
    for (name, from, to, expected) in edits {
        let text = sample(name);
        assert!(text.contains(from), "{name}: there is no {from:?}");
        let reading = readers::read(&text.replacen(from, to, 1)).unwrap();
        let said = everything(&reading, &wanted);
        assert!(said.contains(expected), "{name}: {from:?} -> {to:?}: expected {expected:?}, said\n{said}");
    }
}
