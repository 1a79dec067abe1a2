//! The two servers of the proxy as a whole: health for probes, metrics for operators (behaviour rows I9–I11).

use std::sync::Arc;
use std::time::SystemTime;

use super::configz;
use super::health::{self, proxy_answer};
use super::http::{Answer, Handler, JSON, Request, TEXT};
use super::metrics::{self, Probe};
use super::page::{self, Ask, Host};
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
    host: Arc<Host>,
    configz: Arc<str>,
}

impl Metrics {
    pub fn new(
        metrics: metrics::Metrics,
        health: health::Reader,
        ask: Ask,
        node: String,
        configuration: &KubeProxyConfiguration,
    ) -> Metrics {
        let configz = configz::shown(configuration).to_string();
        let host = Host { node, mode: configuration.mode.clone() };
        Metrics { metrics, health, ask, host: host.into(), configz: configz.into() }
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
            "/metrics" => Answer::new(200, metrics::CONTENT_TYPE, self.metrics.text()),
            // that this server answers is all that it says: what counts is asked on the other port
            "/healthz" | "/livez" => Answer::new(200, TEXT, "ok"),
            "/proxyMode" => Answer::new(200, TEXT, &*self.host.mode),
            "/configz" => Answer::new(200, JSON, &*self.configz),
            _ => Answer::not_found(),
        }
    }
}
