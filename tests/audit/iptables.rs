//! Rules of iptables are believed, not the names of their chains: what damages them is found, and nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use svcmap::audit::Port;
use svcmap::audit::findings::findings;
use svcmap::audit::readers;
use svcmap::explain::Surroundings;
use svcmap::iptables::Ruleset;
use svcmap::objects::Family;
use svcmap::plan::{Plan, PortId};

use crate::peers::IPTABLES;
use crate::{everything, found, of_cluster, of_samples, said_of_edits, sample, wanted, worlds};

/// What `svcmap render --mode iptables` would print of a plan.
fn rendered(plan: &Plan) -> String {
    [(Family::V4, "iptables"), (Family::V6, "ip6tables")]
        .map(|(family, program)| format!("# {program}\n{}", Ruleset::new(plan, family).text()))
        .concat()
}

#[test]
fn good_rules_have_no_findings() {
    let mut wrong = String::new();
    for (name, world) in worlds() {
        let plan = Plan::new(world.state.node().clone(), world.state.ports().cloned());
        let own = Surroundings::of_plan(&plan.node, &plan.node.node_ips);
        let reading = readers::read(&rendered(&plan)).unwrap();
        for surroundings in [&own, &Surroundings::default()] {
            let found = findings(&reading, surroundings);
            wrong += &found.iter().map(|one| format!("{name}: {one}\n")).collect::<String>();
        }
    }
    for name in [IPTABLES, "kube-proxy-real.save"] {
        wrong += &found(&sample(name)).lines().map(|line| format!("{name}: {line}\n")).collect::<String>();
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("rulesets");
    for name in ["web.iptables", "policies.iptables", "dual-stack.iptables"] {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        wrong += &found(&text).lines().map(|line| format!("{name}: {line}\n")).collect::<String>();
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Rules that may be missing without anything to be seen, and why.
const UNSEEN: [(&str, &str); 7] = [
    ("other traffic to ", "a rule without a target"),
    ("-A KUBE-FORWARD -m conntrack --ctstate INVALID", "kube-proxy leaves it out where the kernel is liberal"),
    ("kubernetes forwarding conntrack rule", "answers pass by the policy"),
    ("health check node port\"", "passes by the policy, and which Services have such a port is not in the rules"),
    ("localhost_nps_accepted_pkts", "counts, and the next rule leads to the same chain"),
    ("-A KUBE-FIREWALL", "the guard of loopback addresses, where no node port is served on them"),
    ("-A KUBE-MARK-OFF-CLUSTER", "one of several prefixes of pods"),
];

fn without(text: &str, at: usize) -> String {
    let others = text.lines().enumerate().filter(|(line, _)| *line != at);
    others.map(|(_, line)| format!("{line}\n")).collect()
}

/// The samples with what their Services mean: written after kube-proxy, made by it, and made by svcmap.
fn samples() -> Vec<(&'static str, String, BTreeMap<PortId, Port>)> {
    let world = crate::generated(6, true);
    let plan = Plan::new(world.state.node().clone(), world.state.ports().cloned());
    let real = sample("kube-proxy-real.save");
    let mut of_real = of_cluster();
    // the Service of the API server itself
    let own = readers::read(&real).unwrap().ports.into_iter();
    of_real.extend(own.filter(|(id, _)| id.name.as_str() == "default/kubernetes:https"));
    vec![
        (IPTABLES, sample(IPTABLES), of_samples()),
        ("kube-proxy-real.save", real, of_real),
        ("rendered", rendered(&plan), wanted(&world)),
    ]
}

#[test]
fn every_rule_that_is_missing_is_noticed() {
    let mut wrong = String::new();
    for (name, text, wanted) in samples() {
        let said = |text: &str| everything(&readers::read(text).unwrap(), &wanted);
        assert_eq!(said(&text), "", "{name}");
        for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("-A ")) {
            let is_unseen = UNSEEN.iter().any(|(part, _)| line.contains(part));
            if !is_unseen && said(&without(&text, at)).is_empty() {
                wrong += &format!("{name}: nothing is said without {line}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Chains where a rule more changes nothing, and why.
const UNUSED: [(&str, &str); 6] = [
    ("KUBE-PROXY-CANARY", "nothing leads there"),
    ("KUBE-KUBELET-CANARY", "nothing leads there"),
    ("mangle", "Services have nothing there; dropping is told apart below"),
    ("KUBE-FIREWALL", "packets to loopback addresses are dropped anyway"),
    ("filter KUBE-NODEPORTS", "health checks are no Service's frontends"),
    ("nat INPUT", "comes after the way is decided"),
];

/// Rules at the head of each chain that end what comes there.
#[test]
fn every_rule_too_many_that_ends_connections_is_noticed() {
    let mut wrong = String::new();
    for (name, text, wanted) in samples() {
        let (mut table, mut seen) = ("", 0);
        for (at, line) in text.lines().enumerate() {
            table = line.strip_prefix('*').unwrap_or(table);
            let Some(chain) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) else { continue };
            let of_table = format!("{table} {chain}");
            if UNUSED.iter().any(|(unused, _)| of_table.contains(unused)) {
                continue;
            }
            let lines: Vec<&str> = text.lines().collect();
            let end = at + lines[at..].iter().position(|line| !line.starts_with(':')).unwrap();
            let edited = [&lines[..end], &[&format!("-A {chain} -j DROP")], &lines[end..]].concat().join("\n") + "\n";
            let said = everything(&readers::read(&edited).unwrap(), &wanted);
            seen += 1;
            let place = format!("{table} {chain}, rule 1 (line {}): DROP", end + 1);
            if !said.contains(&place) {
                wrong += &format!("{name}: {place:?} is not in\n{said}\n");
            }
        }
        assert!(seen > 20, "{name}: {seen} chains");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Edits of the sample, and what is said then.
const EDITS: &[(&str, &str, &str)] = &[
    (
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT",
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP",
        "diverted: ip filter FORWARD, policy DROP; from a pod to ",
    ),
    (
        "*nat\n",
        "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 80 -j NOTRACK\nCOMMIT\n*nat\n",
        "ip raw PREROUTING, rule 1 (line 4): NOTRACK, so that connections are neither new nor translated; from a pod to ",
    ),
    (
        "*nat\n",
        "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.1.5/32 -j CT --notrack\nCOMMIT\n*nat\n",
        "diverted: default/web:http: ip raw PREROUTING, rule 1 (line 4): CT",
    ),
    (
        "*nat\n",
        "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 443 -j TPROXY --on-port 9 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1\nCOMMIT\n*nat\n",
        "diverted: shop/api:tls: ip mangle PREROUTING, rule 1 (line 4): TPROXY; from a pod to 10.96.1.7:443/tcp",
    ),
    (
        "-A PREROUTING -m comment",
        "-A PREROUTING -d 203.0.113.5/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.9.9.9:80\n-A PREROUTING -m comment",
        "diverted: default/web:http: ip nat PREROUTING, rule 1 (line",
    ),
    (
        "-A PREROUTING -m comment",
        "-A PREROUTING -p udp -m udp --dport 53 -j REDIRECT --to-ports 15353\n-A PREROUTING -m comment",
        "REDIRECT to 127.0.0.1:15353; from a pod to 10.96.0.10:53/udp",
    ),
    (
        "-A PREROUTING -m comment",
        "-A PREROUTING -j ACCEPT\n-A PREROUTING -m comment",
        "diverted: ip nat PREROUTING, rule 1 (line 31): ACCEPT ends the way before any endpoint; from ",
    ),
    (
        "-A OUTPUT -m comment",
        "-A OUTPUT -d 10.96.0.0/12 -j RETURN\n-A OUTPUT -m comment",
        "RETURN ends the way before any endpoint; from the node itself to 10.96.",
    ),
    (
        "-A POSTROUTING -m comment",
        "-A POSTROUTING -j ACCEPT\n-A POSTROUTING -m comment",
        "diverted: ip nat POSTROUTING, rule 1 (line 33): ACCEPT ends the way before masquerading",
    ),
    (
        "-A KUBE-SERVICES -d 10.96.1.5/32 -p tcp",
        "-A KUBE-SERVICES -j RETURN\n-A KUBE-SERVICES -d 10.96.1.5/32 -p tcp",
        "damaged: ip nat KUBE-SERVICES, rule 1 (line ",
    ),
    (
        "--set-xmark 0x4000/0x4000",
        "--set-xmark 0x8000/0x8000",
        "damaged: ip nat KUBE-POSTROUTING, rule 1 (line 48): RETURN in spite of KUBE-MARK-MASQ, whose mark is 0x8000; ",
    ),
    (
        "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n",
        "",
        "damaged: nat KUBE-POSTROUTING leaves the mark on what it masquerades",
    ),
    ("-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n", "", "MASQUERADE of what is not marked for it"),
    (
        "-A KUBE-EXT-GOPEBJCRM27HHRN3 -m comment --comment \"route LOCAL",
        "-A KUBE-X -m comment --comment \"route LOCAL",
        "endpoint 10.244.2.5:8443 is not reached; from the node itself to IPv4 node port 30443/tcp",
    ),
    (
        "-m recent --set --name KUBE-SEP-JOJP2P64P2QJZYCJ --mask 255.255.255.255 --rsource ",
        "",
        "damaged: shop/sticky: nat KUBE-SEP-JOJP2P64P2QJZYCJ does not note its clients",
    ),
    (
        "--rcheck --seconds 10800 --reap --name KUBE-SEP-RT3NQ2PRFLGLKBKB",
        "--rcheck --seconds 10 --reap --name KUBE-SEP-RT3NQ2PRFLGLKBKB",
        "for another time than the others",
    ),
    (
        "-A KUBE-PROXY-FIREWALL -d 203.0.113.7/32",
        "-A KUBE-PROXY-FIREWALL -s 10.0.0.0/8 -j RETURN\n-A KUBE-PROXY-FIREWALL -d 203.0.113.7/32",
        "damaged: shop/api:tls: sources that are not allowed are not dropped; from a pod to 203.0.113.7:443/tcp",
    ),
    (
        "-A FORWARD -m conntrack",
        "-A FORWARD -m u32 --u32 0>>22&0x3C@4=0 -j DROP\n-A FORWARD -m conntrack",
        "not understood: whether this rule matches cannot be told: ip filter FORWARD, rule 1 (line ",
    ),
    (
        "-A FORWARD -m conntrack",
        "-A FORWARD -m connlimit --connlimit-above 10 --connlimit-mask 32 --connlimit-saddr -j DROP\n-A FORWARD -m conntrack",
        "not understood: whether this rule matches cannot be told: ip filter FORWARD, rule 1 (line ",
    ),
    (
        "-A PREROUTING -m comment",
        "-A PREROUTING -i eth0 -j ACCEPT\n-A PREROUTING -m comment",
        "not understood: whether this rule matches cannot be told: ip nat PREROUTING, rule 1 (line 31): ACCEPT",
    ),
    (
        "-A POSTROUTING -m comment",
        "-A POSTROUTING -o eth0 -j RETURN\n-A POSTROUTING -m comment",
        "not understood: whether this rule matches cannot be told: ip nat POSTROUTING, rule 1 (line ",
    ),
    (
        "-A PREROUTING -m comment",
        "-A OTHER -i eth0 -j ACCEPT\n-A PREROUTING -j OTHER\n-A PREROUTING -m comment",
        "not understood: whether this rule matches cannot be told: ip nat OTHER, rule 1 (line 31): ACCEPT",
    ),
    (
        "-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n",
        "",
        "missing: ip filter FORWARD does not lead to KUBE-FORWARD",
    ),
];

#[test]
fn what_is_said_names_the_rule() {
    let text = sample(IPTABLES);
    said_of_edits(&text, EDITS);
}

/// One cause is one finding, however many Services suffer from it.
#[test]
fn findings_are_grouped_by_cause() {
    let (_, text, _) = samples().remove(1);
    let jump = "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n";
    let said = found(&text.replacen(jump, "", 1));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("missing: ip nat PREROUTING does not lead to KUBE-SERVICES; "), "{said}");
}

/// What other programs have beside kube-proxy, and what does no harm.
#[test]
fn rules_of_others_that_do_no_harm_are_none() {
    let others = "\
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -m physdev --physdev-is-bridged -j DROP
-A FORWARD -m limit --limit 3/min -j LOG --log-prefix \"forward: \"
-A FORWARD -s 192.0.2.128/25 -j DROP
-A FORWARD -p icmp -m icmp --icmp-type 8 -j DROP
-A FORWARD -m set ! --match-set nobody src -j ACCEPT
-A INPUT -p tcp -m multiport --dports 22,8443 -j DROP
-A INPUT -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m connlimit --connlimit-above 1000 -j DROP
-A INPUT -p tcp ! --syn -m conntrack --ctstate NEW -j DROP
-A FORWARD -m conntrack --ctstate NEW";
    let text = sample(IPTABLES).replacen("-A FORWARD -m conntrack --ctstate NEW", others, 1);
    let text = text.replacen(
        "-A POSTROUTING -m comment",
        "-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment \"leaves the cluster\" -j MASQUERADE\n-A POSTROUTING -m comment",
        1,
    );
    let text = text.replacen(
        "-A PREROUTING -m comment",
        "-A DOCKER -i docker0 -j RETURN\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A PREROUTING -m comment",
        1,
    );
    let text = text.replacen("-A KUBE-MARK-MASQ", "-A PREROUTING -i eth0 -j ACCEPT\n-A KUBE-MARK-MASQ", 1);
    assert_eq!(found(&text), "");
}

/// `iptables-save` ends well where it cannot list a table, and has said so in a comment.
#[test]
fn tables_that_cannot_be_listed_are_said() {
    let text = sample(IPTABLES);
    let at = text.find("*filter").unwrap();
    let edited = format!("{}# Table `filter' is incompatible, use 'nft' tool.\n{}", &text[..at], &text[at..]);
    let line = text[..at].lines().count() + 1;
    let expected =
        format!("not understood: line {line}: iptables-save cannot list the table filter, which has rules that nft");
    assert!(found(&edited).contains(&expected), "{expected}: {}", found(&edited));
}

/// What is cut off is said, and with which line.
#[test]
fn what_is_not_whole_is_said() {
    let whole = sample(IPTABLES);
    let lines = whole.lines().count();
    let end = |at: usize| format!("line {at}: the text ends in the table filter, before its COMMIT");
    let half = format!("line {}: a rule of filter KUBE-SERVICES is not understood", lines - 1);
    for (cut, expected) in [
        ("COMMIT\n", end(lines - 1)),
        ("-A KUBE-SERVICES -d 10.96.1.8/32 ", end(lines - 2)),
        ("/32 -p tcp -m comment --comment \"shop/empty:p has no endpoints\" -m tcp --dport 80", end(lines - 1)),
        ("ent \"shop/empty:p has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable", half),
        ("hop/empty:p has no endpoints\" -m tcp --dport 80", format!("line {}: \"-A KUBE-SERV", lines - 1)),
    ] {
        let at = whole.rfind(cut).unwrap_or_else(|| panic!("{cut}"));
        let said = found(&whole[..at]);
        assert!(said.contains(&format!("not understood: {expected}")), "{expected}: {said}");
    }
    let said = found(&whole.replacen("COMMIT\n*filter", "*filter", 1));
    assert!(said.contains("another table begins before the COMMIT of the table nat"), "{said}");
}

#[test]
fn line_ends_of_other_systems_are_read() {
    let text = sample(IPTABLES).replace('\n', "\r\n");
    assert_eq!(everything(&readers::read(&text).unwrap(), &of_samples()), "");
}
