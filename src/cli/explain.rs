//! `svcmap explain`: the way of one new connection.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use super::input::{InputArgs, configuration, read_text};
use super::output::{Failure, Format, answered, print, print_json, warn};
use crate::audit::live;
use crate::config::Mode;
use crate::explain::explanation::Question;
use crate::explain::{Surroundings, explain};
use crate::listing;
use crate::netlink::{CodecKind, Connection};
use crate::nftables::names::{Map, TABLE};
use crate::nftables::state::State;
use crate::objects::{FamilyOf, Protocol};
use crate::plan::PlanChange;
use crate::source::display;
use crate::trace::Ruleset;

/// Arguments of `explain`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Who connects
    #[arg(long, value_name = "IP")]
    from: IpAddr,
    /// To where, and over which protocol (tcp where none is named)
    #[arg(long, value_name = "IP:PORT[/PROTO]")]
    to: Destination,
    /// The interface that the connection comes in through (default: that of the route back to the client)
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Rules to follow in the place of the kernel's: what `nft list ruleset` or `nft -j list ruleset` printed, or - for
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "kubeconfig", "master"])]
    ruleset: Option<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    /// How to print the explanation
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `IP:PORT[/PROTO]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Destination {
    to: SocketAddr,
    protocol: Protocol,
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Destination, String> {
        let (address, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = protocol.to_ascii_lowercase();
        let protocol = Protocol::from_name(&protocol)
            .ok_or_else(|| format!("{protocol:?} is no protocol of Services: tcp, udp and sctp are"))?;
        let to = address
            .parse()
            .map_err(|_| format!("{address:?} is not an address and a port such as 10.96.0.1:443 or [fd00::1]:443"))?;
        Ok(Destination { to, protocol })
    }
}

/// Runs the command. Every failure has status 2.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let Destination { to, protocol } = args.to;
    if args.from.family() != to.ip().family() {
        return Err(Failure::Input(format!("--from {} and --to {to} are of different families", args.from)));
    }
    let (ruleset, surroundings) = rules(args).map_err(|failure| Failure::Input(failure.to_string()))?;
    let question = Question { from: args.from, to, protocol, interface: args.interface.clone() };
    let explanation = explain(&ruleset, &surroundings, &question);
    let is_kernels = !args.input.is_given() && args.ruleset.is_none();
    if let Some(beside) = is_kernels.then(live::legacy_rules).flatten() {
        warn(beside);
    }
    let printed = match args.output {
        Format::Text => print(&explanation),
        Format::Json => print_json(&explanation),
    };
    answered(printed, false)
}

/// The rules that are meant: those that would be made for the input, or else the kernel's.
fn rules(args: &Args) -> Result<(Ruleset, Surroundings), Failure> {
    let proxy = &args.input.proxy;
    if args.input.is_given() {
        return of_input(&args.input);
    }
    if let Some(path) = &args.ruleset {
        return of_listing(path, &args.input);
    }
    if !proxy.node_ip.is_empty() {
        warn(
            "--node-ip changes nothing here: the kernel that is asked for its rules tells the node's addresses as well",
        );
    }
    let mut connection = Connection::open(CodecKind::default()).map_err(Failure::Connect)?;
    let unreadable = |error| Failure::Input(format!("the kernel's rules cannot be read: {error}"));
    let ruleset = Ruleset::read(&mut connection).map_err(unreadable)?;
    let mut pods = proxy.cluster_cidr.clone();
    pods.extend(ruleset.prefixes(TABLE, &Map::PodCidrs.name()));
    let mut surroundings = Surroundings::of_namespace(pods)
        .map_err(|error| Failure::Input(format!("interfaces and routes cannot be read: {error}")))?;
    surroundings.learn(&ruleset);
    Ok((ruleset, surroundings))
}

fn of_listing(path: &Path, input: &InputArgs) -> Result<(Ruleset, Surroundings), Failure> {
    let listing = listing::read(&read_text(path)?).map_err(|error| {
        Failure::Input(format!("{}: {error} (what nft list ruleset prints is followed)", display(path)))
    })?;
    let mut surroundings =
        Surroundings::with_addresses(&configuration(&input.proxy, Some(Mode::Nftables))?.proxy.node_ips);
    surroundings.pods.extend(&input.proxy.cluster_cidr);
    surroundings.pods.extend(listing.ruleset.prefixes(TABLE, &Map::PodCidrs.name()));
    surroundings.learn(&listing.ruleset);
    Ok((listing.ruleset, surroundings))
}

fn of_input(input: &InputArgs) -> Result<(Ruleset, Surroundings), Failure> {
    let wanted = input.plan()?;
    let surroundings = Surroundings::of_plan(&wanted.node, &wanted.tracker.node_addresses());
    let mut state = State::default();
    let change = PlanChange { node: Some(wanted.node), changed: wanted.ports, removed: Vec::new() };
    let mut ruleset = Ruleset::default();
    ruleset.apply(&state.advance(change).ops).map_err(|error| Failure::Input(error.to_string()))?;
    Ok((ruleset, surroundings))
}
