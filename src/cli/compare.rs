//! `svcmap compare`: the same Services in several modes, side by side.

mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use super::input::InputArgs;
use super::output::{Failure, Format, print, print_json};
use crate::compare::{Known, Mode, Observation, Row, measure, observe, open, plot};
use crate::config::ProxyConfig;
use crate::lab;
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
    /// How many Services a synthetic cluster has, where neither manifests nor a cluster are given; several numbers: one
    /// cluster after the other
    #[arg(long, value_name = "SERVICES", value_delimiter = ',', default_values_t = [100], conflicts_with = "files")]
    services: Vec<usize>,
    /// How many endpoints each of its Services has
    #[arg(long, default_value_t = 10, conflicts_with = "files")]
    endpoints: usize,
    /// Which modes
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Nftables, Mode::Iptables])]
    modes: Vec<Mode>,
    /// What is compared: what rules and connections cost, or whether connections fare the same (default: both)
    #[arg(long, value_enum)]
    only: Option<Subject>,
    /// Also draws what was measured by the number of Services, on logarithmic scales, into this SVG file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Which differences in behaviour are known, in the place of svcmap's own list: see docs/comparison.md
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `--only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    /// Loading, memory, changes, connections, packets.
    Costs,
    /// Each frontend by each kind of client: pods, the node, outside, and outside of source ranges.
    Behaviour,
}

/// What `-o json` prints; times in seconds.
#[derive(Default, serde::Serialize)]
struct Report {
    rows: Vec<Row>,
    behaviour: Vec<Observation>,
    not_run: Vec<NotRun>,
}

#[derive(serde::Serialize)]
struct NotRun {
    mode: Mode,
    /// With how many Service ports.
    service_ports: usize,
    why: String,
}

impl Report {
    fn disagrees(&self) -> bool {
        self.behaviour.iter().any(|observation| !observation.agrees() && observation.known.is_none())
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let known = known(args)?;
    let plans = plans(args)?;
    lab::enter_network().map_err(|error| Failure::Demo(error.into()))?;
    let report = report(args, &plans, &known)?;
    match args.output {
        Format::Text => print(table::text(&report))?,
        Format::Json => print_json(&report)?,
    }
    if let Some(path) = &args.plot {
        let cannot = |error: &dyn std::fmt::Display| Failure::Fatal(format!("{}: {error}", path.display()));
        let svg = plot(&report.rows).map_err(|error| cannot(&error))?;
        std::fs::write(path, svg).map_err(|error| cannot(&error))?;
    }
    Ok(match (report.disagrees(), report.not_run.is_empty()) {
        (true, _) => ExitCode::FAILURE,
        (false, false) => NOT_RUN.into(),
        (false, true) => ExitCode::SUCCESS,
    })
}

fn report(args: &Args, plans: &[Plan], known: &Known) -> Result<Report, Failure> {
    let mut report = Report::default();
    for plan in plans {
        let mut run = Vec::new();
        for &mode in &args.modes {
            let outcome = match args.only {
                Some(Subject::Behaviour) => runs(mode).map(|()| None),
                _ => measure(mode, plan).map(Some),
            };
            match outcome {
                Ok(row) => {
                    run.push(mode);
                    report.rows.extend(row);
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    report.not_run.push(NotRun { mode, service_ports: plan.ports.len(), why });
                }
            }
        }
        // the Services of synthetic clusters are of one kind, so that one of the clusters says it all
        let is_first = report.behaviour.is_empty();
        if args.only != Some(Subject::Costs) && is_first && !run.is_empty() {
            report.behaviour = observe(&run, plan, known).map_err(Failure::Demo)?;
        }
    }
    Ok(report)
}

fn known(args: &Args) -> Result<Known, Failure> {
    let Some(path) = &args.known else { return Ok(Known::default()) };
    let wrong = |error: String| Failure::Input(format!("--known {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Known::read(&text).map_err(wrong)
}

/// Whether a mode can be run here.
fn runs(mode: Mode) -> anyhow::Result<()> {
    open(mode, &lab::Namespace::new(mode.name())?).map(drop)
}

/// The Services that are given, or a synthetic cluster of each size.
fn plans(args: &Args) -> Result<Vec<Plan>, Failure> {
    let proxy = &args.input.proxy;
    let plans = if args.input.files.is_empty() && proxy.kubeconfig.is_none() && proxy.master.is_empty() {
        args.services.iter().map(|services| synthetic(*services, args.endpoints)).collect::<Result<_, _>>()?
    } else {
        let wanted = args.input.plan()?;
        vec![Plan::new(wanted.node, wanted.ports)]
    };
    if plans.iter().any(|plan: &Plan| plan.ports.is_empty()) {
        return Err(Failure::Input("there are no Services to compare anything with".into()));
    }
    Ok(plans)
}

fn synthetic(services: usize, endpoints: usize) -> Result<Plan, Failure> {
    let options = Options { services, endpoints, ..Options::default() };
    let snapshot = generate(&options).map_err(|error| Failure::Input(error.to_string()))?;
    let cluster_cidrs = pod_cidrs().to_vec();
    let mut tracker = Tracker::new(ProxyConfig { node_name: options.node, cluster_cidrs, ..ProxyConfig::default() });
    tracker.replace(snapshot);
    let (change, _) = tracker.take();
    Ok(Plan::new(change.node.unwrap_or_default(), change.changed))
}
