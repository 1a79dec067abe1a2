//! The command line: one file per subcommand.
//!
//! Exit statuses are a promise to scripts: 0 when all went well, 1 when the kernel refused or a difference was found,
//! 2 for bad input, 3 where this machine cannot run a part of what was asked for.

mod apply;
mod audit;
mod cleanup;
mod compare;
mod config;
mod demo;
mod diff;
mod explain;
mod generate;
mod input;
mod mode;
mod output;
mod reload;
mod render;
mod run;
mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use output::{Failure, print};

/// Kubernetes Services as nftables maps.
// of a flag that is given twice the latter counts, as for kube-proxy
#[derive(Parser, Debug)]
#[command(
    name = "svcmap",
    version,
    about,
    propagate_version = true,
    disable_help_subcommand = true,
    args_override_self = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Keep the current network namespace in step with the input until told to stop
    Run(run::Args),
    /// Program the current network namespace once, and leave
    Apply(apply::Args),
    /// Print the rules as text, for nft or iptables-restore; changes nothing and needs no privilege
    Render(render::Args),
    /// Compare what the input wants with what the kernel holds
    Diff(diff::Args),
    /// Read a ruleset in terms of Services, say what is wrong with it and where it differs from what is wanted
    Audit(audit::Args),
    /// Follow one new connection through the rules, step by step
    Explain(explain::Args),
    /// Show new connections and endpoints of every Service, live
    Top(top::Args),
    /// Remove what svcmap made, and nothing else
    Cleanup(cleanup::Args),
    /// Print a synthetic cluster as manifests
    Generate(generate::Args),
    /// Build a small cluster in network namespaces and make requests to its Services; needs no privilege
    Demo(demo::Args),
    /// Measure the same Services in several modes, each in a network namespace of its own; needs no privilege
    Compare(compare::Args),
    /// Print the effective configuration
    Config(config::Args),
    /// Print the version
    Version,
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    match Cli::parse_from(without_empty(std::env::args_os().map(with_hyphens))).command {
        Command::Run(args) => output::finish(run::run(&args)),
        Command::Apply(args) => output::finish(apply::run(&args)),
        Command::Render(args) => output::finish(render::run(&args)),
        Command::Diff(args) => output::finish(diff::run(&args)),
        Command::Audit(args) => output::finish(audit::run(&args)),
        Command::Explain(args) => output::finish(explain::run(&args)),
        Command::Top(args) => output::finish(top::run(&args)),
        Command::Cleanup(args) => output::finish(cleanup::run(&args)),
        Command::Generate(args) => output::finish(generate::run(&args)),
        Command::Demo(args) => output::finish(demo::run(&args)),
        Command::Compare(args) => output::finish(compare::run(&args)),
        Command::Config(args) => output::finish(config::run(&args)),
        Command::Version => output::finish(show(concat!("svcmap ", env!("CARGO_PKG_VERSION"), "\n"))),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "svcmap", &mut script);
            output::finish(show(&String::from_utf8_lossy(&script)))
        }
    }
}

/// A flag's name may have underscores for hyphens, as kube-proxy's may.
fn with_hyphens(argument: OsString) -> OsString {
    match argument.to_str().and_then(|text| text.strip_prefix("--")) {
        Some(flag) => {
            let (name, value) = flag.split_at(flag.find('=').unwrap_or(flag.len()));
            format!("--{}{value}", name.replace('_', "-")).into()
        }
        None => argument,
    }
}

/// The flags that an empty value says nothing to, as for kube-proxy.
const EMPTY_IS_ABSENT: [&str; 5] = ["--config", "--kubeconfig", "--master", "--cluster-cidr", "--detect-local-mode"];

/// Leaves out the flags that are given empty. Of one that is given before as well, the latter counts, as everywhere.
fn without_empty(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept: Vec<OsString> = Vec::new();
    let flag_of = |argument: &OsString| EMPTY_IS_ABSENT.into_iter().find(|flag| argument == flag);
    for argument in arguments {
        let with_value = argument.to_str().and_then(|text| text.strip_suffix('='));
        let flag = match kept.last().and_then(flag_of) {
            Some(flag) if argument.is_empty() => Some(flag),
            _ => with_value.and_then(|name| EMPTY_IS_ABSENT.into_iter().find(|flag| *flag == name)),
        };
        match flag {
            Some(flag) => forget(&mut kept, flag),
            None => kept.push(argument),
        }
    }
    kept
}

/// Takes a flag away, with its value.
fn forget(arguments: &mut Vec<OsString>, flag: &str) {
    let mut is_value = false;
    arguments.retain(|argument| {
        let is_flag = argument == flag;
        let in_one =
            argument.to_str().and_then(|text| text.strip_prefix(flag)).is_some_and(|rest| rest.starts_with('='));
        let goes = std::mem::replace(&mut is_value, is_flag) || is_flag || in_one;
        !goes
    });
}

fn show(text: &str) -> Result<ExitCode, Failure> {
    print(text)?;
    Ok(ExitCode::SUCCESS)
}
