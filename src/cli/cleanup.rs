//! `svcmap cleanup`: removes svcmap's tables, and nothing else.

use std::process::ExitCode;

use super::output::{Failure, print};
use crate::netlink::CodecKind;
use crate::nftables::names::TABLE;
use crate::nftables::program::Programmer;
use crate::nftables::rule::ip_word;

/// Arguments of `cleanup`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command.
pub fn run(_: &Args) -> Result<ExitCode, Failure> {
    let mut programmer = Programmer::open(CodecKind::default()).map_err(Failure::Connect)?;
    let removed = programmer.cleanup()?;
    for family in &removed {
        print(format_args!("removed table {} {TABLE}\n", ip_word(*family)))?;
    }
    if removed.is_empty() {
        print(format_args!("there is no table {TABLE}: nothing removed\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
