//! Rules of others beside the proxy's and among them: what changes connections is found, and what does not is not.

use std::io::Write;

use svcmap::audit::findings::findings;
use svcmap::audit::readers;
use svcmap::config::ProxyConfig;
use svcmap::explain::Surroundings;
use svcmap::source::load;
use svcmap::trace::Route;

use crate::common::world::World;
use crate::{everything, script, wanted};

/// A Service with endpoints in pods of both nodes, one with the node itself as its endpoint, one without endpoints, and one
/// on a load balancer's address that has endpoints on another node alone.
const SERVICES: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.128.0.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: t}
spec: {type: NodePort, clusterIPs: [10.96.0.5], externalIPs: [198.51.100.5], ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: t, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: '', port: 8080}]
endpoints: [{addresses: [10.128.0.7], nodeName: n1}, {addresses: [10.129.0.7], nodeName: n2}]
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: t}
spec: {clusterIPs: [10.96.0.1], ports: [{port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api-1, namespace: t, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: '', port: 6443}]
endpoints: [{addresses: [192.168.0.2], nodeName: n1}]
---
apiVersion: v1
kind: Service
metadata: {name: none, namespace: t}
spec: {clusterIPs: [10.96.0.6], ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: far, namespace: t}
spec:
  type: LoadBalancer
  clusterIPs: [10.96.0.7]
  externalTrafficPolicy: Local
  allocateLoadBalancerNodePorts: false
  ports: [{port: 80}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: far-1, namespace: t, labels: {kubernetes.io/service-name: far}}
addressType: IPv4
ports: [{name: '', port: 8080}]
endpoints: [{addresses: [10.129.0.8], nodeName: n2}]
---
apiVersion: v1
kind: Service
metadata: {name: six, namespace: t}
spec: {ipFamilies: [IPv6], clusterIPs: ['fd10:96::5'], ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: six-1, namespace: t, labels: {kubernetes.io/service-name: six}}
addressType: IPv6
ports: [{name: '', port: 8080}]
endpoints: [{addresses: ['fd10:128::7'], nodeName: n1}, {addresses: ['2001:db8::9'], nodeName: n2}]
";

fn world(pass_without_endpoints: bool) -> World {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(SERVICES.as_bytes()).unwrap();
    let mut world = World::new(ProxyConfig {
        node_name: "n1".into(),
        node_ips: ["192.168.0.2", "2001:db8::1"].map(|ip| ip.parse().unwrap()).to_vec(),
        cluster_cidrs: ["10.128.0.0/14", "fd10:128::/48"].map(|net| net.parse().unwrap()).to_vec(),
        pass_without_endpoints,
        ..ProxyConfig::default()
    });
    let loaded = load(&[file.path().to_owned()]).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    world.sync(loaded.snapshot);
    world
}

fn around() -> Surroundings {
    let mut around = Surroundings::with_addresses(&["192.168.0.2", "2001:db8::1"].map(|ip| ip.parse().unwrap()));
    around.pods = ["10.128.0.0/14", "fd10:128::/48"].map(|net| net.parse().unwrap()).to_vec();
    around
}

/// The same node with its routes.
fn with_routes() -> Surroundings {
    let mut around = around();
    around.node.interfaces[0].name = "eth0".into();
    around.node.routes =
        [("0.0.0.0/0", "eth0"), ("10.128.0.0/24", "cni0"), ("::/0", "eth0"), ("fd10:128::/64", "cni0")]
            .map(|(to, interface)| Route { to: to.parse().unwrap(), interface: interface.into() })
            .to_vec();
    around
}

/// What is found of the Services' rules with others after them.
fn found(whole: &str, foreign: &str, around: &Surroundings) -> String {
    let reading = readers::read(&format!("{whole}{foreign}")).unwrap();
    findings(&reading, around).iter().map(|one| format!("{one}\n")).collect()
}

/// A table with a chain that is hooked in like this.
fn table(kind: &str, rules: &str) -> String {
    format!("table inet host {{\n\tchain c {{\n\t\ttype {kind}; policy accept;\n\t\t{rules}\n\t}}\n}}\n")
}

/// Pods and the node are led to endpoints elsewhere, also where everybody else is let through.
#[test]
fn a_frontend_that_lets_through_leads_pods_to_endpoints_elsewhere() {
    let world = world(true);
    let reading = readers::read(&script(&world)).unwrap();
    assert_eq!(everything(&reading, &wanted(&world)), "");
    assert_eq!(found(&script(&world), "", &around()), "");
    // and it is found where they are not
    let text = script(&world);
    let at = text.find("198.51.100.7 . tcp . 80 . 0 : 10.129.0.8").unwrap_or_else(|| panic!("{text}"));
    let damaged = format!("{}{}", &text[..at], text[at..].replacen("10.129.0.8", "10.129.0.9", 1));
    let said = everything(&readers::read(&damaged).unwrap(), &wanted(&world));
    assert!(said.contains("10.129.0.9"), "{said}");
}

/// By the mark the proxy knows whose source address it has to replace.
#[test]
fn rules_that_change_the_masquerade_mark_are_found() {
    let whole = script(&world(false));
    let stays = "so that a source address stays that has to be replaced";
    let replaced = "so that a source address is replaced that has to stay";
    for (hook, rule, expected) in [
        ("prerouting priority -50", "meta mark set meta mark & 0xffff3fff", stays),
        ("postrouting priority 10", "meta mark set 0x00000000", stays),
        ("prerouting priority -150", "meta mark set meta mark | 0x00004000", replaced),
    ] {
        let said = found(&whole, &table(&format!("filter hook {hook}"), rule), &around());
        assert_eq!(said.matches("diverted: t/").count(), 1, "{rule}: {said}");
        assert!(said.contains("inet host c, rule 1: mark 0x") && said.contains(expected), "{rule}: {said}");
    }
    // other bits are others' own
    for rule in ["meta mark set meta mark & 0xffff7fff", "meta mark set meta mark | 0x00010000"] {
        for hook in ["prerouting priority -150", "prerouting priority -50", "postrouting priority 10"] {
            assert_eq!(found(&whole, &table(&format!("filter hook {hook}"), rule), &around()), "", "{hook}: {rule}");
        }
    }
    // and so are addresses that they replace by themselves
    let nat = table("nat hook postrouting priority srcnat + 10", "ip daddr != 10.128.0.0/14 masquerade");
    assert_eq!(found(&whole, &nat, &around()), "");
}

/// No proxy makes a rule of which it is not known whether it matches.
#[test]
fn a_rule_among_the_proxys_own_that_may_match_is_found() {
    let whole = script(&world(false));
    for rule in [
        "limit rate 10/second accept",
        "meta length > 1000 drop",
        "meta skuid 0 accept",
        "ct count over 10 drop",
        "tcp sport 1000-2000 accept",
    ] {
        let text = whole.replacen("\tchain dispatch {\n", &format!("\tchain dispatch {{\n\t\t{rule}\n"), 1);
        let said = found(&text, "", &around());
        assert!(said.contains("not understood: ip svcmap dispatch, rule 1: "), "{rule}: {said}");
        assert!(
            said.contains("if it matches, connections are led to no endpoint, for example from")
                || said.contains("if it matches, connections end before"),
            "{rule}: {said}"
        );
    }
}

/// The address that takes the place of a sender's is one of the node's.
#[test]
fn a_masqueraded_source_is_one_of_the_nodes() {
    let whole = script(&world(false));
    for hook in ["prerouting priority raw", "input priority filter"] {
        for around in [around(), with_routes()] {
            let hook = format!("filter hook {hook}");
            assert_eq!(found(&whole, &table(&hook, "ip saddr 198.18.0.0/15 drop"), &around), "");
            let said = found(&whole, &table(&hook, "ip saddr 192.168.0.0/16 drop"), &around);
            assert!(said.contains("diverted: t/api: inet host c, rule 1: drop, for example"), "{hook}: {said}");
        }
    }
}

/// A packet came in where the way back to its sender leads.
#[test]
fn reverse_path_filters_are_no_findings() {
    let whole = script(&world(false));
    let raw = "filter hook prerouting priority raw";
    let firewalld = include_str!("../data/foreign/firewalld.nft");
    for around in [around(), with_routes()] {
        assert_eq!(found(&whole, firewalld, &around), "");
        for rule in ["fib saddr . iif oif missing drop", "fib saddr . mark . iif oif missing drop"] {
            assert_eq!(found(&whole, &table(raw, rule), &around), "", "{rule}");
        }
        let said = found(&whole, &table(raw, "fib saddr . iif oif exists drop"), &around);
        assert!(said.contains("inet host c, rule 1: drop, for example"), "{said}");
    }
}

/// What is written into a packet beside its addresses and ports does not lead it elsewhere.
#[test]
fn statements_that_write_what_is_no_matter_are_no_findings() {
    let whole = script(&world(false));
    let forward = "filter hook forward priority mangle";
    for rule in [
        "tcp flags syn tcp option maxseg size set rt mtu",
        "tcp option maxseg size set 1400",
        "ip dscp set cs1",
        "ip6 dscp set cs1",
        "ip ecn set ce",
        "ip ttl set 64",
        "ct label set 1",
        "ct event set new",
        "meta priority set 1:1",
        "meta nftrace set 1",
    ] {
        assert_eq!(found(&whole, &table(forward, rule), &around()), "", "{rule}");
    }
    for rule in ["ip daddr set 10.9.9.9", "tcp dport set 81", "ip ttl set 1"] {
        let said = found(&whole, &table(forward, rule), &around());
        assert!(said.contains("connections cannot be followed beyond inet host c, rule 1: "), "{rule}: {said}");
    }
}

/// Which of two chains is first may be unknown where the same comes of it.
#[test]
fn an_order_that_comes_to_the_same_in_the_end_is_no_finding() {
    let whole = script(&world(false));
    let refuses = table("filter hook forward priority filter", "ip daddr 10.96.0.6 drop");
    assert_eq!(found(&whole, &refuses, &around()), "");
    for masquerade in ["masquerade", "masquerade fully-random"] {
        let nat = table(
            "nat hook postrouting priority srcnat",
            &format!("ip saddr 10.128.0.0/14 ip daddr != 10.129.0.0/16 {masquerade}"),
        );
        assert_eq!(found(&whole, &nat, &around()), "");
    }
    let nat = table("nat hook postrouting priority srcnat", "ip saddr 192.0.2.0/24 snat ip to 192.168.0.9");
    assert!(found(&whole, &nat, &around()).contains("it matters which one is first"));
}

/// A table of bridges, or of what comes in, that lets everything on is none that has to be looked at.
#[test]
fn tables_below_ip_that_only_accept_are_no_findings() {
    let whole = script(&world(false));
    let mut around = with_routes();
    around.node.interfaces.push(svcmap::trace::Interface {
        name: "cni0".into(),
        is_bridge: true,
        ..svcmap::trace::Interface::default()
    });
    let table = |family: &str, kind: &str, policy: &str, rules: &str| {
        format!(
            "table {family} low {{\n\tchain on {{\n\t\tether type arp accept\n\t}}\n\n\tchain c {{\n\t\ttype filter hook {kind} priority 0; policy {policy};\n\t\t{rules}\n\t}}\n}}\n"
        )
    };
    for (family, kind) in [("bridge", "forward"), ("netdev", "ingress device \"eth0\"")] {
        for rules in ["ether type arp accept", "jump on", "counter packets 0 bytes 0 accept"] {
            assert_eq!(found(&whole, &table(family, kind, "accept", rules), &around), "", "{family}: {rules}");
        }
        for (policy, rules) in [("accept", "ether type arp drop"), ("drop", "jump on")] {
            let said = found(&whole, &table(family, kind, policy, rules), &around);
            assert!(said.contains(&format!("beyond {family} low c sees")), "{family}: {rules}: {said}");
        }
    }
}
