//! `svcmap cleanup`: removes svcmap's tables, or what kube-proxy left, and nothing else.

use std::process::ExitCode;

use super::output::{Failure, print, warn};
use crate::config::Mode;
use crate::leftovers::{self, Report};
use crate::netlink::CodecKind;
use crate::nftables::names::TABLE;
use crate::nftables::program::Programmer;
use crate::nftables::rule::ip_word;

/// Arguments of `cleanup`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remove what kube-proxy made in any of its modes, instead of what svcmap made
    #[arg(long)]
    kube_proxy: bool,
    /// Which mode's rules are removed. Those of iptables and ipvs have the names that kube-proxy gives: they go together with
    /// whatever it left
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.kube_proxy || args.mode != Mode::Nftables { remove_leftovers() } else { remove_own() }
}

/// Removes svcmap's tables, and what kube-proxy left, as `kube-proxy --cleanup` does with what is its own.
///
/// # Errors
/// The kernel refused, or could not be asked.
pub fn remove_all() -> Result<ExitCode, Failure> {
    remove_own()?;
    remove_leftovers()
}

fn remove_own() -> Result<ExitCode, Failure> {
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

/// Status 1 where something could not be removed, or not be looked at.
fn remove_leftovers() -> Result<ExitCode, Failure> {
    let Report { removed, troubles } = leftovers::remove();
    for what in &removed {
        print(format_args!("removed {what}\n"))?;
    }
    troubles.iter().for_each(warn);
    if removed.is_empty() && troubles.is_empty() {
        print("there is nothing of kube-proxy's: nothing removed\n")?;
    }
    Ok(if troubles.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
