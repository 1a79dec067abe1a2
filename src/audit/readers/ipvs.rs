//! What `ipvsadm -Sn` and `ipset save` print of kube-proxy's mode ipvs. Neither tells the names of Services; the sets tell
//! what the addresses are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::super::compare::NAMELESS;
use super::super::findings::{Finding, Kind};
use super::super::ports::{Drawn, Frontend, Port, Who};
use super::super::xtables;
use super::{Layout, Reading, ipvs_sets};
use crate::ipvs::Set;
use crate::objects::{Family, FamilyOf, Protocol};
use crate::plan::{Claim, FrontendAddress, PoolKind, PortId, PortName, Verdict};

/// Whether a line is one of `ipvsadm -Sn` or of kube-proxy's sets in `ipset save`.
pub fn is_line(line: &str) -> bool {
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some("-A" | "-a"), Some("-t" | "-u" | "--sctp-service" | "-f")) => true,
        (Some("create" | "add"), Some(set)) => set.starts_with("KUBE-") || set.starts_with("SVCMAP-"),
        _ => false,
    }
}

/// Whether a line is one of another program than `iptables-save`.
pub fn is_other(line: &str) -> bool {
    let first = line.split_whitespace().next();
    matches!(first, Some("create" | "add" | "-a" | "link" | "address")) || is_line(line)
}

type Address = (Protocol, SocketAddr);

/// A virtual server.
#[derive(Debug, Default)]
struct Server {
    seconds: Option<u32>,
    /// Endpoints by their weight.
    real: BTreeMap<SocketAddr, u32>,
}

/// What the sets hold, by the names that the IPv4 ones have.
#[derive(Debug, Default)]
struct Sets {
    addresses: BTreeMap<String, BTreeSet<Address>>,
    ports: BTreeMap<String, BTreeSet<u16>>,
    sources: BTreeMap<Address, Vec<IpNet>>,
    any: bool,
}

/// Reads both, in whatever order.
pub fn read(text: &str, reading: &mut Reading) {
    let mut servers: BTreeMap<Address, Server> = BTreeMap::new();
    let (mut sets, mut all) = (Sets::default(), xtables::Sets::default());
    let mut last = (0, "");
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        last = if line.is_empty() { last } else { (at + 1, line) };
        let words: Vec<&str> = line.split_whitespace().collect();
        let understood = match words.as_slice() {
            ["-A", second, ..] if !second.starts_with('-') => continue, // a rule
            ["-A" | "-a", ..] => server(&words, &mut servers),
            ["create", ..] if is_line(line) => sets.create(&words, at + 1, text, reading).and_then(|()| all.line(line)),
            ["add", name, ..] if is_line(line) => {
                let is_known = all.has(name);
                sets.add(&words).and_then(|()| all.line(line)).filter(|()| is_known)
            }
            ["create" | "add", ..] => all.line(line),
            _ => continue,
        };
        if understood.is_none() {
            find(reading, Kind::NotUnderstood, format!("line {}: \"{line}\" is not understood", at + 1));
        }
    }
    if !text.ends_with('\n') && last.1 != "COMMIT" && !last.1.starts_with('#') {
        find(reading, Kind::NotUnderstood, format!("line {}: the text ends in the middle of this line", last.0));
    }
    if !sets.any && !servers.is_empty() {
        let what = "without what ipset save prints, ClusterIPs, external addresses and policies are not told apart";
        find(reading, Kind::NotUnderstood, what.into());
    }
    let real = |(address, server): (&Address, &Server)| (*address, server.real.clone().into_iter().collect());
    reading.xtables.servers.extend(servers.iter().map(real));
    reading.xtables.sets.merge(all);
    if sets.any {
        ipvs_sets::check(reading);
    }
    add(servers, &sets, reading);
}

fn find(reading: &mut Reading, kind: Kind, what: String) {
    reading.findings.push(Finding { kind, service: None, what });
}

