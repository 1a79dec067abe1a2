//! What `iptables-save` and `ip6tables-save` print of kube-proxy's iptables mode, legacy or over nftables, and what
//! `svcmap render --mode iptables` prints. Chains are followed by their targets; comments give Services their names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::super::compare::NAMELESS;
use super::super::findings::{Finding, Kind};
use super::super::ports::{Drawn, Frontend, Port, Who};
use super::super::xtables::matches::Recent;
use super::super::xtables::{Rule, Table, Tables};
use super::{Layout, Reading, port_name};
use crate::ipvs::names::CHAINS;
use crate::objects::{Family, Protocol};
use crate::plan::{FrontendAddress, PoolKind, PortId, PortName, Verdict};

/// Reads all tables that a text has.
pub fn read(text: &str, reading: &mut Reading) {
    let (tables, notes) = Tables::read(text, super::ipvs::is_other);
    reading.findings.extend(notes.into_iter().map(|(line, kind, what)| {
        let what = format!("line {line}: {what}");
        Finding { kind, service: None, what }
    }));
    // the mode ipvs has some of these chains, too, beside its own
    let found = tables.all().any(|(_, _, table)| {
        table.find("KUBE-SERVICES").is_some() && !CHAINS.iter().any(|chain| table.find(chain).is_some())
    });
    let mut ports = BTreeMap::new();
    for family in Family::BOTH {
        let empty = Table::default();
        let of = |name: &str| tables.table(family, name).unwrap_or(&empty);
        let mut reader =
            Reader { family, nat: of("nat"), filter: of("filter"), ports: BTreeMap::new(), findings: Vec::new() };
        reader.read();
        ports.append(&mut reader.ports);
        reading.findings.append(&mut reader.findings);
    }
    if found {
        reading.add(Layout::KubeProxyIptables, ports.into_values());
    }
    reading.xtables.layers.push(tables);
}

/// A chain by which kube-proxy notices that somebody has flushed the rules: only it has that.
const CANARY: &str = "KUBE-PROXY-CANARY";

struct Reader<'a> {
    family: Family,
    nat: &'a Table,
    filter: &'a Table,
    ports: BTreeMap<PortId, Port>,
    findings: Vec<Finding>,
}

