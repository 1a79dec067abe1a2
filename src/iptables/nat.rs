//! The table `nat`: which connection goes to which endpoint, and whose source is replaced.

use super::matches::{comment, from_pods, to_address, to_frontend, to_node};
use super::names::{self, PortChains};
use super::ruleset::Table;
use crate::objects::Family;
use crate::plan::{Endpoint, Frontend, FrontendAddress, Masquerade, NodePlan, PoolKind, PortPlan};

/// The jumps from the kernel's own chains.
const JUMPS: [(&str, &str); 3] =
    [("PREROUTING", names::SERVICES), ("OUTPUT", names::SERVICES), ("POSTROUTING", names::POSTROUTING)];

/// The table of one family.
pub fn table<'a>(node: &NodePlan, family: Family, ports: impl Iterator<Item = &'a PortPlan>) -> Table {
    let mut table = Table::new("nat");
    for (from, to) in JUMPS {
        let why = if to == names::POSTROUTING { "kubernetes postrouting rules" } else { "kubernetes service portals" };
        table.hook(from, format!("{} -j {to}", comment(why)));
    }
    for chain in [names::SERVICES, names::NODE_PORTS] {
        table.chain(chain);
    }
    masquerading(node, family, &mut table);
    for port in ports {
        Port { node, port, chains: PortChains::new(port), name: port.id.name.as_str() }.write(&mut table);
    }
    for to in to_node(node, family) {
        let why = comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain");
        table.rule(names::SERVICES, format!("{why} {to} -j {}", names::NODE_PORTS));
    }
    table
}

/// Behaviour row E9.
pub(crate) fn masquerading(node: &NodePlan, family: Family, table: &mut Table) {
    let mark = node.masquerade_mark;
    table.rule(names::MARK_MASQUERADE, format!("-j MARK --or-mark {mark:#x}"));
    table.rule(names::POSTROUTING, format!("-m mark ! --mark {mark:#x}/{mark:#x} -j RETURN"));
    table.rule(names::POSTROUTING, format!("-j MARK --xor-mark {mark:#x}"));
    let why = comment("kubernetes service traffic requiring SNAT");
    table.rule(names::POSTROUTING, format!("{why} -j MASQUERADE --random-fully"));
    let pods = from_pods(node, family);
    if pods.len() > 1 {
        pods.iter().for_each(|from| table.rule(names::MARK_OFF_CLUSTER, format!("{from} -j RETURN")));
        table.rule(names::MARK_OFF_CLUSTER, format!("-j {}", names::MARK_MASQUERADE));
    }
}

/// One Service port's rules.
struct Port<'a> {
    node: &'a NodePlan,
    port: &'a PortPlan,
    chains: PortChains,
    name: &'a str,
}

