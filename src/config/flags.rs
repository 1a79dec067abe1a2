//! The flags that kube-proxy has too, with its names and meanings.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use ipnet::IpNet;

use crate::objects::{parse_address, parse_network};

use super::GoDuration;
use super::by_field::FieldFlags;
use super::file::{ClientConnection, KubeProxyConfiguration};

/// The flags that say where the cluster is and what Services mean on this node.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Node and proxy configuration")]
pub struct ProxyFlags {
    /// A KubeProxyConfiguration file; of the flags below, those that it can hold are ignored, except
    /// --hostname-override and --masquerade-all
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The kubeconfig of the cluster whose Services are meant (in a pod, its service account is the default); ignored
    /// where --config names one
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,

    /// The URL of the API server, in the place of the kubeconfig's; repeated, the next one is asked where one does not
    /// answer
    #[arg(long, value_name = "URL")]
    pub master: Vec<String>,

    /// Requests per second to the API server (default 5; below zero, no limit)
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub kube_api_qps: Option<f32>,

    /// Requests to the API server that may come at once (default 10)
    #[arg(long, value_name = "NUMBER")]
    pub kube_api_burst: Option<u32>,

    /// The name of the node that rules are made for (default: the host's name)
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    pub hostname_override: Option<String>,

    /// An address of the node, where no Node object gives them; can be repeated (default: the addresses of this
    /// network namespace)
    #[arg(long, value_name = "IP", value_parser = address)]
    pub node_ip: Vec<IpAddr>,

    /// The prefixes of the cluster's pods, at most one of each family
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',', value_parser = network)]
    pub cluster_cidr: Vec<IpNet>,

    /// How pods' traffic is told from other traffic
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(
        ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]))]
    pub detect_local_mode: Option<String>,

    /// The bridge that pods' traffic comes from, for the mode BridgeInterface
    #[arg(long, value_name = "NAME")]
    pub pod_bridge_interface: Option<String>,

    /// How the names of the interfaces that pods' traffic comes from begin, for the mode InterfaceNamePrefix
    #[arg(long, value_name = "PREFIX")]
    pub pod_interface_name_prefix: Option<String>,

    /// Masquerade all traffic to ClusterIPs
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub masquerade_all: Option<bool>,

    /// Where node ports are served: prefixes of the node's addresses, or `primary` (the default)
    #[arg(long, value_name = "CIDR[,CIDR…]", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,

    /// Serve node ports on 127.0.0.1 too, for the node itself; sets net.ipv4.conf.all.route_localnet. A prefix of
    /// 127.0.0.0/8 in --nodeport-addresses asks for the same
    #[arg(long, alias = "iptables-localhost-nodeports", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub localhost_nodeports: Option<bool>,

    /// Leave connections alone that find no endpoint behind an external IP or a load balancer's, instead of refusing or
    /// dropping them; a Service says so for itself with the annotation svcmap.io/no-endpoints: pass, or refuse
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub pass_without_endpoints: Option<bool>,

    /// How many clients are remembered for each Service port with session affinity (default: the kernel's limit of
    /// 65535, without memory taken in advance)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub affinity_clients: Option<u32>,

    /// Count the new connections of every Service, for `svcmap top`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub counters: Option<bool>,

    /// Those that are about the process and its host.
    #[command(flatten)]
    pub daemon: DaemonFlags,

    /// Those that are another way to write a field of the configuration.
    #[command(flatten)]
    pub by_field: FieldFlags,
}

/// Those of kube-proxy's flags that are about the process and its host; only the daemon acts on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Health, metrics and the host, for `svcmap run`")]
pub struct DaemonFlags {
    /// Where health is told; empty for nowhere (default: 0.0.0.0:10256)
    #[arg(long, value_name = "IP:PORT")]
    pub healthz_bind_address: Option<String>,

    /// Where metrics and the status page are served; empty for nowhere (default: 127.0.0.1:10249)
    #[arg(long, value_name = "IP:PORT")]
    pub metrics_bind_address: Option<String>,

    /// The port of the former, where it names none; 0 for nowhere
    #[arg(long, value_name = "PORT", hide = true)]
    pub healthz_port: Option<u16>,

    /// The port of the latter, where it names none; 0 for nowhere
    #[arg(long, value_name = "PORT", hide = true)]
    pub metrics_port: Option<u16>,

    /// Where kube-proxy's libraries find the machine's identity; nobody asks for it here
    #[arg(long, value_name = "FILE", hide = true)]
    pub boot_id_file: Option<String>,

