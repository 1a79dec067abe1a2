//! `svcmap render`: the ruleset as text.

use std::io::Write;
use std::process::ExitCode;

use super::input::InputArgs;
use super::mode::Mode;
use super::output::{Failure, print};
use crate::iptables::ruleset;
use crate::nftables::state::State;
use crate::nftables::text;
use crate::plan::PlanChange;

/// Arguments of `render`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// The form of the rules: an nft script, or text for iptables-restore in kube-proxy's layout
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let wanted = args.input.plan()?;
    if args.mode == Mode::Iptables {
        print(ruleset::render(wanted.node, wanted.ports))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut state = State::default();
    state.advance(PlanChange { node: Some(wanted.node), changed: wanted.ports, removed: Vec::new() });
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    text::write(&state, &mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
