//! What the daemon tells over HTTP: health to load balancers and probes, metrics, and a page for people (behaviour
//! sections I and K).
//!
//! The loop that programs the kernel has an [`Observer`], which it tells what it does; the servers run in a thread of
//! their own and look at what the observer left there. Nobody waits for anybody.

mod checks;
mod connections;
mod health;
mod http;
mod metrics;
mod observer;
mod page;
mod proxy;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use tracing::{debug, info, warn};

pub use health::{Progress, check_answer, is_current, proxy_answer};
pub use http::Answer;
pub use observer::{Audience, Observer, Status, SyncKind, Synced, observer};
pub use page::{Ask, Question};

use crate::config::KubeProxyConfiguration;
use crate::events::{Event, Recorder};
use connections::Connections;
use http::{Handler, Wildcard};

/// The pause before an address that could not be had is tried again (row I12).
const RETRY: Duration = Duration::from_secs(5);

/// Which servers there are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `healthzBindAddress`; none where it is switched off.
    pub healthz: Option<SocketAddr>,
    /// `metricsBindAddress`; none where it is switched off.
    pub metrics: Option<SocketAddr>,
    /// `bindAddressHardFail`: an address that cannot be had is an error, instead of being tried again.
    pub hard_fail: bool,
    /// The own node's name.
    pub node: String,
    /// The effective configuration.
    pub configuration: KubeProxyConfiguration,
    /// How many Service ports have a metric of their own of new connections; none where these are not counted.
    pub counted: Option<usize>,
    /// Takes what the cluster's people should know.
    pub recorder: Recorder,
}

impl Settings {
    /// How long a change may wait to be programmed before the proxy counts as ill: twice the sync period (row I9).
    fn patience(&self) -> Duration {
        self.configuration.nftables.sync_period.0 * 2
    }
}

/// Starts the servers in a thread of their own. `ask` reaches the loop that knows the Services. They end when the observer is gone.
///
/// # Errors
/// When an address cannot be had and that is to be fatal, or when there is no thread.
pub fn start(settings: Settings, audience: Audience, ask: Ask) -> io::Result<()> {
    let healthz = first_attempt("health", settings.healthz, &settings, "FailedToStartProxierHealthcheck")?;
    let metrics = first_attempt("metrics", settings.metrics, &settings, "FailedToStartMetricServer")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    thread::Builder::new()
        .name("serve".into())
        .spawn(move || runtime.block_on(serve(settings, audience, ask, healthz, metrics)))?;
    Ok(())
}

async fn serve(
    settings: Settings,
    audience: Audience,
    ask: Ask,
    healthz: Option<TcpListener>,
    metrics: Option<TcpListener>,
) {
    let Audience { metrics: figures, status, news } = audience;
    let health = health::Reader::new(status, settings.patience());
    let healthz_server = proxy::Healthz::new(health.clone(), figures.clone());
    let connections = settings.counted.map(Connections::new);
    let host = proxy::Host { node: settings.node, configuration: settings.configuration };
    let metrics_server = proxy::Metrics::new(figures, health.clone(), ask, host, connections);
    tokio::select! {
        () = checks::run(news, health, settings.recorder) => {}
        () = serve_at("health", settings.healthz, healthz, healthz_server) => {}
        () = serve_at("metrics", settings.metrics, metrics, metrics_server) => {}
    }
}

/// Listens, if there is an address. A failure is only said, and recorded with this reason, unless it is to be fatal.
fn first_attempt(
    what: &str,
    address: Option<SocketAddr>,
    settings: &Settings,
    reason: &'static str,
) -> io::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    match http::listen(address, Wildcard::BothFamilies) {
        Ok(listener) => {
            info!("serving {what} on {address}");
            Ok(Some(listener))
        }
        Err(error) => {
            let note = format!("{what} cannot be served on {address}: {error}");
            settings.recorder.record(Event::server_failed(reason, note.clone()));
            if settings.hard_fail {
                return Err(io::Error::new(error.kind(), note));
            }
            warn!("{note}; trying again every {RETRY:?}");
            Ok(None)
        }
    }
}

/// Serves on the address, as soon as it can be had; forever.
async fn serve_at(what: &str, address: Option<SocketAddr>, listener: Option<TcpListener>, handler: impl Handler) {
    let Some(address) = address else { return std::future::pending().await };
    let mut listener = listener;
    loop {
        if let Some(listener) = listener.take()
            && let Err(error) = http::serve(listener, handler.clone()).await
        {
            warn!("{what} is not served on {address} any more: {error}; trying again every {RETRY:?}");
        }
        tokio::time::sleep(RETRY).await;
        match http::listen(address, Wildcard::BothFamilies) {
            Ok(new) => {
                info!("serving {what} on {address}");
                listener = Some(new);
            }
            Err(error) => debug!("{what} cannot be served on {address}: {error}"),
        }
    }
}
