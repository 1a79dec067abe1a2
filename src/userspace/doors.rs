//! The listening sockets, and the threads that serve them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::balancer::{Balancer, MOST_CLIENTS};
use super::{Door, Places, tcp, udp};
use crate::objects::Protocol;
use crate::plan::{Plan, PortId};

/// How long a UDP client's socket is kept while neither side says anything.
pub const UDP_IDLE: Duration = Duration::from_secs(60);

/// Threads at most: one door is served by one of them.
const MOST_WORKERS: usize = 4;

/// Connections that wait to be accepted, at one door.
const BACKLOG: i32 = 1024;

/// All that is open, in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct Doors {
    workers: Vec<Worker>,
    balancers: BTreeMap<PortId, Arc<Balancer>>,
    open: BTreeMap<Door, Open>,
    range: Option<RangeInclusive<u16>>,
    /// Which worker's turn it is.
    next: usize,
}

#[derive(Debug)]
struct Open {
    place: SocketAddr,
    protocol: Protocol,
    task: AbortHandle,
}

/// A thread with a runtime of its own. It ends when this goes.
#[derive(Debug)]
struct Worker {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(number: usize) -> io::Result<Worker> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(format!("carrier-{number}"));
        // an error means that the other end is gone, which is the end as well
        let thread = thread.spawn(move || drop(runtime.block_on(stopped)))?;
        Ok(Worker { handle, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // one that panicked has said so
            let _ = thread.join();
        }
    }
}

impl Doors {
    /// Nothing is open yet. As many files may be open from now on as the process may ask for.
    ///
    /// # Errors
    /// Those of starting threads.
    pub fn new(range: Option<RangeInclusive<u16>>) -> io::Result<Doors> {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
        let workers = (0..count).map(Worker::start).collect::<io::Result<_>>()?;
        Ok(Doors { workers, balancers: BTreeMap::new(), open: BTreeMap::new(), range, next: 0 })
    }

    /// Has the endpoints of all Service ports follow the plan.
    pub fn follow(&mut self, plan: &Plan) {
        self.balancers.retain(|id, _| plan.ports.contains_key(id));
        let most = plan.node.affinity_clients.map_or(MOST_CLIENTS, |most| most as usize);
        for port in plan.ports.values() {
            self.balancers.entry(port.id.clone()).or_default().follow(port, most);
        }
    }

    /// Opens a door at an address, unless it is open there.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn open(&mut self, door: &Door, protocol: Protocol, ip: IpAddr) -> io::Result<()> {
        let is_there = |open: &Open| open.place.ip() == ip && open.protocol == protocol;
        if self.open.get(door).is_some_and(is_there) {
            return Ok(());
        }
        let socket = self.listen(protocol, ip)?;
        let place = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let balancer = self.balancers.entry(door.port.clone()).or_default().clone();
        let worker = self.workers.get(self.next % self.workers.len().max(1)).ok_or(io::ErrorKind::NotConnected)?;
        self.next = self.next.wrapping_add(1);
        let _entered = worker.handle.enter();
        let pool = door.pool;
        let task = match protocol {
            Protocol::Udp => {
                let socket = tokio::net::UdpSocket::from_std(socket.into())?;
                worker.handle.spawn(udp::serve(socket, balancer, pool, UDP_IDLE))
            }
            Protocol::Tcp | Protocol::Sctp => {
                let socket = tokio::net::TcpListener::from_std(socket.into())?;
                worker.handle.spawn(tcp::serve(socket, balancer, pool))
            }
        };
        let open = Open { place, protocol, task: task.abort_handle() };
        if let Some(before) = self.open.insert(door.clone(), open) {
            before.task.abort();
        }
        Ok(())
    }

    /// Closes all doors but those that are wanted. TCP connections that came through them go on.
    pub fn close_all_but(&mut self, is_wanted: impl Fn(&Door) -> bool) {
        self.open.retain(|door, open| {
            let stays = is_wanted(door);
            if !stays {
                open.task.abort();
            }
            stays
        });
    }

    /// Where the doors are.
    pub fn places(&self) -> Places {
        self.open.iter().map(|(door, open)| (door.clone(), open.place)).collect()
    }

    /// A socket at a port that the kernel chooses, or at the first one of the range that is free.
    fn listen(&self, protocol: Protocol, ip: IpAddr) -> io::Result<Socket> {
        let Some(range) = self.range.clone() else { return listen_at(protocol, SocketAddr::new(ip, 0)) };
        let taken = |number: &u16| {
            self.open.values().any(|open| open.protocol == protocol && open.place == SocketAddr::new(ip, *number))
        };
        for number in range.clone().filter(|number| !taken(number)) {
            match listen_at(protocol, SocketAddr::new(ip, number)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        let (first, last) = range.into_inner();
        Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no port of portRange {first}-{last} is free")))
    }
}

fn listen_at(protocol: Protocol, address: SocketAddr) -> io::Result<Socket> {
    let kind = if protocol == Protocol::Udp { Type::DGRAM } else { Type::STREAM };
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    socket.set_nonblocking(true)?;
    // an address that is not ready yet, such as one that is being looked for twice, can be listened on all the same
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    if kind == Type::STREAM && address.port() != 0 {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    if kind == Type::STREAM {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}
