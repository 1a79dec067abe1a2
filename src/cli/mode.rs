//! `--mode` of commands that program the kernel, or say what would be.

use super::output::Failure;
use crate::config::{KubeProxyConfiguration, Mode};
use crate::dataplane::Dataplane;
use crate::netlink::CodecKind;
use crate::nftables::program::Programmer;
use crate::{iptables, ipvs, userspace};

/// `--mode`.
#[derive(clap::Args, Debug)]
pub struct Programmed {
    /// The form of the rules (default: the configuration's mode, and nftables where it says none)
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
}

/// Whether a mode's rules are named as kube-proxy names its own, so that nobody can tell them from what it left.
pub fn is_in_the_layout_of_kube_proxy(mode: Mode) -> bool {
    matches!(mode, Mode::Iptables | Mode::Ipvs)
}

/// Opens what programs the current network namespace in a mode. Nothing is written yet.
///
/// # Errors
/// The kernel cannot be asked, or does not have what the mode needs; the configuration's part for it is wrong.
pub fn open(
    mode: Mode,
    codec: CodecKind,
    configuration: &KubeProxyConfiguration,
) -> Result<Box<dyn Dataplane>, Failure> {
    Ok(match mode {
        Mode::Nftables => Box::new(Programmer::open(codec).map_err(Failure::Connect)?),
        Mode::Iptables => Box::new(iptables::Programmer::default()),
        Mode::Ipvs => {
            let settings = ipvs::Settings::of(&configuration.ipvs).map_err(Failure::Input)?;
            Box::new(ipvs::Programmer::open(settings)?)
        }
        Mode::Userspace => {
            let range = userspace::range::parse(&configuration.port_range).map_err(Failure::Input)?;
            Box::new(userspace::Programmer::open(range).map_err(Failure::Connect)?)
        }
    })
}
