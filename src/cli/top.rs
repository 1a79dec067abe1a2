//! `svcmap top`: what the Services are doing.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use super::output::{Failure, Format, print, print_json, warn};
use crate::config::GoDuration;
use crate::netlink::{CodecKind, Connection};
use crate::nftables::program::SyncError;
use crate::top::screen::{self, ScreenError};
use crate::top::table::text;
use crate::top::{Reader, Sort, Table};

/// Arguments of `top`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print one table and end; connections per second are those of one interval
    #[arg(long)]
    once: bool,
    /// The time between two readings; with --once, 0s prints the totals at once
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: GoDuration,
    /// What the table is sorted by
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// How to print the table of --once
    #[arg(short, long, value_enum, default_value_t, requires = "once")]
    output: Format,
}

/// Live, with less than this between readings nothing else would get the processor.
const SHORTEST: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if !args.once && !std::io::stdout().is_terminal() {
        return Err(Failure::Input("standard output is not a terminal: --once prints one table".into()));
    }
    let connection = Connection::open(CodecKind::default()).map_err(Failure::Connect)?;
    let mut reader = Reader::new(connection);
    if args.once {
        return once(args, &mut reader);
    }
    screen::run(&mut reader, args.interval.0.max(SHORTEST), args.sort).map_err(|error| match error {
        ScreenError::Read(error) => Failure::Kernel(SyncError::Read(error)),
        ScreenError::Terminal(error) => Failure::Output(error),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn once(args: &Args, reader: &mut Reader) -> Result<ExitCode, Failure> {
    let mut read = || reader.read().map_err(|error| Failure::Kernel(SyncError::Read(error)));
    let (mut earlier, mut now) = (None, read()?);
    if !args.interval.is_zero() {
        std::thread::sleep(args.interval.0);
        earlier = Some(std::mem::replace(&mut now, read()?));
    }
    let table = Table::new(&now, earlier.as_ref(), args.sort);
    if let Some(note) = table.note() {
        warn(note);
    }
    match args.output {
        Format::Text => print(text(&table))?,
        Format::Json => print_json(&table)?,
    }
    Ok(ExitCode::SUCCESS)
}
