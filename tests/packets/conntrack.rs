//! UDP flows and connection tracking (behaviour rows H, cases X), with datagrams: what a client that keeps its port
//! gets after a change, and whether connection tracking still has the flow that it had.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use socket2::{Domain, Socket, Type};
use svcmap::lab::{Conversation, Lab, Listen, Outcome, Server};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{Stack, address};
use crate::common::daemon::Daemon;
use crate::common::fixture;
use crate::scene::{PATIENCE, Scene, target};
use crate::trial;

/// A name, and what is done in a lab in one family.
type Test = (&'static str, fn(&mut Lab, Stack) -> Result<()>);

pub fn trials() -> Vec<Trial> {
    let tests: [Test; 12] = [
        ("X02_flows_leave_an_endpoint_that_is_gone", endpoint_gone),
        ("X03_flows_follow_an_endpoint_to_its_new_port", renumbered),
        ("X04_flows_stay_with_an_endpoint_that_still_serves", still_serving),
        ("X13_flows_end_without_endpoints", no_endpoints),
        ("X14_flows_end_with_their_service", service_gone),
        ("X14_flows_end_where_an_address_changed", address_changed),
        ("X14_flows_go_to_the_heir_of_an_address", handed_over),
        ("X09_flows_from_before_the_service_are_moved_to_it", before_the_service),
        ("X09_flows_from_a_time_without_rules_are_moved", without_rules),
        ("X25_flows_stay_over_changes_and_another_proxy", unrelated_changes),
        ("X17_flows_stay_over_a_restart_of_the_daemon", restart),
        ("X10_tcp_is_left_alone", tcp),
    ];
    let in_family = |(name, test): Test| {
        [Stack::V4, Stack::V6].map(|stack| {
            let name = format!("conntrack::{name}::{}", format!("{stack:?}").to_lowercase());
            trial(name, move || fixture::in_a_lab(|lab| test(lab, stack)))
        })
    };
    tests.into_iter().flat_map(in_family).collect()
}

pub const SERVICE: &str = "service svc port=80/UDP@30080 vip=5.6.7.8";
const ENDPOINTS: &str = "L1 R2 R3";
/// For datagrams that nobody answers.
const SHORT: Duration = Duration::from_millis(250);

/// Who sends where: to the ClusterIP, the load balancer's address, and the node port.
pub const ROUTES: [(&str, &str, u16); 4] = [
    ("10.0.0.2", "172.30.0.41", 80),
    ("192.168.0.2", "172.30.0.41", 80),
    ("203.0.113.2", "5.6.7.8", 80),
    ("203.0.113.2", "192.168.0.2", 30080),
];
/// The last two: what these are sent to is somebody's own address where there is no Service.
const OUTSIDE: std::ops::Range<usize> = 2..4;

/// A flow that was answered.
pub struct Flow {
    client: Conversation,
    name: String,
    port: u16,
    pub by: SocketAddr,
    pub entry: Entry,
}

/// What connection tracking says of a flow: which it is, of those that came and went, and how many datagrams its
/// client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    id: u64,
    packets: u64,
}

/// The flows of connection tracking by their clients' ports.
pub fn entries(lab: &Lab, protocol: &str, family: Family) -> Result<BTreeMap<u16, Entry>> {
    let family = if family == Family::V4 { "ipv4" } else { "ipv6" };
    let text = lab.node().command("conntrack", &["-L", "-p", protocol, "-f", family, "-o", "id"], "")?;
    let entry = |line: &str| {
        let number = |key: &str| -> Option<u64> {
            line.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok())
        };
        let port = number("sport=").and_then(|port| u16::try_from(port).ok());
        let entry = number("id=").zip(number("packets=")).map(|(id, packets)| Entry { id, packets });
        port.zip(entry).with_context(|| format!("no port, id or count in {line:?}"))
    };
    text.lines().map(entry).collect()
}

