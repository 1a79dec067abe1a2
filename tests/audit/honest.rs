//! Honest rules of iptables and IPVS in surroundings that are less common: nothing is wrong with them, and nothing is said.

use std::collections::BTreeMap;
use std::net::IpAddr;

use svcmap::audit::readers::{self, Reading};
use svcmap::audit::{Port, compare, in_layouts};
use svcmap::config::ProxyConfig;
use svcmap::explain::Surroundings;
use svcmap::iptables::Ruleset;
use svcmap::ipvs;
use svcmap::objects::Family;
use svcmap::plan::{Plan, PortId, Verdict};
use svcmap::trace::Route;

use crate::common::cases::{NodeSettings, Stack};
use crate::common::world::World;
use crate::{said, sample, wanted};

/// Services with every policy, with endpoints on this node, on others and nowhere.
const OBJECTS: [&str; 10] = [
    "service svc ip=172.30.0.41 port=80@30080 vip=5.6.7.8 external=5.6.7.7",
    "slice svc L1 R2 R3",
    "service ranges ip=172.30.0.42 port=80 vip=5.6.7.9 ranges=203.0.113.0/24",
    "slice ranges L1 R2",
    "service local ip=172.30.0.43 port=80@30081 vip=5.6.7.10 external=5.6.7.6 eTP=Local",
    "slice local L1 R2",
    "service none ip=172.30.0.44 port=80@30082",
    "service away ip=172.30.0.45 port=80@30083 vip=5.6.7.11 eTP=Local",
    "slice away R2",
    "service other ip=172.30.0.46 port=80",
];

fn world(objects: &[&str], stack: Stack, node: &str, change: impl Fn(&mut ProxyConfig)) -> World {
    let mut config = NodeSettings::parse(node).config(stack);
    change(&mut config);
    World::with(objects, stack, config)
}

fn plan(world: &World) -> Plan {
    Plan::new(world.state.node().clone(), world.state.ports().cloned())
}

/// As `iptables-save` prints it, which leaves out what matches everything.
fn saved(plan: &Plan) -> String {
    let text = [(Family::V4, "iptables"), (Family::V6, "ip6tables")]
        .map(|(family, program)| format!("# {program}\n{}", Ruleset::new(plan, family).text()));
    text.concat().replace(" -s 0.0.0.0/0", "").replace(" -s ::/0", "")
}

