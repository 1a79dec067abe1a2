//! Node ports on 127.0.0.1 (behaviour row F6): the node reaches them, nobody else reaches loopback addresses.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use svcmap::config::{NodePortAddresses, ProxyConfig};
use svcmap::lab::{Answer, Lab, Listen, Outcome, Server, probe};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{LOCAL_NODE, NodeSettings, Stack, address};
use crate::common::fixture;
use crate::scene::{PATIENCE, Scene, ask, document, target};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("localhost::the_node_reaches_its_node_ports", || fixture::in_a_lab(reached)),
        trial("localhost::nobody_outside_reaches_loopback_addresses", || fixture::in_a_lab(guarded)),
        trial("localhost::it_is_off_unless_asked_for", || fixture::in_a_lab(off)),
        trial("localhost::a_parameter_that_cannot_be_set_is_said", || fixture::in_a_lab(refused)),
    ]
}

const ROUTE_LOCALNET: &str = "ipv4/conf/all/route_localnet";
const SHORT: Duration = Duration::from_millis(250);
const OBJECTS: [&str; 7] = [
    "service svc port=80@3001",
    "slice svc L1 R2",
    "service local ip=172.30.0.42 port=80@3002 eTP=Local",
    "slice local L1 R2",
    "service sticky ip=172.30.0.43 port=80@3003 affinity=10800",
    "slice sticky L1 L3 R2",
    "service empty ip=172.30.0.44 port=80@3004",
];

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new([127, 0, 0, 1].into(), port)
}

fn config() -> ProxyConfig {
    ProxyConfig { localhost_node_ports: true, ..NodeSettings::default().config(Stack::Dual) }
}

fn scene(lab: &mut Lab) -> Result<Scene<'_>> {
    lab.node().sysctl(&[(ROUTE_LOCALNET, "0")])?;
    Scene::new(lab, Stack::Dual, "L1 R2 L3", &["203.0.113.2"])
}

/// One connection of the node's, from `from` and any port.
fn from_node(lab: &Lab, from: IpAddr, protocol: Protocol, to: SocketAddr, patience: Duration) -> Result<Outcome> {
    Ok(lab.node().run(|| probe(protocol, SocketAddr::new(from, 0), to, patience))?)
}

fn ask_loopback(lab: &Lab, protocol: Protocol, port: u16) -> Result<Answer> {
    match from_node(lab, loopback(0).ip(), protocol, loopback(port), PATIENCE)? {
        Outcome::Answered(answer) => Ok(answer),
        other => bail!("{protocol} 127.0.0.1:{port}: expected an answer, seen: {other}"),
    }
}

/// `svcmap apply` on the node of the lab.
fn apply(lab: &Lab, objects: &str, arguments: &[&str]) -> Result<()> {
    let node = ["--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.0.0.0/8,fd00:5c::a00:0/104"];
    let arguments = [&["apply", "-f", "-"], &node[..], arguments].concat();
    lab.node().command(env!("CARGO_BIN_EXE_svcmap"), &arguments, objects)?;
    Ok(())
}

fn reached(lab: &mut Lab) -> Result<()> {
    let scene = scene(lab)?;
    let lab = scene.lab;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    apply(lab, &document(Stack::Dual, &OBJECTS), &["--localhost-nodeports", "--counters"])?;
    let (mut local, mut remote) = (0, 0);
    for port in [3001, 3002] {
        for _ in 0..30 {
            let answer = ask_loopback(lab, Protocol::Tcp, port)?;
            let seen = answer.seen.ip();
            ensure!(!seen.is_loopback() && lab.place_of(seen) == svcmap::lab::Place::Node, "{port}: seen as {seen}");
            *(if answer.name.starts_with("pod") { &mut local } else { &mut remote }) += 1;
        }
    }
    ensure!(local > 5 && remote > 5, "{local} answers of pods, {remote} of the other node");
    let first = ask_loopback(lab, Protocol::Tcp, 3003)?.by;
    for _ in 0..15 {
        let again = ask_loopback(lab, Protocol::Tcp, 3003)?.by;
        ensure!(again == first, "session affinity: {first}, then {again}");
    }
    let empty = from_node(lab, loopback(0).ip(), Protocol::Tcp, loopback(3004), PATIENCE)?;
    ensure!(empty == Outcome::Refused, "without endpoints: {empty}");
    // what is no node port is as before
    let own = Listen { protocol: Protocol::Tcp, address: loopback(8081) };
    let _own = Server::start(lab.node(), "node", &[own])?;
    ensure!(ask_loopback(lab, Protocol::Tcp, 8081)?.by == loopback(8081), "another port of the node's own");
    // and so are node ports on the node's address
    ask(lab, address("203.0.113.2", Family::V4), Protocol::Tcp, target("192.168.0.2", 3001, Family::V4))?;
    let counted = lab.node().command("nft", &["list", "set", "ip", "svcmap", "nodeport-connections"], "")?;
    ensure!(counted.contains("tcp . 3001 counter packets 31 "), "{counted}");
    Ok(())
}