/// Adds what the servers and sets say, with what the rules beside them do about sources off the cluster.
fn add(mut servers: BTreeMap<Address, Server>, sets: &Sets, reading: &mut Reading) {
    let off_cluster = ipvs_sets::off_cluster(reading);
    let mut ports: BTreeMap<PortId, Port> = BTreeMap::new();
    // what is dropped for everybody has no virtual server
    for address in sets.addresses.get("SVCMAP-DROPPED").into_iter().flatten() {
        servers.entry(*address).or_default();
    }
    for (address, server) in servers {
        let mut port = sets.port(address, &server);
        if let Some(who) = off_cluster.get(&port.id.family) {
            let cluster = port.frontends.iter_mut().filter(|one| one.masquerade == Who::OffCluster);
            cluster.for_each(|one| one.masquerade = *who);
        }
        // a node port has a virtual server for each address of the node
        ports.entry(port.id.clone()).or_insert(port);
    }
    reading.add(Layout::KubeProxyIpvs, ports.into_values());
}

/// `-A -t 10.96.0.10:53 -s rr -p 10800`, or `-a -t 10.96.0.10:53 -r 10.244.0.3:53 -m -w 1`.
fn server(words: &[&str], servers: &mut BTreeMap<Address, Server>) -> Option<()> {
    let protocol = match *words.get(1)? {
        "-t" => Protocol::Tcp,
        "-u" => Protocol::Udp,
        "--sctp-service" => Protocol::Sctp,
        _ => return Some(()), // by firewall mark: none of kube-proxy's
    };
    let address = (protocol, words.get(2)?.parse().ok()?);
    if words[0] == "-a" && !servers.contains_key(&address) {
        return None;
    }
    let server = servers.entry(address).or_default();
    let value = |option: &str| words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1));
    if words[0] == "-A" {
        server.seconds = match value("-p") {
            Some(seconds) => Some(seconds.parse().ok()?),
            None => None,
        };
    } else {
        let weight = value("-w").map_or(Some(1), |weight| weight.parse().ok())?;
        server.real.insert(value("-r")?.parse().ok()?, weight);
    }
    Some(())
}

impl Sets {
    /// `create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536`; a set that is nearly full is found.
    fn create(&mut self, words: &[&str], line: usize, text: &str, reading: &mut Reading) -> Option<()> {
        self.any = true;
        let Some(at) = words.iter().position(|word| *word == "maxelem") else { return Some(()) };
        let (name, most) = (words.get(1)?, words.get(at + 1)?.parse::<usize>().ok()?);
        let begin = format!("add {name} ");
        let held = text.lines().filter(|line| line.trim_start().starts_with(&begin)).count();
        if held * 10 >= most * 9 {
            let what = format!("line {line}: set {name} holds {held} of at most {most} elements");
            reading.findings.push(Finding { kind: Kind::NearlyFull, service: None, what });
        }
        Some(())
    }

    /// `add KUBE-CLUSTER-IP 10.96.0.1,tcp:443`, `add KUBE-NODE-PORT-TCP 30080`, and with sources a third part.
    fn add(&mut self, words: &[&str]) -> Option<()> {
        self.any = true;
        let name = words.get(1)?;
        let name = match Set::ALL.iter().find(|set| set.name(Family::V6) == *name) {
            Some(set) => set.name(Family::V4),
            None => (*name).to_owned(),
        };
        let mut parts = words.get(2)?.split(',');
        let first = parts.next()?;
        if let (Ok(port), true) = (first.parse::<u16>(), name.contains("-PORT")) {
            self.ports.entry(name).or_default().insert(port);
            return Some(());
        }
        let ip: IpAddr = first.parse().ok()?;
        let Some(second) = parts.next() else { return Some(()) }; // KUBE-IPVS-IPS
        let (protocol, port) = xtables::sets::port(second)?;
        let address = (protocol, SocketAddr::new(ip, port));
        match parts.next() {
            Some(source) if name.starts_with("KUBE-LOAD-BALANCER-SOURCE") => {
                let net = source.parse().ok().or_else(|| source.parse::<IpAddr>().ok().map(IpNet::from))?;
                self.sources.entry(address).or_default().push(net);
            }
            Some(_) => {} // KUBE-LOOP-BACK
            None => drop(self.addresses.entry(name).or_default().insert(address)),
        }
        Some(())
    }

