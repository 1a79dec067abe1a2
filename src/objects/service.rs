//! The Service, as far as a proxy is concerned with it.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Name, Protocol};

/// A Service's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// `metadata.namespace`.
    pub namespace: Name,
    /// `metadata.name`.
    pub name: Name,
}

impl ServiceKey {
    /// A key from its two parts.
    pub fn new(namespace: &str, name: &str) -> ServiceKey {
        ServiceKey { namespace: namespace.into(), name: name.into() }
    }
}

/// `namespace/name`.
impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// `spec.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ServiceType {
    /// Reachable inside the cluster.
    #[default]
    ClusterIp,
    /// Reachable on a port of every node, too.
    NodePort,
    /// Reachable through addresses of a load balancer, too.
    LoadBalancer,
    /// A DNS alias: never proxied (behaviour row A2).
    ExternalName,
}

/// `internalTrafficPolicy` and `externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TrafficPolicy {
    /// Every endpoint of the cluster may be used.
    #[default]
    Cluster,
    /// Only endpoints on this node.
    Local,
}

/// The annotation of a Service that says what becomes of connections that find no endpoint; svcmap's own.
pub const NO_ENDPOINTS_ANNOTATION: &str = "svcmap.io/no-endpoints";

/// A Service. Lists keep the order of the object; addresses of both families stand side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: ServiceKey,
    /// `metadata.creationTimestamp`, in seconds since 1970; the older of two Services wins a contested address.
    pub created: Option<i64>,
    /// Whether the label `service.kubernetes.io/service-proxy-name` hands the Service to another proxy (row A1).
    pub other_proxy: bool,
    /// `spec.type`.
    pub kind: ServiceType,
    /// `spec.clusterIPs`; empty for a headless Service (row A2).
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs` (row B2).
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip` of the entries whose `ipMode` is absent or `VIP` (row B3).
    pub load_balancer_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges`; empty means that every source may come (row F7).
    pub source_ranges: Vec<IpNet>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.internalTrafficPolicy`.
    pub internal_policy: TrafficPolicy,
    /// `spec.externalTrafficPolicy`.
    pub external_policy: TrafficPolicy,
    /// Seconds of `sessionAffinityConfig.clientIP.timeoutSeconds` where `sessionAffinity` is `ClientIP` (row D2).
    pub affinity: Option<u32>,
    /// `spec.healthCheckNodePort`, 0 for none.
    pub health_check_node_port: u16,
    /// `spec.selector`; only used to make endpoints from Pods.
    pub selector: Vec<(Name, Name)>,
    /// `spec.publishNotReadyAddresses`; only used to make endpoints from Pods.
    pub publish_not_ready: bool,
    /// The annotation `svcmap.io/no-endpoints`: whether connections to external addresses pass where there is no
    /// endpoint for them (`pass`) or not (`refuse`); absent where the node's configuration decides.
    pub pass_without_endpoints: Option<bool>,
}

/// An entry of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The port's name, empty where it has none.
    pub name: Name,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// The port on the Service's addresses, 1 to 65535.
    pub port: u16,
    /// The port on the node's addresses, 0 for none (row B4).
    pub node_port: u16,
    /// `targetPort`: a number, or the name of a container port; only used to make endpoints from Pods.
    pub target: Target,
}

/// Where a Service port leads on a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A port number.
    Number(u16),
    /// The name of a container port.
    Named(Name),
}
