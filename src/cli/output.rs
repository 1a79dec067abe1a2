//! How commands end, and in which form they print.

use std::process::ExitCode;

use crate::nftables::program::SyncError;

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
    /// The kernel refused, or could not be asked. Status 1.
    #[error("{0}")]
    Kernel(#[from] SyncError),
    /// No connection to the kernel. Status 1.
    #[error("nf_tables cannot be reached: {0} (CAP_NET_ADMIN over the network namespace is needed)")]
    Connect(std::io::Error),
    /// The demonstration's namespaces cannot be made, or its rules not be programmed. Status 1.
    #[error("{0:#}")]
    Demo(anyhow::Error),
    /// Standard output is gone. Status 1.
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Kernel(_) | Failure::Connect(_) | Failure::Output(_) | Failure::Demo(_) => 1,
        }
    }
}

/// Prints a failure, and ends with its exit status or the command's own.
pub fn finish(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        eprintln!("error: {failure}");
        failure.status().into()
    })
}

/// Prints a problem that does not stop the rest.
pub fn warn(message: impl std::fmt::Display) {
    eprintln!("warning: {message}");
}
