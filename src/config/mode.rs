//! In which form the plan becomes rules.

/// The forms. `--mode` chooses among them, and where it is not given the field `mode` of the configuration.
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

    /// What the field `mode` asks for; none where it is empty, or none of these names.
    pub fn of_name(name: &str) -> Option<Mode> {
        [Mode::Nftables, Mode::Iptables, Mode::Ipvs, Mode::Userspace].into_iter().find(|mode| mode.name() == name)
    }
}
