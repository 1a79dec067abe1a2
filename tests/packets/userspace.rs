//! The mode userspace: the behavioural cases in it, and what only a process can do: pass over an endpoint that refuses, give
//! each its turn, and be gone.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use svcmap::config::ProxyConfig;
use svcmap::conntrack;
use svcmap::dataplane::Dataplane;
use svcmap::lab::{Lab, Listen, Outcome, Server};
use svcmap::objects::{Family, Protocol};
use svcmap::source::Snapshot;
use svcmap::tracker::Tracker;
use svcmap::userspace::Programmer;
use svcmap::userspace::program::cleanup;

use crate::common::cases::{Case, Flow, LOCAL_NODE, Look, NodeSettings, Outcome as Expected, Stack, address, snapshot};
use crate::common::daemon::Daemon;
use crate::common::fixture;
use crate::common::flows::{check, listens, places};
use crate::common::proxy::Proxy;
use crate::scene::{PATIENCE, Scene, ask, document, target};
use crate::trial;

/// A name, and what is done in a lab.
type Test = (&'static str, fn(&mut Lab) -> Result<()>);

pub fn trials() -> Vec<Trial> {
    let apply = |case: &Case| {
        let carried = |flows: &[Flow]| flows.iter().all(|flow| flow.protocol != Protocol::Sctp);
        matches!(case.look(Stack::Dual), Look::Flows(flows) if carried(&flows))
            && case.excluded_from("packets").is_none()
    };
    // nothing here is different by family: both in turn are enough
    let stacks = [Stack::V4, Stack::V6].into_iter().cycle();
    let cases = Case::all().into_iter().filter(apply).map(Arc::new).zip(stacks).map(|(case, stack)| {
        let name = format!("userspace::cases::{}::{}", case.id, format!("{stack:?}").to_lowercase());
        trial(name, move || fixture::in_a_lab(|lab| in_case(&case, stack, lab)))
    });
    let alike = trial("userspace::compare_knows_where_it_differs", alike);
    let tests: [Test; 8] = [
        ("each_endpoint_has_its_turn_and_one_that_refuses_is_passed_over", turns),
        ("a_client_keeps_its_endpoint", affinity),
        ("datagrams_find_another_endpoint", datagrams),
        ("the_daemon_follows_changes_and_connections_go_on", changes),
        ("what_a_killed_process_leaves_is_taken_up_or_cleaned_up", killed),
        ("one_mode_follows_another_without_a_gap", beside),
        ("what_cannot_be_is_said", said),
        ("ports_are_taken_from_a_range_and_one_too_few_is_said", few_ports),
    ];
    let tests =
        tests.into_iter().map(|(name, test)| trial(format!("userspace::{name}"), move || fixture::in_a_lab(test)));
    cases.chain(tests).chain([alike]).collect()
}

/// The proxy on a lab's node, within this process. Its table goes with it.
struct Carrier<'a> {
    lab: &'a Lab,
    tracker: Tracker,
    programmer: Programmer,
}

impl Carrier<'_> {
    fn start(lab: &Lab, config: ProxyConfig) -> Result<Carrier<'_>> {
        // whatever a test before this one left
        lab.node().run(cleanup)?;
        Proxy::start(lab, config.clone())?.clean()?;
        let programmer = lab.node().run(|| Programmer::open(None))?;
        Ok(Carrier { lab, tracker: Tracker::new(config), programmer })
    }

    fn sync(&mut self, snapshot: Snapshot) -> Result<()> {
        self.tracker.replace(snapshot);
        let (change, _) = self.tracker.take();
        self.lab.node().run(|| match self.programmer.is_in_step() {
            true => self.programmer.change(change),
            false => self.programmer.replace(change.node.unwrap_or_default(), change.changed),
        })?;
        Ok(())
    }

    fn tell(&mut self, stack: Stack, objects: &[&str]) -> Result<()> {
        self.sync(snapshot(&document(stack, objects)))
    }

    /// Ends the UDP flows that are stale, as the daemon does; how many.
    fn clean_up(&mut self) -> Result<usize> {
        self.lab.node().run(|| {
            let mut criteria = conntrack::due(&mut self.tracker, self.programmer.take_found())?;
            criteria.answered_by(|claim| self.programmer.answers_for(claim));
            Ok(conntrack::clean(&criteria)?.deleted)
        })
    }
}

impl Drop for Carrier<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.lab.node().run(cleanup) {
            eprintln!("the table of the mode userspace stays: {error}");
        }
    }
}

