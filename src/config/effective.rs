//! What holds in the end: the file, the flags, and what the host says of itself.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::objects::parse_address;

use super::file::KubeProxyConfiguration;
use super::flags::ProxyFlags;
use super::mode::Mode;
use super::validate::{FieldError, validate};
use super::{ProxyConfig, fields, host};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a KubeProxyConfiguration.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// The field, or the line, and what is wrong.
        message: String,
    },
    /// The value of a flag is none of its field's.
    #[error("{0}")]
    Flag(String),
    /// Fields that cannot be what they are.
    #[error("{}", listed(.0))]
    Invalid(Vec<FieldError>),
    /// The host does not tell its name.
    #[error("the host's name cannot be read ({0}); name the node with --hostname-override")]
    NoName(io::Error),
    /// The host does not tell its addresses.
    #[error("the addresses of this network namespace cannot be read ({0}); give them with --node-ip")]
    NoAddresses(io::Error),
}

fn listed(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The effective configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// As a file would hold it.
    pub configuration: KubeProxyConfiguration,
    /// In which form rules are made: its field `mode` says the same.
    pub mode: Mode,
    /// The part that decides what Services mean.
    pub proxy: ProxyConfig,
    /// Where health is told; none where that is switched off.
    pub healthz: Option<SocketAddr>,
    /// Where metrics are told; none where that is switched off.
    pub metrics: Option<SocketAddr>,
    /// What was asked for and is not done.
    pub warnings: Vec<String>,
}

/// Reads the file of `--config`, if there is one, and puts the other flags over it by kube-proxy's rules: where there
/// is a file, only `--hostname-override`, `--masquerade-all` and what no file can hold count. The mode is the configuration's.
///
/// # Errors
/// The file cannot be read or is not right, or the host's name or addresses are needed and cannot be read.
pub fn effective(flags: &ProxyFlags) -> Result<Effective, ConfigError> {
    effective_in(flags, None)
}

/// The same where the mode may have been chosen, whatever the configuration says of it.
///
/// # Errors
/// As for [`effective`].
pub fn effective_in(flags: &ProxyFlags, chosen: Option<Mode>) -> Result<Effective, ConfigError> {
    let (mut configuration, mut warnings) = match &flags.config {
        Some(path) => read(path)?,
        None => Default::default(),
    };
    warnings.extend(flags.apply(&mut configuration).map_err(ConfigError::Flag)?);
    let mode = chosen.or_else(|| Mode::of_name(&configuration.mode)).unwrap_or_default();
    warnings.extend(fields::warnings(&configuration, mode));
    if chosen.is_none() && mode != Mode::Nftables {
        warnings.push(format!(
            "mode: {} is what the configuration says, and what is run; --mode nftables serves the same Services from maps",
            mode.name()
        ));
    }
    fields::carry_over(&mut configuration);
    listen_on_the_family_of_the_node(&mut configuration);
    let meaning = validate(&configuration).map_err(ConfigError::Invalid)?;
    mode.name().clone_into(&mut configuration.mode);
    let node_name = match configuration.hostname_override.trim() {
        "" => host::name().map_err(ConfigError::NoName)?,
        name => name.to_lowercase(),
    };
    let node_ips = match flags.node_ip.as_slice() {
        [] => host::addresses().map_err(ConfigError::NoAddresses)?,
        given => given.to_vec(),
    };
    let proxy = ProxyConfig {
        node_name,
        node_ips,
        bind_address: meaning.bind_address,
        cluster_cidrs: meaning.cluster_cidrs,
        detect_local: meaning.detect_local,
        masquerade_all: configuration.nftables.masquerade_all,
        masquerade_bit: meaning.masquerade_bit,
        node_port_addresses: meaning.node_port_addresses,
        localhost_node_ports: flags.localhost_nodeports.unwrap_or_default(),
        pass_without_endpoints: flags.pass_without_endpoints.unwrap_or_default(),
        affinity_clients: flags.affinity_clients,
        counters: flags.counters.unwrap_or_default(),
    };
    Ok(Effective { configuration, mode, proxy, healthz: meaning.healthz, metrics: meaning.metrics, warnings })
}

/// As kube-proxy has it, the default address for metrics is of the family that `bindAddress` is of. That for health is of both
/// families anyway.
fn listen_on_the_family_of_the_node(configuration: &mut KubeProxyConfiguration) {
    let is_v6 = parse_address(&configuration.bind_address).is_some_and(|address| address.is_ipv6());
    if is_v6 && configuration.metrics_bind_address == KubeProxyConfiguration::default().metrics_bind_address {
        "[::1]:10249".clone_into(&mut configuration.metrics_bind_address);
    }
}

fn read(path: &Path) -> Result<(KubeProxyConfiguration, Vec<String>), ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
    KubeProxyConfiguration::parse(&text).map_err(|message| ConfigError::Syntax { path: path.into(), message })
}
