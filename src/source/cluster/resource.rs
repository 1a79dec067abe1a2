//! What is listed and watched.

/// The four kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// v1 Service.
    Service,
    /// discovery.k8s.io/v1 EndpointSlice.
    Slice,
    /// v1 Node: the own one alone.
    Node,
    /// networking.k8s.io/v1 ServiceCIDR.
    ServiceCidr,
}

/// A kind as the API server has it, and which of its objects are wanted.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Which kind.
    pub kind: Kind,
    /// `apiVersion` of the objects.
    pub api_version: &'static str,
    /// `kind` of the objects.
    pub name: &'static str,
    /// What messages call them.
    pub plural: &'static str,
    /// The path of the list.
    pub path: &'static str,
    /// `labelSelector`.
    pub labels: Option<&'static str>,
    /// `fieldSelector`.
    pub fields: Option<String>,
}

impl Resource {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// All of them, for the node of this name.
    pub fn all(node: &str) -> [Resource; Resource::COUNT] {
        [
            // Row A1: what is headless or handed to another proxy is not even sent.
            Resource {
                kind: Kind::Service,
                api_version: "v1",
                name: "Service",
                plural: "Services",
                path: "/api/v1/services",
                labels: Some("!service.kubernetes.io/service-proxy-name"),
                fields: Some("spec.clusterIP!=None".into()),
            },
            // Row A3.
            Resource {
                kind: Kind::Slice,
                api_version: "discovery.k8s.io/v1",
                name: "EndpointSlice",
                plural: "EndpointSlices",
                path: "/apis/discovery.k8s.io/v1/endpointslices",
                labels: Some("!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"),
                fields: None,
            },
            Resource {
                kind: Kind::Node,
                api_version: "v1",
                name: "Node",
                plural: "Nodes",
                path: "/api/v1/nodes",
                labels: None,
                fields: Some(format!("metadata.name={node}")),
            },
            Resource {
                kind: Kind::ServiceCidr,
                api_version: "networking.k8s.io/v1",
                name: "ServiceCIDR",
                plural: "ServiceCIDRs",
                path: "/apis/networking.k8s.io/v1/servicecidrs",
                labels: None,
                fields: None,
            },
        ]
    }

    /// Whether there are no rules without it (row A12).
    pub fn is_needed(&self) -> bool {
        matches!(self.kind, Kind::Service | Kind::Slice)
    }
}
