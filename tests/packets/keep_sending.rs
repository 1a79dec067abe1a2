//! Clients that keep on over changes, with the daemon as a process of its own: what kube-proxy's end-to-end tests of
//! connection tracking do (cases X19–X24). A change is known to have come through by what a client gets.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};
use svcmap::lab::{Conversation, Lab, Outcome};

use crate::common::cases::{Stack, address};
use crate::common::daemon::Daemon;
use crate::common::fixture;
use crate::conntrack::{ROUTES, SERVICE, connect, endpoint, stage};
use crate::scene::{PATIENCE, Scene, target};
use crate::trial;

/// A name, and what is done in a lab in one family.
type Test = (&'static str, fn(&mut Lab, Stack) -> Result<()>);

pub fn trials() -> Vec<Trial> {
    let tests: [Test; 6] = [
        ("X19_who_sends_before_there_is_an_endpoint_is_served_by_the_first", before_endpoints),
        ("X20_who_keeps_sending_is_served_by_the_next_endpoint", replaced),
        ("X21_who_keeps_sending_is_served_when_the_endpoint_is_ready_again", unready),
        ("X22_who_keeps_sending_is_served_on_the_new_target_port", other_port),
        ("X23_half_closed_connections_are_remembered_for_an_hour", close_wait),
        ("X24_packets_out_of_window_reset_nothing_if_tracking_is_liberal", out_of_window),
    ];
    let in_family = |(name, test): Test| {
        [Stack::V4, Stack::V6].map(|stack| {
            let name = format!("keep_sending::{name}::{}", format!("{stack:?}").to_lowercase());
            trial(name, move || fixture::in_a_lab(|lab| test(lab, stack)))
        })
    };
    tests.into_iter().flat_map(in_family).collect()
}

/// Between two datagrams of a client.
const PERIOD: Duration = Duration::from_millis(100);
/// How long a client sends in vain, on a busy machine.
const VAIN: Duration = Duration::from_secs(60);

/// A client for each route, each with a port that it keeps.
fn clients(scene: &Scene) -> Result<Vec<Conversation>> {
    let client = |(from, to, port): (&str, &str, u16)| {
        scene.lab.converse(address(from, scene.family()), target(to, port, scene.family()))
    };
    ROUTES.into_iter().map(client).collect()
}

/// All of them send until what they get is this.
fn keep_sending(clients: &[Conversation], wanted: impl Fn(&Outcome) -> bool) -> Result<()> {
    let began = Instant::now();
    let mut open: Vec<(usize, Option<Outcome>)> = (0..clients.len()).map(|client| (client, None)).collect();
    while !open.is_empty() {
        ensure!(began.elapsed() < VAIN, "after {VAIN:?}, of {ROUTES:?} these get something else: {open:?}");
        for (client, last) in &mut open {
            *last = Some(clients[*client].ask(PERIOD)?);
        }
        open.retain(|(_, last)| !last.as_ref().is_some_and(&wanted));
        sleep(PERIOD);
    }
    Ok(())
}

fn by(endpoint: SocketAddr) -> impl Fn(&Outcome) -> bool {
    move |seen| matches!(seen, Outcome::Answered(answer) if answer.by == endpoint)
}

/// The clients go through several states, each with what they get in it: an endpoint and its port, or a refusal.
fn through(lab: &mut Lab, stack: Stack, states: &[(&str, Option<(u8, u16)>)]) -> Result<()> {
    let (scene, _servers) = stage(lab, stack)?;
    let mut daemon = Daemon::start(scene.lab, stack, &[SERVICE, states[0].0])?;
    daemon.wait_for(" synced", 1)?;
    let clients = clients(&scene)?;
    for (slice, answer) in states {
        daemon.tell(stack, &[SERVICE, slice])?;
        match answer {
            Some((number, port)) => keep_sending(&clients, by(endpoint(&scene, *number, *port))),
            None => keep_sending(&clients, |seen| *seen == Outcome::Refused),
        }
        .with_context(|| format!("with {slice}"))?;
    }
    daemon.stop()
}

fn before_endpoints(lab: &mut Lab, stack: Stack) -> Result<()> {
    through(lab, stack, &[("slice svc port=8080/UDP", None), ("slice svc port=8080/UDP L1", Some((1, 8080)))])
}

fn replaced(lab: &mut Lab, stack: Stack) -> Result<()> {
    let states = ["slice svc port=8080/UDP L1", "slice svc port=8080/UDP R2", "slice svc port=8080/UDP R3"];
    let answers = [1, 2, 3].map(|number| Some((number, 8080)));
    through(lab, stack, &[(states[0], answers[0]), (states[1], answers[1]), (states[2], answers[2])])
}

fn unready(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (ready, unready) = ("slice svc port=8080/UDP L1", "slice svc port=8080/UDP u@L1");
    through(lab, stack, &[(ready, Some((1, 8080))), (unready, None), (ready, Some((1, 8080)))])
}

fn other_port(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (before, after) = ("slice svc port=8080/UDP L1", "slice svc port=9090/UDP L1");
    through(lab, stack, &[(before, Some((1, 8080))), (after, Some((1, 9090)))])
}

/// A connection through the Service, both ends of it.
struct Open {
    client: TcpStream,
    server: TcpStream,
    /// The pod that has the server.
    pod: IpAddr,
}

impl Open {
    fn new(scene: &Scene) -> Result<Open> {
        let (pod, family) = (address("10.180.0.2", scene.family()), scene.family());
        let listener = scene.lab.home(pod).run(|| TcpListener::bind((pod, 7070)))?;
        let client = connect(scene.lab, address("10.0.0.2", family), target("172.30.0.41", 80, family))?;
        let (server, _) = listener.accept()?;
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE))?;
        }
        Ok(Open { client, server, pod })
    }

    /// A word each way.
    fn talk(&self) -> Result<()> {
        let ends = [(&self.client, &self.server), (&self.server, &self.client)];
        for (mut from, mut to) in ends {
            let mut word = [0; 4];
            from.write_all(b"word")?;
            to.read_exact(&mut word).context("the connection is broken")?;
            ensure!(&word == b"word");
        }
        Ok(())
    }
}

