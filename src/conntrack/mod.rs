//! Connection tracking: flows that outlive the way they were sent (behaviour section H).
//!
//! A UDP client that keeps its port is sent where its first packet went for as long as it sends (row C16): to an endpoint that
//! is gone, or nowhere, where there was no Service yet. So after every committed change the flows that have no business
//! where they go are deleted, and the next packet of each is sent anew. TCP and SCTP notice by themselves, and are
//! never touched (row H7).
//!
//! [`Criteria`] says which flows are stale, [`sweep`] deletes them, and a [`Cleaner`] does so behind the back of the
//! loop that programs.

mod cleaner;
mod stale;

use std::io;
use std::time::Duration;

pub use cleaner::Cleaner;
pub use stale::Criteria;

use crate::config::host;
use crate::netlink::ReadError;
use crate::netlink::conntrack::{Conntrack, Flow, Selection, Swept};
use crate::plan::Claim;
use crate::tracker::Tracker;

/// How long packets are given that met the rules of before a commit: their flow appears in connection tracking when
/// they leave the node.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// What is to be checked after a commit: the flows to what the tracker has [unsettled](Tracker::unsettled), and to the
/// frontends that the kernel was found to `hold` beside. What is returned counts as settled.
///
/// # Errors
/// When the node's addresses cannot be read. Everything stays unsettled.
pub fn due(tracker: &mut Tracker, hold: impl IntoIterator<Item = Claim>) -> io::Result<Criteria> {
    tracker.unsettle(hold);
    let has_node_ports = tracker.unsettled().iter().any(|claim| claim.ip().is_none());
    let own = if has_node_ports { host::all_addresses()? } else { Vec::new() };
    Ok(Criteria::new(tracker.settle(&own), own))
}

/// Deletes the stale ones among the selected flows.
///
/// # Errors
/// See [`Conntrack::delete_udp`].
pub fn sweep(
    conntrack: &mut Conntrack,
    selections: &[Selection],
    mut is_stale: impl FnMut(&Flow) -> bool,
) -> Result<Swept, ReadError> {
    let mut swept = Swept::default();
    for selection in selections {
        swept += conntrack.delete_udp(*selection, &mut is_stale)?;
    }
    Ok(swept)
}

/// Deletes all stale flows of the current network namespace, here and now, after a commit. Without criteria nothing is
/// asked of the kernel.
///
/// # Errors
/// See [`Conntrack::delete_udp`].
pub fn clean(criteria: &Criteria) -> Result<Swept, ReadError> {
    if criteria.is_empty() {
        return Ok(Swept::default());
    }
    std::thread::sleep(UNDER_WAY);
    sweep(&mut Conntrack::open()?, &criteria.selections(), |flow| criteria.is_stale(flow))
}
