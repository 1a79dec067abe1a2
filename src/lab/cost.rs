//! What things cost: processor time, which does not count what others on the machine do meanwhile, and the clock.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

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
        let sinks = ports.into_iter().map(|port| UdpSocket::bind(("0.0.0.0", port))).collect::<io::Result<Vec<_>>>()?;
        sinks.iter().try_for_each(|sink| sink.set_nonblocking(true))?;
        let mut rounds: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        for round in 0..self.rounds {
            for i in 0..N {
                let target = (i + round) % N;
                rounds[target].push(self.round(client, targets[target])?);
                let mut buffer = [0; 64];
                sinks.iter().for_each(|sink| while sink.recv(&mut buffer).is_ok() {});
            }
            // where the program is missing, the flows are only forgotten later
            let _ = Command::new("conntrack").arg("-F").output();
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

/// Seconds that this thread has used, in the kernel too.
fn thread_time() -> io::Result<f64> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?).as_secs_f64())
}
