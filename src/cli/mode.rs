//! `--mode`: in which form the plan becomes rules.

use super::output::Failure;

/// The forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Maps of nftables.
    #[default]
    Nftables,
    /// Chains of iptables, as kube-proxy's mode of that name makes them.
    Iptables,
}

/// `--mode` of commands that program the kernel.
#[derive(clap::Args, Debug)]
pub struct Programmed {
    /// The form of the rules; iptables can be rendered and compared only
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
}

impl Programmed {
    /// Makes sure that the mode is one that is programmed.
    ///
    /// # Errors
    /// It is one that can only be rendered and compared.
    pub fn check(&self) -> Result<(), Failure> {
        match self.mode {
            Mode::Nftables => Ok(()),
            Mode::Iptables => Err(Failure::Input(
                "the mode iptables is rendered and compared, not applied yet: see svcmap render --mode iptables, svcmap compare".into(),
            )),
        }
    }
}
