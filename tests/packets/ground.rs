//! The ground that the other tests stand on: the lab tells every outcome from every other.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Listen, Outcome, Place};
use svcmap::objects::Protocol;

use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("ground::every_outcome_is_told_from_the_others", every_outcome),
        trial("ground::addresses_move_between_nodes", moves),
        trial("ground::a_port_that_is_being_left_is_waited_for", port_being_left),
    ]
}

const RULES: &str = "
table inet lab {
  chain prerouting { type nat hook prerouting priority -100;
    ip daddr 172.30.0.41 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to 10.180.0.1:8080
    ip daddr 172.30.0.42 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to 10.180.0.2:8080
    ip6 daddr fd00:30::41 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to [fd00:180::1]:8080
    ip6 daddr fd00:30::42 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to [fd00:180::2]:8080
  }
  chain output { type nat hook output priority -100;
    ip daddr 172.30.0.41 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to 10.180.0.1:8080
    ip6 daddr fd00:30::41 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to [fd00:180::1]:8080
  }
  chain forward { type filter hook forward priority 0;
    th dport 81 drop
    th dport 82 reject
  }
  chain postrouting { type nat hook postrouting priority 100;
    iifname eth0 masquerade fully-random
    ct status dnat ip saddr 10.180.0.1 ip daddr 10.180.0.1 masquerade fully-random
    ct status dnat ip6 saddr fd00:180::1 ip6 daddr fd00:180::1 masquerade fully-random
  }
}";

const PATIENCE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(250);

/// From, to, and what is expected: who answers and whose address is seen, or another outcome.
const PROBES: [(&str, &str, &str); 20] = [
    ("10.0.0.2", "172.30.0.41:80", "pod-10.180.0.1 10.180.0.1:8080 client"),
    ("10.0.0.2", "172.30.0.42:80", "elsewhere 10.180.0.2:8080 client"),
    ("203.0.113.2", "172.30.0.41:80", "pod-10.180.0.1 10.180.0.1:8080 node"),
    ("203.0.113.2", "172.30.0.42:80", "elsewhere 10.180.0.2:8080 node"),
    ("192.168.0.2", "172.30.0.41:80", "pod-10.180.0.1 10.180.0.1:8080 client"),
    ("10.180.0.1", "172.30.0.41:80", "pod-10.180.0.1 10.180.0.1:8080 node"),
    ("10.0.0.2", "172.30.0.41:83", "world 172.30.0.41:83 client"),
    ("203.0.113.2", "192.168.0.2:83", "node 192.168.0.2:83 client"),
    ("10.0.0.2", "172.30.0.41:81", "no answer"),
    ("10.0.0.2", "172.30.0.41:82", "refused"),
    ("fd00::2", "[fd00:30::41]:80", "pod-fd00:180::1 [fd00:180::1]:8080 client"),
    ("fd00::2", "[fd00:30::42]:80", "elsewhere [fd00:180::2]:8080 client"),
    ("2001:db8:113::2", "[fd00:30::41]:80", "pod-fd00:180::1 [fd00:180::1]:8080 node"),
    ("2001:db8:113::2", "[fd00:30::42]:80", "elsewhere [fd00:180::2]:8080 node"),
    ("2001:db8::1", "[fd00:30::41]:80", "pod-fd00:180::1 [fd00:180::1]:8080 client"),
    ("fd00:180::1", "[fd00:30::41]:80", "pod-fd00:180::1 [fd00:180::1]:8080 node"),
    ("fd00::2", "[fd00:30::41]:83", "world [fd00:30::41]:83 client"),
    ("2001:db8:113::2", "[2001:db8::1]:83", "node [2001:db8::1]:83 client"),
    ("fd00::2", "[fd00:30::41]:81", "no answer"),
    ("fd00::2", "[fd00:30::41]:82", "refused"),
];