    fn holds(&self, set: &str, address: Address) -> bool {
        self.addresses.get(set).is_some_and(|addresses| addresses.contains(&address))
    }

    fn is_node_port(&self, protocol: Protocol, port: u16) -> Option<bool> {
        let name = protocol.to_string().to_uppercase();
        let has = |set: &str| {
            let by_port = self.ports.get(set).is_some_and(|ports| ports.contains(&port));
            by_port || self.addresses.get(set).is_some_and(|all| all.iter().any(|(_, to)| to.port() == port))
        };
        let [local, all] = match protocol {
            Protocol::Sctp => ["KUBE-NODE-PORT-LOCAL-SCTP-HASH".to_owned(), "KUBE-NODE-PORT-SCTP-HASH".to_owned()],
            _ => [format!("KUBE-NODE-PORT-LOCAL-{name}"), format!("KUBE-NODE-PORT-{name}")],
        };
        if has(&local) { Some(true) } else { has(&all).then_some(false) }
    }

    fn port(&self, address: Address, server: &Server) -> Port {
        let (protocol, to) = address;
        let is_cluster_ip = self.holds("KUBE-CLUSTER-IP", address);
        let external = ["KUBE-EXTERNAL-IP", "KUBE-LOAD-BALANCER"];
        let is_external = external.iter().any(|set| self.holds(set, address))
            || self.holds("KUBE-EXTERNAL-IP-LOCAL", address)
            || self.holds("KUBE-LOAD-BALANCER-LOCAL", address);
        let node_port = self.is_node_port(protocol, to.port()).filter(|_| !is_cluster_ip && !is_external);
        let is_local = node_port == Some(true)
            || self.holds("KUBE-EXTERNAL-IP-LOCAL", address)
            || self.holds("KUBE-LOAD-BALANCER-LOCAL", address);
        let mut frontend = Frontend::new(match node_port {
            Some(_) => FrontendAddress::NodePort(to.port()),
            None if is_cluster_ip => FrontendAddress::Cluster(to.ip(), to.port()),
            None => FrontendAddress::External(to.ip(), to.port()),
        });
        frontend.masquerade = match (is_cluster_ip, is_local) {
            (true, _) => Who::OffCluster,
            (false, false) => Who::Everybody,
            (false, true) => Who::Nobody,
        };
        if is_local {
            frontend.pool = PoolKind::Local;
        }
        if self.holds("KUBE-LOAD-BALANCER-FW", address) {
            frontend.sources = Some(self.sources.get(&address).cloned().unwrap_or_default());
        }
        let claim = Claim::new(to.ip().family(), protocol, frontend.address);
        let id = PortId { name: PortName::parse(&format!("{NAMELESS}{claim}")), family: to.ip().family() };
        let mut port = Port::new(id, protocol);
        port.affinity = server.seconds;
        let total: u32 = server.real.values().sum();
        let drawn = server.real.iter().filter(|(_, weight)| **weight > 0).map(|(real, weight)| Drawn {
            ip: real.ip(),
            port: real.port(),
            share: f64::from(*weight) / f64::from(total),
        });
        let drawn: Vec<Drawn> = drawn.collect();
        // pods and the node itself get the cluster's endpoints all the same
        let is_dropped_outside = self.holds("SVCMAP-DROPPED-OUTSIDE", address);
        if is_dropped_outside || self.holds("SVCMAP-DROPPED", address) {
            frontend.no_endpoints = Some(Verdict::Drop);
        } else if drawn.is_empty() {
            frontend.no_endpoints = Some(Verdict::Reject);
        }
        let pool = if is_local && !is_dropped_outside { &mut port.local } else { &mut port.cluster };
        *pool = drawn;
        port.frontends.push(frontend);
        port
    }
}