/// Who answers, and what is refused, dropped or left alone, is as the case says. Every endpoint sees the node.
fn in_case(case: &Case, stack: Stack, lab: &mut Lab) -> Result<()> {
    let last = case.steps.len() - 1;
    let Look::Flows(flows) = case.look(stack) else { bail!("{} has no packets", case.id) };
    lab.settle(&places(case, stack, &flows))?;
    let lab = &*lab;
    let mut carrier = Carrier::start(lab, case.config(stack))?;
    for step in 0..=last {
        carrier.sync(case.snapshot(step, stack)).with_context(|| format!("step {step}"))?;
    }
    let _servers = lab.serve(&listens(&case.snapshot(last, stack), &flows))?;
    let seen_as_the_node = |mut flow: Flow| {
        if let Expected::Endpoints(endpoints) = &mut flow.expect {
            endpoints.values_mut().for_each(|masqueraded| *masqueraded = true);
        }
        flow
    };
    let flows = flows.into_iter().map(seen_as_the_node);
    let wrong: Vec<String> =
        flows.filter_map(|flow| check(lab, &flow).err()).map(|error| format!("{error:#}")).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let rules = lab.node().command("nft", &["list", "ruleset"], "").unwrap_or_else(|error| format!("{error:#}"));
    bail!("{}\n{}\nThe objects:\n{}\nThe rules:\n{rules}", case.row, wrong.join("\n"), case.manifests(last, stack))
}

const CLIENT: &str = "10.0.0.2";
const VIP: &str = "172.30.0.41";

fn scene(lab: &mut Lab) -> Result<Scene<'_>> {
    Scene::new(lab, Stack::Dual, "L1 R2 L3", &["203.0.113.2"])
}

fn carrier(lab: &Lab) -> Result<Carrier<'_>> {
    Carrier::start(lab, NodeSettings::default().config(Stack::Dual))
}

/// A server on some of the endpoints alone.
fn serve(lab: &Lab, protocol: Protocol, endpoints: &[&str]) -> Result<Vec<Server>> {
    let at = |family| endpoints.iter().map(move |ip| Listen { protocol, address: target(ip, 8080, family) });
    lab.serve(&Family::BOTH.into_iter().flat_map(at).collect::<Vec<_>>())
}

fn answers(lab: &Lab, protocol: Protocol, family: Family, count: usize) -> Result<Vec<IpAddr>> {
    let ask = |_| Ok(ask(lab, address(CLIENT, family), protocol, target(VIP, 80, family))?.by.ip());
    (0..count).map(ask).collect()
}

fn addresses<const N: usize>(ips: [&str; N], family: Family) -> [IpAddr; N] {
    ips.map(|ip| address(ip, family))
}

fn turns(lab: &mut Lab) -> Result<()> {
    let lab = scene(lab)?.lab;
    let mut carrier = carrier(lab)?;
    carrier.tell(Stack::Dual, &["service svc", "slice svc L1 R2 L3"])?;
    for family in Family::BOTH {
        let _servers = serve(lab, Protocol::Tcp, &["10.180.0.1", "10.180.0.2", "10.180.0.3"])?;
        let seen = answers(lab, Protocol::Tcp, family, 6)?;
        let in_turn = addresses(["10.180.0.1", "10.180.0.2", "10.180.0.3"], family);
        ensure!(seen == [in_turn, in_turn].concat(), "not in turn: {seen:?}");
    }
    for family in Family::BOTH {
        let _servers = serve(lab, Protocol::Tcp, &["10.180.0.3"])?;
        let seen = answers(lab, Protocol::Tcp, family, 4)?;
        ensure!(seen == [address("10.180.0.3", family); 4], "{seen:?}");
    }
    // with nobody left, the connection is broken off: not without a word
    let outcome = lab.probe(address(CLIENT, Family::V4), Protocol::Tcp, target(VIP, 80, Family::V4), PATIENCE);
    ensure!(outcome.is_err(), "all endpoints refuse, and yet: {outcome:?}");
    Ok(())
}

