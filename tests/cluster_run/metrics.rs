//! What is counted, beside what kube-proxy itself says that it counts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use crate::client::get;
use crate::common::api_server::{ApiServer, ask};
use crate::daemon::{Daemon, wait_for};
use crate::exposition::{Metric, parse};
use crate::objects::Objects;

const METRICS: &str = "127.0.0.1:10249";

/// Names, types, labels and buckets are those of kube-proxy 1.36 in its mode nftables (behaviour section K), and requests to the
/// API server are counted as all clients of Kubernetes count them.
pub fn are_told_as_by_kube_proxy(server: &mut ApiServer) -> Result<()> {
    let told = ask("metrics_are_told_as_by_kube_proxy", &["kube-proxy"]).context("the server was built")??;
    let theirs = parse(&common(&told));
    ensure!(theirs.len() > 18, "{:?}", theirs.keys());
    let (objects, _daemon) = (Objects::of(server)?, Daemon::start(server)?);
    let ip = objects.create_service("web")?;
    wait_for("the Service", |listing| listing.contains(&ip))?;
    let ours = told_after(|metrics| metrics.contains_key("kubeproxy_sync_partial_proxy_rules_duration_seconds"))?;
    for (name, their) in &theirs {
        let our = ours.get(name).with_context(|| format!("there is no {name}"))?;
        ensure!(our.kind == their.kind, "{name} is a {}, and a {} for kube-proxy", our.kind, their.kind);
        ensure!(labels(our) == labels(their), "{name}: {:?} and {:?}", labels(our), labels(their));
        ensure!(bounds(our) == bounds(their), "{name}: {:?} and {:?}", bounds(our), bounds(their));
    }
    let host = server.url().strip_prefix("https://").context("a URL")?;
    let requests = &ours["rest_client_requests_total"].series;
    let count = |code: &str, method: &str| {
        let labels = [("code", code), ("host", host), ("method", method)].map(|(a, b)| (a.to_owned(), b.to_owned()));
        requests.get(&("rest_client_requests_total".to_owned(), labels.into())).copied().unwrap_or_default()
    };
    ensure!(count("200", "GET") >= 4.0, "four kinds are watched: {requests:?}");
    ensure!(count("201", "POST") >= 1.0, "an Event was written: {requests:?}");
    Ok(())
}

/// What the daemon tells, as soon as it is so and the first Event has been written.
fn told_after(is_so: impl Fn(&BTreeMap<String, Metric>) -> bool) -> Result<BTreeMap<String, Metric>> {
    for _ in 0..600 {
        let text = get(METRICS, "/metrics")?.body;
        let metrics = parse(&text);
        if is_so(&metrics) && text.contains("method=\"POST\"") {
            return Ok(metrics);
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    bail!("not within a minute: {}", get(METRICS, "/metrics")?.body)
}

/// The metrics that are kube-proxy's own, and those of its requests.
fn common(told: &str) -> String {
    let mut is_common = false;
    let mut text = String::new();
    for line in told.lines() {
        if let Some(name) = line.strip_prefix("# HELP ") {
            is_common = ["kubeproxy_", "rest_client_requests", "rest_client_request_duration"]
                .iter()
                .any(|own| name.starts_with(own));
        } else if line.starts_with("flag ") || line.starts_with("field ") {
            is_common = false;
        }
        if is_common {
            text += line;
            text.push('\n');
        }
    }
    text
}

fn labels(metric: &Metric) -> BTreeSet<&str> {
    metric.series.keys().flat_map(|(_, labels)| labels.keys()).map(String::as_str).collect()
}

/// Of the buckets, where there are any.
fn bounds(metric: &Metric) -> BTreeSet<String> {
    let bounds = metric.series.keys().filter_map(|(_, labels)| labels.get("le"));
    bounds.filter_map(|bound| Some(bound.parse::<f64>().ok()?.to_string())).collect()
}
