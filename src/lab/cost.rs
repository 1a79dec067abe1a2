//! What things cost: processor time, which does not count what others on the machine do meanwhile, and the clock.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// How long to wait for an answer within the machine, and how often.
const ANSWER: Duration = Duration::from_secs(1);
const TRIES: usize = 10;

/// What something took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spent {
    /// Processor time in the program and in the kernel, of this process and of the programs that it waited for.
    pub processor: f64,
    /// By the clock.
    pub clock: f64,
}

impl Spent {
    /// The medians; none of nothing.
    pub fn median(samples: &[Spent]) -> Option<Spent> {
        let of = |part: fn(&Spent) -> f64| median(samples.iter().map(part).collect());
        (!samples.is_empty()).then(|| Spent { processor: of(|spent| spent.processor), clock: of(|spent| spent.clock) })
    }
}

/// Runs from when it was made.
#[derive(Debug)]
pub struct Stopwatch {
    processor: f64,
    clock: Instant,
}

impl Stopwatch {
    /// Starts one.
    ///
    /// # Errors
    /// Those of asking for the processor time.
    pub fn start() -> io::Result<Stopwatch> {
        Ok(Stopwatch { processor: used()?, clock: Instant::now() })
    }

    /// What was spent since.
    ///
    /// # Errors
    /// Those of asking for the processor time.
    pub fn spent(&self) -> io::Result<Spent> {
        Ok(Spent { clock: self.clock.elapsed().as_secs_f64(), processor: used()? - self.processor })
    }
}

fn used() -> io::Result<f64> {
    let mut all = 0.0;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who)?;
        all += (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6;
    }
    Ok(all)
}

/// The middle one; not a number where there is none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How new connections are measured.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Rounds for each target, taken in turns; the median round counts.
    pub rounds: usize,
    /// Connections in a round.
    pub connections: usize,
}

impl Rounds {
    /// Seconds of processor time that a new connection from the client to each target takes, in the current network
    /// namespace: all addresses have to be local in it, and `ports` are those that the packets end up at.
    ///
    /// A connection is a UDP packet from a new port. It is translated in the output hook and ends in a socket of the same
    /// namespace, so that what differs between targets is the ruleset alone.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn costs<const N: usize>(
        &self,
        client: IpAddr,
        targets: [SocketAddr; N],
        ports: impl IntoIterator<Item = u16>,
    ) -> io::Result<[f64; N]> {
        let sinks = sinks(ports.into_iter().map(|port| (Ipv4Addr::UNSPECIFIED, port).into()))?;
        let mut rounds: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        for round in 0..self.rounds {
            for i in 0..N {
                let target = (i + round) % N;
                rounds[target].push(self.round(client, targets[target])?);
                empty(&sinks);
            }
            // where the program is missing, the flows are only forgotten later
            let _ = Command::new("conntrack").arg("-F").output();
        }
        Ok(rounds.map(median))
    }

    /// Seconds of processor time that a packet takes on a connection to each target that was answered before, with as many
    /// packets in a round as there would be connections; everything else is as in [`Rounds::costs`]. `endpoints` are those
    /// that the packets end up at.
    ///
    /// # Errors
    /// Those of the sockets; [`io::ErrorKind::TimedOut`] where there is no answer.
    pub fn established_costs<const N: usize>(
        &self,
        client: IpAddr,
        targets: [SocketAddr; N],
        endpoints: impl IntoIterator<Item = SocketAddr>,
    ) -> io::Result<[f64; N]> {
        let sinks = sinks(endpoints)?;
        let mut connections = Vec::with_capacity(N);
        for target in targets {
            connections.push(establish(client, target, &sinks)?);
        }
        let mut rounds: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        for round in 0..self.rounds {
            for i in 0..N {
                let target = (i + round) % N;
                let started = thread_time()?;
                for _ in 0..self.connections {
                    let _ = connections[target].send(b"?");
                }
                rounds[target].push((thread_time()? - started) / self.connections as f64);
                empty(&sinks);
            }
        }
        Ok(rounds.map(median))
    }

    fn round(&self, client: IpAddr, target: SocketAddr) -> io::Result<f64> {
        let sockets: Vec<UdpSocket> =
            (0..self.connections).map(|_| UdpSocket::bind((client, 0))).collect::<Result<_, _>>()?;
        let started = thread_time()?;
        for socket in &sockets {
            let _ = socket.send_to(b"?", target);
        }
        Ok((thread_time()? - started) / self.connections as f64)
    }
}

/// What the packets end up in.
fn sinks(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<Vec<UdpSocket>> {
    let sinks = addresses.into_iter().map(UdpSocket::bind).collect::<io::Result<Vec<_>>>()?;
    sinks.iter().try_for_each(|sink| sink.set_nonblocking(true))?;
    Ok(sinks)
}

fn empty(sinks: &[UdpSocket]) {
    let mut buffer = [0; 64];
    sinks.iter().for_each(|sink| while sink.recv(&mut buffer).is_ok() {});
}

/// A socket that has sent something and got it back, so that connection tracking has seen both directions.
fn establish(client: IpAddr, target: SocketAddr, sinks: &[UdpSocket]) -> io::Result<UdpSocket> {
    let connection = UdpSocket::bind((client, 0))?;
    connection.connect(target)?;
    connection.set_read_timeout(Some(ANSWER))?;
    let mut buffer = [0; 64];
    for _ in 0..TRIES {
        connection.send(b"?")?;
        for sink in sinks {
            while let Ok((length, from)) = sink.recv_from(&mut buffer) {
                sink.send_to(&buffer[..length], from)?;
            }
        }
        if connection.recv(&mut buffer).is_ok() {
            return Ok(connection);
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer from {target}")))
}

/// Seconds that this thread has used, in the kernel too.
fn thread_time() -> io::Result<f64> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?).as_secs_f64())
}