const SERVERS: [&str; 8] = [
    "10.180.0.1:8080",
    "10.180.0.2:8080",
    "172.30.0.41:83",
    "192.168.0.2:83",
    "[fd00:180::1]:8080",
    "[fd00:180::2]:8080",
    "[fd00:30::41]:83",
    "[2001:db8::1]:83",
];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("the test's addresses are addresses")
}

fn lab_with_rules() -> anyhow::Result<Lab> {
    let mut lab = Lab::new(&["192.168.0.2", "192.168.1.2", "2001:db8::1", "2001:db8:1::2"].map(ip))?;
    let pods = ["10.0.0.2", "10.180.0.1", "fd00::2", "fd00:180::1"].map(|a| (ip(a), Place::Pod));
    let others = ["10.180.0.2", "fd00:180::2"].map(|a| (ip(a), Place::Elsewhere));
    let outside = ["203.0.113.2", "2001:db8:113::2"].map(|a| (ip(a), Place::Outside));
    lab.place(&[&pods[..], &others, &outside].concat())?;
    lab.node().command("nft", &["-f", "-"], RULES)?;
    Ok(lab)
}

fn every_outcome() -> anyhow::Result<()> {
    let lab = lab_with_rules()?;
    let listens = |protocol| SERVERS.map(|a| Listen { protocol, address: a.parse().expect("an address with a port") });
    let _servers = lab.serve(&Protocol::ALL.map(listens).concat())?;
    for protocol in Protocol::ALL {
        for (from, to, expected) in PROBES {
            let patience = if expected == "no answer" { SHORT } else { PATIENCE };
            let outcome = lab.probe(ip(from), protocol, to.parse()?, patience)?;
            let seen = in_words(&lab, &outcome);
            ensure!(seen == expected, "{protocol} {from} -> {to}: expected {expected}, seen {seen} ({outcome})");
        }
    }
    Ok(())
}

fn in_words(lab: &Lab, outcome: &Outcome) -> String {
    let Outcome::Answered(answer) = outcome else { return outcome.to_string() };
    let source = match answer.seen {
        seen if seen == answer.client => "client",
        seen if lab.place_of(seen.ip()) == Place::Node => "node",
        _ => "somebody else",
    };
    format!("{} {} {source}", answer.name, answer.by)
}

/// Addresses move between the node and the other node, as pods of different cases do.
fn moves() -> anyhow::Result<()> {
    let mut lab = lab_with_rules()?;
    for (place, name) in [
        (Place::Elsewhere, "elsewhere"),
        (Place::Pod, "pod-10.180.0.1"),
        (Place::World, "world"),
        (Place::Pod, "pod-10.180.0.1"),
    ] {
        lab.place(&[(ip("10.180.0.1"), place)])?;
        let listen = Listen { protocol: Protocol::Tcp, address: "10.180.0.1:8080".parse()? };
        let _servers = lab.serve(&[listen])?;
        let outcome = lab.probe(ip("10.0.0.2"), Protocol::Tcp, "172.30.0.41:80".parse()?, PATIENCE)?;
        let expected = format!("{name} 10.180.0.1:8080 client");
        ensure!(in_words(&lab, &outcome) == expected, "expected {expected}, seen {outcome}");
    }
    Ok(())
}

/// As when another thread starts a program at the moment when a server ends.
fn port_being_left() -> anyhow::Result<()> {
    let lab = lab_with_rules()?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let address: SocketAddr = "10.180.0.1:8080".parse()?;
        let home = lab.home(address.ip());
        let before: OwnedFd = home.run(|| match protocol {
            Protocol::Udp => UdpSocket::bind(address).map(OwnedFd::from),
            _ => TcpListener::bind(address).map(OwnedFd::from),
        })?;
        let leaving = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(before);
        });
        let _servers = lab.serve(&[Listen { protocol, address }])?;
        leaving.join().expect("it only sleeps");
        let outcome = lab.probe(ip("10.0.0.2"), protocol, address, PATIENCE)?;
        ensure!(matches!(outcome, Outcome::Answered(_)), "{protocol}: {outcome}");
    }
    Ok(())
}
