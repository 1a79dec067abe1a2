//! Plan, emitter, reader, plan: in all modes, for all cases, manifests and generated clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use svcmap::audit::readers::{self, Layout};
use svcmap::audit::{Frontend, Port, in_layouts};
use svcmap::iptables::Ruleset;
use svcmap::ipvs;
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::program::Programmer;
use svcmap::objects::{Family, FamilyOf};
use svcmap::plan::{Claim, Plan, PoolKind, Verdict};
use svcmap::trace;

use crate::{check, generated, manifests, of_manifests, program, script, wanted, worlds};

#[test]
fn plans_come_back_from_nftables() {
    let mut wrong = String::new();
    let mut seen = 0;
    for (name, world) in worlds() {
        let reading = readers::read(&script(&world)).unwrap();
        let wanted = wanted(&world);
        seen += wanted.len();
        assert!(wanted.is_empty() || reading.layouts == [Layout::Svcmap], "{name}: {:?}", reading.layouts);
        wrong += &check(&name, &reading, &wanted);
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 600, "only {seen} ports");
}

/// Frontends that nobody gets an endpoint at and that let connections pass are in no rule of this layout.
#[test]
fn plans_come_back_from_iptables() {
    let mut wrong = String::new();
    let mut seen = 0;
    for (name, world) in worlds() {
        let plan = Plan::new(world.state.node().clone(), world.state.ports().cloned());
        let text: String = [(Family::V4, "iptables"), (Family::V6, "ip6tables")]
            .map(|(family, program)| format!("# {program}\n{}", Ruleset::new(&plan, family).text()))
            .concat();
        let reading = readers::read(&text).unwrap();
        let wanted = in_layouts(&reading.layouts, &reading.ports, wanted(&world));
        seen += wanted.len();
        wrong += &check(&name, &reading, &wanted);
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 600, "only {seen} ports");
}

/// The mode ipvs tells neither names nor what pods get where the policy is Local; each address is a port of its own.
#[test]
fn plans_come_back_from_ipvs() {
    let mut wrong = String::new();
    let mut seen = 0;
    for (name, world) in worlds() {
        let plan = Plan::new(world.state.node().clone(), world.state.ports().cloned());
        let reading = readers::read(&ipvs::text::render(&plan, &ipvs::Settings::default(), None)).unwrap();
        assert!(reading.findings.is_empty(), "{name}: {:?}", reading.findings);
        let mut read: BTreeMap<Claim, &Port> = BTreeMap::new();
        read.extend(reading.ports.values().map(|port| (port.claim(&port.frontends[0]), port)));
        let own = ipvs::state::planned_addresses(&plan.node);
        let serves_node_ports = |family| {
            let is_served = |ip: &IpAddr| plan.node.node_port_addresses.iter().any(|prefix| prefix.contains(ip));
            own.iter().any(|ip| ip.family() == family && !ip.is_loopback() && is_served(ip))
        };
        for port in plan.ports.values().map(|port| Port::of_plan(&plan.node, port)) {
            for frontend in &port.frontends {
                let is_served = frontend.address.ip().is_some() || serves_node_ports(port.id.family);
                if frontend.no_endpoints == Some(Verdict::Pass) || !is_served {
                    continue;
                }
                seen += 1;
                let found = read.remove(&port.claim(frontend)).map(|there| laid_out(there, &there.frontends[0]));
                if found.as_ref() != Some(&laid_out(&port, frontend)) {
                    wrong += &format!(
                        "{name}: {}\nwanted {}\nread   {found:?}\n",
                        port.claim(frontend),
                        laid_out(&port, frontend)
                    );
                }
            }
        }
        if !read.is_empty() {
            wrong += &format!("{name}: too much: {read:?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 600, "only {seen} frontends");
}

/// What a frontend's virtual server tells of it. A set takes no prefix of length zero, but its halves.
fn laid_out(port: &Port, frontend: &Frontend) -> String {
    let pool = match port.pool(frontend.pool) {
        [] if frontend.short_circuit => port.pool(PoolKind::Cluster),
        pool => pool,
    };
    let sockets: Vec<_> = pool.iter().map(|one| one.socket()).collect();
    let halves = |net: &IpNet| if net.prefix_len() == 0 { net.subnets(1).unwrap().collect() } else { vec![*net] };
    let sources: Option<BTreeSet<IpNet>> =
        frontend.sources.as_ref().map(|sources| sources.iter().flat_map(halves).collect());
    let affinity = port.affinity.filter(|_| !sockets.is_empty());
    format!("{:?} {sockets:?} {:?} {sources:?} {affinity:?}", frontend.address, frontend.no_endpoints)
}

netns_test! {
    /// What svcmap sends, and what the programs print of it. So few Services that iptables-nft's one message fits into a namespace's
    /// send buffer.
    fn plans_come_back_from_the_kernel() {
        let mut worlds: Vec<_> = manifests().iter().map(|path| of_manifests(path)).collect();
        worlds.extend([false, true].map(|local| generated(5, local)));
        let mut wrong = String::new();
        for (at, world) in worlds.iter().enumerate() {
            let (node, wanted) = (world.state.node(), wanted(world));
            let ports = world.state.ports().cloned().collect();
            Programmer::open(CodecKind::Native).unwrap().replace(node.clone(), ports).unwrap();
            let ruleset = trace::Ruleset::read(&mut Connection::open(CodecKind::Native).unwrap()).unwrap();
            assert_eq!(readers::svcmap::check_against(&ruleset, node), [], "world {at}");
            wrong += &check(&format!("world {at}, netlink"), &readers::of_ruleset(ruleset), &wanted);
            for arguments in [&["list", "ruleset"][..], &["-j", "list", "ruleset"]] {
                let reading = readers::read(&program("nft", arguments, "")).unwrap();
                wrong += &check(&format!("world {at}, {arguments:?}"), &reading, &wanted);
            }
            let mut plan = Plan::new(node.clone(), world.state.ports().cloned());
            for port in plan.ports.values_mut() {
                port.frontends.retain(|frontend| frontend.no_endpoints != Some(Verdict::Pass));
            }
            plan.ports.retain(|_, port| !port.frontends.is_empty());
            for (variant, family, prefix) in
                [("nft", Family::V4, "iptables"), ("legacy", Family::V4, "iptables"), ("nft", Family::V6, "ip6tables")]
            {
                program(&format!("{prefix}-{variant}-restore"), &[], &Ruleset::new(&plan, family).text());
                let listed = program(&format!("{prefix}-{variant}-save"), &[], "");
                let of_family = plan.ports.iter().filter(|(id, _)| id.family == family);
                let wanted = of_family.map(|(id, port)| (id.clone(), Port::of_plan(node, port))).collect();
                wrong += &check(&format!("world {at}, {prefix}-{variant}"), &readers::read(&listed).unwrap(), &wanted);
            }
            program("nft", &["flush", "ruleset"], "");
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}
