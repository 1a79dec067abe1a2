//! `svcmap compare`: the same Services in several modes, side by side.

use std::process::ExitCode;

use super::input::InputArgs;
use super::output::{Failure, Format, print, print_json};
use crate::compare::{Connection, Mode, Observation, Row, measure, observe, open};
use crate::config::ProxyConfig;
use crate::lab::{self, Spent};
use crate::plan::Plan;
use crate::source::generate::{Options, generate, pod_cidrs};
use crate::tracker::Tracker;

/// The exit status where a mode could not be run.
const NOT_RUN: u8 = 3;

/// Arguments of `compare`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// How many Services a synthetic cluster has, where neither manifests nor a cluster are given
    #[arg(long, default_value_t = 100, conflicts_with = "files")]
    services: usize,
    /// How many endpoints each of its Services has
    #[arg(long, default_value_t = 10, conflicts_with = "files")]
    endpoints: usize,
    /// Which modes
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Nftables, Mode::Iptables])]
    modes: Vec<Mode>,
    /// What is compared: what rules and connections cost, or whether connections fare the same (default: both)
    #[arg(long, value_enum)]
    only: Option<Subject>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `--only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    /// Loading, changes, connections.
    Costs,
    /// Each frontend by each kind of client: pods, the node, outside, and outside of source ranges.
    Behaviour,
}

/// What `-o json` prints; times in seconds.
#[derive(serde::Serialize)]
struct Report {
    service_ports: usize,
    endpoints: usize,
    rows: Vec<Row>,
    behaviour: Vec<Observation>,
    not_run: Vec<NotRun>,
}

#[derive(serde::Serialize)]
struct NotRun {
    mode: Mode,
    why: String,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let plan = plan(args)?;
    lab::enter_network().map_err(|error| Failure::Demo(error.into()))?;
    let endpoints = plan.ports.values().map(|port| port.cluster.len().max(port.local.len())).sum();
    let mut report = Report {
        service_ports: plan.ports.len(),
        endpoints,
        rows: Vec::new(),
        behaviour: Vec::new(),
        not_run: Vec::new(),
    };
    let mut run = Vec::new();
    for &mode in &args.modes {
        let outcome = match args.only {
            Some(Subject::Behaviour) => runs(mode).map(|()| None),
            _ => measure(mode, &plan).map(Some),
        };
        match outcome {
            Ok(row) => {
                run.push(mode);
                report.rows.extend(row);
            }
            Err(error) => report.not_run.push(NotRun { mode, why: format!("{error:#}") }),
        }
    }
    if args.only != Some(Subject::Costs) && !run.is_empty() {
        report.behaviour = observe(&run, &plan).map_err(Failure::Demo)?;
    }
    match args.output {
        Format::Text => print(text(&report))?,
        Format::Json => print_json(&report)?,
    }
    let disagree = report.behaviour.iter().any(|observation| !observation.agrees() && observation.known.is_none());
    Ok(match (disagree, report.not_run.is_empty()) {
        (true, _) => ExitCode::FAILURE,
        (false, false) => NOT_RUN.into(),
        (false, true) => ExitCode::SUCCESS,
    })
}

/// Whether a mode can be run here.
fn runs(mode: Mode) -> anyhow::Result<()> {
    open(mode, &lab::Namespace::new(mode.name())?).map(drop)
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let proxy = &args.input.proxy;
    let (node, ports) = if args.input.files.is_empty() && proxy.kubeconfig.is_none() && proxy.master.is_empty() {
        let options = Options { services: args.services, endpoints: args.endpoints, ..Options::default() };
        let snapshot = generate(&options).map_err(|error| Failure::Input(error.to_string()))?;
        let cluster_cidrs = pod_cidrs().to_vec();
        let mut tracker =
            Tracker::new(ProxyConfig { node_name: options.node, cluster_cidrs, ..ProxyConfig::default() });
        tracker.replace(snapshot);
        let (change, _) = tracker.take();
        (change.node.unwrap_or_default(), change.changed)
    } else {
        let wanted = args.input.plan()?;
        (wanted.node, wanted.ports)
    };
    if ports.is_empty() {
        return Err(Failure::Input("there are no Services to compare anything with".into()));
    }
    Ok(Plan::new(node, ports))
}

const HEADER: [&str; 10] = [
    "mode",
    "loaded by",
    "objects",
    "bytes",
    "load",
    "add a Service",
    "remove one",
    "replace an endpoint",
    "connection: direct",
    "through the first/middle/last Service",
];

fn text(report: &Report) -> String {
    let mut text = format!(
        "{} Service ports with {} endpoints. Processor time, and by the clock in brackets.\n\n",
        report.service_ports, report.endpoints
    );
    if !report.rows.is_empty() {
        text += &costs(report);
    }
    if !report.behaviour.is_empty() {
        text += &behaviour(&report.behaviour);
    }
    for NotRun { mode, why } in &report.not_run {
        text += &format!("\n{}: cannot run here: {why}\n", mode.name());
    }
    text
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

fn costs(report: &Report) -> String {
    let mut text = String::new();
    let rows: Vec<[String; 10]> = report.rows.iter().map(cells).collect();
    let header = HEADER.map(str::to_owned);
    let width = |at: usize| rows.iter().chain([&header]).map(|row| row[at].chars().count()).max().unwrap_or_default();
    let widths: [usize; 10] = std::array::from_fn(width);
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    text += &line(&header);
    text += &line(&widths.map(|width| "-".repeat(width)));
    rows.iter().for_each(|row| text += &line(row));
    text
}

fn cells(row: &Row) -> [String; 10] {
    let kind = match row.mode {
        Mode::Nftables => "elements",
        Mode::Ipvs => "servers, entries",
        Mode::Userspace => "elements",
        _ => "rules",
    };
    let both = |spent: Spent| format!("{} ({})", time(spent.processor), time(spent.clock));
    let [direct, through] = match row.connection {
        None => ["–", "–"].map(str::to_owned),
        Some(Connection { direct, first, middle, last }) => [time(direct), [first, middle, last].map(time).join(" / ")],
    };
    [
        row.mode.name().into(),
        row.loader.clone(),
        format!("{} {kind}", row.objects),
        row.bytes.to_string(),
        both(row.load),
        row.add_service.map_or("–".into(), both),
        row.remove_service.map_or("–".into(), both),
        row.replace_endpoint.map_or("–".into(), both),
        direct,
        through,
    ]
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.001 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}