impl Flow {
    /// Begins a flow, with two datagrams that are answered by the same.
    pub fn begin(scene: &Scene, route: (&str, &str, u16)) -> Result<Flow> {
        let (family, (from, to, port)) = (scene.family(), route);
        let to = target(to, port, family);
        let client = scene.lab.converse(address(from, family), to)?;
        let source = client.client()?.port();
        let name = format!("{from}:{source} -> {to}");
        let mut flow = Flow { client, name, port: source, by: to, entry: Entry { id: 0, packets: 0 } };
        flow.by = flow.ask()?;
        flow.is_still_with(flow.by)?;
        flow.entry = flow.now(scene.lab)?.with_context(|| format!("{}: is not tracked", flow.name))?;
        ensure!(flow.entry.packets == 2, "{}: of two datagrams, {:?} were counted", flow.name, flow.entry);
        Ok(flow)
    }

    /// Who answers the next datagram.
    pub fn ask(&self) -> Result<SocketAddr> {
        match self.client.ask(PATIENCE)? {
            Outcome::Answered(answer) => Ok(answer.by),
            other => bail!("{}: expected an answer, seen: {other}", self.name),
        }
    }

    fn is_still_with(&self, by: SocketAddr) -> Result<()> {
        let seen = self.ask()?;
        ensure!(seen == by, "{}: expected an answer of {by}, seen one of {seen}", self.name);
        Ok(())
    }

    pub fn now(&self, lab: &Lab) -> Result<Option<Entry>> {
        let family = if self.by.is_ipv4() { Family::V4 } else { Family::V6 };
        Ok(entries(lab, "udp", family)?.remove(&self.port))
    }

    /// Connection tracking has forgotten it.
    fn has_ended(&self, lab: &Lab) -> Result<()> {
        let now = self.now(lab)?;
        ensure!(
            now.is_none(),
            "{}: was {:?}, answered by {}, and is tracked as {now:?}",
            self.name,
            self.entry,
            self.by
        );
        Ok(())
    }

    /// It is the same as before, and goes on.
    pub fn goes_on(&mut self, lab: &Lab) -> Result<()> {
        let expect = |flow: &mut Flow, what: &str| -> Result<()> {
            let now = flow.now(lab)?;
            ensure!(now.as_ref() == Some(&flow.entry), "{} {what}: expected {:?}, seen {now:?}", flow.name, flow.entry);
            Ok(())
        };
        expect(self, "after the change")?;
        self.is_still_with(self.by)?;
        self.entry.packets += 1;
        expect(self, "after the next datagram")
    }
}

/// Flows of all routes to all of several endpoints.
pub fn begin(scene: &Scene, endpoints: usize) -> Result<Vec<Flow>> {
    let mut flows = Vec::new();
    loop {
        for route in ROUTES {
            flows.push(Flow::begin(scene, route)?);
        }
        let reached = flows.iter().map(|flow| flow.by).collect::<BTreeSet<_>>();
        ensure!(reached.len() <= endpoints, "expected {endpoints} endpoints, seen {reached:?}");
        if reached.len() == endpoints {
            return Ok(flows);
        }
        ensure!(flows.len() < 200, "{} flows reached only {reached:?}", flows.len());
    }
}

/// A lab with servers on both ports of the endpoints, and on the addresses that the Service may take over.
pub fn stage(lab: &mut Lab, stack: Stack) -> Result<(Scene<'_>, Vec<Server>)> {
    let scene = Scene::new(lab, stack, ENDPOINTS, &["203.0.113.2"])?;
    scene.lab.node().sysctl(&[("netfilter/nf_conntrack_acct", "1")])?;
    scene.lab.node().command("conntrack", &["-F"], "")?;
    let mut servers = scene.serve(Protocol::Udp, 8080)?;
    servers.extend(scene.serve(Protocol::Udp, 9090)?);
    let own = OUTSIDE.map(|at| target(ROUTES[at].1, ROUTES[at].2, scene.family()));
    let own: Vec<_> = own.map(|address| Listen { protocol: Protocol::Udp, address }).collect();
    servers.extend(scene.lab.serve(&own)?);
    Ok((scene, servers))
}

