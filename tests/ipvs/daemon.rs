//! `svcmap run --mode ipvs`: it follows what changes, lets connections end, and is stopped and started without anybody noticing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use socket2::SockRef;
use svcmap::lab::{Lab, Listen, Outcome};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{Stack, address};
use crate::common::daemon::Daemon;
use crate::scenes::{PATIENCE, Scene, ask, expect, ipvsadm, lab, svcmap, target, with_config};

/// None needs what another left.
pub const ALL: &[(&str, Scene)] = &[
    ("the_daemon_follows_what_changes", follows),
    ("the_daemon_lets_connections_end_before_it_deletes_their_endpoint", lets_end),
    ("the_daemon_is_stopped_and_started_and_connections_go_on", started_again),
    ("the_daemon_s_traces_are_cleaned_up", leaves_nothing),
];

const MODE: [&str; 2] = ["--mode", "ipvs"];
/// Until a real server is gone: the daemon looks every 30 seconds for those that have no connections any more.
const UNTIL_GONE: Duration = Duration::from_secs(120);

/// A connection through a virtual server, both its ends.
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    /// From the client pod to a virtual server, which has to send it to this endpoint.
    fn open(lab: &Lab, listener: &TcpListener, to: &str) -> Result<Connection> {
        let to = target(to, 80, Family::V4);
        let client = lab.home(address("10.0.0.2", Family::V4)).run(|| TcpStream::connect_timeout(&to, PATIENCE))?;
        let (server, _) = listener.accept()?;
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE))?;
        }
        Ok(Connection { client, server })
    }

    /// Both ends hear of each other.
    fn goes_on(&self) -> Result<()> {
        for (mut from, mut to) in [(&self.server, &self.client), (&self.client, &self.server)] {
            from.write_all(b"still there")?;
            to.read_exact(&mut [0; 11])?;
        }
        Ok(())
    }

    /// By a reset, which the kernel forgets in seconds.
    fn end(self) -> Result<()> {
        SockRef::from(&self.client).set_linger(Some(Duration::ZERO))?;
        Ok(())
    }
}

/// Somebody who accepts connections at an endpoint.
fn listen(lab: &Lab, ip: &str) -> Result<TcpListener> {
    let at = target(ip, 8080, Family::V4);
    Ok(lab.home(at.ip()).run(|| TcpListener::bind(at))?)
}

/// Waits until the listing of virtual servers is as wanted.
fn wait(lab: &Lab, patience: Duration, what: &str, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let started = Instant::now();
    loop {
        let listing = ipvsadm(lab, &["-Ln"])?;
        if is_wanted(&listing) {
            return Ok(());
        }
        ensure!(started.elapsed() < patience, "{what}:\n{listing}");
        sleep(Duration::from_millis(200));
    }
}

/// The lines of a virtual server's real servers: address, weight, active and inactive connections.
fn real_servers(lab: &Lab, server: &str) -> Result<Vec<String>> {
    let listing = ipvsadm(lab, &["-Ln"])?;
    let lines = listing.lines().skip_while(|line| !line.contains(server)).skip(1);
    let of_server = lines.take_while(|line| line.starts_with("  ->"));
    Ok(of_server.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect())
}

fn has(lab: &Lab, server: &str, expected: &[&str]) -> Result<()> {
    let seen = real_servers(lab, server)?;
    ensure!(seen == expected, "{server} has {seen:?}, expected {expected:?}");
    Ok(())
}

fn follows() -> Result<()> {
    let lab = lab()?;
    let endpoints = ["10.180.0.1", "10.180.0.2", "10.180.0.3"];
    let listen = |ip: &str, family| Listen { protocol: Protocol::Tcp, address: target(ip, 8080, family) };
    let listens: Vec<_> = endpoints.iter().flat_map(|ip| Family::BOTH.map(|family| listen(ip, family))).collect();
    let _servers = lab.serve(&listens)?;
    let svc = "service svc port=80@30080";
    let mut daemon = Daemon::start_with(&lab, &MODE, Stack::Dual, &[svc, "slice svc R2"])?;
    daemon.wait_for("synced", 1)?;
    let answers_from = |ip: &str, to: &str, port| -> Result<()> {
        for family in Family::BOTH {
            let answer = ask(&lab, "10.0.0.2", target(to, port, family), family)?;
            ensure!(answer.by.ip() == address(ip, family), "{answer:?}, not by {ip}");
        }
        Ok(())
    };
    answers_from("10.180.0.2", "172.30.0.41", 80)?;
    // one endpoint in the place of another changes no set and no rule, and is told all the same
    daemon.tell(Stack::Dual, &[svc, "slice svc R3"])?;
    daemon.wait_for("synced", 2)?;
    answers_from("10.180.0.3", "172.30.0.41", 80)?;
    answers_from("10.180.0.3", "192.168.0.2", 30080)?;
    daemon.tell(Stack::Dual, &["service other ip=172.30.0.42 port=80", "slice other L1"])?;
    daemon.wait_for("synced", 3)?;
    answers_from("10.180.0.1", "172.30.0.42", 80)?;
    let listing = ipvsadm(&lab, &["-Ln"])?;
    ensure!(!listing.contains("172.30.0.41") && !listing.contains(":30080"), "{listing}");
    // what was changed behind its back comes back once it looks; what there is stays when it ends
    daemon.stop()?;
    answers_from("10.180.0.1", "172.30.0.42", 80)
}

