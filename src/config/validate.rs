//! Which configurations are good, and what is meant by them.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::objects::{FamilyOf, parse_address, parse_network};

use super::duration::GoDuration;
use super::file::KubeProxyConfiguration;
use super::mode::Mode;
use super::{DetectLocal, NodePortAddresses};

/// The longest name of an interface.
const INTERFACE_NAME: usize = 15;
/// Where health and metrics are told, unless something else is said.
const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;
/// The modes of kube-proxy on Linux, past ones included; nothing stands for its default.
const MODES: [&str; 5] = [Mode::Nftables.name(), Mode::Iptables.name(), Mode::Ipvs.name(), Mode::Userspace.name(), ""];

/// How a log can look.
const LOG_FORMATS: [&str; 2] = ["text", "json"];

/// A field that cannot be what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Its path: `nftables.masqueradeBit`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// What the fields that decide on rules mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// `clusterCIDR`.
    pub cluster_cidrs: Vec<IpNet>,
    /// `detectLocalMode` and `detectLocal`.
    pub detect_local: DetectLocal,
    /// `nodePortAddresses`.
    pub node_port_addresses: NodePortAddresses,
    /// `nftables.masqueradeBit`.
    pub masquerade_bit: u8,
    /// `bindAddress`, where it is one.
    pub bind_address: Option<IpAddr>,
    /// `healthzBindAddress`; none where it is empty.
    pub healthz: Option<SocketAddr>,
    /// `metricsBindAddress`; none where it is empty.
    pub metrics: Option<SocketAddr>,
}

/// Checks every field.
///
/// # Errors
/// All the fields that are wrong.
pub fn validate(configuration: &KubeProxyConfiguration) -> Result<Meaning, Vec<FieldError>> {
    let mut checks = Checks::default();
    checks.numbers(configuration);
    checks.periods(configuration);
    checks.require(MODES.contains(&configuration.mode.as_str()), "mode", || {
        format!("{:?} is none of {}", configuration.mode, MODES[..4].join(", "))
    });
    checks.logging(configuration);
    let meaning = Meaning {
        bind_address: checks.addresses(configuration),
        cluster_cidrs: checks.cluster_cidrs(&configuration.cluster_cidr),
        detect_local: checks.detect_local(configuration),
        node_port_addresses: checks.node_port_addresses(&configuration.node_port_addresses),
        masquerade_bit: configuration.nftables.masquerade_bit.clamp(0, 31) as u8,
        healthz: checks.listener("healthzBindAddress", &configuration.healthz_bind_address, HEALTHZ_PORT),
        metrics: checks.listener("metricsBindAddress", &configuration.metrics_bind_address, METRICS_PORT),
    };
    if checks.0.is_empty() { Ok(meaning) } else { Err(checks.0) }
}

#[derive(Default)]
struct Checks(Vec<FieldError>);

impl Checks {
    fn error(&mut self, field: impl Into<String>, message: String) {
        self.0.push(FieldError { field: field.into(), message });
    }

    fn require(&mut self, good: bool, field: &str, message: impl FnOnce() -> String) {
        if !good {
            self.error(field, message());
        }
    }

    fn within(&mut self, field: &str, value: i32, range: std::ops::RangeInclusive<i32>) {
        self.require(range.contains(&value), field, || match *range.end() {
            i32::MAX => format!("{value} is less than {}", range.start()),
            end => format!("{value} is not between {} and {end}", range.start()),
        });
    }

    fn numbers(&mut self, configuration: &KubeProxyConfiguration) {
        self.within("nftables.masqueradeBit", configuration.nftables.masquerade_bit, 0..=31);
        self.within("iptables.masqueradeBit", configuration.iptables.masquerade_bit, 0..=31);
        self.within("oomScoreAdj", configuration.oom_score_adj, -1000..=1000);
        self.within("conntrack.maxPerCore", configuration.conntrack.max_per_core, 0..=i32::MAX);
        self.within("conntrack.min", configuration.conntrack.min, 0..=i32::MAX);
    }

    /// Zero periods have become their defaults, so that only the order is left to check.
    fn periods(&mut self, configuration: &KubeProxyConfiguration) {
        let mut check = |group: &str, period: GoDuration, min: GoDuration| {
            self.require(min <= period, &format!("{group}.minSyncPeriod"), || {
                format!("{min} is longer than {group}.syncPeriod, {period}")
            });
        };
        let (iptables, ipvs, nftables) = (&configuration.iptables, &configuration.ipvs, &configuration.nftables);
        check("iptables", iptables.sync_period, iptables.min_sync_period);
        check("ipvs", ipvs.sync_period, ipvs.min_sync_period);
        check("nftables", nftables.sync_period, nftables.min_sync_period);
    }