    /// The same
    #[arg(long, value_name = "FILE", hide = true)]
    pub machine_id_file: Option<String>,

    /// Take one of these two that cannot be had as a reason to stop, instead of trying again
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub bind_address_hard_fail: Option<bool>,

    /// How unlikely the process is to be ended when memory runs out, from -1000 to 1000 (default: -999)
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub oom_score_adj: Option<i32>,

    /// Tracked connections per processor; 0 leaves the kernel's limit alone (default: 32768)
    #[arg(long, value_name = "NUMBER")]
    pub conntrack_max_per_core: Option<i32>,

    /// Tracked connections at least (default: 131072)
    #[arg(long, value_name = "NUMBER")]
    pub conntrack_min: Option<i32>,

    /// How long idle TCP connections are tracked; 0 leaves the kernel's value alone (default: 24h)
    #[arg(long, value_name = "DURATION")]
    pub conntrack_tcp_timeout_established: Option<GoDuration>,

    /// How long TCP connections are tracked that the other end has closed; 0 leaves the kernel's value alone (default: 1h)
    #[arg(long, value_name = "DURATION")]
    pub conntrack_tcp_timeout_close_wait: Option<GoDuration>,

    /// Let TCP packets through that are out of the window
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub conntrack_tcp_be_liberal: Option<bool>,

    /// How long UDP flows are tracked that got no answer; 0 leaves the kernel's value alone (the default)
    #[arg(long, value_name = "DURATION")]
    pub conntrack_udp_timeout: Option<GoDuration>,

    /// How long UDP flows are tracked that got answers; 0 leaves the kernel's value alone (the default)
    #[arg(long, value_name = "DURATION")]
    pub conntrack_udp_timeout_stream: Option<GoDuration>,
}

/// Nothing at all stands for no name, as it does for kube-proxy.
fn node_name(text: &str) -> Result<String, String> {
    let name = text.trim().to_lowercase();
    if name.is_empty() && !text.is_empty() { Err("it is empty".into()) } else { Ok(name) }
}

/// A switch by any of the words that kube-proxy takes.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("it is neither true nor false".into()),
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    parse_address(text).ok_or_else(|| "it is not an IP address".into())
}

fn network(text: &str) -> Result<IpNet, String> {
    parse_network(text).ok_or_else(|| "it is not a prefix such as 10.0.0.0/8".into())
}

impl ProxyFlags {
    /// Puts the flags into the configuration. Where that comes from a file, only those that win over a file; the
    /// others that were given are named in the warnings.
    ///
    /// # Errors
    /// A message that names a flag whose value is none of its field's.
    pub(super) fn apply(&self, configuration: &mut KubeProxyConfiguration) -> Result<Vec<String>, String> {
        if let Some(name) = self.hostname_override.as_ref().filter(|name| !name.is_empty()) {
            configuration.hostname_override.clone_from(name);
        }
        if let Some(all) = self.masquerade_all {
            configuration.nftables.masquerade_all = all;
        }
        let ignored = self.apply_connection(&mut configuration.client_connection);
        let mut fields = Fields { are_from_file: self.config.is_some(), ignored };
        let cidrs: Vec<_> = self.cluster_cidr.iter().map(ToString::to_string).collect();
        fields.set("cluster-cidr", &mut configuration.cluster_cidr, (!cidrs.is_empty()).then(|| cidrs.join(",")));
        fields.set("detect-local-mode", &mut configuration.detect_local_mode, self.detect_local_mode.clone());
        let detect = &mut configuration.detect_local;
        fields.set("pod-bridge-interface", &mut detect.bridge_interface, self.pod_bridge_interface.clone());
        fields.set(
            "pod-interface-name-prefix",
            &mut detect.interface_name_prefix,
            self.pod_interface_name_prefix.clone(),
        );
        let addresses: Vec<_> = self.nodeport_addresses.iter().filter(|text| !text.is_empty()).cloned().collect();
        let addresses = (!addresses.is_empty()).then_some(addresses);
        fields.set("nodeport-addresses", &mut configuration.node_port_addresses, addresses);
        self.daemon.apply(configuration, &mut fields);
        let mut warnings = fields.ignored;
        warnings.extend(self.by_field.apply(configuration, self.config.is_some())?);
        Ok(warnings)
    }