/// `KUBE-SVC-…` and the others, by the hash that they share.
fn hash_of(chain: &str) -> Option<(&str, &str)> {
    ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-"]
        .into_iter()
        .find_map(|prefix| chain.strip_prefix(prefix).map(|hash| (prefix, hash)))
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        let names = self.names();
        let mut used = BTreeSet::new();
        let mut pools: BTreeMap<PortId, &'a str> = BTreeMap::new();
        for chain in ["KUBE-SERVICES", "KUBE-NODEPORTS"] {
            for rule in self.rules(self.nat, chain) {
                let Some(target) = rule.target.as_deref() else { continue };
                let Some((prefix, hash)) = hash_of(target) else { continue };
                let Some(protocol) = rule.protocol else { continue };
                // a rule that only counts connections to the loopback addresses comes before that of its node port
                if chain == "KUBE-NODEPORTS" && rule.destination.is_some_and(|(net, _)| net.addr().is_loopback()) {
                    continue;
                }
                let address = match (rule.destination.map(|(net, _)| net.addr()), rule.port) {
                    (Some(ip), Some(port)) if prefix == "KUBE-SVC-" || prefix == "KUBE-SVL-" => {
                        FrontendAddress::Cluster(ip, port)
                    }
                    (Some(ip), Some(port)) => FrontendAddress::External(ip, port),
                    (None, Some(port)) => FrontendAddress::NodePort(port),
                    _ => {
                        self.find(Kind::NotUnderstood, None, format!("line {}: a frontend without a port", rule.line));
                        continue;
                    }
                };
                let nameless = || PortName::parse(&format!("{NAMELESS}KUBE-SVC-{hash}"));
                let name = names.get(hash).cloned().unwrap_or_else(nameless);
                let frontend = self.frontend(address, target, prefix, hash, &mut used);
                let id = PortId { name, family: self.family };
                pools.insert(id.clone(), hash);
                let port = self.ports.entry(id.clone()).or_insert_with(|| Port::new(id, protocol));
                port.frontends.push(frontend);
            }
        }
        for (id, hash) in pools {
            self.pools(&id, hash, &mut used);
        }
        self.verdicts();
        self.passed();
        self.firewall();
        self.stale(&used);
    }

    fn rules(&self, table: &'a Table, chain: &str) -> &'a [Rule] {
        table.rules(chain)
    }

    fn find(&mut self, kind: Kind, service: Option<&PortName>, what: String) {
        self.findings.push(Finding { kind, service: service.map(|name| name.as_str().to_owned()), what });
    }

    /// What Service ports are called, by hash. In large clusters kube-proxy leaves comments out.
    fn names(&self) -> HashMap<&'a str, PortName> {
        let mut names = HashMap::new();
        for rule in self.nat.chains().iter().flat_map(|chain| &chain.rules) {
            let (Some(target), Some(comment)) = (rule.target.as_deref(), rule.comment.as_deref()) else { continue };
            let Some((_, hash)) = hash_of(target) else { continue };
            let name = comment.split(' ').next().unwrap_or_default();
            if name.contains('/') {
                names.entry(hash).or_insert_with(|| port_name(name));
            }
        }
        names
    }

    fn frontend(
        &mut self,
        address: FrontendAddress,
        target: &'a str,
        prefix: &str,
        hash: &str,
        used: &mut BTreeSet<String>,
    ) -> Frontend {
        let mut frontend = Frontend::new(address);
        used.insert(target.to_owned());
        match prefix {
            "KUBE-SVC-" | "KUBE-SVL-" => {
                frontend.pool = if prefix == "KUBE-SVL-" { PoolKind::Local } else { PoolKind::Cluster };
                frontend.masquerade = self.cluster_masquerade(target, address);
            }
            _ => {
                if prefix == "KUBE-FW-" {
                    let leads_on = |rule: &&Rule| rule.target.as_deref().and_then(hash_of).is_some();
                    let allowed = self.rules(self.nat, target).iter().filter(leads_on);
                    frontend.sources = Some(allowed.map(|rule| self.source_of(rule)).collect());
                }
                self.external(&format!("KUBE-EXT-{hash}"), &mut frontend, used);
            }
        }
        frontend
    }

    /// Who a rule lets on: all where it does not ask, since `iptables-save` leaves a prefix of length zero out.
    fn source_of(&self, rule: &Rule) -> IpNet {
        let all = || match self.family {
            Family::V4 => Ipv4Net::default().into(),
            Family::V6 => Ipv6Net::default().into(),
        };
        rule.source.map_or_else(all, |(net, _)| net)
    }

    fn cluster_masquerade(&self, chain: &str, address: FrontendAddress) -> Who {
        let is_mark = |rule: &&Rule| {
            let target = rule.target.as_deref();
            matches!(target, Some("KUBE-MARK-MASQ" | "KUBE-MARK-OFF-CLUSTER"))
                && rule.destination.is_some_and(|(net, _)| Some(net.addr()) == address.ip())
                && rule.port == Some(address.port())
        };
        match self.rules(self.nat, chain).iter().find(is_mark) {
            None => Who::Nobody,
            Some(rule) if rule.target.as_deref() == Some("KUBE-MARK-OFF-CLUSTER") || rule.asks_for_source() => {
                Who::OffCluster
            }
            Some(_) => Who::Everybody,
        }
    }

    fn external(&self, chain: &str, frontend: &mut Frontend, used: &mut BTreeSet<String>) {
        used.insert(chain.to_owned());
        let rules = self.rules(self.nat, chain);
        let targets = || rules.iter().filter_map(|rule| rule.target.as_deref());
        if rules.iter().any(|rule| rule.source_is_local()) || targets().any(|target| target.starts_with("KUBE-SVL-")) {
            frontend.pool = PoolKind::Local;
            frontend.short_circuit = rules.iter().any(|rule| rule.source_is_local());
        } else if rules.iter().any(|rule| rule.target.as_deref() == Some("KUBE-MARK-MASQ")) {
            frontend.masquerade = Who::Everybody;
        }
        used.extend(targets().map(str::to_owned));
    }

    fn pools(&mut self, id: &PortId, hash: &str, used: &mut BTreeSet<String>) {
        for (prefix, kind) in [("KUBE-SVC-", PoolKind::Cluster), ("KUBE-SVL-", PoolKind::Local)] {
            let chain = format!("{prefix}{hash}");
            let mut drawn: BTreeMap<SocketAddr, f64> = BTreeMap::new();
            let (mut left, mut affinity) = (1.0, None);
            for rule in self.rules(self.nat, &chain) {
                let Some(target) = rule.target.as_deref().filter(|target| target.starts_with("KUBE-SEP-")) else {
                    continue;
                };
                used.insert(target.to_owned());
                if let Some((_, Recent::Check { seconds })) = rule.recent() {
                    affinity = affinity.or(seconds);
                    continue;
                }
                let share = left * rule.probability().unwrap_or(1.0);
                left -= share;
                match self.rules(self.nat, target).iter().find_map(Rule::to_destination) {
                    Some(to) => *drawn.entry(to).or_default() += share,
                    None => {
                        let what = format!("line {}: chain {target} leads to no endpoint", rule.line);
                        self.find(Kind::Dead, Some(&id.name), what);
                    }
                }
            }
            let Some(port) = self.ports.get_mut(id) else { continue };
            let drawn = drawn.into_iter().map(|(to, share)| Drawn { ip: to.ip(), port: to.port(), share }).collect();
            port.affinity = port.affinity.or(affinity);
            match kind {
                PoolKind::Cluster => port.cluster = drawn,
                PoolKind::Local => port.local = drawn,
            }
        }
    }

    /// What there is no endpoint for (rows C12–C14 of the rules).
    fn verdicts(&mut self) {
        for chain in ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"] {
            for rule in self.rules(self.filter, chain) {
                let verdict = match rule.target.as_deref() {
                    Some("REJECT") => Verdict::Reject,
                    Some("DROP") => Verdict::Drop,
                    _ => continue,
                };
                let (Some(protocol), Some(number)) = (rule.protocol, rule.port) else { continue };
                let address = match rule.destination {
                    _ if rule.destination_is_local() => FrontendAddress::NodePort(number),
                    Some((net, _)) if chain == "KUBE-SERVICES" => FrontendAddress::Cluster(net.addr(), number),
                    Some((net, _)) => FrontendAddress::External(net.addr(), number),
                    None => FrontendAddress::NodePort(number),
                };
                let nameless = || PortName::parse(&format!("{NAMELESS}line {}", rule.line));
                let name =
                    rule.comment.as_deref().and_then(|text| text.split(' ').next()).map_or_else(nameless, port_name);
                let id = PortId { name, family: self.family };
                let port = self.ports.entry(id.clone()).or_insert_with(|| Port::new(id, protocol));
                match port.frontends.iter_mut().find(|frontend| frontend.address == address) {
                    Some(frontend) => frontend.no_endpoints = Some(verdict),
                    None => {
                        port.frontends.push(Frontend { no_endpoints: Some(verdict), ..Frontend::new(address) });
                    }
                }
            }
        }
    }

    /// External addresses with endpoints on other nodes alone, and no verdict: connections to these pass. Where another address of
    /// the port has a verdict, this one should have had it, too; and kube-proxy lets nothing pass.
    fn passed(&mut self) {
        if self.filter.chains().is_empty() || self.nat.find(CANARY).is_some() {
            return;
        }
        for port in self.ports.values_mut().filter(|port| port.local.is_empty() && !port.cluster.is_empty()) {
            let is_external = |one: &Frontend| matches!(one.address, FrontendAddress::External(..));
            if port.frontends.iter().any(|one| is_external(one) && one.no_endpoints.is_some()) {
                continue;
            }
            let is_passed = |one: &&mut Frontend| is_external(one) && one.pool == PoolKind::Local;
            port.frontends.iter_mut().filter(is_passed).for_each(|one| one.no_endpoints = Some(Verdict::Pass));
        }
    }

    /// Sources of frontends that have no endpoint: they may come as far as the verdict.
    fn firewall(&mut self) {
        let mut allowed: BTreeMap<(Option<Protocol>, IpAddr, Option<u16>), Vec<IpNet>> = BTreeMap::new();
        for rule in self.rules(self.filter, "KUBE-PROXY-FIREWALL") {
            let Some((net, _)) = rule.destination else { continue };
            let sources = allowed.entry((rule.protocol, net.addr(), rule.port)).or_default();
            if rule.target.as_deref() == Some("RETURN") {
                sources.push(self.source_of(rule));
            }
        }
        for port in self.ports.values_mut() {
            for frontend in &mut port.frontends {
                let FrontendAddress::External(ip, number) = frontend.address else { continue };
                if let Some(sources) = allowed.get(&(Some(port.protocol), ip, Some(number))) {
                    frontend.sources.get_or_insert_with(|| sources.clone());
                }
            }
        }
    }

    fn stale(&mut self, used: &BTreeSet<String>) {
        let is_own = |chain: &str| hash_of(chain).is_some() || chain.starts_with("KUBE-SEP-");
        let names = self.nat.chains().iter().map(|chain| &*chain.name);
        let stale: Vec<String> =
            names.filter(|chain| is_own(chain) && !used.contains(*chain)).map(str::to_owned).collect();
        for chain in stale {
            self.find(Kind::Stale, None, format!("nothing leads to chain {chain}"));
        }
    }
}
