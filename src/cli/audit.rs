//! `svcmap audit`: a ruleset in terms of Services, what is wrong with it, and where it differs from what is wanted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::input::{InputArgs, configuration, read_text};
use super::output::{Failure, Format, answered, print, print_json};
use crate::audit::findings::{findings, limits};
use crate::audit::readers::{self, Reading};
use crate::audit::write::{Report, json, text};
use crate::audit::{Port, compare, in_layouts, live};
use crate::config::Mode;
use crate::explain::Surroundings;
use crate::netlink::{CodecKind, Connection};
use crate::nftables::names::{Map, TABLE};
use crate::plan::{NodePlan, PortId};
use crate::source::display;
use crate::trace::Ruleset;

/// Arguments of `audit`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A ruleset to read in the place of the kernel's: what `nft list ruleset`, `nft -j list ruleset`, `iptables-save`,
    /// `ip6tables-save`, `ipvsadm -Sn` or `ipset save` printed, or - for standard input; given twice, the first one is
    /// compared with the second
    #[arg(long, value_name = "FILE")]
    ruleset: Vec<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    /// How to print the audit
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Runs the command. Every failure has status 2 here, since 1 means that there is something to look at.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let (report, compared) = report(args).map_err(|failure| Failure::Input(failure.to_string()))?;
    let printed = match args.output {
        Format::Text => print(text(&report, compared)),
        Format::Json => print_json(&json(&report)),
    };
    answered(printed, !(report.differences.is_empty() && report.findings.is_empty()))
}

fn report(args: &Args) -> Result<(Report, bool), Failure> {
    if args.ruleset.len() > 2 {
        return Err(Failure::Input("--ruleset: one ruleset is audited, or two are compared".into()));
    }
    let has_input = args.input.is_given();
    if has_input && args.ruleset.len() > 1 {
        return Err(Failure::Input(
            "a ruleset is compared with a second --ruleset or with the input, not with both".into(),
        ));
    }
    let mut reading = match args.ruleset.first() {
        Some(path) => listed(path)?,
        None => programmed()?,
    };
    let mut node = None;
    let (wanted, surroundings) = match args.ruleset.get(1) {
        Some(path) => (Some(listed(path)?.ports), None),
        None if has_input => {
            let planned = planned(&args.input)?;
            node = Some(planned.node);
            (Some(planned.ports), Some(planned.surroundings))
        }
        None => (None, None),
    };
    let surroundings = match surroundings {
        Some(surroundings) if !args.ruleset.is_empty() => surroundings,
        planned => Surroundings {
            own_endpoints: planned.map(|planned| planned.own_endpoints).unwrap_or_default(),
            ..around(args, &reading)?
        },
    };
    let wanted = wanted.map(|ports| in_layouts(&reading.layouts, &reading.ports, ports));
    let differences = wanted.as_ref().map(|wanted| compare(&reading.ports, wanted)).unwrap_or_default();
    let mut findings = findings(&reading, &surroundings);
    if let (Some(node), Some(ruleset)) = (&node, &reading.ruleset) {
        findings.extend(readers::svcmap::check_ranges(ruleset, node));
        if args.ruleset.is_empty() {
            findings.extend(readers::svcmap::check_against(ruleset, node));
        }
        findings.sort();
        findings.dedup();
    }
    let limits = limits(&reading);
    // most of what was read, and not needed any more
    reading.ruleset = None;
    Ok((Report { reading, differences, findings, limits }, wanted.is_some()))
}

fn listed(path: &Path) -> Result<Reading, Failure> {
    readers::read_whole(read_text(path)?).map_err(|error| Failure::Input(format!("{}: {error}", display(path))))
}

fn programmed() -> Result<Reading, Failure> {
    let mut connection = Connection::open(CodecKind::default()).map_err(Failure::Connect)?;
    let ruleset = Ruleset::read(&mut connection)
        .map_err(|error| Failure::Input(format!("the kernel's rules cannot be read: {error}")))?;
    Ok(live::read(ruleset))
}

/// What the input wants of the node.
struct Planned {
    node: NodePlan,
    ports: BTreeMap<PortId, Port>,
    surroundings: Surroundings,
}

fn planned(input: &InputArgs) -> Result<Planned, Failure> {
    let wanted = input.plan()?;
    let ports = wanted.ports.iter().map(|port| (port.id.clone(), Port::of_plan(&wanted.node, port))).collect();
    let mut surroundings = Surroundings::of_plan(&wanted.node, &wanted.tracker.node_addresses());
    let endpoints = wanted.ports.iter().flat_map(|port| port.cluster.iter().chain(&port.local));
    surroundings.own_endpoints = endpoints.filter(|endpoint| endpoint.local).map(|endpoint| endpoint.ip).collect();
    Ok(Planned { node: wanted.node, ports, surroundings })
}

/// The node of this network namespace, or for a listing one that has the addresses that the flags give.
fn around(args: &Args, reading: &Reading) -> Result<Surroundings, Failure> {
    let mut pods = args.input.proxy.cluster_cidr.clone();
    if let Some(ruleset) = &reading.ruleset {
        pods.extend(ruleset.prefixes(TABLE, &Map::PodCidrs.name()));
    }
    let mut surroundings = if args.ruleset.is_empty() {
        Surroundings::of_namespace(pods)
            .map_err(|error| Failure::Input(format!("interfaces and routes cannot be read: {error}")))?
    } else {
        let addresses = configuration(&args.input.proxy, Some(Mode::Nftables))?.proxy.node_ips;
        Surroundings { pods, ..Surroundings::with_addresses(&addresses) }
    };
    if let Some(ruleset) = &reading.ruleset {
        surroundings.learn(ruleset);
    }
    Ok(surroundings)
}
