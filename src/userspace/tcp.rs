//! Connections: accepted, opened anew to an endpoint, and carried to and fro.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::balancer::Balancer;
use crate::plan::{Endpoint, PoolKind};

/// How long an endpoint may take to accept. Each time that one does not, the next attempt may take longer; after the last
/// the client is turned away.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// The pause after a connection could not be accepted, which mostly means that there is no file descriptor left.
const NO_ROOM: Duration = Duration::from_millis(100);

/// Bytes that are read at once.
const CHUNK: usize = 32 * 1024;

/// Accepts connections until the task is ended. Those that were accepted go on after that.
pub async fn serve(listener: TcpListener, balancer: Arc<Balancer>, pool: PoolKind) {
    let mut is_full = false;
    loop {
        match listener.accept().await {
            Ok((client, from)) => {
                is_full = false;
                tokio::spawn(carry(client, from, balancer.clone(), pool));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_full, true) {
                    tracing::warn!("connections cannot be accepted: {error}");
                }
                sleep(NO_ROOM).await;
            }
        }
    }
}

/// One connection, from its beginning to its end.
async fn carry(client: TcpStream, from: SocketAddr, balancer: Arc<Balancer>, pool: PoolKind) {
    let Some(server) = connect(from, &balancer, pool).await else {
        // the client has been told that somebody accepts: all that can be done is to break it off
        return reset(&client);
    };
    for stream in [&client, &server] {
        let socket = SockRef::from(stream);
        // without either, the connection is slower, or is noticed later to be dead
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_keepalive(true);
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    // an error of one direction ends the other as well
    let _ = tokio::try_join!(pump(from_client, to_server), pump(from_server, to_client));
}

/// A connection to an endpoint: those that refuse are passed over, those that do not answer are asked again when all others
/// have been.
async fn connect(from: SocketAddr, balancer: &Balancer, pool: PoolKind) -> Option<TcpStream> {
    let (mut refused, mut silent): (Vec<Endpoint>, Vec<Endpoint>) = (Vec::new(), Vec::new());
    let mut patience = PATIENCE.iter();
    let mut longest = *patience.next()?;
    loop {
        let tried = [&refused[..], &silent].concat();
        let Some(endpoint) = balancer.pick(pool, from.ip(), &tried, Instant::now()) else {
            if silent.is_empty() {
                return None;
            }
            silent.clear();
            continue;
        };
        match timeout(longest, TcpStream::connect((endpoint.ip, endpoint.port))).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(_)) => refused.push(endpoint),
            Err(_) => {
                silent.push(endpoint);
                longest = *patience.next()?;
            }
        }
    }
}

/// Carries one direction until it ends. Its end is passed on as such, and a connection that breaks off is broken off.
async fn pump(from: OwnedReadHalf, to: OwnedWriteHalf) -> io::Result<()> {
    let result = copy(&from, &to).await;
    if result.is_err() {
        reset(from.as_ref());
        reset(to.as_ref());
    }
    result
    // dropping the half that is written to says that nothing more will come
}

async fn copy(from: &OwnedReadHalf, to: &OwnedWriteHalf) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        from.readable().await?;
        let read = match from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let mut left = &buffer[..read];
        while !left.is_empty() {
            to.writable().await?;
            match to.try_write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Has the connection end with a reset when it is closed.
fn reset(stream: &TcpStream) {
    // where that fails it ends as if all had been said
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
