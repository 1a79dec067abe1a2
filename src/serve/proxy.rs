//! The two servers of the proxy as a whole: health for probes, metrics for operators (behaviour rows I9–I11).

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;

use super::connections::Connections;
use super::health::{self, proxy_answer};
use super::http::{Answer, Handler, JSON, Request, TEXT};
use super::metrics::{self, Probe};
use super::page::{self, Ask};
use crate::config::KubeProxyConfiguration;

/// Serves `healthzBindAddress`.
#[derive(Clone, Debug)]
pub struct Healthz {
    health: health::Reader,
    metrics: metrics::Metrics,
}

impl Healthz {
    pub fn new(health: health::Reader, metrics: metrics::Metrics) -> Healthz {
        Healthz { health, metrics }
    }
}

impl Handler for Healthz {
    async fn answer(&self, request: Request) -> Answer {
        let probe = match request.path.as_str() {
            "/healthz" => Probe::Healthz,
            "/livez" => Probe::Livez,
            _ => return Answer::not_found(),
        };
        let progress = self.health.progress();
        let is_current = self.health.is_current(&progress);
        let answer = proxy_answer(&progress, is_current, probe == Probe::Healthz, SystemTime::now());
        self.metrics.probed(probe, answer.status);
        answer
    }
}

/// Serves `metricsBindAddress`.
#[derive(Clone)]
pub struct Metrics {
    metrics: metrics::Metrics,
    health: health::Reader,
    ask: Ask,
    host: Arc<page::Host>,
    configz: Arc<str>,
    connections: Option<Connections>,
}

/// What is the same as long as the daemon runs.
pub struct Host {
    /// The node's name.
    pub node: String,
    /// The effective configuration.
    pub configuration: KubeProxyConfiguration,
}

impl Metrics {
    pub fn new(
        metrics: metrics::Metrics,
        health: health::Reader,
        ask: Ask,
        host: Host,
        connections: Option<Connections>,
    ) -> Metrics {
        // as kube-proxy 1.36 shows it: in the form of a file
        let configz = json!({"kubeproxy.config.k8s.io": host.configuration}).to_string();
        let host = page::Host { node: host.node, mode: host.configuration.mode };
        Metrics { metrics, health, ask, host: host.into(), configz: configz.into(), connections }
    }

    /// `/metrics`. The kernel's counters are read by a thread of their own: probes do not wait for that.
    async fn figures(&self) -> String {
        let connections = match self.connections.clone() {
            Some(connections) => tokio::task::spawn_blocking(move || connections.text()).await.unwrap_or_default(),
            None => String::new(),
        };
        self.metrics.text() + &connections
    }

    /// `/metrics/slis`.
    fn slis(&self) -> String {
        let progress = self.health.progress();
        let is_current = self.health.is_current(&progress);
        let is_fit = is_current && !progress.node_leaving && !progress.damaged;
        self.metrics.slis(is_fit, is_current)
    }
}

impl Handler for Metrics {
    async fn answer(&self, request: Request) -> Answer {
        match request.path.as_str() {
            "/" => {
                let status = self.health.status();
                let is_current = self.health.is_current(&status.progress);
                page::answer(&self.ask, &self.host, status, is_current, &request.query).await
            }
            "/metrics" => Answer::new(200, metrics::CONTENT_TYPE, self.figures().await),
            "/metrics/slis" => Answer::new(200, metrics::CONTENT_TYPE, self.slis()),
            // that this server answers is all that it says: what counts is asked on the other port
            "/healthz" | "/livez" => Answer::new(200, TEXT, "ok"),
            "/proxyMode" => Answer::new(200, TEXT, &*self.host.mode),
            "/configz" => Answer::new(200, JSON, &*self.configz),
            _ => Answer::not_found(),
        }
    }
}