pub fn endpoint(scene: &Scene, number: u8, port: u16) -> SocketAddr {
    target(&format!("10.180.0.{number}"), port, scene.family())
}

fn endpoint_gone(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP L1 R2"])?;
    let flows = begin(&scene, 2)?;
    let gone = endpoint(&scene, 1, 8080);
    let leaving = flows.iter().filter(|flow| flow.by == gone).count();
    let deleted = scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP R2"])?;
    ensure!(deleted == leaving, "{leaving} flows went to {gone}, {deleted} were deleted");
    for mut flow in flows {
        if flow.by == gone {
            flow.has_ended(scene.lab)?;
            flow.is_still_with(endpoint(&scene, 2, 8080))?;
        } else {
            flow.goes_on(scene.lab)?;
        }
    }
    Ok(())
}

fn renumbered(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP L1"])?;
    let flows = begin(&scene, 1)?;
    let deleted = scene.sync_and_clean(&[SERVICE, "slice svc port=9090/UDP L1"])?;
    ensure!(deleted == flows.len(), "of {} flows, {deleted} were deleted", flows.len());
    for flow in flows {
        flow.has_ended(scene.lab)?;
        flow.is_still_with(endpoint(&scene, 1, 9090))?;
    }
    Ok(())
}

/// An endpoint that new clients do not get any more, and keeps those that it has, until it serves no more.
fn still_serving(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP L1"])?;
    let mut flows = begin(&scene, 1)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP t@L1 R2"])?;
    for flow in &mut flows {
        flow.goes_on(scene.lab)?;
    }
    for route in ROUTES {
        let by = Flow::begin(&scene, route)?.by;
        ensure!(by == endpoint(&scene, 2, 8080), "{by} is terminating, and got a new flow");
    }
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP d@L1 R2"])?;
    for flow in flows {
        flow.has_ended(scene.lab)?;
        flow.is_still_with(endpoint(&scene, 2, 8080))?;
    }
    Ok(())
}

fn no_endpoints(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP L1"])?;
    let flows = begin(&scene, 1)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP"])?;
    for flow in &flows {
        flow.has_ended(scene.lab)?;
        let seen = flow.client.ask(PATIENCE)?;
        ensure!(seen == Outcome::Refused, "{}: expected a refusal, seen: {seen}", flow.name);
    }
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP R2"])?;
    for flow in &flows {
        flow.is_still_with(endpoint(&scene, 2, 8080))?;
    }
    Ok(())
}

/// What becomes of flows to addresses that no Service has any more: those of ClusterIPs are dropped, since they are in
/// the range of these, all others reach whose own they are.
fn are_nobodys(scene: &Scene, flows: &[Flow]) -> Result<()> {
    for (number, flow) in flows.iter().enumerate() {
        flow.has_ended(scene.lab)?;
        let (_, to, port) = ROUTES[number % ROUTES.len()];
        if OUTSIDE.contains(&(number % ROUTES.len())) {
            flow.is_still_with(target(to, port, scene.family()))?;
        } else {
            let seen = flow.client.ask(SHORT)?;
            ensure!(seen == Outcome::TimedOut, "{}: expected no answer, seen: {seen}", flow.name);
        }
    }
    Ok(())
}

fn service_gone(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP L1"])?;
    let flows = begin(&scene, 1)?;
    scene.sync_and_clean(&[])?;
    are_nobodys(&scene, &flows)
}

fn address_changed(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    let slice = "slice svc port=8080/UDP L1";
    scene.sync_and_clean(&[SERVICE, slice])?;
    let flows = begin(&scene, 1)?;
    scene.sync_and_clean(&["service svc ip=172.30.0.42 port=80/UDP@30081 vip=5.6.7.9", slice])?;
    are_nobodys(&scene, &flows)
}

