//! How commands end, and in which form they print.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::nftables::program::SyncError;
use crate::shown::Clean;

/// `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Why a command failed; each has an exit status of its own.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The input or the arguments cannot be used; nothing was changed. Status 2.
    #[error("{0}")]
    Input(String),
    /// The daemon cannot begin. Status 1.
    #[error("{0}")]
    Fatal(String),
    /// The kernel refused, or could not be asked. Status 1.
    #[error("{0}")]
    Kernel(#[from] SyncError),
    /// No connection to the kernel. Status 1.
    #[error("nf_tables cannot be reached: {0} (CAP_NET_ADMIN over the network namespace is needed)")]
    Connect(io::Error),
    /// Namespaces of our own cannot be made, or the demonstration's rules not be programmed. Status 1.
    #[error("{0:#}")]
    Demo(anyhow::Error),
    /// Standard output is gone. Status 1; of a command whose answer 1 is, see [`answered`].
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Fatal(_) | Failure::Kernel(_) | Failure::Connect(_) | Failure::Output(_) | Failure::Demo(_) => 1,
        }
    }
}

/// Prints a failure, and ends with its exit status or the command's own. Whoever closes standard output, as `head`
/// does, has read enough and needs no message.
pub fn finish(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        if !matches!(&failure, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            complain(format_args!("error: {failure}"));
        }
        failure.status().into()
    })
}

/// Prints a result, a line or several. What others wrote and is not seen is replaced.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{}", Clean(text))?;
    out.flush()
}

/// Prints a result as one line of JSON.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    out.flush()
}

/// Ends a command whose status is an answer: 1 where there is something to look at, and 2 where the answer could not be
/// printed. Whoever closed standard output has read enough of it.
///
/// # Errors
/// Standard output cannot be written to.
pub fn answered(printed: io::Result<()>, anything: bool) -> Result<ExitCode, Failure> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Input(Failure::Output(error).to_string()))
        }
        _ => Ok(u8::from(anything).into()),
    }
}

/// Prints a problem that does not stop the rest.
pub fn warn(message: impl Display) {
    complain(format_args!("warning: {message}"));
}

/// Writes a line to standard error. Where nobody takes it, the command does its work all the same.
fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", Clean(line));
}