/// A Service of each kind, with one endpoint.
fn leaving(endpoint: &str) -> Vec<String> {
    let services = [
        "service svc port=80",
        "service idle ip=172.30.0.42 port=80",
        "service dns ip=172.30.0.45 port=53/UDP",
        "service sctp ip=172.30.0.46 port=80/SCTP",
    ];
    let slice = |line: &str| {
        let name = line.split(' ').nth(1).unwrap_or_default();
        let protocol = line.split_once('/').map_or("TCP", |(_, protocol)| protocol);
        format!("slice {name} port=8080/{protocol} {endpoint}")
    };
    services.iter().map(|line| (*line).to_owned()).chain(services.iter().map(|line| slice(line))).collect()
}

/// Endpoints of TCP and SCTP get no new connections and keep those that they have, those of UDP lose theirs at once.
fn lets_end() -> Result<()> {
    let lab = lab()?;
    let config = with_config("{tcpTimeout: 30s}")?;
    let config = config.path().to_string_lossy().into_owned();
    let listener = listen(&lab, "10.180.0.2")?;
    let at = |protocol, ip| Listen { protocol, address: target(ip, 8080, Family::V4) };
    let _servers = lab.serve(&[
        at(Protocol::Tcp, "10.180.0.3"),
        at(Protocol::Udp, "10.180.0.2"),
        at(Protocol::Udp, "10.180.0.3"),
        at(Protocol::Sctp, "10.180.0.2"),
        at(Protocol::Sctp, "10.180.0.3"),
    ])?;
    let (before, after) = (leaving("R2"), leaving("R3"));
    let [before, after] = [&before, &after].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    let mut daemon = Daemon::start_with(&lab, &[&MODE[..], &["--config", &config]].concat(), Stack::V4, &before)?;
    daemon.wait_for("synced", 1)?;
    let connection = Connection::open(&lab, &listener, "172.30.0.41")?;
    let idle = Connection::open(&lab, &listener, "172.30.0.42")?;
    let pod = address("10.0.0.2", Family::V4);
    let conversation = lab.converse(pod, target("172.30.0.45", 53, Family::V4))?;
    let by = |outcome: Outcome| match outcome {
        Outcome::Answered(answer) => Ok(answer.by.ip().to_string()),
        other => anyhow::bail!("expected an answer, seen: {other}"),
    };
    ensure!(by(conversation.ask(PATIENCE)?)? == "10.180.0.2", "UDP before the change");
    let sctp = || lab.probe(pod, Protocol::Sctp, target("172.30.0.46", 80, Family::V4), PATIENCE);
    ensure!(by(sctp()?)? == "10.180.0.2", "SCTP before the change");

    daemon.tell(Stack::V4, &after)?;
    daemon.wait_for("synced", 2)?;
    let both = ["10.180.0.2:8080 Masq 0 1 0", "10.180.0.3:8080 Masq 1 0 0"];
    has(&lab, "172.30.0.41:80", &both)?;
    has(&lab, "172.30.0.42:80", &both)?;
    let sctp_servers = real_servers(&lab, "172.30.0.46:80")?;
    ensure!(sctp_servers[0].starts_with("10.180.0.2:8080 Masq 0 "), "{sctp_servers:?}");
    let udp = real_servers(&lab, "172.30.0.45:53")?;
    ensure!(udp.len() == 1 && udp[0].starts_with("10.180.0.3:8080 Masq 1"), "{udp:?}");
    connection.goes_on().context("a connection to the endpoint that goes")?;
    for _ in 0..3 {
        let answer = ask(&lab, "10.0.0.2", target("172.30.0.41", 80, Family::V4), Family::V4)?;
        ensure!(answer.by.ip() == address("10.180.0.3", Family::V4), "{answer:?}");
    }
    ensure!(by(conversation.ask(PATIENCE)?)? == "10.180.0.3", "the same UDP client after the change");
    ensure!(by(sctp()?)? == "10.180.0.3", "SCTP after the change");

    // one ends, the other one says nothing for longer than the kernel remembers it
    connection.end()?;
    wait(&lab, UNTIL_GONE, "the endpoint has no connections left", |listing| !listing.contains("10.180.0.2:8080"))?;
    has(&lab, "172.30.0.42:80", &["10.180.0.3:8080 Masq 1 0 0"])?;
    drop(idle);
    daemon.stop()
}

