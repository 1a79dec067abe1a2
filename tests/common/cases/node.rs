//! The `node` column: how the node is configured.

use serde_json::{Value, json};
use svcmap::config::{DetectLocal, NodePortAddresses, ProxyConfig};
use svcmap::objects::parse_network;

use super::stack::{Stack, in_family, network_in_family};

/// The own node's name.
pub const LOCAL_NODE: &str = "n1";
/// Its addresses, the primary one first.
pub const NODE_IPS: [&str; 2] = ["192.168.0.2", "192.168.1.2"];
/// The interface through which its pods' traffic comes in.
pub const POD_INTERFACE: &str = "pod0";
/// The interface through which all other traffic comes in.
pub const OUTSIDE_INTERFACE: &str = "eth0";

const CLUSTER_CIDR: &str = "10.0.0.0/8";
const POD_CIDR: &str = "10.0.0.0/16";
const SERVICE_CIDR: &str = "172.30.0.0/16";

/// How the node is configured.
#[derive(Clone, Debug, Default)]
pub struct NodeSettings {
    words: Vec<String>,
}

impl NodeSettings {
    pub fn parse(text: &str) -> NodeSettings {
        const FLAGS: [&str; 4] = ["noDetector", "masqAll", "noServiceCIDR", "pass"];
        const KEYS: [&str; 4] = ["bit", "nodePorts", "zone", "detect"];
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        for word in &words {
            let known = word.split_once('=').map_or(FLAGS.contains(&word.as_str()), |(key, _)| KEYS.contains(&key));
            assert!(known, "{word:?} says nothing about the node");
        }
        NodeSettings { words }
    }

    fn has(&self, flag: &str) -> bool {
        self.words.iter().any(|word| word == flag)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// The configuration.
    pub fn config(&self, stack: Stack) -> ProxyConfig {
        let networks = |texts: &[&str]| {
            let families = stack.families().iter();
            let texts = families.flat_map(|family| texts.iter().map(|text| network_in_family(text, *family)));
            texts.map(|text| parse_network(&text).unwrap_or_else(|| panic!("{text} is no prefix"))).collect::<Vec<_>>()
        };
        ProxyConfig {
            node_name: LOCAL_NODE.to_owned(),
            node_ips: Vec::new(),
            cluster_cidrs: if self.has("noDetector") { Vec::new() } else { networks(&[CLUSTER_CIDR]) },
            detect_local: match self.get("detect").map(|text| text.split_once(':').unwrap_or((text, ""))) {
                None => DetectLocal::ClusterCidr,
                Some(("NodeCIDR", "")) => DetectLocal::NodeCidr,
                Some(("bridge", name)) => DetectLocal::BridgeInterface(name.to_owned()),
                Some(("prefix", name)) => DetectLocal::InterfaceNamePrefix(name.to_owned()),
                Some(other) => panic!("no way to detect pods: {other:?}"),
            },
            masquerade_all: self.has("masqAll"),
            masquerade_bit: self.get("bit").map_or(14, |bit| bit.parse().expect("a bit")),
            node_port_addresses: match self.get("nodePorts") {
                None => NodePortAddresses::Primary,
                Some(list) => NodePortAddresses::Networks(networks(&list.split(',').collect::<Vec<_>>())),
            },
            pass_without_endpoints: self.has("pass"),
            ..ProxyConfig::default()
        }
    }

    /// The Node and the ServiceCIDR as manifests.
    pub fn manifests(&self, stack: Stack) -> Vec<Value> {
        let families = || stack.families().iter();
        let addresses = families()
            .flat_map(|family| NODE_IPS.map(|ip| json!({"type": "InternalIP", "address": in_family(ip, *family)})));
        let pod_cidrs: Vec<String> = families().map(|family| network_in_family(POD_CIDR, *family)).collect();
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": LOCAL_NODE},
            "spec": {"podCIDR": pod_cidrs[0], "podCIDRs": pod_cidrs},
            "status": {"addresses": addresses.collect::<Vec<_>>()},
        });
        if let Some(zone) = self.get("zone") {
            node["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": zone});
        }
        let mut manifests = vec![node];
        if !self.has("noServiceCIDR") {
            let cidrs: Vec<String> = families().map(|family| network_in_family(SERVICE_CIDR, *family)).collect();
            manifests.push(json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": cidrs},
            }));
        }
        manifests
    }
}
