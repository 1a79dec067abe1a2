//! The same Services in several forms of rules, side by side: what it takes to load and to change them, what a new
//! connection costs, and whether connections fare the same.

mod backend;
mod behaviour;
mod iptables;
mod ipvs;
mod known;
mod measure;
mod nftables;
mod samples;
mod userspace;

use crate::lab::Spent;

pub use behaviour::{Client, Observation, observe};
pub use measure::{measure, open};

/// A form of the rules, and what loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
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

/// What was measured of a mode.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The mode.
    pub mode: Mode,
    /// What loads it.
    pub loader: String,
    /// How many elements of maps and sets, or rules, the Services became.
    pub objects: usize,
    /// Bytes of the transactions, or of the text.
    pub bytes: usize,
    /// Everything into an empty network namespace.
    pub load: Spent,
    /// One Service more, the median of several.
    pub add_service: Option<Spent>,
    /// One Service less.
    pub remove_service: Option<Spent>,
    /// One endpoint in the place of another; none where there is no endpoint.
    pub replace_endpoint: Option<Spent>,
    /// A new connection; none where no IPv4 Service has a ClusterIP and endpoints.
    pub connection: Option<Connection>,
}

/// Seconds of processor time that a new connection takes, with all rules loaded.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Connection {
    /// To an endpoint, past all Services.
    pub direct: f64,
    /// Through the first Service, in the order of names.
    pub first: f64,
    /// Through the one in the middle.
    pub middle: f64,
    /// Through the last.
    pub last: f64,
}
