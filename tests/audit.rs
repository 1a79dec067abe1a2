//! `svcmap audit`: what was laid out is read back as the Services that it was laid out for, whoever laid it out.

#[macro_use]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::cases::{Case, Stack};
use common::program::with_input;
use common::world::World;
use ipnet::IpNet;
use svcmap::audit::findings::findings;
use svcmap::audit::readers::{self, Layout, Reading};
use svcmap::audit::{Frontend, Port, compare};
use svcmap::config::ProxyConfig;
use svcmap::explain::Surroundings;
use svcmap::iptables::Ruleset;
use svcmap::ipvs;
use svcmap::nftables::text;
use svcmap::objects::{Family, FamilyOf};
use svcmap::plan::{Claim, Plan, PoolKind, PortId, Verdict};
use svcmap::source::generate::{Families, Options, generate, pod_cidrs};
use svcmap::source::load;

/// What a world's plan means.
fn wanted(world: &World) -> BTreeMap<PortId, Port> {
    world.state.ports().map(|port| (port.id.clone(), Port::of_plan(world.state.node(), port))).collect()
}

/// The world of some manifests, on the node `n1`.
fn of_manifests(path: &Path) -> World {
    let mut world = World::new(ProxyConfig {
        node_name: "n1".into(),
        node_ips: ["192.168.0.2", "2001:db8::1"].map(|ip| ip.parse().unwrap()).to_vec(),
        cluster_cidrs: ["10.128.0.0/14", "fd10::/48"].map(|net| net.parse().unwrap()).to_vec(),
        ..ProxyConfig::default()
    });
    let loaded = load(&[path.to_owned()]).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    world.sync(loaded.snapshot);
    world
}

/// A generated world with everything that Services may have.
fn generated(external_local: bool) -> World {
    let options = Options {
        services: 150,
        endpoints: 4,
        family: Families::Dual,
        local_fraction: Some(0.3),
        node_ports: true,
        load_balancers: true,
        affinity: true,
        external_local,
        ..Options::default()
    };
    let config = ProxyConfig { node_name: "n1".into(), cluster_cidrs: pod_cidrs().to_vec(), ..ProxyConfig::default() };
    let mut world = World::new(config);
    world.sync(generate(&options).unwrap());
    world
}

fn manifests() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    files
}

/// All worlds, by what they are called.
fn worlds() -> Vec<(String, World)> {
    let mut worlds: Vec<(String, World)> =
        manifests().iter().map(|path| (path.display().to_string(), of_manifests(path))).collect();
    worlds.extend([false, true].map(|local| (format!("generated, external policy Local: {local}"), generated(local))));
    let cases = Case::all().into_iter().filter(|case| case.excluded_from("trace").is_none());
    worlds.extend(cases.map(|case| (case.id.clone(), World::of(&case, Stack::Dual))));
    worlds
}

fn script(world: &World) -> String {
    let mut script = Vec::new();
    text::write(&world.state, &mut script).unwrap();
    String::from_utf8(script).unwrap()
}

/// What is wrong with a reading of a world, if anything is.
fn check(name: &str, reading: &Reading, wanted: &BTreeMap<PortId, Port>) -> String {
    let mut wrong = String::new();
    for difference in compare(&reading.ports, wanted) {
        wrong += &format!("{name}: {difference:?}\n");
    }
    for finding in &reading.findings {
        wrong += &format!("{name}: {finding}\n");
    }
    // compare is proved by equality: it must not overlook anything
    if wrong.is_empty() && reading.ports.len() != wanted.len() {
        wrong += &format!("{name}: {} of {} ports\n", reading.ports.len(), wanted.len());
    }
    for (id, port) in wanted.iter().filter(|_| wrong.is_empty()) {
        if !reading.ports[id].means_the_same(port) {
            return format!("{name}: {id:?}\nwanted {port:?}\nread   {:?}\n", reading.ports[id]);
        }
    }
    wrong
}

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

