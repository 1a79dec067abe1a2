//! Notices when somebody else changes svcmap's tables (row J6).

use std::fmt;
use std::io;
use std::thread;

use super::names::TABLE;
use super::rule::family_of;
use crate::netlink::model::NfFamily;
use crate::netlink::monitor::{Committed, Monitor, Told};

/// Somebody else's change of what is programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intrusion {
    /// A transaction with changes in svcmap's tables.
    Changed(Committed),
    /// More happened than could be followed: it may have been one, or none.
    Unknown,
}

impl fmt::Display for Intrusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Intrusion::Changed(Committed { port, process, tables }) = self else {
            return write!(f, "so many rules were changed that not all of it was noticed: looking at the tables");
        };
        match process {
            Some((name, number)) => write!(f, "{name} (process {number}) has changed")?,
            None => write!(f, "somebody (netlink port {port}) has changed")?,
        }
        let ours =
            tables.iter().filter(|table| is_ours(table)).map(|(family, name)| format!("{} {name}", family.name()));
        write!(f, " table {}", ours.collect::<Vec<_>>().join(" and table "))
    }
}

/// Starts a thread that tells of each change of svcmap's tables which did not come through the socket with this port.
///
/// # Errors
/// Those of listening.
pub fn start(own_port: u32, tell: impl Fn(Intrusion) + Send + 'static) -> io::Result<()> {
    let mut monitor = Monitor::open()?;
    thread::Builder::new().name("guard".into()).spawn(move || {
        loop {
            match monitor.wait() {
                Ok(Told::Lost) => tell(Intrusion::Unknown),
                Ok(Told::Committed(committed)) => {
                    if committed.port != own_port && committed.tables.iter().any(is_ours) {
                        tell(Intrusion::Changed(committed));
                    }
                }
                Err(error) => {
                    tracing::error!("changes by others are noticed only once in a sync period from now on: {error}");
                    return;
                }
            }
        }
    })?;
    Ok(())
}

fn is_ours((family, name): &(NfFamily, String)) -> bool {
    name == TABLE && family_of(*family).is_some()
}
