//! Rulesets that `nft` loads, and a packet through them.

use std::io::Write;
use std::process::{Command, Stdio};

use svcmap::netlink::{CodecKind, Connection};
use svcmap::objects::Protocol;
use svcmap::trace::{Interface, Node, Origin, Packet, Refusal, Route, Ruleset, Trace, trace};

/// Replaces the namespace's rules by a script's, and reads them. Where one `}` follows another or a `;`, the line may go
/// on, which `nft` does not like.
pub fn load(script: &str) -> Ruleset {
    let script = script.replace("; }", ";\n}").replace("} }", "}\n}").replace("} }", "}\n}");
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .stdin(Stdio::piped())
        .spawn()
        .expect("these tests need nft");
    let mut input = nft.stdin.take().expect("standard input is a pipe");
    write!(input, "flush ruleset\n{script}\n").unwrap();
    drop(input);
    assert!(nft.wait().unwrap().success(), "nft does not take\n{script}");
    Ruleset::read(&mut Connection::open(CodecKind::Native).unwrap()).unwrap()
}

/// A node with a pod behind `pod0`, and all else behind `eth0`.
pub fn node() -> Node {
    let interface = |name: &str, addresses: &[&str]| Interface {
        name: name.into(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        ..Interface::default()
    };
    let route = |to: &str, interface: &str| Route { to: to.parse().unwrap(), interface: interface.into() };
    Node {
        interfaces: vec![
            interface("eth0", &["192.168.0.2", "192.168.1.2", "2001:db8::1"]),
            interface("pod0", &["169.254.1.1", "fe80::1"]),
        ],
        routes: vec![
            route("10.0.0.0/16", "pod0"),
            route("0.0.0.0/0", "eth0"),
            route("fd00::/64", "pod0"),
            route("::/0", "eth0"),
        ],
    }
}

/// A packet over TCP from a pod, or from the node itself if it has the source's address.
pub fn tcp(from: &str, to: &str) -> Packet {
    let source = from.parse().unwrap();
    let origin = match node() {
        node if node.is_local(source) => Origin::Node,
        node => Origin::Interface(node.route(source).unwrap()),
    };
    Packet { protocol: Protocol::Tcp, source, source_port: None, destination: to.parse().unwrap(), origin }
}

/// The pod's packet to a Service's address.
pub fn pod() -> Packet {
    tcp("10.0.0.2", "172.30.0.41:80")
}

/// What becomes of a packet, in words; with shares, where there are several ways.
pub fn in_words(traced: Result<Trace, Refusal>) -> String {
    match traced {
        Err(refusal) => format!("refused: {refusal}"),
        Ok(trace) => trace.summary(),
    }
}

/// Loads each script, and compares what becomes of the packet.
pub fn expect(cases: &[(&str, Packet, &str)]) {
    let mut wrong = String::new();
    for (script, packet, expected) in cases {
        let seen = in_words(trace(&load(script), &node(), packet));
        if seen != *expected {
            wrong += &format!("{script}\n{packet:?}\nexpected {expected}\nseen     {seen}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
