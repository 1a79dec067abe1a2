//! A reading for people, and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::compare::Difference;
use super::findings::Finding;
use super::ports::{Drawn, Frontend, Port};
use super::readers::Reading;
use crate::amounts::counted;
use crate::objects::Family;
use crate::plan::{FrontendAddress, PoolKind, PortId, Verdict};

/// What an audit comes to.
#[derive(Debug, Default)]
pub struct Report {
    /// What was read.
    pub reading: Reading,
    /// Where it differs from what is wanted.
    pub differences: Vec<Difference>,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
    /// What was not looked for, and why.
    pub limits: Vec<String>,
}

/// The policy of a frontend, in a word.
pub fn policy(frontend: &Frontend) -> &'static str {
    match (frontend.pool, frontend.short_circuit) {
        (PoolKind::Cluster, _) => "Cluster",
        (PoolKind::Local, false) => "Local",
        (PoolKind::Local, true) => "Local, but Cluster for pods and the node",
    }
}

fn kind(frontend: &Frontend) -> &'static str {
    match frontend.address {
        FrontendAddress::Cluster(..) => "cluster IP",
        FrontendAddress::External(..) => "external IP",
        FrontendAddress::NodePort(_) => "node port",
    }
}

/// A frontend with what it does, but for its endpoints.
pub fn frontend_text(port: &Port, frontend: &Frontend) -> String {
    format!("{} {}", kind(frontend), port.claim(frontend))
}

/// A share in percent, and no more digits than it needs.
fn percent(share: f64) -> String {
    let percent = (share * 1000.0).round() / 10.0;
    if percent.fract() == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

fn pool_text(pool: &[Drawn]) -> String {
    let even = pool.iter().all(|one| (one.share * pool.len() as f64 - 1.0).abs() < 0.01);
    let endpoint = |one: &Drawn| match even {
        true => one.socket().to_string(),
        false => format!("{} {}", one.socket(), percent(one.share)),
    };
    let list = pool.iter().map(endpoint).collect::<Vec<_>>().join(", ");
    match (pool, even) {
        ([] | [_], _) | (_, false) => list,
        (_, true) => format!("{list} ({} each)", percent(pool[0].share)),
    }
}

/// The report as text.
pub fn text(report: &Report, compared: bool) -> String {
    let mut out = String::new();
    let names: Vec<String> = report.reading.layouts.iter().map(ToString::to_string).collect();
    let made_by = if names.is_empty() { "nothing of Services".to_owned() } else { names.join(", ") };
    let _ = writeln!(out, "{made_by}: {}", counted(report.reading.ports.len(), "Service port"));
    for limit in &report.limits {
        let _ = writeln!(out, "not looked for: {limit}");
    }
    report.reading.ports.values().for_each(|port| port_text(port, &mut out));
    if compared {
        let _ = writeln!(out, "\ndifferences: {}", report.differences.len());
        let mut group = None;
        for difference in &report.differences {
            if group != Some(&difference.service) {
                let _ = writeln!(out, "{}:", difference.service);
                group = Some(&difference.service);
            }
            let _ = writeln!(out, "  {} {} {}", difference.sign, difference.family, difference.what);
        }
    }
    let _ = writeln!(out, "\nfindings: {}", report.findings.len());
    for finding in &report.findings {
        let _ = writeln!(out, "  {finding}");
    }
    out
}

fn port_text(port: &Port, out: &mut String) {
    let affinity = port.affinity.map(|seconds| format!(", session affinity {seconds} s")).unwrap_or_default();
    let _ = writeln!(out, "\n{} ({}, {}{affinity})", port.id.name, port.id.family, port.protocol);
    for frontend in &port.frontends {
        let _ = write!(out, "  {:<11}  {:<32}", kind(frontend), port.claim(frontend).to_string());
        match frontend.no_endpoints {
            Some(Verdict::Reject) => out.push_str("refused: no endpoints"),
            Some(Verdict::Drop) => out.push_str("dropped: no endpoints on this node"),
            Some(Verdict::Pass) if frontend.short_circuit => out.push_str("let through: no endpoints on this node"),
            Some(Verdict::Pass) => out.push_str("let through: no endpoints"),
            None => {
                let _ = write!(out, "policy {}; masquerade {}", policy(frontend), frontend.masquerade);
            }
        }
        if let Some(sources) = &frontend.sources {
            let list = sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let _ = write!(out, "; only from {list}");
        }
        out.push('\n');
    }
    for (name, pool) in [("endpoints", &port.cluster), ("of this node", &port.local)] {
        if !pool.is_empty() {
            let _ = writeln!(out, "  {name:<11}  {}", pool_text(pool));
        }
    }
}

/// The report as one JSON object.
pub fn json(report: &Report) -> Json {
    json!({
        "layouts": report.reading.layouts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "services": ports_json(&report.reading.ports),
        "differences": report.differences,
        "findings": report.findings,
        "notLookedFor": report.limits,
    })
}

fn ports_json(ports: &BTreeMap<PortId, Port>) -> Vec<Json> {
    ports
        .values()
        .map(|port| {
            json!({
                "service": port.id.name.as_str(),
                "family": if port.id.family == Family::V4 { "ip" } else { "ip6" },
                "protocol": port.protocol.to_string(),
                "affinitySeconds": port.affinity,
                "frontends": port.frontends.iter().map(|frontend| frontend_json(port, frontend)).collect::<Vec<_>>(),
                "endpoints": pool_json(&port.cluster),
                "localEndpoints": pool_json(&port.local),
            })
        })
        .collect()
}

fn frontend_json(port: &Port, frontend: &Frontend) -> Json {
    json!({
        "kind": kind(frontend),
        "address": frontend.address.ip(),
        "port": frontend.address.port(),
        "claim": port.claim(frontend).to_string(),
        "policy": if frontend.pool == PoolKind::Local { "Local" } else { "Cluster" },
        "shortCircuit": frontend.short_circuit,
        "masquerade": frontend.masquerade.to_string(),
        "noEndpoints": frontend.no_endpoints.map(|verdict| format!("{verdict:?}").to_lowercase()),
        "sources": frontend.sources,
    })
}

fn pool_json(pool: &[Drawn]) -> Vec<Json> {
    pool.iter().map(|one| json!({ "endpoint": one.socket(), "share": one.share })).collect()
}
