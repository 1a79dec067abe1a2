//! `svcmap cleanup`: removes svcmap's tables, or what kube-proxy left, and nothing else.

use std::process::ExitCode;

use super::output::{Failure, print, warn};
use crate::config::Mode;
use crate::leftovers::{self, Report};
use crate::netlink::CodecKind;
use crate::nftables::names::TABLE;
use crate::nftables::program::Programmer;
use crate::nftables::rule::ip_word;
use crate::userspace;

/// Arguments of `cleanup`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remove what kube-proxy made in any of its modes, instead of what svcmap made
    #[arg(long)]
    kube_proxy: bool,
    /// Which mode's rules alone are removed (default: svcmap's own tables, those of nftables and userspace). Those of iptables
    /// and ipvs have the names that kube-proxy gives: they go together with whatever it left
    #[arg(long, value_enum)]
    mode: Option<Mode>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    match args.mode {
        _ if args.kube_proxy => remove_leftovers(),
        None => remove_own(&[Mode::Nftables, Mode::Userspace]),
        Some(mode @ (Mode::Nftables | Mode::Userspace)) => remove_own(&[mode]),
        Some(Mode::Iptables | Mode::Ipvs) => remove_leftovers(),
    }
}

/// Removes svcmap's tables, and what kube-proxy left, as `kube-proxy --cleanup` does with what is its own.
///
/// # Errors
/// The kernel refused, or could not be asked.
pub fn remove_all() -> Result<ExitCode, Failure> {
    remove_own(&[Mode::Nftables, Mode::Userspace])?;
    remove_leftovers()
}

fn remove_own(modes: &[Mode]) -> Result<ExitCode, Failure> {
    let removed = remove_tables(modes)?;
    for table in &removed {
        print(format_args!("removed {table}\n"))?;
    }
    if removed.is_empty() {
        print("there is no table of svcmap's: nothing removed\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes svcmap's tables of these modes, as far as they have tables of their own, and names them.
///
/// # Errors
/// The kernel refused, or could not be asked.
pub fn remove_tables(modes: &[Mode]) -> Result<Vec<String>, Failure> {
    let mut removed = Vec::new();
    if modes.contains(&Mode::Nftables) {
        let mut programmer = Programmer::open(CodecKind::default()).map_err(Failure::Connect)?;
        removed.extend(programmer.cleanup()?.into_iter().map(|family| (family, TABLE)));
    }
    if modes.contains(&Mode::Userspace) {
        removed.extend(userspace::program::cleanup()?.into_iter().map(|family| (family, userspace::table::TABLE)));
    }
    Ok(removed.into_iter().map(|(family, table)| format!("table {} {table}", ip_word(family))).collect())
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