    /// The node's address, where `bindAddress` says one.
    fn addresses(&mut self, configuration: &KubeProxyConfiguration) -> Option<IpAddr> {
        for (i, cidr) in configuration.ipvs.exclude_cidrs.iter().enumerate() {
            self.network(&format!("ipvs.excludeCIDRs[{i}]"), cidr);
        }
        let bind = &configuration.bind_address;
        let address = parse_address(bind);
        self.require(address.is_some(), "bindAddress", || format!("{bind:?} is not an IP address"));
        address.filter(|address| !address.is_unspecified())
    }

    fn logging(&mut self, configuration: &KubeProxyConfiguration) {
        let format = configuration.logging.format.as_str();
        self.require(LOG_FORMATS.contains(&format), "logging.format", || {
            format!("{format:?} is none of {}", LOG_FORMATS.join(", "))
        });
    }

    /// An address to listen on, or none where the field is empty; without a port, with that of kube-proxy.
    fn listener(&mut self, field: &str, text: &str, port: u16) -> Option<SocketAddr> {
        if text.is_empty() {
            return None;
        }
        let with_port = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let address = with_port.or_else(|| Some(SocketAddr::new(text.parse().ok()?, port)));
        self.require(address.is_some(), field, || {
            format!("{text:?} is not an address and port such as 0.0.0.0:{port}")
        });
        address
    }

    fn network(&mut self, field: &str, text: &str) -> Option<IpNet> {
        let network = parse_network(text);
        self.require(network.is_some(), field, || format!("{text:?} is not a prefix such as 10.0.0.0/8"));
        network
    }

    /// One prefix of a family at most (row E12).
    fn cluster_cidrs(&mut self, text: &str) -> Vec<IpNet> {
        let mut networks: Vec<IpNet> = Vec::new();
        for part in text.split(',').filter(|_| !text.trim().is_empty()) {
            let Some(network) = self.network("clusterCIDR", part.trim()) else { continue };
            if networks.iter().any(|known| known.family() == network.family()) {
                let message =
                    format!("{network} is a second {} prefix; there can be one of a family", network.family());
                self.error("clusterCIDR", message);
            } else {
                networks.push(network);
            }
        }
        networks
    }

    fn detect_local(&mut self, configuration: &KubeProxyConfiguration) -> DetectLocal {
        let fields = &configuration.detect_local;
        match configuration.detect_local_mode.as_str() {
            "ClusterCIDR" => DetectLocal::ClusterCidr,
            "NodeCIDR" => DetectLocal::NodeCidr,
            "BridgeInterface" => {
                self.interface("detectLocal.bridgeInterface", &fields.bridge_interface, "BridgeInterface");
                DetectLocal::BridgeInterface(fields.bridge_interface.clone())
            }
            "InterfaceNamePrefix" => {
                self.interface("detectLocal.interfaceNamePrefix", &fields.interface_name_prefix, "InterfaceNamePrefix");
                DetectLocal::InterfaceNamePrefix(fields.interface_name_prefix.clone())
            }
            other => {
                let modes = "ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix";
                self.error("detectLocalMode", format!("{other:?} is none of {modes}"));
                DetectLocal::default()
            }
        }
    }

    fn interface(&mut self, field: &str, name: &str, mode: &str) {
        self.require(!name.is_empty(), field, || format!("is empty, and detectLocalMode {mode} needs it"));
        let plain = name.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b'"' | b'\\' | b'*'));
        self.require(plain && name.len() <= INTERFACE_NAME, field, || format!("{name:?} is not a name of interfaces"));
    }

    /// `primary` stands alone (row F2).
    fn node_port_addresses(&mut self, listed: &[String]) -> NodePortAddresses {
        const PRIMARY: &str = "primary";
        if listed.iter().any(|text| text == PRIMARY) {
            self.require(listed.len() == 1, "nodePortAddresses", || "primary must stand alone".into());
            return NodePortAddresses::Primary;
        }
        let mut networks = Vec::new();
        for (i, text) in listed.iter().enumerate() {
            let network = parse_network(text);
            self.require(network.is_some(), &format!("nodePortAddresses[{i}]"), || {
                format!("{text:?} is neither primary nor a prefix such as 192.168.0.0/16")
            });
            networks.extend(network);
        }
        NodePortAddresses::Networks(networks)
    }
}