const TCP: [&str; 2] = ["service svc", "slice svc port=7070 R2"];

fn close_wait(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (scene, _servers) = stage(lab, stack)?;
    scene.lab.node().sysctl(&[("netfilter/nf_conntrack_tcp_timeout_close_wait", "60")])?;
    let mut daemon = Daemon::start(scene.lab, stack, &TCP)?;
    daemon.wait_for(" synced", 1)?;
    let open = Open::new(&scene)?;
    open.talk()?;
    open.client.shutdown(std::net::Shutdown::Write)?;
    let (port, began) = (open.client.local_addr()?.port(), Instant::now());
    let seconds = loop {
        let listed = scene.lab.node().command("conntrack", &["-L", "-p", "tcp", "-f", family(&scene)], "")?;
        let flow = listed.lines().find(|line| line.contains(&format!("sport={port} ")));
        let flow = flow.with_context(|| format!("port {port} in {listed}"))?;
        if flow.contains(" CLOSE_WAIT ") {
            break flow.split_whitespace().nth(2).and_then(|word| word.parse::<u64>().ok()).context("its time left")?;
        }
        ensure!(began.elapsed() < PATIENCE, "half closed, and tracked as {flow}");
        sleep(PERIOD);
    };
    ensure!((3540..=3660).contains(&seconds), "{seconds} s are left, of an hour");
    daemon.stop()
}

fn family(scene: &Scene) -> &'static str {
    if scene.family() == svcmap::objects::Family::V4 { "ipv4" } else { "ipv6" }
}

/// Counts what the client's pod answers with a reset.
const WATCH: &str = "table inet watch {
    chain output { type filter hook output priority 0; tcp flags & rst == rst counter; }
}";

/// Row H9. Packets that connection tracking takes for invalid are not translated back, and the client resets what it does
/// not know; unless tracking is told to be liberal.
fn out_of_window(lab: &mut Lab, stack: Stack) -> Result<()> {
    let (mut scene, _servers) = stage(lab, stack)?;
    let pod = scene.lab.home(address("10.0.0.2", scene.family()));
    let strict = [("netfilter/nf_conntrack_tcp_be_liberal", "0")];
    for (arguments, resets) in [(&[][..], true), (&["--conntrack-tcp-be-liberal"], false)] {
        scene.lab.node().sysctl(&strict)?;
        scene.proxy.clean()?; // with nothing to be done, nothing would be logged
        let mut daemon = Daemon::start_with(scene.lab, arguments, stack, &TCP)?;
        daemon.wait_for(" synced", 1)?;
        let open = Open::new(&scene)?;
        open.talk()?;
        pod.command("nft", &["-f", "-"], WATCH)?;
        // some of them are older than what was acknowledged, which is never taken for invalid
        for (sequence, acknowledged) in (0..16).map(|number| (number / 4, number % 4)) {
            inject(&scene, &open, sequence << 30, acknowledged << 30)?;
        }
        open.talk()?;
        let counted = pod.command("nft", &["list", "table", "inet", "watch"], "")?;
        pod.command("nft", &["delete", "table", "inet", "watch"], "")?;
        let none = counted.contains("counter packets 0 ");
        ensure!(
            none != resets,
            "with {arguments:?}, resets are {}expected: {counted}",
            if resets { "" } else { "not " }
        );
        daemon.stop()?;
    }
    scene.lab.node().sysctl(&strict)
}

/// Sends the client what seems to be a segment of its connection, with numbers that are out of the window by all likelihood:
/// where that is, only the two ends know.
fn inject(scene: &Scene, open: &Open, sequence: u32, acknowledged: u32) -> Result<()> {
    let (from, to) = (open.server.local_addr()?, open.server.peer_addr()?);
    let mut segment = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    segment.extend([sequence.to_be_bytes(), acknowledged.to_be_bytes()].concat());
    segment.extend([5 << 4, 0x10, 0xff, 0xff, 0, 0, 0, 0]); // length of the header, ACK, window, checksum, urgent
    let sum = checksum(from.ip(), to.ip(), &segment).to_be_bytes();
    segment[16..18].copy_from_slice(&sum);
    scene.lab.home(open.pod).run(|| -> Result<()> {
        let socket = Socket::new(Domain::for_address(from), Type::RAW, Some(SocketProtocol::TCP))?;
        socket.bind(&SocketAddr::new(from.ip(), 0).into())?;
        let sent = socket.send_to(&segment, &SocketAddr::new(to.ip(), 0).into())?;
        ensure!(sent == segment.len());
        Ok(())
    })
}

/// That of TCP (RFC 9293, section 3.1), over the pseudo header, too.
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let text = [&octets(from)[..], &octets(to), &[0, 6], &(segment.len() as u16).to_be_bytes(), segment].concat();
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = text.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
