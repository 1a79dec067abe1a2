//! The kernel's table of flows, by the program `conntrack`.

use std::process::Command;

use svcmap::objects::{Family, Protocol};

use crate::common::cases::{NODE_IPS, TrackedFlow, address};

/// Runs a program; what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .unwrap_or_else(|error| panic!("{program} is needed (packages conntrack and iproute2): {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Gives the network namespace the node's addresses.
pub fn give_addresses() {
    run("ip", &["link", "set", "lo", "up"]);
    for ip in Family::BOTH.into_iter().flat_map(|family| NODE_IPS.map(|ip| address(ip, family))) {
        run("ip", &["address", "add", &ip.to_string(), "dev", "lo"]);
    }
}

/// Forgets all flows.
pub fn clear() {
    run("conntrack", &["-F"]);
}

/// Puts in a flow from this port of its client, in a zone or in none.
pub fn insert(port: u16, flow: &TrackedFlow, zone: Option<u16>) {
    let number = |port: u16| port.to_string();
    let (client, port, zone) = (flow.client.to_string(), number(port), zone.map(number));
    let (to, from) = (flow.destination, flow.answerer);
    let (protocol, to_ip, to_port) = (flow.protocol.to_string(), to.ip().to_string(), number(to.port()));
    let (from_ip, from_port) = (from.ip().to_string(), number(from.port()));
    let mut arguments = vec!["-I", "-p", &protocol, "-s", &client, "-d", &to_ip, "--sport", &port, "--dport", &to_port];
    arguments.extend(["--reply-src", &from_ip, "--reply-dst", &client]);
    arguments.extend(["--reply-port-src", &from_port, "--reply-port-dst", &port, "-t", "600"]);
    match flow.protocol {
        Protocol::Udp => {}
        Protocol::Tcp => arguments.extend(["--state", "ESTABLISHED"]),
        Protocol::Sctp => arguments.extend(["--state", "ESTABLISHED", "--orig-vtag", "1", "--reply-vtag", "2"]),
    }
    if let Some(zone) = &zone {
        arguments.extend(["-w", zone]);
    }
    run("conntrack", &arguments);
}

/// The clients' ports of all flows of both families, sorted.
pub fn listed() -> Vec<u16> {
    let mut ports = Vec::new();
    for family in ["ipv4", "ipv6"] {
        for line in run("conntrack", &["-L", "-f", family]).lines() {
            let port = line.split_whitespace().find_map(|word| word.strip_prefix("sport="));
            ports.push(port.unwrap_or_else(|| panic!("no port in {line:?}")).parse().unwrap());
        }
    }
    ports.sort_unstable();
    ports
}
