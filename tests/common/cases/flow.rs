//! Who connects to what, and what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use svcmap::objects::{Family, FamilyOf, Protocol};

use super::given::{Given, Home, PortLine, ServiceLine};
use super::node::NODE_IPS;
use super::stack::address;

/// One new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Who opens it.
    pub from: Client,
    /// Where to.
    pub to: SocketAddr,
    /// Over which protocol.
    pub protocol: Protocol,
    /// What shall become of it.
    pub expect: Outcome,
}

/// Who opens a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// As the case calls it.
    pub name: String,
    /// Its source address.
    pub ip: IpAddr,
    /// Where it is.
    pub home: Home,
}

/// What becomes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One of these answers; those that are `true` see the node's address in place of the client's.
    Endpoints(BTreeMap<SocketAddr, bool>),
    /// It is refused.
    Reject,
    /// There is no answer.
    Drop,
    /// No rule applies: it goes where it was sent.
    Untouched,
}

/// What a step changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Services with a port that is new.
    pub added: BTreeSet<String>,
    /// Services with a port that differs.
    pub changed: BTreeSet<String>,
    /// Services with a port that is gone.
    pub removed: BTreeSet<String>,
    /// Whether a UDP port is among them.
    pub udp: bool,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {:?}) -> {}/{}", self.from.name, self.from.ip, self.from.home, self.to, self.protocol)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Endpoints(endpoints) => {
                let (any, all) = (endpoints.values().any(|m| *m), endpoints.values().all(|m| *m));
                for (endpoint, masqueraded) in endpoints {
                    write!(f, "{endpoint}{} ", if any && !all && *masqueraded { "=M" } else { "" })?;
                }
                f.write_str(if all && any { "M" } else { "-" })
            }
            Outcome::Reject => f.write_str("REJECT"),
            Outcome::Drop => f.write_str("DROP"),
            Outcome::Untouched => f.write_str("untouched"),
        }
    }
}

