//! Listening, and a server that hands out whole answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tracing::debug;

/// For bodies.
pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;
/// Connections of a server at a time; for one more the oldest has to go. Probes and scrapes need a handful.
const MOST_CONNECTIONS: usize = 100;
/// How long a client may take to send a request, also on a connection that stays open.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause after a connection that could not be taken: there may be no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
    headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// An answer with a body of this type, which nobody is to guess at.
    pub fn new(status: u16, content_type: &str, body: impl Into<String>) -> Answer {
        let headers = vec![("content-type", content_type.into()), ("x-content-type-options", "nosniff".into())];
        Answer { status, body: body.into(), headers }
    }

    /// The answer with one more header.
    pub fn with_header(mut self, name: &'static str, value: impl ToString) -> Answer {
        self.headers.push((name, value.to_string()));
        self
    }

    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// For paths that lead nowhere.
    pub fn not_found() -> Answer {
        Answer::new(404, TEXT, "404 page not found\n")
    }
}

/// What is asked for. The method makes no difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `/path`.
    pub path: String,
    /// What stands after the question mark, as it was sent.
    pub query: String,
}

/// Something that answers.
pub trait Handler: Clone + Send + Sync + 'static {
    /// The answer.
    fn answer(&self, request: Request) -> impl Future<Output = Answer> + Send;
}

/// What `0.0.0.0` and `::` stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcard {
    /// For all addresses of both families, whichever of the two it is. Go's servers take it so.
    BothFamilies,
    /// For those of its own family.
    OwnFamily,
}

/// Listens on an address.
///
/// # Errors
/// When the kernel does not allow it.
pub fn listen(address: SocketAddr, wildcard: Wildcard) -> io::Result<TcpListener> {
    if wildcard == Wildcard::OwnFamily || !address.ip().is_unspecified() {
        return listen_on(address, true);
    }
    let on = |ip: IpAddr, only_own| listen_on(SocketAddr::new(ip, address.port()), only_own);
    match on(Ipv6Addr::UNSPECIFIED.into(), false) {
        Err(error) if is_lack_of_family(&error) => on(Ipv4Addr::UNSPECIFIED.into(), true),
        other => other,
    }
}

/// Whether it is the host that does not know the address family.
pub fn is_lack_of_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

fn listen_on(address: SocketAddr, only_own_family: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // connections of an earlier run that are not quite over must not keep the address
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_own_family)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Answers whoever connects, until this future is dropped: then all connections are closed, too.
///
/// # Errors
/// When the listener cannot be used at all.
pub async fn serve(listener: TcpListener, handler: impl Handler) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (mut connections, mut oldest_first) = (JoinSet::new(), VecDeque::<AbortHandle>::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // whoever holds connections open and says nothing must not keep probes from being answered
                    oldest_first.retain(|connection| !connection.is_finished());
                    if oldest_first.len() >= MOST_CONNECTIONS {
                        oldest_first.pop_front().iter().for_each(AbortHandle::abort);
                    }
                    oldest_first.push_back(connections.spawn(converse(stream, handler.clone())));
                }
                Err(error) => {
                    debug!("a connection could not be taken: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, handler: impl Handler) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let handler = handler.clone();
        async move {
            let (path, query) = (request.uri().path().into(), request.uri().query().unwrap_or_default().into());
            Ok::<_, Infallible>(response(handler.answer(Request { path, query }).await))
        }
    });
    let mut server = http1::Builder::new();
    // some who read headers look for their customary spelling
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).title_case_headers(true);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        debug!("a client went away: {error}");
    }
}

fn response(answer: Answer) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(answer.body.into())).expect("statuses, names and values of headers are our own")
}
