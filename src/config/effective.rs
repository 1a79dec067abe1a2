//! What holds in the end: the file, the flags, and what the host says of itself.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::file::{KubeProxyConfiguration, MODE};
use super::flags::ProxyFlags;
use super::validate::{FieldError, validate};
use super::{ProxyConfig, host};

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
/// is a file, only `--hostname-override`, `--masquerade-all` and what no file can hold count.
///
/// # Errors
/// The file cannot be read or is not right, or the host's name or addresses are needed and cannot be read.
pub fn effective(flags: &ProxyFlags) -> Result<Effective, ConfigError> {
    let mut configuration = match &flags.config {
        Some(path) => read(path)?,
        None => KubeProxyConfiguration::default(),
    };
    let mut warnings = flags.apply(&mut configuration);
    let meaning = validate(&configuration).map_err(ConfigError::Invalid)?;
    warnings.extend(not_acted_on(&configuration));
    MODE.clone_into(&mut configuration.mode);
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
    Ok(Effective { configuration, proxy, healthz: meaning.healthz, metrics: meaning.metrics, warnings })
}

fn read(path: &Path) -> Result<KubeProxyConfiguration, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
    KubeProxyConfiguration::parse(&text).map_err(|message| ConfigError::Syntax { path: path.into(), message })
}

/// The fields, and groups of fields, that are acted on.
const ACTED_ON: [&str; 18] = [
    "apiVersion",
    "kind",
    "clientConnection.kubeconfig",
    "clientConnection.qps",
    "clientConnection.burst",
    "hostnameOverride",
    "detectLocalMode",
    "detectLocal",
    "clusterCIDR",
    "nodePortAddresses",
    "nftables.masquerade",
    "nftables.syncPeriod",
    "nftables.minSyncPeriod",
    "healthzBindAddress",
    "metricsBindAddress",
    "bindAddressHardFail",
    "oomScoreAdj",
    "conntrack",
];

/// A warning for each field that is not at its default and that nothing acts on.
fn not_acted_on(configuration: &KubeProxyConfiguration) -> Vec<String> {
    let value = |configuration| serde_json::to_value(configuration).expect("a configuration is plain data");
    let mut changed = BTreeSet::new();
    collect_changes(&value(configuration), &value(&KubeProxyConfiguration::default()), String::new(), &mut changed);
    changed.retain(|field| !ACTED_ON.iter().any(|acted_on| field.starts_with(acted_on)));
    let warning = |field: String| match field.as_str() {
        "mode" => format!("mode: {} is not available, the rules are made for {MODE}", configuration.mode),
        _ => format!("{field} is set, but nothing acts on it"),
    };
    changed.into_iter().map(warning).collect()
}

/// The paths of the fields that differ.
fn collect_changes(value: &Value, default: &Value, path: String, changed: &mut BTreeSet<String>) {
    match (value, default) {
        (Value::Object(fields), Value::Object(defaults)) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_changes(field, defaults.get(name).unwrap_or(&Value::Null), path, changed);
            }
        }
        _ if value != default => {
            changed.insert(path);
        }
        _ => {}
    }
}