/// All modes' rules.
fn modes(plan: &Plan) -> [(&'static str, Reading); 2] {
    let ipvs = ipvs::text::render(plan, &ipvs::Settings::default(), None);
    [("iptables", saved(plan)), ("ipvs", ipvs)].map(|(mode, text)| (mode, readers::read(&text).unwrap()))
}

fn different(reading: &Reading, wanted: &BTreeMap<PortId, Port>) -> String {
    let wanted = in_layouts(&reading.layouts, &reading.ports, wanted.clone());
    let all = compare(&reading.ports, &wanted);
    all.iter().map(|one| format!("{} {} {}\n", one.service, one.sign, one.what)).collect()
}

fn of_plan(plan: &Plan) -> Surroundings {
    Surroundings::of_plan(&plan.node, &plan.node.node_ips)
}

/// In networks where nodes and pods have addresses of the same prefix, rules that ask for the prefix take the node for a pod.
#[test]
fn a_node_among_the_addresses_of_pods() {
    let mut wrong = String::new();
    for cidrs in [&["192.168.0.0/16"][..], &["10.0.0.0/8", "192.168.0.0/16"], &["192.168.0.0/16", "10.0.0.0/8"]] {
        let of_pods = |config: &mut ProxyConfig| {
            config.cluster_cidrs = cidrs.iter().map(|net| net.parse().unwrap()).collect();
        };
        for node in ["", "masqAll"] {
            let plan = plan(&world(&OBJECTS, Stack::V4, node, of_pods));
            for (mode, reading) in modes(&plan) {
                wrong += &said(&reading, &of_plan(&plan)).replace("\n", &format!(" ({mode}, {cidrs:?} {node})\n"));
            }
        }
    }
    for name in ["kube-proxy-iptables.save", "kube-proxy-real.save", "kube-proxy-ipvs.save"] {
        let own: [IpAddr; 1] = ["10.244.7.7".parse().unwrap()];
        let reading = readers::read(&sample(name)).unwrap();
        wrong += &said(&reading, &Surroundings::with_addresses(&own)).replace('\n', &format!(" ({name})\n"));
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What the rules do with such a node is looked at all the same.
#[test]
fn a_node_among_the_addresses_of_pods_is_looked_at() {
    let of_pods = |config: &mut ProxyConfig| config.cluster_cidrs = vec!["192.168.0.0/16".parse().unwrap()];
    let plan = plan(&world(&OBJECTS, Stack::V4, "", of_pods));
    let text = saved(&plan);
    let line = text.lines().find(|line| line.contains("ns/svc cluster IP") && line.contains("! -s")).unwrap();
    let all = text.replacen(line, &line.replace(" ! -s 192.168.0.0/16", ""), 1);
    let said = said(&readers::read(&all).unwrap(), &of_plan(&plan));
    assert!(said.contains("marks for masquerading what keeps its source otherwise"), "{said}");
}

/// Who allows everybody allows everybody, in whatever parts.
#[test]
fn source_ranges_of_everybody() {
    let mut wrong = String::new();
    for ranges in ["0.0.0.0/0", "0.0.0.0/1,128.0.0.0/1"] {
        let [with, without] = [("with", "L1 R2"), ("without", "R2")].map(|(name, endpoints)| {
            let ip = if name == "with" { 42 } else { 43 };
            let service = format!("service {name} ip=172.30.0.{ip} port=80 vip=5.6.7.{ip} eTP=Local ranges={ranges}");
            [service, format!("slice {name} {endpoints}")]
        });
        let objects = [&with[0], &with[1], &without[0], &without[1]].map(String::as_str);
        let world = world(&objects, Stack::V4, "", |_| {});
        let plan = plan(&world);
        for (mode, reading) in modes(&plan) {
            let mut all = said(&reading, &of_plan(&plan)) + &said(&reading, &Surroundings::default());
            if mode == "iptables" {
                all += &different(&reading, &wanted(&world));
            }
            let of_lb = reading.ports.values().flat_map(|port| &port.frontends).filter_map(|one| one.sources.clone());
            let sources: Vec<String> = of_lb.map(|nets| format!("{nets:?}")).collect();
            if sources != ["[0.0.0.0/0]", "[0.0.0.0/0]"] {
                all += &format!("{sources:?}\n");
            }
            wrong += &all.replace('\n', &format!(" ({mode}, {ranges})\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What is let through for want of an endpoint is in no rule of iptables, and has no virtual server.
#[test]
fn connections_that_pass_without_endpoints() {
    let mut objects = OBJECTS.to_vec();
    objects.push("service bare ip=172.30.0.47 port=80 external=5.6.7.12");
    objects.push("service far ip=172.30.0.48 port=80 vip=5.6.7.13 eTP=Local ranges=203.0.113.0/24");
    objects.push("slice far R3");
    let world = world(&objects, Stack::Dual, "pass", |_| {});
    let plan = plan(&world);
    let all = || plan.ports.values().flat_map(|port| &port.frontends);
    assert_eq!(all().filter(|one| one.no_endpoints == Some(Verdict::Pass)).count(), 6);
    let mut wrong = String::new();
    for (mode, reading) in modes(&plan) {
        let mut all = said(&reading, &of_plan(&plan));
        let missing = different(&reading, &wanted(&world));
        all.extend(
            missing.lines().filter(|line| mode == "iptables" || line.contains(" + ")).map(|line| format!("{line}\n")),
        );
        wrong += &all.replace('\n', &format!(" ({mode})\n"));
    }
    assert!(wrong.is_empty(), "{wrong}");
    // kube-proxy refuses or drops everywhere, so that there is something wrong with it
    let text = sample("kube-proxy-iptables.save");
    let line = text.lines().find(|line| line.contains("203.0.113.9/32") && line.ends_with("-j DROP")).unwrap();
    let said = said(&readers::read(&text.replacen(line, "", 1)).unwrap(), &Surroundings::default());
    assert!(said.contains("neither an endpoint nor a rule that refuses"), "{said}");
}

/// Where pods are told by an interface, whoever is behind it is one.
#[test]
fn allowed_sources_behind_the_interface_of_pods() {
    let objects = [
        "service far ip=172.30.0.42 port=80@30080 vip=5.6.7.9 eTP=Local ranges=192.0.2.0/24",
        "slice far R2",
        "service near ip=172.30.0.43 port=80@30081 vip=5.6.7.10 eTP=Local ranges=192.0.2.0/24",
        "slice near L1 R2",
    ];
    let mut wrong = String::new();
    for detect in ["detect=bridge:br0", "detect=prefix:br"] {
        let plan = plan(&world(&objects, Stack::V4, detect, |_| {}));
        let mut surroundings = of_plan(&plan);
        for (to, interface) in [("192.0.2.0/24", "br0"), ("0.0.0.0/0", "eth0")] {
            surroundings.node.routes.push(Route { to: to.parse().unwrap(), interface: interface.into() });
        }
        for (mode, reading) in modes(&plan) {
            wrong += &said(&reading, &surroundings).replace('\n', &format!(" ({mode}, {detect})\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Node ports of a family in which the node has no address are served nowhere.
#[test]
fn a_node_without_addresses_of_one_family() {
    let mut wrong = String::new();
    for gone in ["192.168.0.0/16", "::/0"] {
        let gone: ipnet::IpNet = gone.parse().unwrap();
        let mut plan = plan(&world(&OBJECTS, Stack::Dual, "", |_| {}));
        plan.node.node_ips.retain(|ip| !gone.contains(ip));
        plan.node.node_port_addresses.retain(|net| !gone.contains(&net.addr()));
        let reading = readers::read(&saved(&plan)).unwrap();
        wrong += &said(&reading, &of_plan(&plan));
        assert!(said(&reading, &Surroundings::default()).contains("does not lead to KUBE-NODEPORTS"));
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// That another Service has the address and port of a node port is one finding, and not damage as well.
#[test]
fn a_node_port_where_another_service_is() {
    let objects = [
        "service shadow ip=172.30.0.42 port=30080 external=192.168.0.2",
        "slice shadow L1",
        "service shadowed ip=172.30.0.43 port=80@30080",
        "slice shadowed R2",
        "service seen ip=172.30.0.44 port=80@30081",
        "slice seen R2",
    ];
    let plan = plan(&world(&objects, Stack::Dual, "", |_| {}));
    for (mode, reading) in modes(&plan) {
        let said = said(&reading, &of_plan(&plan));
        let count = if mode == "iptables" { 2 } else { 0 }; // a virtual server has no trace of what it stands before
        assert!(said.lines().all(|line| line.starts_with("shadowed: ")), "{mode}: {said}");
        assert_eq!(said.lines().count(), count, "{mode}: {said}");
    }
}
