//! The objects of a case: their notation, and the manifests that it stands for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};
use svcmap::objects::{Family, Protocol};

use super::node::{LOCAL_NODE, NODE_IPS};
use super::stack::{Stack, address, in_family, network_in_family};

/// The namespace of all Services.
pub const NAMESPACE: &str = "ns";

/// Objects under a name.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub name: String,
    services: Vec<ServiceLine>,
    slices: Vec<SliceLine>,
}

#[derive(Clone, Debug)]
pub struct ServiceLine {
    pub name: String,
    keys: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct SliceLine {
    service: String,
    suffix: String,
    keys: BTreeMap<String, String>,
    endpoints: Vec<EndpointLine>,
}

#[derive(Clone, Debug)]
struct EndpointLine {
    state: char,
    name: String,
    address: String,
    zones: Vec<String>,
    nodes: Vec<String>,
}

/// `[NAME:]PORT[/PROTOCOL][@NODEPORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLine {
    pub name: Option<String>,
    pub port: Option<u16>,
    pub protocol: Protocol,
    pub node_port: Option<u16>,
}

/// Where an endpoint's address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// In a pod on the node.
    Pod,
    /// In a pod on another node.
    Elsewhere,
    /// On the node itself.
    Node,
    /// Outside the cluster.
    Outside,
}

impl Given {
    pub fn new(name: &str) -> Given {
        Given { name: name.to_owned(), ..Given::default() }
    }

    /// Reads a line of the notation.
    pub fn add(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let kind = words.next();
        let name = words.next().unwrap_or_else(|| panic!("no name in {line:?}")).to_owned();
        let (mut keys, mut endpoints) = (BTreeMap::new(), Vec::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) if !key.starts_with(|c: char| c.is_uppercase()) && !key.contains('@') => {
                    keys.insert(key.to_owned(), value.to_owned());
                }
                None if word == "headless" => drop(keys.insert(word.to_owned(), String::new())),
                _ => endpoints.push(EndpointLine::parse(word)),
            }
        }
        match kind {
            Some("service") => {
                let service = ServiceLine { name, keys };
                assert!(endpoints.is_empty(), "a Service has no endpoints: {line:?}");
                service.check(line);
                self.services.push(service);
            }
            Some("slice") => {
                let (service, suffix) = name.split_once('#').unwrap_or((&name, "1"));
                let (service, suffix) = (service.to_owned(), suffix.to_owned());
                let known = |key: &String| ["port", "type", "headless"].contains(&key.as_str());
                assert!(keys.keys().all(known), "unknown key in {line:?}");
                self.slices.push(SliceLine { service, suffix, keys, endpoints });
            }
            _ => panic!("neither a service nor a slice: {line:?}"),
        }
    }

    /// The Service of this name.
    pub fn service(&self, name: &str) -> Option<&ServiceLine> {
        self.services.iter().find(|service| service.name == name)
    }

    /// The same with the Services that only earlier states have, so that flows can name what is gone.
    pub fn after<'a>(&self, earlier: impl DoubleEndedIterator<Item = &'a Given>) -> Given {
        let mut given = self.clone();
        for service in earlier.rev().flat_map(|earlier| &earlier.services) {
            if given.service(&service.name).is_none() {
                given.services.push(service.clone());
            }
        }
        given
    }

    /// The objects as manifests.
    pub fn manifests(&self, stack: Stack) -> Vec<Value> {
        let services = self.services.iter().map(|service| service.manifest(stack));
        let slices = self.slices.iter().flat_map(|slice| slice.manifests(stack));
        services.chain(slices).collect()
    }

    /// The address of an endpoint by its name, and where it is.
    pub fn endpoint(&self, name: &str, family: Family) -> Option<(IpAddr, Home)> {
        let mut endpoints = self.slices.iter().flat_map(|slice| &slice.endpoints);
        endpoints.find(|endpoint| endpoint.name == name).map(|endpoint| endpoint.place(family))
    }

    /// Where all endpoints are that have an address.
    pub fn places(&self, stack: Stack) -> BTreeMap<IpAddr, Home> {
        let endpoints = || self.slices.iter().filter(|s| !s.keys.contains_key("type")).flat_map(|s| &s.endpoints);
        stack.families().iter().flat_map(|family| endpoints().map(|endpoint| endpoint.place(*family))).collect()
    }

    /// The ports that the endpoint of this name has for a Service port; of any, where no Service is named.
    pub fn endpoint_ports(&self, name: &str, of: Option<(&ServiceLine, &PortLine)>) -> Vec<u16> {
        let slices = self.slices.iter().filter(|slice| of.is_none_or(|(service, _)| slice.service == service.name));
        let mut ports: Vec<u16> = slices
            .filter(|slice| slice.endpoints.iter().any(|endpoint| endpoint.name == name))
            .flat_map(|slice| slice.ports())
            .filter(|port| of.is_none_or(|(_, wanted)| port.name == wanted.name && port.protocol == wanted.protocol))
            .filter_map(|port| port.port)
            .collect();
        ports.sort();
        ports.dedup();
        ports
    }
}

