//! What a new connection costs: through the first, the middle and the last Service, and without one.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use svcmap::lab::Rounds;

use crate::load::cluster;
use crate::report::{Row, Size};

/// A pod that no Service has: what it sends is not masqueraded.
pub const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 128, 255, 254));
/// How connections are measured.
pub const ROUNDS: Rounds = Rounds { rounds: 25, connections: 400 };

/// Makes the addresses of all pods and Services local in the namespace.
pub fn make_addresses_local() -> anyhow::Result<()> {
    run("ip link set lo up && ip route add local 10.128.0.0/9 dev lo && ip route add local 10.96.0.0/12 dev lo")
}

/// Measures everything about connections that a row has.
pub fn measure(size: Size, row: &mut Row) -> anyhow::Result<()> {
    make_addresses_local()?;
    let (snapshot, _) = cluster(size);
    let services = &snapshot.services;
    let frontend = |i: usize| SocketAddr::new(services[i].cluster_ips[0], services[i].ports[0].port);
    let slice = &snapshot.slices[0];
    let pod = SocketAddr::new(slice.endpoints[0].address, slice.ports[0].port);
    let targets = [pod, frontend(0), frontend(services.len() / 2), frontend(services.len() - 1)];
    let costs = |targets: [SocketAddr; 4]| ROUNDS.costs(CLIENT, targets, [pod.port()]);
    make_udp(size, false)?;
    let [direct, first, middle, last] = costs(targets)?;
    make_udp(size, true)?;
    let [direct_beside, counted_first, counted_middle, counted_last] = costs(targets)?;
    row.counted = [counted_first, counted_middle, counted_last].map(|counted| counted / direct_beside);
    run("nft flush ruleset")?;
    // conntrack alone, as every node has it
    run(
        "nft 'table ip bare { chain c { type nat hook output priority -100; }; chain d { type nat hook postrouting priority 100; }; chain i { type nat hook input priority 100; }; }'",
    )?;
    let [bare, ..] = costs([pod; 4])?;
    row.bare = bare;
    row.direct = direct;
    row.connections = [first, middle, last];
    Ok(())
}

/// Loads the same cluster with UDP ports in place of TCP ones, whose connections are counted or not.
fn make_udp(size: Size, counters: bool) -> anyhow::Result<()> {
    use svcmap::config::ProxyConfig;
    use svcmap::netlink::CodecKind;
    use svcmap::nftables::program::Programmer;
    use svcmap::objects::Protocol;
    let (mut snapshot, config) = cluster(size);
    let config = ProxyConfig { counters, ..config };
    for port in snapshot.services.iter_mut().flat_map(|service| &mut service.ports) {
        port.protocol = Protocol::Udp;
    }
    for port in snapshot.slices.iter_mut().flat_map(|slice| &mut slice.ports) {
        port.protocol = Protocol::Udp;
    }
    let mut tracker = svcmap::tracker::Tracker::new(config);
    tracker.replace(snapshot);
    let (change, _) = tracker.take();
    Programmer::open(CodecKind::Native)?.replace(change.node.unwrap_or_default(), change.changed)?;
    Ok(())
}

fn run(script: &str) -> anyhow::Result<()> {
    let status = Command::new("sh").args(["-c", script]).status()?;
    anyhow::ensure!(status.success(), "{script}: {status}");
    Ok(())
}
