//! Datagrams: a socket for each client, from which its endpoint gets them, and by which answers are told apart.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{interval, timeout};

use super::balancer::Balancer;
use crate::plan::{Endpoint, PoolKind};

/// The longest datagram.
const LONGEST: usize = 65_535;

/// Passes datagrams on until the task is ended; the clients' sockets go with it.
pub async fn serve(listener: UdpSocket, balancer: Arc<Balancer>, pool: PoolKind, idle: Duration) {
    let listener = Arc::new(listener);
    let mut clients: HashMap<SocketAddr, (Arc<Session>, AbortHandle)> = HashMap::new();
    let mut answering = JoinSet::new();
    let mut buffer = vec![0; LONGEST];
    let mut tidying = interval(idle);
    loop {
        let (length, client) = tokio::select! {
            received = listener.recv_from(&mut buffer) => match received {
                Ok(received) => received,
                // an earlier answer's client was not there
                Err(_) => continue,
            },
            _ = tidying.tick() => {
                while answering.try_join_next().is_some() {}
                clients.retain(|_, (_, answers)| !answers.is_finished());
                continue;
            }
        };
        let datagram = &buffer[..length];
        if let Some((session, answers)) = clients.get(&client)
            && !answers.is_finished()
        {
            session.say(datagram).await;
            continue;
        }
        let (balancer, listener) = (balancer.clone(), listener.clone());
        match Session::begin(client, balancer, pool, datagram).await {
            Ok(Some(session)) => {
                let session = Arc::new(session);
                let answers = answering.spawn(answer(session.clone(), listener, idle));
                clients.insert(client, (session, answers));
            }
            // there is no endpoint any more: the rules will say so
            Ok(None) => {}
            Err(error) => tracing::debug!("a datagram of {client} is lost: {error}"),
        }
    }
}

/// One client and its endpoint.
struct Session {
    client: SocketAddr,
    balancer: Arc<Balancer>,
    pool: PoolKind,
    socket: UdpSocket,
    state: Mutex<State>,
}

struct State {
    endpoint: Endpoint,
    /// Those that refused since there was an answer.
    refused: Vec<Endpoint>,
    /// What the client said last, until there is an answer.
    last: Vec<u8>,
    heard: Instant,
}

impl Session {
    async fn begin(
        client: SocketAddr,
        balancer: Arc<Balancer>,
        pool: PoolKind,
        datagram: &[u8],
    ) -> io::Result<Option<Session>> {
        let Some(endpoint) = balancer.pick(pool, client.ip(), &[], Instant::now()) else { return Ok(None) };
        let any = match endpoint.ip {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect((endpoint.ip, endpoint.port)).await?;
        let state = State { endpoint, refused: Vec::new(), last: datagram.to_vec(), heard: Instant::now() };
        let session = Session { client, balancer, pool, socket, state: Mutex::new(state) };
        // a refusal shows when the answer is waited for
        let _ = session.socket.send(datagram).await;
        Ok(Some(session))
    }

    /// Passes a datagram on. An endpoint that the Service does not have any more is not sent to.
    async fn say(&self, datagram: &[u8]) {
        let endpoint = {
            let mut state = self.state();
            state.heard = Instant::now();
            state.last.clear();
            state.last.extend_from_slice(datagram);
            state.endpoint
        };
        let stays = self.balancer.uses(self.pool, &endpoint);
        if !stays && !matches!(self.turn_to_another().await, Ok(true)) {
            return;
        }
        if let Err(error) = self.socket.send(datagram).await
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            // the error was an earlier datagram's: the kernel has not sent this one
            let _ = self.socket.send(datagram).await;
        }
    }

    /// Goes on with another endpoint; whether there is one.
    async fn turn_to_another(&self) -> io::Result<bool> {
        let endpoint = {
            let mut state = self.state();
            let before = state.endpoint;
            state.refused.push(before);
            let Some(next) = self.balancer.pick(self.pool, self.client.ip(), &state.refused, Instant::now()) else {
                return Ok(false);
            };
            state.endpoint = next;
            next
        };
        self.socket.connect((endpoint.ip, endpoint.port)).await?;
        Ok(true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // nothing panics with it
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes answers on, until neither side has said anything for so long, or nobody is left who does not refuse.
async fn answer(session: Arc<Session>, listener: Arc<UdpSocket>, idle: Duration) {
    let mut buffer = vec![0; LONGEST];
    loop {
        match timeout(idle, session.socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                {
                    let mut state = session.state();
                    state.refused.clear();
                    state.last.clear();
                    state.heard = Instant::now();
                }
                // a client that is gone does not matter to the others
                let _ = listener.send_to(&buffer[..length], session.client).await;
            }
            Ok(Err(_)) => {
                if !matches!(session.turn_to_another().await, Ok(true)) {
                    return;
                }
                let last = session.state().last.clone();
                if !last.is_empty() {
                    let _ = session.socket.send(&last).await;
                }
            }
            Err(_) if session.state().heard.elapsed() < idle => {}
            Err(_) => return,
        }
    }
}
