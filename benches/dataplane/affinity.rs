//! What session affinity costs: a new connection by the number of endpoints, and everything else by the number of clients.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use svcmap::config::ProxyConfig;
use svcmap::lab::kernel_memory;
use svcmap::netlink::model::{Bytes, Data, Element, Op, SetRef};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::program::{Applied, Programmer};
use svcmap::nftables::rule::nf_family;
use svcmap::objects::{EndpointSlice, Family, Protocol};
use svcmap::source::{Change, Snapshot};
use svcmap::tracker::Tracker;

use crate::connections::{CLIENT, ROUNDS, make_addresses_local};
use crate::load::cluster;
use crate::report::{Size, time};

/// Endpoints of the Services of the first table.
const ENDPOINTS: [usize; 2] = [3, 1000];
/// Clients of the Service of the second one.
const CLIENTS: [u32; 3] = [10_000, 100_000, 1_000_000];

/// Prints both tables. Every row is measured in a process of its own.
pub fn print() -> anyhow::Result<()> {
    println!(
        "\nSession affinity, a new UDP flow, as a multiple of a direct one with the ruleset loaded. known: from a client"
    );
    println!("whose endpoint is remembered; not remembered: from one for whom the map has no room.\n");
    println!("| endpoints | direct | no affinity | known | not remembered |\n|{}", " ---: |".repeat(5));
    for endpoints in ENDPOINTS {
        row(&["--affinity-endpoints", &endpoints.to_string()])?;
    }
    println!("\nThe same by the number of clients that are remembered. memory: what the kernel keeps, a client;");
    println!(
        "endpoint removed: the kernel's time, and from the event to the commit, with what is sent; restart and timeout"
    );
    println!("edited: by the clock.\n");
    println!("| clients | memory | known | endpoint removed | restart | timeout edited |\n|{}", " ---: |".repeat(6));
    for clients in CLIENTS {
        row(&["--affinity-clients", &clients.to_string()])?;
    }
    Ok(())
}

fn row(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(std::env::current_exe()?).args(arguments).stderr(Stdio::inherit()).status()?;
    anyhow::ensure!(status.success(), "{arguments:?}: {status}");
    Ok(())
}

/// One row of the first table.
pub fn measure_endpoints(endpoints: usize) -> anyhow::Result<()> {
    svcmap::lab::enter_network()?;
    make_addresses_local()?;
    let costs = |affinity, clients| -> anyhow::Result<[f64; 2]> {
        let mut node = Node::new(endpoints, affinity, clients)?;
        let [pod, service] = node.targets();
        if clients.is_some() {
            node.note(1)?;
        }
        Ok(ROUNDS.costs(CLIENT, [pod, service], [pod.port()])?)
    };
    let [direct, plain] = costs(false, None)?;
    let [direct_beside_known, known] = costs(true, None)?;
    let [direct_beside_unknown, unknown] = costs(true, Some(1))?;
    println!(
        "| {endpoints} | {} | {:.2} | {:.2} | {:.2} |",
        time(direct),
        plain / direct,
        known / direct_beside_known,
        unknown / direct_beside_unknown
    );
    Ok(())
}

/// One row of the second table.
pub fn measure_clients(clients: u32) -> anyhow::Result<()> {
    svcmap::lab::enter_network()?;
    make_addresses_local()?;
    let before = kernel_memory()?;
    let mut node = Node::new(3, true, Some(clients + 1000))?;
    node.note(clients)?;
    let memory = kernel_memory()? - before;
    let [pod, service] = node.targets();
    let [direct, known] = ROUNDS.costs(CLIENT, [pod, service], [pod.port()])?;
    let mut slice = node.slice.clone();
    slice.endpoints.pop();
    let started = Instant::now();
    let removed = node.change(Change::Slice(slice))?;
    let whole = started.elapsed().as_secs_f64();
    let restart = {
        let started = Instant::now();
        let (plan, ports) = node.tracker.whole().expect("a plan was taken");
        let applied = Programmer::open(CodecKind::Native)?.replace(plan, ports)?;
        anyhow::ensure!(applied.bytes == 0, "a restart found something to change: {applied:?}");
        started.elapsed().as_secs_f64()
    };
    let mut service_object = node.snapshot.services[0].clone();
    service_object.affinity = Some(service_object.affinity.unwrap_or_default() / 2);
    let started = Instant::now();
    node.change(Change::Service(service_object))?;
    let edited = started.elapsed().as_secs_f64();
    println!(
        "| {clients} | {:.0} B | {:.2} | {} ({}), +{} -{} elements | {} | {} |",
        memory as f64 / f64::from(clients),
        known / direct,
        time(removed.kernel.as_secs_f64()),
        time(whole),
        removed.added,
        removed.deleted,
        time(restart),
        time(edited),
    );
    Ok(())
}

/// One UDP Service, programmed.
struct Node {
    snapshot: Snapshot,
    slice: EndpointSlice,
    tracker: Tracker,
    programmer: Programmer,
}

impl Node {
    fn new(endpoints: usize, affinity: bool, clients: Option<u32>) -> anyhow::Result<Node> {
        let (mut snapshot, config) = cluster(Size(1, endpoints));
        for service in &mut snapshot.services {
            service.affinity = affinity.then_some(10_800);
            service.ports.iter_mut().for_each(|port| port.protocol = Protocol::Udp);
        }
        snapshot.slices.iter_mut().flat_map(|slice| &mut slice.ports).for_each(|port| port.protocol = Protocol::Udp);
        let mut tracker = Tracker::new(ProxyConfig { affinity_clients: clients, ..config });
        tracker.replace(snapshot.clone());
        let (change, _) = tracker.take();
        let mut programmer = Programmer::open(CodecKind::Native)?;
        programmer.cleanup()?; // the clients of the one before it, too
        programmer.replace(change.node.unwrap_or_default(), change.changed)?;
        programmer.collect()?;
        Ok(Node { slice: snapshot.slices[0].clone(), snapshot, tracker, programmer })
    }

    /// An endpoint, and the Service.
    fn targets(&self) -> [SocketAddr; 2] {
        let service = &self.snapshot.services[0];
        let pod = SocketAddr::new(self.slice.endpoints[0].address, self.slice.ports[0].port);
        [pod, SocketAddr::new(service.cluster_ips[0], service.ports[0].port)]
    }

    /// Notes so many clients, as the rules would, a third for each of three endpoints.
    fn note(&mut self, clients: u32) -> anyhow::Result<()> {
        let family = nf_family(Family::V4);
        let mut connection = Connection::open(CodecKind::Native)?;
        let sets = connection.sets(family, "svcmap")?;
        let map = sets.into_iter().find(|set| set.name.starts_with("affinity-"));
        let map = map.ok_or_else(|| anyhow::anyhow!("the Service has no affinity"))?.name;
        let set = SetRef { family, table: "svcmap".into(), name: map };
        let entry = |client: u32| Element {
            key: Bytes::from_slice(&(0x0b00_0000 + client).to_be_bytes()),
            data: Data::Value(Bytes::from_slice(&(0x7300_0001 + client % 3).to_ne_bytes())),
            timeout_ms: Some(10_800_000),
            ..Element::default()
        };
        for first in (0..clients).step_by(4000) {
            let elements = (first..clients.min(first + 4000)).map(entry).collect();
            connection.commit(&[Op::AddElements { set: set.clone(), elements }])?;
        }
        Ok(())
    }

    fn change(&mut self, change: Change) -> anyhow::Result<Applied> {
        self.tracker.apply(change);
        Ok(self.programmer.change(self.tracker.take().0)?)
    }
}
