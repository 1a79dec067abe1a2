//! Servers that answer with their own name and address, and with the address that they saw the client come from.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::client::said;
use super::sctp::RawServer;
use super::{Listen, Namespace};
use crate::objects::Protocol;

/// A server on any number of addresses and ports of one namespace. It serves until the value goes away.
#[derive(Debug)]
pub struct Server {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it; connections made from now on are answered.
    ///
    /// # Errors
    /// When one of the addresses is not the namespace's, or is taken.
    pub fn start(namespace: &Namespace, name: &str, listens: &[Listen]) -> Result<Server> {
        let sockets: Result<Vec<Source>> = namespace.run(|| listens.iter().map(Source::open).collect());
        let (stop, stopped) = UnixStream::pair()?;
        let mut serving = Serving { name: name.to_owned(), sources: sockets?, visitors: Vec::new() };
        let thread = namespace.spawn(move || serving.run(&stopped))?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("a server of the lab panicked");
        }
    }
}

/// A socket that new clients come to.
enum Source {
    Stream(TcpListener),
    Datagram(UdpSocket, SocketAddr),
    Raw(RawServer),
}

/// How long a port may still be taken by a server that ended: a program that is just being started elsewhere in this
/// process has its sockets, too, until it is itself.
const LEAVING: Duration = Duration::from_secs(2);

impl Source {
    fn open(listen: &Listen) -> Result<Source> {
        let start = Instant::now();
        loop {
            match Source::try_open(listen) {
                Err(error) if error.kind() == ErrorKind::AddrInUse && start.elapsed() < LEAVING => {
                    thread::sleep(Duration::from_millis(2));
                }
                source => break source.with_context(|| format!("cannot serve {}/{}", listen.protocol, listen.address)),
            }
        }
    }

    fn try_open(listen: &Listen) -> io::Result<Source> {
        let address = listen.address;
        match listen.protocol {
            Protocol::Tcp => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Source::Stream(listener))
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(address)?;
                socket.set_nonblocking(true)?;
                Ok(Source::Datagram(socket, address))
            }
            Protocol::Sctp => RawServer::open(address).map(Source::Raw),
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Stream(socket) => socket.as_fd(),
            Source::Datagram(socket, _) => socket.as_fd(),
            Source::Raw(server) => server.as_fd(),
        }
    }
}

/// The state of a server's thread.
struct Serving {
    name: String,
    sources: Vec<Source>,
    /// Accepted connections whose request did not come yet.
    visitors: Vec<TcpStream>,
}

impl Serving {
    fn run(&mut self, stopped: &UnixStream) {
        loop {
            let fds = [stopped.as_fd()].into_iter().chain(self.sources.iter().map(AsFd::as_fd));
            let fds = fds.chain(self.visitors.iter().map(AsFd::as_fd));
            let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => panic!("poll: {error}"),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            if ready[0] {
                return;
            }
            let (sources, visitors) = ready[1..].split_at(self.sources.len());
            self.answer_visitors(visitors);
            self.look_at_sources(sources);
        }
    }

    fn answer_visitors(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        let name = &self.name;
        self.visitors.retain_mut(|visitor| {
            let asked = *ready.next().unwrap_or(&false);
            if asked {
                // A client that went away does not wait for its answer.
                let _ = answer(name, visitor);
            }
            !asked
        });
    }

    fn look_at_sources(&mut self, ready: &[bool]) {
        for (source, _) in self.sources.iter().zip(ready).filter(|(_, ready)| **ready) {
            match source {
                Source::Stream(listener) => {
                    while let Ok((visitor, _)) = listener.accept() {
                        self.visitors.push(visitor);
                    }
                }
                Source::Datagram(socket, address) => {
                    let mut buffer = [0; 512];
                    while let Ok((_, client)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(said(&self.name, *address, client).as_bytes(), client);
                    }
                }
                Source::Raw(server) => server.answer(&self.name),
            }
        }
    }
}

/// Answers one request, as a web server does.
fn answer(name: &str, visitor: &mut TcpStream) -> io::Result<()> {
    let _ = visitor.read(&mut [0; 2048])?;
    let body = said(name, visitor.local_addr()?, visitor.peer_addr()?);
    let head = format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
    visitor.write_all((head + &body).as_bytes())
}
