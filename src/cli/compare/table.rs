//! What `svcmap compare` prints for people.

use super::{NotRun, Report};
use crate::amounts::{counted, seconds};
use crate::compare::{Observation, PerTarget, Row};
use crate::lab::Spent;

const COSTS: [&str; 11] = [
    "Services",
    "endpoints",
    "mode",
    "made",
    "bytes",
    "kernel memory",
    "load",
    "add a Service",
    "remove one",
    "replace an endpoint",
    "control plane",
];
const CONNECTIONS: [&str; 8] = [
    "Services",
    "endpoints",
    "mode",
    "loaded by",
    "new connection: direct",
    "through the first/middle/last Service",
    "packet: direct",
    "through the first/middle/last",
];

/// Everything.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    if !report.rows.is_empty() {
        text += "Processor time, and by the clock in brackets.\n\n";
        text += &table(&COSTS, report.rows.iter().map(costs));
        text += "\n";
        text += &table(&CONNECTIONS, report.rows.iter().map(connections));
    }
    if !report.behaviour.is_empty() {
        text += &behaviour(&report.behaviour);
    }
    for NotRun { mode, service_ports, why } in &report.not_run {
        text += &format!("\n{}, {}: cannot run here: {why}\n", mode.name(), counted(*service_ports, "Service port"));
    }
    text
}

fn table<const N: usize>(header: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let header = header.map(str::to_owned);
    let rows: Vec<_> = rows.collect();
    let width = |at: usize| rows.iter().chain([&header]).map(|row| row[at].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let body: String = rows.iter().map(line).collect();
    line(&header) + &line(&widths.map(|width| "-".repeat(width))) + &body
}

fn costs(row: &Row) -> [String; 11] {
    let both = |spent: Spent| format!("{} ({})", time(spent.processor), time(spent.clock));
    let median = |spent: Option<Spent>| spent.map_or("–".into(), both);
    let made: Vec<String> = row.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    [
        row.services.to_string(),
        row.endpoints.to_string(),
        row.mode.name().into(),
        made.join(", "),
        row.bytes.to_string(),
        format!("{:.1} MiB", row.kernel_memory as f64 / f64::from(1 << 20)),
        both(row.load),
        median(row.add_service),
        median(row.remove_service),
        median(row.replace_endpoint),
        row.control_plane.map_or("–".into(), |spent| time(spent.processor)),
    ]
}

fn connections(row: &Row) -> [String; 8] {
    let [direct, through] = by_target(row.connection);
    let [packet, packet_through] = by_target(row.packet);
    let [services, endpoints] = [row.services, row.endpoints].map(|number| number.to_string());
    [services, endpoints, row.mode.name().into(), row.loader.clone(), direct, through, packet, packet_through]
}

fn by_target(costs: Option<PerTarget>) -> [String; 2] {
    match costs {
        None => ["–", "–"].map(str::to_owned),
        Some(PerTarget { direct, first, middle, last }) => [time(direct), [first, middle, last].map(time).join(" / ")],
    }
}

/// How many connections fare the same, and those that do not.
fn behaviour(observations: &[Observation]) -> String {
    let (same, differ): (Vec<_>, Vec<_>) = observations.iter().partition(|observation| observation.agrees());
    let mut text = format!(
        "\n{} of {} pairs of a frontend and a client fare the same in every mode.\n",
        same.len(),
        observations.len()
    );
    for observation in differ {
        let Observation { service, frontend, client, outcomes, known, .. } = observation;
        let outcomes: Vec<String> = outcomes.iter().map(|(mode, outcome)| format!("{mode}: {outcome}")).collect();
        let known = known.as_ref().map_or_else(|| "NOT KNOWN".into(), |why| format!("known: {why}"));
        text += &format!("  {service} {frontend} from {}: {} ({known})\n", client.name(), outcomes.join("; "));
    }
    text
}

fn time(time: f64) -> String {
    seconds(time, 2)
}