impl Flow {
    /// Every flow of `FROM,… -> TO,…` in one family.
    pub fn parse_all(text: &str, expect: &str, given: &Given, family: Family) -> Vec<Flow> {
        let (from, to) = text.split_once("->").unwrap_or_else(|| panic!("no -> in {text:?}"));
        let clients = || from.trim().split(',').map(|from| Client::parse(from.trim(), given, family));
        let targets = to.trim().split(',').map(|to| Target::parse(to.trim(), given));
        targets
            .flat_map(|target| {
                let to = SocketAddr::new(address(&target.ip, family), target.port.port.expect("a port number"));
                let expect = target.expectation(expect, given, family);
                let protocol = target.port.protocol;
                clients().map(move |from| Flow { from, to, protocol, expect: expect.clone() }).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The family of the connection.
    pub fn family(&self) -> Family {
        self.to.ip().family()
    }
}

impl Client {
    fn parse(text: &str, given: &Given, family: Family) -> Client {
        let (ip, home) = match (text, text.split_once('@')) {
            ("P", _) => (address("10.0.0.2", family), Home::Pod),
            ("N", _) => (address(NODE_IPS[0], family), Home::Node),
            ("X", _) => (address("203.0.113.2", family), Home::Outside),
            ("B", _) => (address("203.0.113.130", family), Home::Outside),
            (_, Some((ip, "P"))) => (address(ip, family), Home::Pod),
            (_, Some((ip, "N"))) => (address(ip, family), Home::Node),
            (_, Some((ip, "X"))) => (address(ip, family), Home::Outside),
            _ => given.endpoint(text, family).unwrap_or_else(|| panic!("no client {text:?} in {}", given.name)),
        };
        Client { name: text.to_owned(), ip, home }
    }
}

/// What a connection is opened to.
pub(super) struct Target<'a> {
    pub ip: String,
    pub port: PortLine,
    service: Option<&'a ServiceLine>,
}

impl<'a> Target<'a> {
    /// `SERVICE[.WHICH][:PORT][/PROTOCOL]`, or an address in place of the Service.
    pub fn parse(text: &str, given: &'a Given) -> Target<'a> {
        let (rest, protocol) = match text.split_once('/') {
            Some((rest, protocol)) => (rest, Some(Protocol::from_kubernetes(protocol).expect("a protocol"))),
            None => (text, None),
        };
        let (name, number) = match rest.split_once(':') {
            Some((name, number)) => (name, Some(number.parse::<u16>().expect("a port"))),
            None => (rest, None),
        };
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            let protocol = protocol.unwrap_or(Protocol::Tcp);
            let port = PortLine { name: None, port: number, protocol, node_port: None };
            return Target { ip: name.to_owned(), port, service: None };
        }
        let (service, which) = name.split_once('.').unwrap_or((name, ""));
        let service = given.service(service).unwrap_or_else(|| panic!("no Service {service:?} in {}", given.name));
        let fits = |port: &&PortLine| {
            protocol.is_none_or(|protocol| port.protocol == protocol)
                && number.is_none_or(|number| port.port == Some(number) || port.node_port == Some(number))
        };
        let ports = service.ports();
        let mut port = ports.iter().find(fits).unwrap_or(&ports[0]).clone();
        port.protocol = protocol.unwrap_or(port.protocol);
        let ip = if which == "node" {
            port.port = port.node_port;
            NODE_IPS[0].to_owned()
        } else {
            service.address(which).unwrap_or_else(|| panic!("no {which:?} of {}", service.name))
        };
        port.port = number.or(port.port);
        Target { ip, port, service: Some(service) }
    }

    fn expectation(&self, text: &str, given: &Given, family: Family) -> Outcome {
        match text {
            "REJECT" => return Outcome::Reject,
            "DROP" => return Outcome::Drop,
            "untouched" => return Outcome::Untouched,
            _ => {}
        }
        let (endpoints, masqueraded) = text.rsplit_once(' ').unwrap_or_else(|| panic!("{text:?} says no - or M"));
        assert!(["-", "M"].contains(&masqueraded), "neither - nor M at the end of {text:?}");
        let endpoints = endpoints.split_whitespace().map(|endpoint| {
            let (endpoint, own) = endpoint.split_once('=').map_or((endpoint, false), |(endpoint, _)| (endpoint, true));
            (self.endpoint(endpoint, given, family), own || masqueraded == "M")
        });
        Outcome::Endpoints(endpoints.collect())
    }

    /// `NAME`, `NAME:PORT` or `ADDRESS:PORT`.
    pub fn endpoint(&self, text: &str, given: &Given, family: Family) -> SocketAddr {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().expect("a port"))),
            None => (text, None),
        };
        let Some((ip, _)) = given.endpoint(name, family) else {
            return SocketAddr::new(address(name, family), port.unwrap_or_else(|| panic!("no port in {text:?}")));
        };
        let port = port.unwrap_or_else(|| {
            let ports = given.endpoint_ports(name, self.service.map(|service| (service, &self.port)));
            assert_eq!(ports.len(), 1, "which port of {name} in {}? {ports:?}", given.name);
            ports[0]
        });
        SocketAddr::new(ip, port)
    }
}

impl Changes {
    /// Reads `same`, or `+svc ~svc -svc udp`; other words are left alone.
    pub fn parse(text: &str) -> Changes {
        let mut changes = Changes::default();
        for word in text.split_whitespace() {
            let set = match &word[..1] {
                "+" => &mut changes.added,
                "~" => &mut changes.changed,
                "-" => &mut changes.removed,
                _ => {
                    assert!(["same", "udp"].contains(&word) || word.starts_with("local:"), "{word:?} in {text:?}");
                    changes.udp |= word == "udp";
                    continue;
                }
            };
            set.insert(word[1..].to_owned());
        }
        changes
    }
}