/// A host on the link of the node that sends to 127.0.0.1, as nothing but the guard keeps it from.
fn guarded(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.restart_with(config())?;
    scene.sync(&OBJECTS)?;
    let lab = scene.lab;
    lab.node().sysctl(&[(ROUTE_LOCALNET, "1")])?;
    let secret = Listen { protocol: Protocol::Udp, address: loopback(8082) };
    let _secret = Server::start(lab.node(), "node", &[secret])?;
    let pod = address("10.0.0.2", Family::V4);
    let attacker = lab.home(pod);
    attacker.sysctl(&[(ROUTE_LOCALNET, "1")])?;
    attacker.ip("addr del 127.0.0.1/8 dev lo\nrule add pref 5 to 127.0.0.0/8 lookup 100\nrule add pref 10 lookup local\nrule del pref 0 lookup local\n")?;
    let route = attacker.command("ip", &["route", "show", "default"], "")?;
    let by = route.trim().strip_prefix("default ").context("the pod has no default route")?;
    attacker.ip(&format!("route add 127.0.0.0/8 {} table 100\n", by.trim()))?;
    let attack = |to| attacker.run(|| probe(Protocol::Udp, SocketAddr::new(pod, 0), to, SHORT));
    let result = (|| {
        let seen = attack(loopback(8082))?;
        ensure!(seen == Outcome::TimedOut, "from outside, 127.0.0.1:8082: {seen}");
        let node_port = attacker.run(|| probe(Protocol::Tcp, SocketAddr::new(pod, 0), loopback(3001), SHORT))?;
        ensure!(node_port == Outcome::TimedOut, "from outside, 127.0.0.1:3001: {node_port}");
        // without the guard it would have got through, so that it was the guard that kept it from that
        lab.node().command("nft", &["flush", "chain", "ip", "svcmap", "guard-prerouting"], "")?;
        let seen = attack(loopback(8082))?;
        ensure!(matches!(seen, Outcome::Answered(_)), "without the guard, 127.0.0.1:8082: {seen}");
        Ok(())
    })();
    attacker.ip("rule add pref 0 lookup local\nrule del pref 5\nrule del pref 10\nroute flush table 100\naddr add 127.0.0.1/8 dev lo\n")?;
    result
}

fn off(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&OBJECTS)?;
    scene.lab.node().sysctl(&[(ROUTE_LOCALNET, "1")])?;
    let ask = |scene: &Scene, from, to| from_node(scene.lab, from, Protocol::Tcp, to, SHORT);
    let seen = ask(&scene, loopback(0).ip(), loopback(3001))?;
    ensure!(seen == Outcome::Refused, "where nobody asked for it, 127.0.0.1:3001: {seen}");
    // a prefix of loopback addresses asks for it
    let explicit = NodePortAddresses::Networks(vec!["127.0.0.0/8".parse()?, "::1/128".parse()?]);
    scene.restart_with(ProxyConfig { node_port_addresses: explicit, ..NodeSettings::default().config(Stack::Dual) })?;
    scene.sync(&OBJECTS)?;
    ask_loopback(scene.lab, Protocol::Tcp, 3001)?;
    let six = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]);
    let seen = ask(&scene, six, SocketAddr::new(six, 3001))?;
    ensure!(seen == Outcome::Refused, "[::1]:3001: {seen}");
    // and taking it back ends it
    scene.restart_with(NodeSettings::default().config(Stack::Dual))?;
    scene.sync(&OBJECTS)?;
    scene.proxy.collect()?;
    let rules = scene.lab.node().command("nft", &["list", "table", "ip", "svcmap"], "")?;
    ensure!(!rules.contains("guard-prerouting"), "the guard is still there:\n{rules}");
    let seen = ask(&scene, loopback(0).ip(), loopback(3001))?;
    ensure!(seen == Outcome::Refused, "after it was taken back: {seen}");
    Ok(())
}

/// A read-only /proc/sys, as most containers have it.
fn refused(lab: &mut Lab) -> Result<()> {
    let scene = scene(lab)?;
    let objects = document(Stack::Dual, &OBJECTS);
    let script = "mount --make-rprivate / && mount -t tmpfs -o ro none /proc/sys && exec \"$@\"";
    let node = ["--hostname-override", LOCAL_NODE, "--node-ip", "192.168.0.2", "--localhost-nodeports"];
    let output = scene.lab.node().run(|| -> Result<_> {
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_svcmap"), "apply", "-f", "-"])
            .args(node)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        std::io::Write::write_all(&mut child.stdin.take().context("a pipe")?, objects.as_bytes())?;
        Ok(child.wait_with_output()?)
    })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{output:?}");
    ensure!(errors.contains("warning: net.ipv4.conf.all.route_localnet cannot be set to 1"), "{errors}");
    Ok(())
}