impl Port<'_> {
    fn write(&self, table: &mut Table) {
        let mut external = None;
        for frontend in self.port.frontends.iter().filter(|frontend| self.leads_somewhere(frontend)) {
            match frontend.address {
                FrontendAddress::Cluster(..) => {
                    self.to(frontend, "cluster IP", &self.chains.pool(frontend.pool), table);
                    self.masquerade_cluster_ip(frontend, table);
                }
                FrontendAddress::External(..) if frontend.sources.is_some() => {
                    self.to(frontend, "loadbalancer IP", &self.chains.firewall(), table);
                    self.firewall(frontend, table);
                    external = Some(frontend);
                }
                FrontendAddress::External(..) => {
                    self.to(frontend, "external IP", &self.chains.external(), table);
                    external = Some(frontend);
                }
                FrontendAddress::NodePort(number) => {
                    let (why, protocol) = (comment(self.name), self.port.protocol);
                    let to = format!("{why} -m {protocol} -p {protocol} --dport {number}");
                    table.rule(names::NODE_PORTS, format!("{to} -j {}", self.chains.external()));
                    external = Some(frontend);
                }
            }
        }
        if let Some(frontend) = external {
            self.external(frontend, table);
        }
        for kind in [PoolKind::Cluster, PoolKind::Local] {
            self.pool(kind, table);
        }
    }

    /// Whether anybody who asks there gets an endpoint.
    fn leads_somewhere(&self, frontend: &Frontend) -> bool {
        let short_circuited = frontend.short_circuit && !self.port.cluster.is_empty();
        !self.port.pool(frontend.pool).is_empty() || short_circuited
    }

    fn to(&self, frontend: &Frontend, what: &str, chain: &str, table: &mut Table) {
        let why = comment(&format!("{} {what}", self.name));
        for to in to_frontend(self.node, self.port, frontend.address) {
            table.rule(names::SERVICES, format!("{why} {to} -j {chain}"));
        }
    }

    /// Behaviour rows E2–E4: in the pool's chain, before endpoints are drawn.
    fn masquerade_cluster_ip(&self, frontend: &Frontend, table: &mut Table) {
        let FrontendAddress::Cluster(ip, number) = frontend.address else { return };
        let pods = from_pods(self.node, self.port.id.family);
        let (from, target) = match (frontend.masquerade, pods.as_slice()) {
            (Masquerade::Always, _) => (String::new(), names::MARK_MASQUERADE),
            (Masquerade::OffCluster, _) if self.node.masquerade_all => (String::new(), names::MARK_MASQUERADE),
            (Masquerade::Never, _) | (Masquerade::OffCluster, []) => return,
            (Masquerade::OffCluster, [pods]) => (format!(" ! {pods}"), names::MARK_MASQUERADE),
            (Masquerade::OffCluster, _) => (String::new(), names::MARK_OFF_CLUSTER),
        };
        let why = comment(&format!("{} cluster IP", self.name));
        let to = to_address(self.port, ip, number);
        table.rule(&self.chains.pool(frontend.pool), format!("{why} {to}{from} -j {target}"));
    }

    /// What all external frontends of a Service port lead to (rows E5–E8, C13): one routing, since one policy holds for
    /// all of them.
    fn external(&self, frontend: &Frontend, table: &mut Table) {
        let (chain, name) = (self.chains.external(), self.name);
        let cluster = self.chains.pool(PoolKind::Cluster);
        if frontend.masquerade == Masquerade::Always {
            let why = comment(&format!("masquerade traffic for {name} external destinations"));
            table.rule(&chain, format!("{why} -j {}", names::MARK_MASQUERADE));
        }
        if frontend.short_circuit && !self.port.cluster.is_empty() {
            let why = comment(&format!("pod traffic for {name} external destinations"));
            for from in from_pods(self.node, self.port.id.family) {
                table.rule(&chain, format!("{why} {from} -j {cluster}"));
            }
            let why = |what| comment(&format!("{what} LOCAL traffic for {name} external destinations"));
            let node = "-m addrtype --src-type LOCAL";
            table.rule(&chain, format!("{} {node} -j {}", why("masquerade"), names::MARK_MASQUERADE));
            table.rule(&chain, format!("{} {node} -j {cluster}", why("route")));
        }
        if !self.port.pool(frontend.pool).is_empty() {
            table.rule(&chain, format!("-j {}", self.chains.pool(frontend.pool)));
        }
    }

    /// Behaviour rows F7–F9: who is not listed goes on untranslated, to the firewall of the table `filter`.
    fn firewall(&self, frontend: &Frontend, table: &mut Table) {
        let chain = self.chains.firewall();
        if table.has(&chain) {
            return;
        }
        let why = comment(&format!("{} loadbalancer IP", self.name));
        for source in frontend.sources.iter().flat_map(|sources| sources.iter()) {
            table.rule(&chain, format!("{why} -s {source} -j {}", self.chains.external()));
        }
        let other = comment(&format!("other traffic to {} will be dropped by {}", self.name, names::PROXY_FIREWALL));
        table.rule(&chain, other);
    }

    /// One of the endpoints: the one that the client had (row D1), or any, each with the same probability.
    fn pool(&self, kind: PoolKind, table: &mut Table) {
        let endpoints = self.port.pool(kind);
        let chain = self.chains.pool(kind);
        for endpoint in endpoints {
            let name = self.chains.endpoint(endpoint);
            if let Some(seconds) = self.port.affinity {
                let recent = format!("-m recent --name {name} --rcheck --seconds {seconds} --reap");
                table.rule(&chain, format!("{} {recent} -j {name}", self.leads_to(endpoint)));
            }
            if !table.has(&name) {
                self.endpoint(endpoint, &name, table);
            }
        }
        for (at, endpoint) in endpoints.iter().enumerate() {
            let left = endpoints.len() - at;
            let draw = match left {
                1 => String::new(),
                _ => format!(" -m statistic --mode random --probability {:.10}", 1.0 / left as f64),
            };
            let name = self.chains.endpoint(endpoint);
            table.rule(&chain, format!("{}{draw} -j {name}", self.leads_to(endpoint)));
        }
    }

    fn leads_to(&self, endpoint: &Endpoint) -> String {
        comment(&format!("{} -> {endpoint}", self.name))
    }

    /// Row E1: an endpoint that reaches itself is masqueraded. The layout says so for those of other nodes, too.
    fn endpoint(&self, endpoint: &Endpoint, chain: &str, table: &mut Table) {
        let (why, protocol) = (comment(self.name), self.port.protocol);
        table.rule(chain, format!("{why} -s {} -j {}", endpoint.ip, names::MARK_MASQUERADE));
        let learn = match self.port.affinity {
            Some(_) => format!(" -m recent --name {chain} --set"),
            None => String::new(),
        };
        table.rule(chain, format!("{why}{learn} -m {protocol} -p {protocol} -j DNAT --to-destination {endpoint}"));
    }
}
