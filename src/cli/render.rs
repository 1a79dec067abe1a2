//! `svcmap render`: the ruleset as a script.

use std::io::Write;
use std::process::ExitCode;

use super::input::InputArgs;
use super::output::Failure;
use crate::nftables::state::State;
use crate::nftables::text;
use crate::plan::PlanChange;

/// Arguments of `render`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let wanted = args.input.plan()?;
    let mut state = State::default();
    state.advance(PlanChange { node: Some(wanted.node), changed: wanted.ports, removed: Vec::new() });
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    text::write(&state, &mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