/// What this layout cannot say is not wanted of it: that connections are to pass where there is no endpoint.
#[test]
fn plans_come_back_from_iptables() {
    let mut wrong = String::new();
    let mut seen = 0;
    for (name, world) in worlds() {
        let mut plan = Plan::new(world.state.node().clone(), world.state.ports().cloned());
        for port in plan.ports.values_mut() {
            port.frontends.retain(|frontend| frontend.no_endpoints != Some(Verdict::Pass));
        }
        plan.ports.retain(|_, port| !port.frontends.is_empty());
        let text: String = [(Family::V4, "iptables"), (Family::V6, "ip6tables")]
            .map(|(family, program)| format!("# {program}\n{}", Ruleset::new(&plan, family).text()))
            .concat();
        let reading = readers::read(&text).unwrap();
        let wanted = plan.ports.iter().map(|(id, port)| (id.clone(), Port::of_plan(&plan.node, port))).collect();
        seen += plan.ports.len();
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

const RULESETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rulesets");

fn sample(name: &str) -> String {
    let path = Path::new(RULESETS).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What the Services mean that all samples are made for.
fn of_samples() -> BTreeMap<PortId, Port> {
    let mut world = World::new(ProxyConfig {
        node_name: "n1".into(),
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..ProxyConfig::default()
    });
    let loaded = load(&[Path::new(RULESETS).join("services.yaml")]).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    world.sync(loaded.snapshot);
    let wanted = wanted(&world);
    assert_eq!(wanted.len(), 6);
    wanted
}

const NFTABLES: [&str; 4] =
    ["kube-proxy-1.29.nft", "kube-proxy-1.34.nft", "kube-proxy-1.36.nft", "kube-proxy-1.37.nft"];
const IPTABLES: &str = "kube-proxy-iptables.save";

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

/// Runs a program with an input in the current network namespace; its output.
fn program(name: &str, arguments: &[&str], input: &str) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new(name)
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name} is needed: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{name} {arguments:?} fails");
    String::from_utf8(output.stdout).unwrap()
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

/// All differences and findings, a line each.
fn everything(reading: &Reading, wanted: &BTreeMap<PortId, Port>) -> String {
    let differences =
        compare(&reading.ports, wanted).into_iter().map(|one| format!("{} {} {}", one.service, one.sign, one.what));
    let found = findings(reading, &Surroundings::default()).into_iter().map(|one| format!("{:?}: {one}", one.kind));
    differences.chain(found).collect::<Vec<_>>().join("\n")
}

#[test]
fn damage_of_svcmaps_own_table_is_found() {
    let world = of_manifests(&Path::new(RULESETS).join("services.yaml"));
    let whole = script(&world);
    let edits = [
        ("10.96.1.5 . tcp . 80 . 1 : 10.244.2.2 . 8080,", "", "default/web:http: ip svcmap: is missing: endpoints"),
        (
            "10.96.1.5 . tcp . 80 . 1 : 10.244.2.2",
            "10.96.1.5 . tcp . 80 . 1 : 10.244.2.77",
            "- endpoint 10.244.2.77:8080",
        ),
        (
            "type nat hook prerouting priority dstnat;",
            "type nat hook prerouting priority filter;",
            "chain nat-prerouting is not hooked in",
        ),
        ("\tchain refuse {\n\t\treject\n", "\tchain refuse {\n", "chain refuse has no rules"),
        (
            "10.96.1.5 . tcp . 80 comment \"default/web:http\" : goto",
            "10.96.1.5 . tcp . 99 comment \"default/web:http\" : goto",
            "+ cluster IP 10.96.1.5:80/tcp",
        ),
        (
            "\tmap nodeports {",
            "\tset strange {\n\t\ttype mark\n\t}\n\n\tmap nodeports {",
            "set strange is none of svcmap's",
        ),
    ];
    assert_eq!(everything(&readers::read(&whole).unwrap(), &wanted(&world)), "");
    for (from, to, expected) in edits {
        assert!(whole.contains(from), "there is no {from:?} in\n{whole}");
        let reading = readers::read(&whole.replacen(from, to, 1)).unwrap();
        let said = everything(&reading, &wanted(&world));
        assert!(said.contains(expected), "{from:?} -> {to:?}: expected {expected:?}, said\n{said}");
    }
}

/// Rules of others that end or divert connections are found, whichever table they are in; and two proxies are one too many.
#[test]
fn what_others_do_to_services_is_found() {
    let own = script(&of_manifests(&Path::new(RULESETS).join("services.yaml")));
    let firewall = "table inet host {\n\tchain in {\n\t\ttype filter hook forward priority filter + 10; policy accept;\n\t\tip saddr 192.0.2.0/24 drop\n\t}\n}\n";
    let second = "table ip other {\n\tchain nat {\n\t\ttype nat hook prerouting priority dstnat - 5; policy accept;\n\t\tip daddr 203.0.113.5 tcp dport 80 dnat to 10.9.9.9:80\n\t}\n}\n";
    let mut surroundings = Surroundings::with_addresses(&["192.168.0.2".parse().unwrap()]);
    surroundings.pods = vec!["10.244.0.0/16".parse().unwrap()];
    let said = |text: String| {
        let found = findings(&readers::read(&text).unwrap(), &surroundings);
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(said(own.clone()), "");
    let found = said(format!("{own}{firewall}"));
    assert!(found.contains("diverted: default/web:http: inet host in, rule 1: drop"), "{found}");
    let found = said(format!("{own}{second}"));
    assert!(found.contains("diverted: default/web:http: ip other nat, rule 1: to 10.9.9.9:80"), "{found}");
    let found = said(format!("{own}{}", sample(NFTABLES[2])));
    assert!(found.contains("leftover: there are rules of svcmap and of kube-proxy (nftables)"), "{found}");
}

/// Runs `svcmap audit`: its status, output and messages.
fn audit(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
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

netns_test! {
    fn the_kernels_rules_are_read_without_any_listing() {
        let services = format!("{RULESETS}/services.yaml");
        let (status, said, errors) = audit(&["-f", &services], "");
        assert_eq!(status, Some(1), "{said}{errors}");
        assert!(said.starts_with("nothing of Services: 0 Service ports\n") && said.contains("+ ip cluster IP 10.96.1.5:80/tcp"), "{said}");
        let own = script(&of_manifests(&Path::new(RULESETS).join("services.yaml")));
        for (name, script) in [("svcmap", own.as_str()), ("kube-proxy (nftables)", &sample(NFTABLES[1]))] {
            program("nft", &["-f", "-"], &format!("flush ruleset\n{script}"));
            let (status, said, errors) = audit(&["-f", &services], "");
            assert_eq!(status, Some(0), "{said}{errors}");
            assert!(said.starts_with(&format!("{name}: 6 Service ports\n")), "{said}");
        }
    }
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
    let (status, _, errors) = audit(&["--ruleset", &old, "--ruleset", &new, "--ruleset", &new], "");
    assert_eq!(status, Some(2), "{errors}");
}
