//! `svcmap diff`: what the input wants and what the kernel holds.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::input::InputArgs;
use super::output::{Failure, Format, answered, print, print_json};
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
    let wanted = args.input.plan()?;
    let mut programmer = Programmer::open(CodecKind::default()).map_err(|e| as_error(Failure::Connect(e)))?;
    programmer.set_rest(wanted.rest);
    let preview = programmer.preview(wanted.node, wanted.ports).map_err(|e| as_error(e.into()))?;
    let differences = differences::of(&preview, programmer.state());
    let printed = match args.output {
        Format::Text => print(text(&differences)),
        Format::Json => print_json(&differences),
    };
    answered(printed, !differences.is_empty())
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
