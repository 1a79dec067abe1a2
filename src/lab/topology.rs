//! The cluster: which namespaces there are, how they are linked, and where each address is.
//!
//! ```text
//!   clients outside ──┐                  ┌── pod (one namespace each)
//!   rest of the world ┼── the node ──────┼── pod
//!   the other node ───┘   (the rules)    └── …
//! ```
//!
//! All links are point to point, and every one has the same two addresses of link scope, the node's and the other
//! end's. So one route on the node gives any address to any namespace, which is how some network plugins wire up
//! pods, too. The rest of the world answers for every address that nobody else has: a packet that no rule touched
//! arrives there, and is told from one that was dropped.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;

use super::{Conversation, Listen, Namespace, Outcome, Server, probe};
use crate::objects::Protocol;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// One of the node's own, such as a load balancer's that it also has on an interface.
    Node,
    /// A pod's on the node, in a namespace of its own.
    Pod,
    /// A pod's on the other node.
    Elsewhere,
    /// A client's outside the cluster.
    Outside,
    /// Behind the router to everything else: where all addresses are that were not placed.
    World,
}

/// A cluster in network namespaces.
#[derive(Debug)]
pub struct Lab {
    node: Namespace,
    /// The namespaces that the node has links to; at first [`OUTSIDE`], [`WORLD`] and [`ELSEWHERE`], then the pods.
    far: Vec<Namespace>,
    /// Which of them belongs to a pod's address, wherever the address is now.
    pods: HashMap<IpAddr, usize>,
    places: HashMap<IpAddr, Place>,
    /// The node's own addresses.
    own: Vec<IpAddr>,
    next_port: AtomicU16,
}

const OUTSIDE: usize = 0;
const WORLD: usize = 1;
const ELSEWHERE: usize = 2;

/// Source ports of probes are all different for as long as they last, so that no connection meets what connection
/// tracking remembers of an earlier one.
const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 20_000..=65_000;

/// What every namespace needs: no addresses of the kernel's making, no opinion on where packets come from, and a word
/// for every packet that is refused: no ICMP message is of a kind whose number is limited, neither for each destination
/// nor for all of them together (a burst of fifty, on kernels that count by namespace).
const SETTINGS: [(&str, &str); 5] = [
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv4/icmp_ratemask", "0"),
    ("ipv6/icmp/ratemask", "\n"),
];