impl ServiceLine {
    fn check(&self, line: &str) {
        const KEYS: [&str; 12] = [
            "ip",
            "port",
            "vip",
            "external",
            "ranges",
            "iTP",
            "eTP",
            "type",
            "label",
            "affinity",
            "created",
            "noEndpoints",
        ];
        assert!(self.keys.keys().all(|key| KEYS.contains(&key.as_str())), "unknown key in {line:?}");
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    fn list(&self, key: &str) -> impl Iterator<Item = &str> {
        self.get(key).into_iter().flat_map(|value| value.split(',')).filter(|value| !value.is_empty())
    }

    /// The ports.
    pub fn ports(&self) -> Vec<PortLine> {
        PortLine::parse_all(self.get("port").unwrap_or("80"))
    }

    /// An address of the Service, as it is written: `""` for the ClusterIP, `vip`, `vip2` …, `external` …
    pub fn address(&self, which: &str) -> Option<String> {
        let digits = which.len() - which.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (kind, number) = which.split_at(which.len() - digits);
        let index = number.parse::<usize>().unwrap_or(1) - 1;
        match kind {
            "" => Some(self.get("ip").unwrap_or("172.30.0.41").to_owned()),
            "vip" => self.list("vip").nth(index).map(|ip| ip.split('/').next().unwrap_or(ip).to_owned()),
            "external" => self.list("external").nth(index).map(str::to_owned),
            _ => None,
        }
    }

    fn manifest(&self, stack: Stack) -> Value {
        let both = |texts: &[&str], map: fn(&str, Family) -> String| -> Vec<String> {
            stack.families().iter().flat_map(|family| texts.iter().map(|text| map(text, *family))).collect()
        };
        let list = |key| self.list(key).collect::<Vec<_>>();
        let cluster_ips = match self.get("ip").unwrap_or("172.30.0.41") {
            "" => Vec::new(),
            ip => both(&[ip], in_family),
        };
        let ports = self.ports();
        let ingress = both(&list("vip"), |text, family| {
            let (ip, mode) = text.split_once('/').unwrap_or((text, ""));
            format!("{}/{mode}", in_family(ip, family))
        });
        let mut spec = json!({
            "type": self.get("type").unwrap_or(self.default_type(&ports)),
            "clusterIP": cluster_ips.first().map_or("", String::as_str),
            "clusterIPs": cluster_ips,
            "ports": ports.iter().map(PortLine::service_port).collect::<Vec<_>>(),
            "externalIPs": both(&list("external"), in_family),
            "loadBalancerSourceRanges": both(&list("ranges"), |text, family| {
                let (bare, blank) = (text.trim_matches('_'), |at: bool| if at { " " } else { "" });
                let (before, after) = (blank(text.starts_with('_')), blank(text.ends_with('_')));
                format!("{before}{}{after}", network_in_family(bare, family))
            }),
        });
        for (key, field) in [("iTP", "internalTrafficPolicy"), ("eTP", "externalTrafficPolicy")] {
            if let Some(policy) = self.get(key) {
                spec[field] = json!(policy);
            }
        }
        if let Some(seconds) = self.get("affinity") {
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": number(seconds)}});
        }
        let mut metadata = json!({"name": self.name, "namespace": NAMESPACE});
        if let Some(proxy) = self.get("label") {
            metadata["labels"] = json!({"service.kubernetes.io/service-proxy-name": proxy});
        }
        if let Some(seconds) = self.get("created") {
            metadata["creationTimestamp"] = json!(format!("2026-01-01T00:00:{:02}Z", number(seconds)));
        }
        if let Some(word) = self.get("noEndpoints") {
            metadata["annotations"] = json!({"svcmap.io/no-endpoints": word});
        }
        let ingress: Vec<Value> = ingress.iter().map(|text| ingress_entry(text)).collect();
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    fn default_type(&self, ports: &[PortLine]) -> &'static str {
        if self.keys.contains_key("vip") {
            "LoadBalancer"
        } else if ports.iter().any(|port| port.node_port.is_some()) {
            "NodePort"
        } else {
            "ClusterIP"
        }
    }
}

fn ingress_entry(text: &str) -> Value {
    let (target, mode) = text.split_once('/').unwrap_or((text, ""));
    let field = if svcmap::objects::parse_address(target).is_some() { "ip" } else { "hostname" };
    let mut entry = json!({field: target});
    if !mode.is_empty() {
        entry["ipMode"] = json!(mode);
    }
    entry
}

impl SliceLine {
    fn ports(&self) -> Vec<PortLine> {
        PortLine::parse_all(self.keys.get("port").map_or("8080", String::as_str))
    }

