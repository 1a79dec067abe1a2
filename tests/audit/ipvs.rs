//! Virtual servers, sets and the rules beside them: what does not fit is found, and nothing else.

use std::path::Path;

use svcmap::audit::findings::findings;
use svcmap::audit::readers;
use svcmap::explain::Surroundings;
use svcmap::ipvs;
use svcmap::plan::Plan;

use crate::common::cases::{NodeSettings, Stack};
use crate::common::world::World;
use crate::{found, said_of_edits, sample, worlds};

fn rendered(plan: &Plan) -> String {
    ipvs::text::render(plan, &ipvs::Settings::default(), None)
}

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("rulesets").join(name)).unwrap()
}

/// Services in all of the mode's sets, some with endpoints on this node and on others, some without.
const OBJECTS: [&str; 12] = [
    "service svc ip=172.30.0.41 port=80@30080 vip=5.6.7.8 external=5.6.7.7",
    "slice svc L1 R2 R3",
    "service ranges ip=172.30.0.42 port=80 vip=5.6.7.9 ranges=203.0.113.0/24",
    "slice ranges L1 R2",
    "service local ip=172.30.0.43 port=80@30081 vip=5.6.7.10 external=5.6.7.6 eTP=Local ranges=203.0.113.0/24",
    "slice local L1 R2",
    "service none ip=172.30.0.44 port=80@30082",
    "service away ip=172.30.0.45 port=80@30083 vip=5.6.7.11 eTP=Local",
    "slice away R2",
    "service inside ip=172.30.0.46 port=80 iTP=Local",
    "slice inside R2",
    "service open ip=172.30.0.47 port=80 vip=5.6.7.12",
];

fn everything() -> String {
    let world = World::with(&OBJECTS, Stack::Dual, NodeSettings::default().config(Stack::Dual));
    rendered(&Plan::new(world.state.node().clone(), world.state.ports().cloned()))
}

#[test]
fn good_rules_have_no_findings() {
    let mut wrong = String::new();
    for (name, world) in worlds() {
        let plan = Plan::new(world.state.node().clone(), world.state.ports().cloned());
        let reading = readers::read(&rendered(&plan)).unwrap();
        for surroundings in [Surroundings::of_plan(&plan.node, &plan.node.node_ips), Surroundings::default()] {
            let found = findings(&reading, &surroundings);
            wrong += &found.iter().map(|one| format!("{name}: {one}\n")).collect::<String>();
        }
    }
    for name in ["web.ipvs", "policies.ipvs", "dual-stack.ipvs"] {
        wrong += &found(&file(name)).lines().map(|line| format!("{name}: {line}\n")).collect::<String>();
    }
    wrong += &found(&sample("kube-proxy-ipvs.save"));
    wrong += &found(&everything());
    assert!(wrong.is_empty(), "{wrong}");
}

/// Rules that may be missing without anything to be seen, and why.
const UNSEEN: [(&str, &str); 10] = [
    (".0/8 -j RETURN", "loopback addresses are not served"),
    ("::1/128 -j RETURN", "loopback addresses are not served"),
    ("-j ACCEPT", "what follows in nat asks for none of these, and answers and marked packets pass by the policy"),
    ("INVALID -j DROP", "kube-proxy leaves it out where the kernel is liberal"),
    ("--src-type LOCAL -j KUBE-MARK-MASQ", "kube-proxy has no such rule"),
    ("--src-type LOCAL -j RETURN", "the node does not come in through INPUT"),
    ("KUBE-NODE-PORT -p tcp -m set --match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN", "no port is in both sets"),
    ("KUBE-NODE-PORT -p tcp -m set --match-set KUBE-6-NODE-PORT-LOCAL-TCP dst -j RETURN", "no port is in both sets"),
    ("KUBE-IPVS-FILTER -p tcp -m set", "node ports are on addresses that are not refused"),
    ("KUBE-IPVS-OUT-FILTER -m conntrack --ctstate NEW -m set --match-set KUBE-", "refused when it comes back in"),
];

