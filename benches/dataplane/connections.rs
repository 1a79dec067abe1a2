//! What a new connection costs: through the first, the middle and the last Service, and without one.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;

use crate::load::{cluster, median};
use crate::report::{Row, Size};

/// Connections per round, and rounds; the median round counts.
/// A pod that no Service has: what it sends is not masqueraded.
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 128, 255, 254));
const CONNECTIONS: usize = 400;
const ROUNDS: usize = 25;

/// A connection is a UDP packet from a new port. The packet is translated in the output hook and ends in a socket of
/// the same namespace, since all pods' addresses are local in it: what differs between the targets is the ruleset alone.
pub fn measure(size: Size, row: &mut Row) -> anyhow::Result<()> {
    run("ip link set lo up && ip route add local 10.128.0.0/9 dev lo && ip route add local 10.96.0.0/12 dev lo")?;
    let (snapshot, _) = cluster(size);
    let services = &snapshot.services;
    let frontend = |i: usize| SocketAddr::new(services[i].cluster_ips[0], services[i].ports[0].port);
    let slice = &snapshot.slices[0];
    let pod = SocketAddr::new(slice.endpoints[0].address, slice.ports[0].port);
    let targets = [pod, frontend(0), frontend(services.len() / 2), frontend(services.len() - 1)];
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

/// Seconds per connection to each target, taken in turns.
fn costs(targets: [SocketAddr; 4]) -> anyhow::Result<[f64; 4]> {
    let sink = UdpSocket::bind(("0.0.0.0", targets[0].port()))?;
    sink.set_nonblocking(true)?;
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS {
        for i in 0..targets.len() {
            let target = (i + round) % targets.len();
            rounds[target].push(round_of(targets[target])?);
            let mut buffer = [0; 64];
            while sink.recv(&mut buffer).is_ok() {}
        }
        let _ = Command::new("conntrack").arg("-F").output();
    }
    Ok(rounds.map(median))
}

fn round_of(target: SocketAddr) -> anyhow::Result<f64> {
    let sockets: Vec<UdpSocket> = (0..CONNECTIONS).map(|_| UdpSocket::bind((CLIENT, 0))).collect::<Result<_, _>>()?;
    let started = processor_time()?;
    for socket in &sockets {
        let _ = socket.send_to(b"?", target);
    }
    Ok((processor_time()? - started) / CONNECTIONS as f64)
}

/// Seconds that this thread has used, in the kernel too: unlike the clock it does not count what others do.
fn processor_time() -> anyhow::Result<f64> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(std::time::Duration::from(time).as_secs_f64())
}

fn run(script: &str) -> anyhow::Result<()> {
    let status = Command::new("sh").args(["-c", script]).status()?;
    anyhow::ensure!(status.success(), "{script}: {status}");
    Ok(())
}