fn affinity(lab: &mut Lab) -> Result<()> {
    let lab = scene(lab)?.lab;
    let mut carrier = carrier(lab)?;
    let service = "service svc port=80@3001 affinity=10800";
    carrier.tell(Stack::Dual, &[service, "slice svc L1 R2 L3"])?;
    let all = serve(lab, Protocol::Tcp, &["10.180.0.1", "10.180.0.2", "10.180.0.3"])?;
    let node = |family| target("192.168.0.2", 3001, family);
    for family in Family::BOTH {
        let first = answers(lab, Protocol::Tcp, family, 4)?;
        ensure!(first.iter().all(|ip| *ip == first[0]), "{first:?}");
        let by = ask(lab, address(CLIENT, family), Protocol::Tcp, node(family))?.by.ip();
        ensure!(by == first[0], "{by} at the node port, {} at the address", first[0]);
        let other = ask(lab, address("203.0.113.2", family), Protocol::Tcp, node(family))?.by.ip();
        ensure!(other != first[0], "another client is not given the next one");
    }
    drop(all);
    let _one = serve(lab, Protocol::Tcp, &["10.180.0.2"])?;
    for family in Family::BOTH {
        let seen = answers(lab, Protocol::Tcp, family, 2)?;
        ensure!(seen == [address("10.180.0.2", family); 2], "{seen:?}");
    }
    Ok(())
}

/// A client that keeps its port keeps its endpoint, until that refuses or is not the Service's any more.
fn datagrams(lab: &mut Lab) -> Result<()> {
    let lab = scene(lab)?.lab;
    let mut carrier = carrier(lab)?;
    let service = "service svc port=80/UDP@3001";
    carrier.tell(Stack::Dual, &[service, "slice svc port=8080/UDP L1 R2"])?;
    carrier.clean_up()?;
    let servers = serve(lab, Protocol::Udp, &["10.180.0.1", "10.180.0.2", "10.180.0.3"])?;
    let open = |family| lab.converse(address(CLIENT, family), target(VIP, 80, family));
    let clients = [open(Family::V4)?, open(Family::V6)?];
    let by = |client: &svcmap::lab::Conversation| match client.ask(PATIENCE)? {
        Outcome::Answered(answer) => Ok(answer.by.ip()),
        other => bail!("a datagram: {other}"),
    };
    let first = [by(&clients[0])?, by(&clients[1])?];
    for _ in 0..3 {
        ensure!([by(&clients[0])?, by(&clients[1])?] == first, "a client that keeps its port changes its endpoint");
    }
    carrier.tell(Stack::Dual, &[service, "slice svc port=8080/UDP L3"])?;
    ensure!(carrier.clean_up()? == 0, "flows through the process were taken for stale");
    let now = Family::BOTH.map(|family| address("10.180.0.3", family));
    ensure!([by(&clients[0])?, by(&clients[1])?] == now, "its endpoint is gone, and it is still sent there");
    carrier.tell(Stack::Dual, &[service, "slice svc port=8080/UDP L1 R2 L3"])?;
    drop(servers);
    let _one = serve(lab, Protocol::Udp, &["10.180.0.2"])?;
    let now = Family::BOTH.map(|family| address("10.180.0.2", family));
    ensure!([by(&clients[0])?, by(&clients[1])?] == now, "those that refuse are not passed over");
    Ok(())
}

fn svcmap_of(lab: &Lab, arguments: &[&str], input: &str) -> Result<String> {
    lab.node().command(env!("CARGO_BIN_EXE_svcmap"), arguments, input)
}

/// A connection of the client that has not asked anything yet, once the process has opened its own to this endpoint.
fn connect(lab: &Lab, endpoint: &str) -> Result<TcpStream> {
    let client = address(CLIENT, Family::V4);
    let stream = lab.home(client).run(|| TcpStream::connect(target(VIP, 80, Family::V4)))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    // the remote end and the state "established", as the kernel writes them
    let octets = endpoint.parse::<Ipv4Addr>()?.octets();
    let remote = format!("{:08X}:{:04X} 01 ", u32::from_le_bytes(octets), 8080);
    let is_open = || Ok(lab.node().run(|| std::fs::read_to_string("/proc/thread-self/net/tcp"))?.contains(&remote));
    wait_until("a connection to the endpoint", is_open)?;
    Ok(stream)
}

