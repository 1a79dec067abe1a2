//! The same Services in several forms of rules, side by side: what it takes to load, to keep and to change them, what new
//! connections and packets cost, and whether connections fare the same.

mod backend;
mod behaviour;
mod iptables;
mod known;
mod measure;
mod nftables;
mod plot;
mod programmed;
mod samples;

use std::collections::BTreeMap;

use crate::lab::Spent;

pub use behaviour::{Client, Observation, observe};
pub use known::Known;
pub use measure::{measure, open};
pub use plot::plot;

/// A form of the rules, and what loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Maps of nftables, by svcmap's own netlink messages.
    Nftables,
    /// kube-proxy's iptables layout, by whatever `iptables-restore` is here.
    Iptables,
    /// The same by `iptables-nft-restore`: rules of nf_tables.
    IptablesNft,
    /// The same by `iptables-legacy-restore`: rules of ip_tables, which not every kernel has any more.
    IptablesLegacy,
    /// Virtual servers of IPVS, as kube-proxy's mode of that name has them.
    Ipvs,
    /// A process that accepts each connection and opens another one to an endpoint.
    Userspace,
}

impl Mode {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Nftables => "nftables",
            Mode::Iptables => "iptables",
            Mode::IptablesNft => "iptables-nft",
            Mode::IptablesLegacy => "iptables-legacy",
            Mode::Ipvs => "ipvs",
            Mode::Userspace => "userspace",
        }
    }
}

/// What was measured of a mode with one plan.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// How many Services the plan has.
    pub services: usize,
    /// How many endpoints all of their ports have together.
    pub endpoints: usize,
    /// The mode.
    pub mode: Mode,
    /// What loads it.
    pub loader: String,
    /// How many elements of maps and sets, or rules, or whatever else the Services became.
    pub objects: usize,
    /// The same and what is beside them, by kind.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Bytes of the transactions, or of the text.
    pub bytes: usize,
    /// Bytes that the kernel uses more than before; less than about a MiB is lost in what else uses memory.
    pub kernel_memory: i64,
    /// Everything into an empty network namespace.
    pub load: Spent,
    /// One Service more, the median of several.
    pub add_service: Option<Spent>,
    /// One Service less.
    pub remove_service: Option<Spent>,
    /// One endpoint in the place of another; none where there is no endpoint.
    pub replace_endpoint: Option<Spent>,
    /// The same with all that is done before anything is sent: what the control plane uses for a change.
    pub control_plane: Option<Spent>,
    /// A new connection; none where no IPv4 Service has a ClusterIP and endpoints.
    pub connection: Option<PerTarget>,
    /// A packet on a connection that was answered before.
    pub packet: Option<PerTarget>,
}

/// Seconds of processor time by where to, with all rules loaded.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct PerTarget {
    /// To an endpoint, past all Services.
    pub direct: f64,
    /// Through the first Service, in the order of names.
    pub first: f64,
    /// Through the one in the middle.
    pub middle: f64,
    /// Through the last.
    pub last: f64,
}