fn handed_over(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP L1 R2"])?;
    let flows = begin(&scene, 2)?;
    let heir = SERVICE.replace("svc", "heir");
    scene.sync_and_clean(&[&heir, "slice heir port=8080/UDP R2 R3"])?;
    for mut flow in flows {
        if flow.by == endpoint(&scene, 2, 8080) {
            flow.goes_on(scene.lab)?;
        } else {
            flow.has_ended(scene.lab)?;
            let by = flow.ask()?;
            ensure!([2, 3].map(|number| endpoint(&scene, number, 8080)).contains(&by), "{}: {by} answers", flow.name);
        }
    }
    Ok(())
}

/// Flows that were never translated: to the addresses of others that the Service takes over.
fn before_the_service(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    scene.sync_and_clean(&[])?;
    let flows = OUTSIDE.map(|at| Flow::begin(&scene, ROUTES[at])).collect::<Result<Vec<_>>>()?;
    for (flow, at) in flows.iter().zip(OUTSIDE) {
        let own = target(ROUTES[at].1, ROUTES[at].2, scene.family());
        ensure!(flow.by == own, "{}: {} answers, without any Service", flow.name, flow.by);
    }
    let deleted = scene.sync_and_clean(&[SERVICE, "slice svc port=8080/UDP L1"])?;
    ensure!(deleted == flows.len(), "of {} flows, {deleted} were deleted", flows.len());
    for flow in flows {
        flow.has_ended(scene.lab)?;
        flow.is_still_with(endpoint(&scene, 1, 8080))?;
    }
    Ok(())
}

/// Somebody empties a chain or a map, and until that is put right what is sent to the Service's addresses goes elsewhere.
fn without_rules(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    let objects = [SERVICE, "slice svc port=8080/UDP L1"];
    scene.sync_and_clean(&objects)?;
    let table = if scene.family() == Family::V4 { "ip" } else { "ip6" };
    for (kind, name) in [("chain", "dispatch"), ("map", "services")] {
        scene.lab.node().command("nft", &["flush", kind, table, "svcmap", name], "")?;
        let flow = Flow::begin(&scene, ROUTES[OUTSIDE.start])?;
        scene.proxy.repair()?;
        let deleted = scene.proxy.clean_up(scene.lab)?;
        ensure!(deleted == 1, "after flush {kind} {name}, of one flow, {deleted} were deleted");
        flow.has_ended(scene.lab)?;
        flow.is_still_with(endpoint(&scene, 1, 8080))?;
    }
    Ok(())
}

fn unrelated_changes(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    let slice = "slice svc port=8080/UDP L1 R2";
    scene.sync_and_clean(&[SERVICE, slice])?;
    let mut flows = begin(&scene, 2)?;
    let other = ["service other ip=172.30.0.43 port=80/UDP@30081 vip=5.6.7.9", "slice other port=8080/UDP L1 R3"];
    let with = |more: &str| format!("{SERVICE} {more}");
    let (sticky, local) = (with("affinity=60"), with("iTP=Local"));
    let changes: [&[&str]; 7] = [
        &[SERVICE, slice, other[0], other[1]],
        &[SERVICE, slice, other[0]],
        &[SERVICE, slice],
        &[SERVICE, "slice svc port=8080/UDP L1 R2 R3"],
        &[&sticky, slice],
        &[&local, slice],
        &[SERVICE, slice],
    ];
    for objects in changes {
        let deleted = scene.sync_and_clean(objects)?;
        ensure!(deleted == 0, "{deleted} flows were deleted by a change to {objects:?}");
        flows.iter_mut().try_for_each(|flow| flow.goes_on(scene.lab)).with_context(|| format!("{objects:?}"))?;
    }
    scene.restart()?;
    let deleted = scene.sync_and_clean(&[SERVICE, slice, other[0], other[1]])?;
    ensure!(deleted == 0, "{deleted} flows were deleted by another proxy");
    flows.iter_mut().try_for_each(|flow| flow.goes_on(scene.lab)).context("with another proxy")
}

