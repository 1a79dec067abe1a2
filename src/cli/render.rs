//! `svcmap render`: the ruleset as text.

use std::io::Write;
use std::process::ExitCode;

use super::input::InputArgs;
use super::output::{Failure, print, warn};
use crate::config::Mode;
use crate::iptables::ruleset;
use crate::ipvs::text::Part;
use crate::ipvs::{self, Settings};
use crate::nftables::state::State;
use crate::nftables::text;
use crate::plan::{Plan, PlanChange};
use crate::userspace;

/// Arguments of `render`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// The form of the rules: an nft script; or in kube-proxy's layout, text for iptables-restore, or for ipvsadm, ipset and
    /// others; or what is listened on in user space, and the nft script that leads there (default: the configuration's mode, and
    /// nftables where it says none)
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Of the mode ipvs one part alone, as the program reads it that loads it
    #[arg(long, value_enum)]
    part: Option<Part>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let wanted = args.input.plan_in(args.mode)?;
    if args.part.is_some() && wanted.mode != Mode::Ipvs {
        return Err(Failure::Input("--part: only the mode ipvs is in parts".into()));
    }
    match wanted.mode {
        Mode::Nftables => {
            let mut state = State::default();
            state.advance(PlanChange { node: Some(wanted.node), changed: wanted.ports, removed: Vec::new() });
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            text::write(&state, &mut out)?;
            out.flush()?;
        }
        Mode::Iptables => print(ruleset::render(wanted.node, wanted.ports))?,
        Mode::Ipvs => {
            let settings = Settings::of(&wanted.configuration.ipvs).map_err(Failure::Input)?;
            print(ipvs::text::render(&Plan::new(wanted.node, wanted.ports), &settings, args.part))?;
        }
        Mode::Userspace => {
            let range = userspace::range::parse(&wanted.configuration.port_range).map_err(Failure::Input)?;
            wanted.ports.iter().filter_map(userspace::refusal).for_each(warn);
            print(userspace::render::render(&Plan::new(wanted.node, wanted.ports), range.map(|range| *range.start())))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