/// What changed meanwhile is brought about by the next one, and what it found there is not made anew.
fn started_again() -> Result<()> {
    let lab = lab()?;
    let (going, staying) = (listen(&lab, "10.180.0.2")?, listen(&lab, "10.180.0.3")?);
    let svc = "service svc port=80";
    let gone = ["service gone ip=172.30.0.42 port=80@30082 eTP=Local", "slice gone R3"];
    let start = |objects: &[&str]| Daemon::start_with(&lab, &MODE, Stack::V4, objects);
    let mut daemon = start(&[&[svc, "slice svc R2"], &gone[..]].concat())?;
    daemon.wait_for("synced", 1)?;
    let to_going = Connection::open(&lab, &going, "172.30.0.41")?;
    daemon.tell(Stack::V4, &[&[svc, "slice svc R3"], &gone[..]].concat())?;
    daemon.wait_for("synced", 2)?;
    let to_staying = Connection::open(&lab, &staying, "172.30.0.41")?;
    daemon.stop()?;
    to_going.goes_on().context("to the endpoint that goes, without a daemon")?;
    to_staying.goes_on().context("without a daemon")?;

    let mut daemon = start(&[svc, "slice svc L1 R3"])?;
    daemon.wait_for("synced", 1)?;
    let all = ["10.180.0.1:8080 Masq 1 0 0", "10.180.0.2:8080 Masq 0 1 0", "10.180.0.3:8080 Masq 1 1 0"];
    let mut seen = real_servers(&lab, "172.30.0.41:80")?;
    seen.sort();
    ensure!(seen == all, "{seen:?}");
    let statistics = ipvsadm(&lab, &["-Ln", "--stats"])?;
    let conns = statistics.lines().find(|line| line.contains("172.30.0.41:80")).context("the virtual server")?;
    ensure!(conns.split_whitespace().nth(2) == Some("2"), "the virtual server was made anew:\n{statistics}");
    let listing = ipvsadm(&lab, &["-Ln"])?;
    ensure!(!listing.contains("172.30.0.42") && !listing.contains(":30082"), "{listing}");
    to_going.goes_on().context("to the endpoint that goes, with the next daemon")?;
    to_staying.goes_on().context("with the next daemon")?;
    to_going.end()?;
    wait(&lab, UNTIL_GONE, "the next daemon waits for the endpoint, too", |listing| !listing.contains("10.180.0.2"))?;
    to_staying.goes_on().context("after the other endpoint is gone")?;
    daemon.stop()?;

    // nothing of the last Service is left that could decide anything, also where there is none of its family any more
    let mut daemon = start(&[&[svc, "slice svc L1"], &gone[..]].concat())?;
    daemon.wait_for("synced", 1)?;
    daemon.stop()?;
    let node_port = target("192.168.0.2", 30082, Family::V4);
    expect(&lab, "203.0.113.2", node_port, Family::V4, &Outcome::TimedOut).context("policy Local")?;
    let mut daemon = start(&[])?;
    daemon.wait_for("synced", 1)?;
    expect(&lab, "203.0.113.2", node_port, Family::V4, &Outcome::Refused).context("a port of nobody's")?;
    daemon.stop()
}

/// All that the mode makes, in both families, with a real server that waits for its last connection.
fn leaves_nothing() -> Result<()> {
    let lab = lab()?;
    let node = lab.node();
    let plain = |text: String| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with(['#', ':', '*']) && *line != "COMMIT").map(str::to_owned).collect()
    };
    let there = || -> Result<[Vec<String>; 5]> {
        let listing =
            |program: &str, arguments: &[&str]| Ok::<_, anyhow::Error>(plain(node.command(program, arguments, "")?));
        Ok([
            listing("ipvsadm", &["-Sn"])?,
            listing("ipset", &["save"])?,
            listing("ip", &["-o", "address", "show"])?,
            listing("iptables-save", &[])?,
            listing("ip6tables-save", &[])?,
        ])
    };
    let before = there()?;
    let listener = listen(&lab, "10.180.0.2")?;
    let objects = [
        "service svc port=80@30080,s:9/SCTP@30009 external=198.51.100.7 affinity=10800",
        "slice svc port=8080,s:9/SCTP L1 R2",
        "service remote ip=172.30.0.49 port=80/UDP@30049 eTP=Local iTP=Local",
        "slice remote port=8080/UDP R2",
        "service ranged ip=172.30.0.48 port=80 vip=198.51.100.9 ranges=203.0.113.0/25 eTP=Local",
    ];
    let with = |slice| [&objects[..], &[slice]].concat();
    let mut daemon = Daemon::start_with(&lab, &MODE, Stack::Dual, &with("slice ranged R2"))?;
    daemon.wait_for("synced", 1)?;
    let _connection = Connection::open(&lab, &listener, "172.30.0.48")?;
    daemon.tell(Stack::Dual, &with("slice ranged L1"))?;
    daemon.wait_for("synced", 2)?;
    has(&lab, "172.30.0.48:80", &["10.180.0.1:8080 Masq 1 0 0", "10.180.0.2:8080 Masq 0 1 0"])?;
    ensure!(there()? != before, "nothing was made");
    daemon.stop()?;
    svcmap(&lab, &["cleanup", "--mode", "ipvs"], "")?;
    ensure!(there()? == before, "{before:#?} became {:#?}", there()?);
    Ok(())
}