    /// The same for the way to the API server.
    fn apply_connection(&self, connection: &mut ClientConnection) -> Vec<String> {
        let mut ignored = Vec::new();
        match &self.kubeconfig {
            Some(_) if !connection.kubeconfig.is_empty() => {
                ignored.push("--kubeconfig is ignored, because --config names one".into());
            }
            Some(path) => connection.kubeconfig.clone_from(path),
            None => {}
        }
        let given = [("qps", self.kube_api_qps.is_some()), ("burst", self.kube_api_burst.is_some())];
        if self.config.is_some() {
            let flags = given.iter().filter(|(_, given)| *given);
            ignored.extend(flags.map(|(flag, _)| format!("--kube-api-{flag} is ignored, because --config is given")));
        } else {
            connection.qps = self.kube_api_qps.filter(|qps| *qps != 0.0).unwrap_or(connection.qps);
            connection.burst = self.kube_api_burst.filter(|burst| *burst != 0).unwrap_or(connection.burst);
        }
        ignored
    }
}

/// An address with the port that a deprecated flag gives, unless it names another than the default itself; none for port 0.
fn with_port(address: &str, port: u16) -> String {
    let defaults = [
        KubeProxyConfiguration::default().healthz_bind_address,
        KubeProxyConfiguration::default().metrics_bind_address,
    ];
    match address.parse::<SocketAddr>() {
        _ if port == 0 => String::new(),
        Ok(full) if defaults.contains(&full.to_string()) => SocketAddr::new(full.ip(), port).to_string(),
        Ok(full) => full.to_string(),
        Err(_) => address.parse::<IpAddr>().map_or(address.into(), |ip| SocketAddr::new(ip, port).to_string()),
    }
}

impl DaemonFlags {
    fn apply(&self, configuration: &mut KubeProxyConfiguration, fields: &mut Fields) {
        let c = configuration;
        fields.set("healthz-bind-address", &mut c.healthz_bind_address, self.healthz_bind_address.clone());
        fields.set("metrics-bind-address", &mut c.metrics_bind_address, self.metrics_bind_address.clone());
        let (healthz, metrics) = (c.healthz_bind_address.clone(), c.metrics_bind_address.clone());
        fields.set(
            "healthz-port",
            &mut c.healthz_bind_address,
            self.healthz_port.map(|port| with_port(&healthz, port)),
        );
        fields.set(
            "metrics-port",
            &mut c.metrics_bind_address,
            self.metrics_port.map(|port| with_port(&metrics, port)),
        );
        let nobody_asks = |flag| format!("--{flag} is given, and has no effect: nobody asks for it");
        fields.ignored.extend(self.boot_id_file.as_ref().map(|_| nobody_asks("boot-id-file")));
        fields.ignored.extend(self.machine_id_file.as_ref().map(|_| nobody_asks("machine-id-file")));
        fields.set("bind-address-hard-fail", &mut c.bind_address_hard_fail, self.bind_address_hard_fail);
        fields.set("oom-score-adj", &mut c.oom_score_adj, self.oom_score_adj);
        let c = &mut c.conntrack;
        fields.set("conntrack-max-per-core", &mut c.max_per_core, self.conntrack_max_per_core);
        fields.set("conntrack-min", &mut c.min, self.conntrack_min);
        let (established, close_wait) = (self.conntrack_tcp_timeout_established, self.conntrack_tcp_timeout_close_wait);
        fields.set("conntrack-tcp-timeout-established", &mut c.tcp_established_timeout, established);
        fields.set("conntrack-tcp-timeout-close-wait", &mut c.tcp_close_wait_timeout, close_wait);
        fields.set("conntrack-tcp-be-liberal", &mut c.tcp_be_liberal, self.conntrack_tcp_be_liberal);
        fields.set("conntrack-udp-timeout", &mut c.udp_timeout, self.conntrack_udp_timeout);
        fields.set("conntrack-udp-timeout-stream", &mut c.udp_stream_timeout, self.conntrack_udp_timeout_stream);
    }
}

/// The fields that a file, where there is one, has the last word on.
struct Fields {
    are_from_file: bool,
    /// What was to be set in vain.
    ignored: Vec<String>,
}

impl Fields {
    fn set<T>(&mut self, flag: &str, field: &mut T, value: Option<T>) {
        match value {
            Some(_) if self.are_from_file => {
                self.ignored.push(format!("--{flag} is ignored, because --config is given"));
            }
            Some(value) => *field = value,
            None => {}
        }
    }
}
