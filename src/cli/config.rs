//! `svcmap config`: the effective configuration.

use std::process::ExitCode;

use super::mode::Programmed;
use super::output::{Failure, print, warn};
use crate::config::{ProxyFlags, effective_in};

/// Arguments of `config`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    mode: Programmed,
    #[command(flatten)]
    proxy: ProxyFlags,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let effective = effective_in(&args.proxy, args.mode.mode).map_err(|error| Failure::Input(error.to_string()))?;
    effective.warnings.iter().for_each(warn);
    print(effective.configuration.to_yaml())?;
    Ok(ExitCode::SUCCESS)
}
