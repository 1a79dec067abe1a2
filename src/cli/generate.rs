//! `svcmap generate`: a synthetic cluster as manifests.

use std::io::Write;
use std::process::ExitCode;

use super::output::Failure;
use crate::source::generate::{Options, generate};
use crate::source::{Format, write};

/// Arguments of `generate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    cluster: Options,
    /// The form of the manifests
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let snapshot = generate(&args.cluster).map_err(|error| Failure::Input(error.to_string()))?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    write(&snapshot, args.output, &mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