    /// One slice of each family.
    fn manifests(&self, stack: Stack) -> Vec<Value> {
        stack.families().iter().map(|family| self.manifest(*family)).collect()
    }

    fn manifest(&self, family: Family) -> Value {
        let mut labels = json!({"kubernetes.io/service-name": self.service});
        if self.keys.contains_key("headless") {
            labels["service.kubernetes.io/headless"] = json!("");
        }
        let kind = self.keys.get("type").cloned().unwrap_or_else(|| family.to_string());
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{}-{}-{family}", self.service, self.suffix).to_lowercase(),
                "namespace": NAMESPACE, "labels": labels,
            },
            "addressType": kind,
            "ports": self.ports().iter().map(PortLine::slice_port).collect::<Vec<_>>(),
            "endpoints": self.endpoints.iter().map(|endpoint| endpoint.manifest(family)).collect::<Vec<_>>(),
        })
    }
}

impl EndpointLine {
    /// `[STATE@]NAME[=ADDRESS][[HINTS]]`
    fn parse(word: &str) -> EndpointLine {
        let (rest, hints) = match word.split_once('[') {
            Some((rest, hints)) => (rest, hints.strip_suffix(']').unwrap_or_else(|| panic!("no ] in {word:?}"))),
            None => (word, ""),
        };
        let (state, rest) = match rest.split_once('@') {
            Some((state, rest)) => (state.parse().unwrap_or_else(|_| panic!("state of {word:?}")), rest),
            None => ('r', rest),
        };
        let (name, address) = match rest.split_once('=') {
            Some((name, address)) => (name.to_owned(), address.to_owned()),
            None => (rest.to_owned(), format!("10.180.0.{}", number(&rest[1..]))),
        };
        assert!(name.starts_with(['L', 'R']), "{word:?} is neither L nor R");
        let hints = hints.split(',').filter(|hint| !hint.is_empty());
        let (nodes, zones): (Vec<&str>, Vec<&str>) = hints.partition(|hint| hint.starts_with('@'));
        let zones = zones.into_iter().map(str::to_owned).collect();
        let nodes = nodes.into_iter().map(|node| node[1..].to_owned()).collect();
        EndpointLine { state, name, address, zones, nodes }
    }

    fn place(&self, family: Family) -> (IpAddr, Home) {
        let home = match &self.name[..1] {
            _ if NODE_IPS.contains(&self.address.as_str()) => Home::Node,
            "L" => Home::Pod,
            _ => Home::Elsewhere,
        };
        (address(&self.address, family), home)
    }

    fn manifest(&self, family: Family) -> Value {
        let conditions =
            |ready, serving, terminating| json!({"ready": ready, "serving": serving, "terminating": terminating});
        let conditions = match self.state {
            'r' => conditions(true, true, false),
            't' => conditions(false, true, true),
            'd' => conditions(false, false, true),
            'u' => conditions(false, false, false),
            's' => conditions(false, true, false),
            'p' => conditions(true, true, true),
            'n' => json!({}),
            other => panic!("{other:?} is no state of an endpoint"),
        };
        let mut endpoint = json!({
            "addresses": [in_family(&self.address, family)],
            "conditions": conditions,
            "nodeName": if self.name.starts_with('L') { LOCAL_NODE } else { "n2" },
        });
        let names = |names: &[String]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        if !self.zones.is_empty() {
            endpoint["hints"]["forZones"] = json!(names(&self.zones));
        }
        if !self.nodes.is_empty() {
            endpoint["hints"]["forNodes"] = json!(names(&self.nodes));
        }
        endpoint
    }
}

impl PortLine {
    fn parse_all(text: &str) -> Vec<PortLine> {
        text.split(',').filter(|port| !port.is_empty()).map(PortLine::parse).collect()
    }

    fn parse(text: &str) -> PortLine {
        let (rest, node_port) = match text.split_once('@') {
            Some((rest, node_port)) => (rest, Some(number(node_port))),
            None => (text, None),
        };
        let (rest, protocol) = rest.split_once('/').unwrap_or((rest, "TCP"));
        let (name, port) = rest.split_once(':').unwrap_or(("", rest));
        PortLine {
            name: (name != "nil").then(|| name.to_owned()),
            port: (port != "nil").then(|| number(port)),
            protocol: Protocol::from_kubernetes(protocol).unwrap_or_else(|| panic!("protocol of {text:?}")),
            node_port,
        }
    }

    fn service_port(&self) -> Value {
        let mut port = self.slice_port();
        if let Some(number) = self.node_port {
            port["nodePort"] = json!(number);
        }
        port
    }

    fn slice_port(&self) -> Value {
        let mut port = json!({"protocol": self.protocol.to_string().to_uppercase()});
        if let Some(name) = &self.name {
            port["name"] = json!(name);
        }
        if let Some(number) = self.port {
            port["port"] = json!(number);
        }
        port
    }
}

fn number(text: &str) -> u16 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}