#[test]
fn every_rule_that_is_missing_is_noticed() {
    let text = everything();
    assert_eq!(found(&text), "");
    let is_empty = |line: &str| {
        let set = line.split("--match-set ").nth(1).and_then(|rest| rest.split(' ').next());
        set.is_some_and(|set| !text.contains(&format!("\nadd {set} ")))
    };
    let mut wrong = String::new();
    for (at, line) in text.lines().enumerate() {
        let is_rule = line.starts_with("-A KUBE-")
            || ["PRE", "POST", "IN", "OUT", "FOR"].iter().any(|hook| line.starts_with(&format!("-A {hook}")));
        if !is_rule || is_empty(line) || UNSEEN.iter().any(|(part, _)| line.contains(part)) {
            continue;
        }
        let others = text.lines().enumerate().filter(|(line, _)| *line != at);
        if found(&others.map(|(_, line)| format!("{line}\n")).collect::<String>()).is_empty() {
            wrong += &format!("nothing is said without {line}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Everything that a set holds is there for a reason: of each set an entry less.
#[test]
fn every_entry_of_a_set_that_is_missing_is_noticed() {
    let text = everything();
    let mut wrong = String::new();
    let mut seen = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("add ")) {
        let set = line.split(' ').nth(1).unwrap();
        // which endpoints are on this node, whose sources are allowed and which policy holds is nowhere else
        let alone = ["LOOP-BACK", "SOURCE-CID", "BALANCER-LOCAL", "DROPPED-OUTSIDE"];
        if seen.contains(&set) || alone.iter().any(|part| set.contains(part)) {
            continue;
        }
        seen.push(set);
        let others = text.lines().enumerate().filter(|(line, _)| *line != at);
        if found(&others.map(|(_, line)| format!("{line}\n")).collect::<String>()).is_empty() {
            wrong += &format!("nothing is said without {line}\n");
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Edits of `rulesets/policies.ipvs`, and what is said then.
const EDITS: &[(&str, &str, &str)] = &[
    ("-A FORWARD -m comment", "-A FORWARD -j DROP\n-A FORWARD -m comment", "diverted: ip filter FORWARD, rule 1 (line"),
    (
        "*filter\n",
        "*filter\n:INPUT DROP [0:0]\n",
        "diverted: ip filter INPUT, policy DROP; from outside to 1.2.3.4:80/tcp and ",
    ),
    (
        "*filter\n",
        "*filter\n-A INPUT ! -s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j DROP\n",
        "diverted: ip filter INPUT, rule 1 (line",
    ),
    ("-j MARK --or-mark 0x4000", "-j MARK --or-mark 0x8000", "RETURN in spite of KUBE-MARK-MASQ, whose mark is 0x8000"),
    (
        "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n",
        "",
        "missing: ip nat PREROUTING does not lead to KUBE-SERVICES",
    ),
    (
        "add KUBE-CLUSTER-IP 172.30.0.41,tcp:80\n",
        "",
        "missing: 172.30.0.41:80/tcp: virtual servers that are in none of the sets that say what they are",
    ),
    (
        "-A -t 198.51.100.7:80 -s rr\n-a -t 198.51.100.7:80 -r 10.128.0.1:8080 -m -w 1\n",
        "",
        "missing: 198.51.100.7:80/tcp: in the sets, but there is no virtual server",
    ),
    ("add KUBE-IPVS-IPS 5.6.7.8\n", "", "missing: 5.6.7.8: not in KUBE-IPVS-IPS, so that their other ports are open"),
    (
        "add KUBE-LOAD-BALANCER 5.6.7.8,tcp:80\n",
        "",
        "missing: 5.6.7.8:80/tcp: in a set of some of KUBE-LOAD-BALANCER, but not in that one",
    ),
    ("-A KUBE-SOURCE-RANGES-FIREWALL -j DROP\n", "", "damaged: sources that are not allowed are not dropped"),
    (
        "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\n",
        "",
        "not understood: line 15: \"add KUBE-CLUSTER-IP 172.30.0.41,tcp:80\" is not understood",
    ),
    ("-A -t 172.30.0.41:80 -s rr\n", "", "\"-a -t 172.30.0.41:80 -r 10.128.0.1:8080 -m -w 1\" is not understood"),
];

#[test]
fn what_is_said_names_what_is_wrong() {
    let text = file("policies.ipvs");
    said_of_edits(&text, EDITS);
}

/// What is cut off in the middle of a line, wherever.
#[test]
fn what_is_not_whole_is_said() {
    for text in [sample("kube-proxy-ipvs.save"), file("web.ipvs")] {
        let last = text.lines().last().unwrap();
        for length in 1..last.len() {
            let said = found(&text[..text.len() - length]);
            let line = text.lines().count();
            assert!(said.contains(&format!("not understood: line {line}: ")), "{length} less: {said}");
        }
    }
}

/// A real server of weight zero keeps its connections and gets no more: it is on its way out, and nothing is wrong with it.
#[test]
fn real_servers_that_are_leaving_are_no_fault() {
    let text = file("policies.ipvs");
    let leaving = "-a -t 172.30.0.41:80 -r 10.200.0.1:8080 -m -w 1";
    assert!(text.contains(leaving));
    let text = text.replacen(leaving, &leaving.replace("-w 1", "-w 0"), 1);
    assert_eq!(found(&text), "");
    let reading = readers::read(&text).unwrap();
    let port = reading.ports.values().find(|port| port.id.name.as_str().contains("172.30.0.41:80")).unwrap();
    assert_eq!(port.cluster.iter().map(|one| one.socket().to_string()).collect::<Vec<_>>(), ["10.128.0.1:8080"]);
}
