//! In which form the plan becomes rules.

/// The forms. What chooses among them is `--mode`: the field `mode` only says what a configuration was written for, so that one
/// of kube-proxy's iptables or ipvs mode goes on working when svcmap takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Maps of nftables.
    #[default]
    Nftables,
    /// Chains of iptables, as kube-proxy's mode of that name makes them.
    Iptables,
    /// Virtual servers of IPVS with sets and chains beside them, as kube-proxy's mode of that name makes them.
    Ipvs,
    /// A process that accepts each connection and opens another one to an endpoint: for comparison, and for curiosity.
    Userspace,
}

impl Mode {
    /// Its name, which is that of kube-proxy's mode and of the configuration's group.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Nftables => "nftables",
            Mode::Iptables => "iptables",
            Mode::Ipvs => "ipvs",
            Mode::Userspace => "userspace",
        }
    }
}