/// The node forwards.
const NODE_SETTINGS: [(&str, &str); 2] = [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// The world takes whatever comes in for its own, and answers from addresses that nobody gave it; what it sends
/// itself (`iif lo`) goes to the node all the same.
const WORLD_SETTINGS: [(&str, &str); 2] = [("ipv4/ip_nonlocal_bind", "1"), ("ipv6/ip_nonlocal_bind", "1")];

const WORLD_ROUTES: &str = "\
    rule add pref 1 iif lo lookup main\n\
    rule add pref 2 lookup local\n\
    rule del pref 0 lookup local\n\
    route add local default dev lo\n";

impl Lab {
    /// Builds the cluster, without pods. The node has these addresses, and masquerades with one of them.
    ///
    /// # Errors
    /// When the process did not [`enter`](super::enter()) a namespace of its own, or `ip` is not installed.
    pub fn new(node: &[IpAddr]) -> Result<Lab> {
        let mut lab = Lab {
            node: Namespace::new("node")?,
            far: Vec::new(),
            pods: HashMap::new(),
            places: HashMap::new(),
            own: node.to_vec(),
            next_port: AtomicU16::new(*SOURCE_PORTS.start()),
        };
        lab.node.sysctl(&SETTINGS)?;
        lab.node.sysctl(&NODE_SETTINGS)?;
        lab.node.ip("link set lo up\n")?;
        for name in ["outside", "world", "elsewhere"] {
            lab.link(name)?;
        }
        lab.far[WORLD].sysctl(&WORLD_SETTINGS)?;
        for family in ["-4", "-6"] {
            lab.far[WORLD].command("ip", &[family, "-batch", "-"], WORLD_ROUTES)?;
        }
        lab.node.ip(&default_route(&link_name(WORLD), "2"))?;
        lab.place(&node.iter().map(|address| (*address, Place::Node)).collect::<Vec<_>>())?;
        Ok(lab)
    }

    /// The namespace that rules are programmed in.
    pub fn node(&self) -> &Namespace {
        &self.node
    }

    /// Adds a pod with a name to the node.
    ///
    /// # Errors
    /// When the kernel refuses the link or the addresses.
    pub fn add_pod(&mut self, name: &str, addresses: &[IpAddr]) -> Result<()> {
        let link = self.link(name)?;
        self.pods.extend(addresses.iter().map(|address| (*address, link)));
        self.place(&addresses.iter().map(|address| (*address, Place::Pod)).collect::<Vec<_>>())
    }

    /// Puts addresses where they shall be now. A pod's address that is new gets a namespace of its own.
    ///
    /// # Errors
    /// When the kernel refuses an address or a route.
    pub fn place(&mut self, addresses: &[(IpAddr, Place)]) -> Result<()> {
        let mut scripts: BTreeMap<Option<usize>, String> = BTreeMap::new();
        for (address, place) in addresses {
            let (address, place) = (*address, *place);
            if place == Place::Pod && !self.pods.contains_key(&address) {
                let link = self.link(&format!("pod {address}"))?;
                self.pods.insert(address, link);
            }
            let before = self.place_of(address);
            if before != place && !address.is_loopback() {
                self.places.insert(address, place);
                self.change(address, before, "del", &mut scripts);
                self.change(address, place, "add", &mut scripts);
            }
        }
        for (link, script) in scripts {
            self.namespace(link).ip(&script)?;
        }
        Ok(())
    }

    /// Puts these addresses, and no others but those of its pods and its own, where they shall be now; the rest of the
    /// world gets the others back.
    ///
    /// # Errors
    /// See [`Lab::place`].
    pub fn settle(&mut self, wanted: &HashMap<IpAddr, Place>) -> Result<()> {
        let kept = |address: &IpAddr, place: &Place| match place {
            Place::Node => self.own.contains(address),
            place => *place == Place::Pod,
        };
        let strays = self.places.iter().filter(|(a, place)| !wanted.contains_key(a) && !kept(a, place));
        let moves: Vec<_> = strays.map(|(address, _)| (*address, Place::World)).collect();
        self.place(&moves)?;
        self.place(&wanted.iter().map(|(address, place)| (*address, *place)).collect::<Vec<_>>())
    }

    /// Where an address is now.
    pub fn place_of(&self, address: IpAddr) -> Place {
        if address.is_loopback() {
            return Place::Node;
        }
        self.places.get(&address).copied().unwrap_or(Place::World)
    }

    /// The namespace that an address is in. Loopback addresses are the node's.
    pub fn home(&self, address: IpAddr) -> &Namespace {
        self.namespace(self.far_of(address, self.place_of(address)))
    }

    /// Starts servers where the addresses are now.
    ///
    /// # Errors
    /// When a port is taken.
    pub fn serve(&self, listens: &[Listen]) -> Result<Vec<Server>> {
        let mut by_home: BTreeMap<Option<usize>, Vec<Listen>> = BTreeMap::new();
        for listen in listens {
            let address = listen.address.ip();
            by_home.entry(self.far_of(address, self.place_of(address))).or_default().push(*listen);
        }
        let start = |(far, listens): (Option<usize>, Vec<Listen>)| {
            let home = self.namespace(far);
            Server::start(home, &home.name().replace(' ', "-"), &listens)
        };
        by_home.into_iter().map(start).collect()
    }

    /// Opens one new connection.
    ///
    /// # Errors
    /// See [`probe`].
    pub fn probe(&self, from: IpAddr, protocol: Protocol, to: SocketAddr, patience: Duration) -> Result<Outcome> {
        let mut last = None;
        self.probe_while(from, protocol, to, patience, |outcome| {
            last = Some(outcome);
            false
        })?;
        last.context("a probe without an outcome")
    }

    /// Opens new connections, one after the other, until `more` has seen enough.
    ///
    /// # Errors
    /// See [`probe`].
    pub fn probe_while(
        &self,
        from: IpAddr,
        protocol: Protocol,
        to: SocketAddr,
        patience: Duration,
        mut more: impl FnMut(Outcome) -> bool + Send,
    ) -> Result<()> {
        self.home(from).run(|| {
            loop {
                let source = SocketAddr::new(from, self.source_port());
                let outcome = probe(protocol, source, to, patience)
                    .with_context(|| format!("a connection from {source} to {protocol}/{to} broke"))?;
                if !more(outcome) {
                    return Ok(());
                }
            }
        })
    }

    /// A UDP client at an address, with a port of its own.
    ///
    /// # Errors
    /// See [`Conversation::open`].
    pub fn converse(&self, from: IpAddr, to: SocketAddr) -> Result<Conversation> {
        let source = SocketAddr::new(from, self.source_port());
        Ok(self.home(from).run(|| Conversation::open(source, to))?)
    }

    fn source_port(&self) -> u16 {
        let next = |port: u16| Some(if port >= *SOURCE_PORTS.end() { *SOURCE_PORTS.start() } else { port + 1 });
        self.next_port.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(*SOURCE_PORTS.start())
    }

    /// Makes a namespace with a link to the node, and returns its number.
    fn link(&mut self, name: &str) -> Result<usize> {
        let number = self.far.len();
        let link = link_name(number);
        let far = Namespace::new(name)?;
        far.sysctl(&SETTINGS)?;
        self.node.ip(&format!(
            "link add {link} type veth peer name eth0 netns {}\nlink set {link} up\n{}",
            far.path(),
            link_addresses(&link, "1")
        ))?;
        far.ip(&format!(
            "link set lo up\nlink set eth0 up\n{}{}",
            link_addresses("eth0", "2"),
            default_route("eth0", "1")
        ))?;
        self.far.push(far);
        Ok(number)
    }

    /// The number of the namespace that a place means; none for the node.
    fn far_of(&self, address: IpAddr, place: Place) -> Option<usize> {
        match place {
            Place::Node => None,
            Place::Pod => Some(self.pods[&address]),
            Place::Elsewhere => Some(ELSEWHERE),
            Place::Outside => Some(OUTSIDE),
            Place::World => Some(WORLD),
        }
    }

    /// What [`Lab::far_of`] stands for.
    fn namespace(&self, far: Option<usize>) -> &Namespace {
        far.map_or(&self.node, |number| &self.far[number])
    }

    fn change(&self, address: IpAddr, place: Place, verb: &str, scripts: &mut BTreeMap<Option<usize>, String>) {
        let far = self.far_of(address, place);
        if far == Some(WORLD) {
            return;
        }
        let device = far.map_or_else(|| link_name(OUTSIDE), |_| "eth0".to_owned());
        let prefix = IpNet::from(address);
        // Otherwise an address is of no use before the kernel has seen its link come up, which it does in its own time.
        let flags = if address.is_ipv6() && verb == "add" { " nodad" } else { "" };
        *scripts.entry(far).or_default() += &format!("address {verb} {prefix} dev {device}{flags}\n");
        if let Some(far) = far {
            let gateway = gateway(address, "2");
            *scripts.entry(None).or_default() +=
                &format!("route {verb} {prefix} via {gateway} dev {} onlink\n", link_name(far));
        }
    }
}

/// The node's end of a link: pods are behind `pod0`, `pod1` and so on, all else behind `eth0` and so on.
fn link_name(number: usize) -> String {
    match number.checked_sub(ELSEWHERE + 1) {
        None => format!("eth{number}"),
        Some(pod) => format!("pod{pod}"),
    }
}

/// The address of one end of a link: `1` is the node's, `2` the other.
fn gateway(family_of: IpAddr, end: &str) -> String {
    if family_of.is_ipv4() { format!("169.254.1.{end}") } else { format!("fe80::{end}") }
}

fn link_addresses(device: &str, end: &str) -> String {
    format!("address add 169.254.1.{end}/32 dev {device} scope link\naddress add fe80::{end}/64 dev {device} nodad\n")
}

fn default_route(device: &str, end: &str) -> String {
    format!(
        "route add 0.0.0.0/0 via 169.254.1.{end} dev {device} onlink\n\
         route add ::/0 via fe80::{end} dev {device} onlink\n"
    )
}
