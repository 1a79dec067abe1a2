//! What kube-proxy leaves in the kernel, in whichever mode it ran, and how it is taken away (behaviour row J12).
//!
//! Only what bears a name that kube-proxy gives is touched, and of that only what nobody else refers to. The kernel is asked
//! itself where it can be: nf_tables, in which iptables-nft keeps its chains, too, and network interfaces. Three interfaces
//! belong to programs, which are run where the kernel says that there is something: iptables-legacy, ipvsadm and ipset.
//! Where one of them is not installed, what it would be needed for is said.

mod chains;
mod ipvs;
mod legacy;
mod nft;

pub use nft::of_other_modes;

/// What became of the leftovers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was removed, a line for each table, set or interface.
    pub removed: Vec<String>,
    /// What could not be removed, or not be looked at, and why.
    pub troubles: Vec<String>,
}

impl Report {
    /// Takes the outcome of one attempt in.
    fn note(&mut self, outcome: Result<Option<String>, String>) {
        match outcome {
            Ok(removed) => self.removed.extend(removed),
            Err(trouble) => self.troubles.push(trouble),
        }
    }
}

/// Removes the tables of kube-proxy's mode nftables alone: what it left in its other modes has the names of svcmap's own rules in
/// these.
pub fn remove_nftables() -> Report {
    let mut report = Report::default();
    nft::remove_own(&mut report);
    report
}

/// Removes all that kube-proxy left in the network namespace of the calling thread. What cannot be removed does not keep the
/// rest from it.
pub fn remove() -> Report {
    let mut report = Report::default();
    nft::remove(&mut report);
    legacy::remove(&mut report);
    // only now: rules refer to the sets
    ipvs::remove(&mut report);
    report
}
