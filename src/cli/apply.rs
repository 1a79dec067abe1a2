//! `svcmap apply`: programs the current network namespace once.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::input::InputArgs;
use super::mode::{Programmed, open};
use super::output::{Failure, Format, print, print_json, warn};
use crate::amounts::{counted, seconds};
use crate::config::Mode;
use crate::conntrack;
use crate::dataplane::Dataplane;
use crate::leftovers;
use crate::netlink::CodecKind;
use crate::nftables::program::{Applied, SyncError};
use crate::plan::PortPlan;
use crate::source::LeftAlone;
use crate::sync::route_loopback;
use crate::tracker::Tracker;

/// Arguments of `apply`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// How to print the summary
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// What writes the netlink messages: native, or libnftnl where it was built in
    #[arg(long, value_name = "CODEC", default_value_t)]
    codec: CodecKind,
    #[command(flatten)]
    mode: Programmed,
}

/// What `-o json` prints.
#[derive(serde::Serialize)]
struct Summary {
    services: usize,
    frontends: usize,
    endpoints: usize,
    elements_added: usize,
    elements_deleted: usize,
    transactions: usize,
    messages: usize,
    bytes: usize,
    encode_seconds: f64,
    commit_seconds: f64,
    longest_commit_seconds: f64,
    conntrack_deleted: usize,
}

/// How often a transaction that the kernel refused is made again, of what it holds by then.
const OTHERS: usize = 3;

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    leaves_what_serves(args.mode.mode)?;
    let mut wanted = args.input.plan_in(args.mode.mode)?;
    leaves_what_serves(Some(wanted.mode))?;
    let (frontends, endpoints) = extent(&wanted.ports);
    let mut programmer = open(wanted.mode, args.codec, &wanted.configuration)?;
    programmer.set_rest(wanted.rest);
    let mut applied = programmer.replace(wanted.node, wanted.ports);
    for _ in 0..OTHERS {
        if !matches!(applied, Err(SyncError::Commit { .. })) {
            break;
        }
        // somebody else may have come between reading and committing, such as another `apply`
        let (node, ports) = wanted.tracker.whole().unwrap_or_default();
        applied = programmer.replace(node, ports);
    }
    let mut applied = applied?;
    warn_of_other_modes(wanted.mode);
    match programmer.collect() {
        Ok(collected) => applied += collected,
        Err(error) => warn(format_args!("chains that nothing uses any more stay for now: {error}")),
    }
    if programmer.serves_loopback()
        && let Err(error) = route_loopback()
    {
        warn(error);
    }
    let conntrack_deleted = clean_up(&mut wanted.tracker, programmer.as_mut());
    let summary = Summary {
        services: wanted.counts.proxied,
        frontends,
        endpoints,
        elements_added: applied.added,
        elements_deleted: applied.deleted,
        transactions: applied.transactions,
        messages: applied.messages,
        bytes: applied.bytes,
        encode_seconds: applied.encode.as_secs_f64(),
        commit_seconds: applied.kernel.as_secs_f64(),
        longest_commit_seconds: applied.longest.as_secs_f64(),
        conntrack_deleted,
    };
    match args.output {
        Format::Text => {
            print(text(&summary, &applied, wanted.left_alone))?;
            if conntrack_deleted > 0 {
                print(format_args!("conntrack: {} deleted\n", counted(conntrack_deleted, "stale UDP flow")))?;
            }
        }
        Format::Json => print_json(&summary)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Rules of two modes side by side would both translate.
fn warn_of_other_modes(mode: Mode) {
    // where nf_tables cannot be asked, there are no such tables either, but for those of iptables-legacy
    for table in leftovers::of_other_modes(mode).unwrap_or_default() {
        warn(format_args!(
            "{table} serves Services, too, for another mode or for kube-proxy: svcmap cleanup, with --mode or --kube-proxy, removes \
             such rules"
        ));
    }
}

/// Refuses the mode that serves by a process.
fn leaves_what_serves(mode: Option<Mode>) -> Result<(), Failure> {
    if mode != Some(Mode::Userspace) {
        return Ok(());
    }
    let why = "mode userspace: connections go through a process, and apply leaves none behind; that is what run is for";
    Err(Failure::Input(why.into()))
}

/// Deletes the flows that have no endpoint any more (behaviour row H1), and says how many. What is programmed is in
/// force also where that fails (row H8).
fn clean_up(tracker: &mut Tracker, programmer: &mut dyn Dataplane) -> usize {
    let criteria = match conntrack::due(tracker, programmer.take_found()) {
        Ok(criteria) => criteria,
        Err(error) => {
            warn(format_args!("stale UDP flows were not looked for: the node's addresses cannot be read: {error}"));
            return 0;
        }
    };
    match conntrack::clean(&criteria) {
        Ok(swept) => {
            if let Some((count, errno)) = swept.refused {
                let error = std::io::Error::from_raw_os_error(errno);
                warn(format_args!("{} cannot be deleted: {error}", counted(count, "stale UDP flow")));
            }
            swept.deleted
        }
        Err(error) => {
            warn(format_args!("stale UDP flows were not looked for: {error}"));
            0
        }
    }
}

/// How many frontends there are, and how many different endpoints each Service port has, added up.
fn extent(ports: &[PortPlan]) -> (usize, usize) {
    let frontends = ports.iter().map(|port| port.frontends.len()).sum();
    let endpoints = ports.iter().map(|port| port.cluster.len().max(port.local.len())).sum();
    (frontends, endpoints)
}

fn text(summary: &Summary, applied: &Applied, left_alone: LeftAlone) -> String {
    let Summary { services, frontends, endpoints, .. } = summary;
    let mut text = format!(
        "{}, {}, {}\n",
        counted(*services, "service"),
        counted(*frontends, "frontend"),
        counted(*endpoints, "endpoint")
    );
    if left_alone != LeftAlone::default() {
        let _ = writeln!(text, "left alone: {left_alone}");
    }
    if applied.bytes == 0 {
        return text + "the kernel holds all of it already: nothing sent\n";
    }
    let _ = writeln!(
        text,
        "elements +{} -{} in {} of {} bytes: encoded in {}, committed in {}{}",
        applied.added,
        applied.deleted,
        counted(applied.transactions, "transaction"),
        applied.bytes,
        seconds(applied.encode.as_secs_f64(), 2),
        seconds(applied.kernel.as_secs_f64(), 2),
        if applied.transactions > 1 {
            format!(", the longest {}", seconds(applied.longest.as_secs_f64(), 2))
        } else {
            String::new()
        },
    );
    text
}
