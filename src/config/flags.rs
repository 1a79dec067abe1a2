//! The flags that kube-proxy has too, with its names and meanings.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use ipnet::IpNet;

use crate::objects::{parse_address, parse_network};

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
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub masquerade_all: Option<bool>,

    /// Where node ports are served: prefixes of the node's addresses, or `primary` (the default)
    #[arg(long, value_name = "CIDR[,CIDR…]", value_delimiter = ',')]
    pub nodeport_addresses: Vec<String>,

    /// Serve node ports on 127.0.0.1 too, for the node itself; sets net.ipv4.conf.all.route_localnet. A prefix of
    /// 127.0.0.0/8 in --nodeport-addresses asks for the same
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub localhost_nodeports: Option<bool>,

    /// Leave connections alone that find no endpoint behind an external IP or a load balancer's, instead of refusing or
    /// dropping them; a Service says so for itself with the annotation svcmap.io/no-endpoints: pass, or refuse
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub pass_without_endpoints: Option<bool>,

    /// How many clients are remembered for each Service port with session affinity (default: the kernel's limit of
    /// 65535, without memory taken in advance)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub affinity_clients: Option<u32>,

    /// Count the new connections of every Service, for `svcmap top`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub counters: Option<bool>,
}

fn node_name(text: &str) -> Result<String, String> {
    let name = text.trim().to_lowercase();
    if name.is_empty() { Err("it is empty".into()) } else { Ok(name) }
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
    pub(super) fn apply(&self, configuration: &mut KubeProxyConfiguration) -> Vec<String> {
        if let Some(name) = &self.hostname_override {
            configuration.hostname_override.clone_from(name);
        }
        if let Some(all) = self.masquerade_all {
            configuration.nftables.masquerade_all = all;
        }
        let mut ignored = self.apply_connection(&mut configuration.client_connection);
        let mut set = |flag: &str, field: &mut String, value: Option<String>| match value {
            Some(_) if self.config.is_some() => ignored.push(format!("--{flag} is ignored, because --config is given")),
            Some(value) => *field = value,
            None => {}
        };
        let cidrs: Vec<_> = self.cluster_cidr.iter().map(ToString::to_string).collect();
        set("cluster-cidr", &mut configuration.cluster_cidr, (!cidrs.is_empty()).then(|| cidrs.join(",")));
        set("detect-local-mode", &mut configuration.detect_local_mode, self.detect_local_mode.clone());
        let detect = &mut configuration.detect_local;
        set("pod-bridge-interface", &mut detect.bridge_interface, self.pod_bridge_interface.clone());
        set("pod-interface-name-prefix", &mut detect.interface_name_prefix, self.pod_interface_name_prefix.clone());
        let mut addresses = configuration.node_port_addresses.join(",");
        let listed = (!self.nodeport_addresses.is_empty()).then(|| self.nodeport_addresses.join(","));
        set("nodeport-addresses", &mut addresses, listed);
        configuration.node_port_addresses = addresses.split(',').map(Into::into).collect();
        ignored
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