/// What the other end says, in full.
fn request(mut stream: TcpStream) -> Result<String> {
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn wait_until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is_so()? {
        ensure!(started.elapsed() < Duration::from_secs(60), "{what}: still not so");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

const MODE: [&str; 2] = ["--mode", "userspace"];

fn changes(lab: &mut Lab) -> Result<()> {
    let lab = scene(lab)?.lab;
    let _servers = serve(lab, Protocol::Tcp, &["10.180.0.1", "10.180.0.2"])?;
    let mut daemon = Daemon::start_with(lab, &MODE, Stack::Dual, &["service svc port=80@3001", "slice svc L1"])?;
    daemon.wait_for("synced", 1)?;
    for family in Family::BOTH {
        ensure!(answers(lab, Protocol::Tcp, family, 2)? == [address("10.180.0.1", family); 2], "not to L1");
    }
    let before = connect(lab, "10.180.0.1")?;
    daemon.tell(Stack::Dual, &["service svc port=80", "slice svc R2"])?;
    daemon.wait_for("synced", 2)?;
    for family in Family::BOTH {
        ensure!(answers(lab, Protocol::Tcp, family, 2)? == [address("10.180.0.2", family); 2], "not to R2");
    }
    let to = target("192.168.0.2", 3001, Family::V4);
    let refused = lab.probe(address(CLIENT, Family::V4), Protocol::Tcp, to, PATIENCE)?;
    ensure!(refused == Outcome::Refused, "the node port that is gone: {refused}");
    let other = connect(lab, "10.180.0.2")?;
    daemon.tell(Stack::Dual, &["service other ip=172.30.0.42"])?;
    daemon.wait_for("synced", 3)?;
    let (old, new) = (request(before)?, request(other)?);
    ensure!(old.contains("200 OK") && new.contains("200 OK"), "connections were cut off: {old:?} {new:?}");
    let doors = lab.node().command("nft", &["list", "set", "ip", "svcmap-userspace", "doors"], "")?;
    ensure!(!doors.contains("elements"), "nobody is led there any more: {doors}");
    daemon.stop()?;
    svcmap_of(lab, &[&["cleanup"], &MODE[..]].concat(), "")?;
    Ok(())
}

fn killed(lab: &mut Lab) -> Result<()> {
    let lab = scene(lab)?.lab;
    let _servers = serve(lab, Protocol::Tcp, &["10.180.0.1"])?;
    let objects = ["service svc", "slice svc L1"];
    let start = || -> Result<Daemon> {
        let mode = [&MODE[..], &["--iptables-sync-period=1s"]].concat();
        let mut daemon = Daemon::start_with(lab, &mode, Stack::Dual, &objects)?;
        daemon.wait_for("synced", 1)?;
        Ok(daemon)
    };
    let probe = || lab.probe(address(CLIENT, Family::V4), Protocol::Tcp, target(VIP, 80, Family::V4), PATIENCE);
    // dropping one kills it at once
    drop(start()?);
    ensure!(probe()? == Outcome::Refused, "nobody carries connections any more, and yet: {}", probe()?);
    let mut again = start()?;
    ensure!(answers(lab, Protocol::Tcp, Family::V4, 1)? == [address("10.180.0.1", Family::V4)], "after a restart");
    // whoever takes the table away finds it put back
    lab.node().command("nft", &["delete", "table", "ip", "svcmap-userspace"], "")?;
    again.wait_for("put right", 1)?;
    ensure!(answers(lab, Protocol::Tcp, Family::V4, 1)? == [address("10.180.0.1", Family::V4)], "after repair");
    drop(again);
    let said = svcmap_of(lab, &[&["cleanup"], &MODE[..]].concat(), "")?;
    ensure!(said.contains("removed table ip svcmap-userspace"), "{said}");
    let rules = lab.node().command("nft", &["list", "ruleset"], "")?;
    ensure!(!rules.contains("svcmap-userspace"), "{rules}");
    Ok(())
}

/// From the maps to the process and back: the new mode is there before the old one goes.
fn beside(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab)?;
    let objects = ["service svc", "slice svc L1"];
    scene.sync(&objects)?;
    let lab = scene.lab;
    let _servers = serve(lab, Protocol::Tcp, &["10.180.0.1"])?;
    let seen = |family| ask(lab, address(CLIENT, family), Protocol::Tcp, target(VIP, 80, family));
    let mut daemon = Daemon::start_with(lab, &MODE, Stack::Dual, &objects)?;
    daemon.wait_for("removed what another mode left: table ip6 svcmap", 1)?;
    for family in Family::BOTH {
        ensure!(seen(family)?.masqueraded(), "who answers is not asked by the process");
    }
    let arguments =
        ["apply", "-f", "-", "--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.0.0.0/8,fd00:5c::a00:0/104"];
    svcmap_of(lab, &arguments, &document(Stack::Dual, &objects))?;
    Family::BOTH.into_iter().try_for_each(|family| seen(family).map(drop)).context("both at once again")?;
    svcmap_of(lab, &[&["cleanup"], &MODE[..]].concat(), "")?;
    daemon.stop()?;
    for family in Family::BOTH {
        ensure!(!seen(family)?.masqueraded(), "the maps do not serve");
    }
    svcmap_of(lab, &["cleanup"], "")?;
    Ok(())
}

/// What this mode cannot do, by the names of what it cannot do it for; and what others can tell of it.
fn said(lab: &mut Lab) -> Result<()> {
    let lab = scene(lab)?.lab;
    let sctp =
        ["service svc", "slice svc L1", "service sig ip=172.30.0.42 port=80/SCTP", "slice sig port=8080/SCTP L1"];
    let mut daemon = Daemon::start_with(lab, &MODE, Stack::Dual, &sctp)?;
    daemon.wait_for("Service ns/sig: SCTP cannot be served", 1)?;
    daemon.wait_for("synced", 1)?;
    let audit = lab.node().run(|| Command::new(env!("CARGO_BIN_EXE_svcmap")).arg("audit").output())?;
    let text = String::from_utf8_lossy(&audit.stdout);
    ensure!(text.contains("table ip svcmap-userspace leads 1 frontend"), "{text}");
    let explain = ["explain", "--from", CLIENT, "--to", "172.30.0.41:80"];
    let text = svcmap_of(lab, &explain, "")?;
    ensure!(text.contains("svcmap run --mode userspace"), "{text}");
    daemon.stop()?;
    svcmap_of(lab, &[&["cleanup"], &MODE[..]].concat(), "")?;
    let apply = Command::new(env!("CARGO_BIN_EXE_svcmap")).args(["apply", "-f", "-"]).args(MODE).output()?;
    let text = String::from_utf8_lossy(&apply.stderr);
    ensure!(apply.status.code() == Some(2) && text.contains("that is what run is for"), "{apply:?}");
    Ok(())
}

/// Two ports for three Services: two are served, the third one is as soon as there is room.
fn few_ports(lab: &mut Lab) -> Result<()> {
    let lab = scene(lab)?.lab;
    let _servers = serve(lab, Protocol::Tcp, &["10.180.0.1"])?;
    let mode = [&MODE[..], &["--proxy-port-range=7000-7001", "--iptables-sync-period=1s"]].concat();
    let service = |name: &str, number: u8| [format!("service {name} ip=172.30.0.{number}"), format!("slice {name} L1")];
    let all = [service("a", 41), service("b", 42), service("c", 43)].concat();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut daemon = Daemon::start_with(lab, &mode, Stack::V4, &all)?;
    daemon.wait_for("Service ns/c: there is no port to listen on: no port of portRange 7000-7001 is free", 1)?;
    daemon.wait_for("synced", 1)?;
    let answers = |ip: &str| -> Result<bool> {
        let outcome = lab.probe(address(CLIENT, Family::V4), Protocol::Tcp, target(ip, 80, Family::V4), PATIENCE)?;
        Ok(matches!(outcome, Outcome::Answered(_)))
    };
    ensure!(answers("172.30.0.41")? && answers("172.30.0.42")? && !answers("172.30.0.43")?, "two of three");
    let doors = lab.node().command("nft", &["list", "set", "ip", "svcmap-userspace", "doors"], "")?;
    ensure!(doors.contains("192.168.0.2 . tcp . 7000") && doors.contains("192.168.0.2 . tcp . 7001"), "{doors}");
    daemon.tell(Stack::V4, &all[2..])?;
    wait_until("the third Service is served", || answers("172.30.0.43"))?;
    ensure!(answers("172.30.0.42")? && !answers("172.30.0.41")?, "the other two");
    daemon.stop()?;
    svcmap_of(lab, &[&["cleanup"], &MODE[..]].concat(), "")?;
    Ok(())
}

/// Every frontend by every kind of client, beside the maps: what differs is known to, and is not who answers.
fn alike() -> Result<()> {
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests");
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(["compare", "--modes", "nftables,userspace", "--only", "behaviour", "-o", "json", "-f", manifests])
        .args(["--hostname-override", "n1", "--cluster-cidr", "10.128.0.0/9,fd10::/48"])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let observations = report["behaviour"].as_array().context("behaviour")?;
    let has = |outcome: &str| observations.iter().any(|seen| seen["outcomes"]["userspace"] == outcome);
    for outcome in
        ["no answer", "refused", "endpoints of this node, masqueraded", "endpoints of all nodes, masqueraded"]
    {
        ensure!(has(outcome), "never {outcome}: {report}");
    }
    Ok(())
}