/// The daemon as a process of its own. Of another Service, some flow goes stale each time: what is logged of its end
/// shows that all have been looked at.
fn restart(lab: &mut Lab, stack: Stack) -> Result<()> {
    const OTHER: &str = "service other ip=172.30.0.43 port=80/UDP";
    const SWEPT: &str = "deleted stale UDP flows";
    let (scene, _servers) = stage(lab, stack)?;
    let slices = ["slice other port=8080/UDP R2", "slice other port=8080/UDP R3"];
    let both = [SERVICE, "slice svc port=8080/UDP L1 R2", OTHER];
    let with = |more: &'static str| [&both[..], &[more]].concat();
    let begin_other = |scene: &Scene| Flow::begin(scene, ("10.0.0.2", "172.30.0.43", 80)).map(drop);

    let mut daemon = Daemon::start(scene.lab, stack, &with(slices[0]))?;
    daemon.wait_for(" synced", 1)?;
    let mut flows = begin(&scene, 2)?;
    begin_other(&scene)?;
    daemon.tell(stack, &with(slices[1]))?;
    daemon.wait_for(SWEPT, 1)?;
    flows.iter_mut().try_for_each(|flow| flow.goes_on(scene.lab)).context("after a change of another Service")?;
    begin_other(&scene)?;
    daemon.stop()?;
    flows.iter_mut().try_for_each(|flow| flow.goes_on(scene.lab)).context("without a daemon")?;

    let mut daemon = Daemon::start(scene.lab, stack, &with(slices[0]))?;
    daemon.wait_for(SWEPT, 1)?;
    flows.iter_mut().try_for_each(|flow| flow.goes_on(scene.lab)).context("after a restart")?;
    daemon.stop()?;

    let mut daemon = Daemon::start(scene.lab, stack, &[SERVICE, "slice svc port=8080/UDP R2", OTHER, slices[0]])?;
    daemon.wait_for(SWEPT, 1)?;
    for flow in &mut flows {
        if flow.by == endpoint(&scene, 1, 8080) {
            flow.has_ended(scene.lab)?;
            flow.is_still_with(endpoint(&scene, 2, 8080))?;
        } else {
            flow.goes_on(scene.lab)?;
        }
    }
    daemon.stop()
}

/// A connection that is open when its endpoint goes stays with it: that is for its two ends to notice (row H7).
fn tcp(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    let _tcp = scene.serve(Protocol::Tcp, 8080)?;
    let service = SERVICE.replace("UDP", "TCP");
    scene.sync_and_clean(&[&service, "slice svc L1"])?;
    let (first, family) = (endpoint(&scene, 1, 8080), scene.family());
    let open = |(from, to, port)| connect(scene.lab, address(from, family), target(to, port, family));
    let streams = ROUTES.map(open).into_iter().collect::<Result<Vec<_>>>()?;
    let ids = |lab: &Lab| -> Result<Vec<Option<u64>>> {
        let entries = entries(lab, "tcp", family)?;
        let id = |stream: &TcpStream| Ok(entries.get(&stream.local_addr()?.port()).map(|entry| entry.id));
        streams.iter().map(id).collect()
    };
    let before = ids(scene.lab)?;
    ensure!(before.iter().all(Option::is_some), "not all connections are tracked: {before:?}");
    for objects in [&[service.as_str(), "slice svc R2"][..], &[&service], &[]] {
        let deleted = scene.sync_and_clean(objects)?;
        ensure!(deleted == 0, "{deleted} TCP connections were deleted");
        let now = ids(scene.lab)?;
        ensure!(now == before, "connections were {before:?}, and are {now:?}");
    }
    for mut stream in streams {
        let mut answer = String::new();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        stream.read_to_string(&mut answer)?;
        ensure!(answer.contains(&format!(" {first} ")), "a connection that was open to {first} is answered {answer:?}");
    }
    Ok(())
}

/// A connection on which nothing was sent yet.
pub fn connect(lab: &Lab, from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    lab.home(from).run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Ok(socket.into())
    })
}
