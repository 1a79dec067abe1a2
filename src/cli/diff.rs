//! `svcmap diff`: what the input wants and what the kernel holds.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use super::input::InputArgs;
use super::output::{Failure, Format, print, print_json};
use crate::netlink::CodecKind;
use crate::nftables::differences::{self, Difference};
use crate::nftables::program::Programmer;

/// Arguments of `diff`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// How to print the differences
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Runs the command. Every failure has status 2 here, since 1 means that there are differences.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let as_error = |failure: Failure| Failure::Input(failure.to_string());
    let output = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Output(error), // there was a difference to print
        _ => as_error(Failure::Output(error)),
    };
    let wanted = args.input.plan()?;
    let mut programmer = Programmer::open(CodecKind::default()).map_err(|e| as_error(Failure::Connect(e)))?;
    programmer.set_rest(wanted.rest);
    let preview = programmer.preview(wanted.node, wanted.ports).map_err(|e| as_error(e.into()))?;
    let differences = differences::of(&preview, programmer.state());
    match args.output {
        Format::Text => print(text(&differences)),
        Format::Json => print_json(&differences),
    }
    .map_err(output)?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { 1.into() })
}

fn text(differences: &[Difference]) -> String {
    let (mut text, mut group) = (String::new(), None);
    for difference in differences {
        if group != Some(&difference.service) {
            let _ = writeln!(text, "{}:", difference.service.as_deref().unwrap_or("(no Service)"));
            group = Some(&difference.service);
        }
        let _ = writeln!(text, "  {} {} {}", difference.sign, difference.family, difference.what);
    }
    text
}
