//! The tables of kube-proxy's nftables mode.
//!
//! All generations are read alike, since what tells them apart is looked up where it stands: endpoints in chains of
//! their own (releases 1.29–1.35), in a map of the Service's chain (from 1.36 on, and from 1.37 on a single one in the rule) or
//! in a map that all share (proposed), the mark set by a jump or in the rule, the checks for missing endpoints before or
//! after DNAT.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::super::compare::NAMELESS;
use super::super::findings::{Finding, Kind};
use super::super::ports::{Drawn, Frontend, Port, Who};
use super::shared_map::{self, SharedMap};
use super::{Layout, Reading, rule};
use crate::amounts::counted;
use crate::netlink::model::{Data, Expr, Name, Rule, Verdict};
use crate::nftables::rule::nf_family;
use crate::objects::{Family, Protocol, ServiceKey};
use crate::plan::{Claim, FrontendAddress, PoolKind, PortId, PortName, Verdict as NoEndpoints};
use crate::trace::{Ruleset, SetElements, TableRules};

const TABLE: &str = "kube-proxy";
/// The chain that sets the mark, in generations that have it.
const MARK_CHAIN: &str = "mark-for-masquerade";

/// Reads the tables, if they are there.
pub fn read(ruleset: &Ruleset, reading: &mut Reading) {
    for family in Family::BOTH {
        let table = ruleset.tables().find(|table| table.table.family == nf_family(family) && table.table.name == TABLE);
        if let Some(table) = table {
            let shared = SharedMap::read(family, table.sets.get("endpoints"));
            let (ports, owners, findings) = (BTreeMap::new(), HashMap::new(), Vec::new());
            let mut reader = Reader { ruleset, family, table, shared, ports, owners, findings };
            reader.read();
            let Reader { ports, findings, .. } = reader;
            reading.findings.extend(findings);
            reading.add(Layout::KubeProxyNftables, ports.into_values());
        }
    }
}

struct Reader<'a> {
    ruleset: &'a Ruleset,
    family: Family,
    table: &'a TableRules,
    /// The endpoints that Services share a map for.
    shared: SharedMap,
    ports: BTreeMap<PortId, Port>,
    /// Whose frontends maps lead to chains from.
    owners: HashMap<(Protocol, FrontendAddress), PortId>,
    findings: Vec<Finding>,
}

/// What a chain's name says: `service-HASH-namespace/name/protocol/port`.
struct ChainName {
    prefix: String,
    name: PortName,
    protocol: Protocol,
}

impl ChainName {
    fn parse(chain: &str) -> Option<ChainName> {
        let (prefix, rest) = chain.split_once('-')?;
        let (_, text) = rest.split_once('-')?;
        let text = text.split_once("__").map_or(text, |(service, _)| service);
        let mut parts = text.splitn(4, '/');
        let (namespace, name, protocol, port) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let protocol = Protocol::from_name(protocol)?;
        let name = PortName::new(&ServiceKey::new(namespace, name), port);
        Some(ChainName { prefix: prefix.to_owned(), name, protocol })
    }
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        let cluster_ips: BTreeSet<IpAddr> = match self.set("cluster-ips") {
            Some(set) => set.elements.iter().filter_map(|element| rule::ip(&element.key)).collect(),
            None => BTreeSet::new(),
        };
        for (map, with_address) in [("service-ips", true), ("service-nodeports", false)] {
            for (key, verdict, _) in self.verdicts(map, with_address) {
                let Verdict::Goto(chain) = verdict else { continue };
                match (shared_map::count(chain), key.ip) {
                    (Some(count), Some(ip)) => self.dispatched(key.address(&cluster_ips), key, ip, chain, count),
                    _ => self.frontend(&cluster_ips, key, chain),
                }
            }
        }
        for (map, with_address) in [("no-endpoint-services", true), ("no-endpoint-nodeports", false)] {
            for (key, verdict, comment) in self.verdicts(map, with_address) {
                self.no_endpoints(&cluster_ips, key, verdict, comment);
            }
        }
        for (key, verdict, _) in self.verdicts("firewall-ips", true) {
            let Verdict::Goto(chain) = verdict else { continue };
            self.firewall(key, chain);
        }
        self.pools();
        self.stale_chains();
        self.stale_elements();
    }

    fn set(&self, name: &str) -> Option<&'a SetElements> {
        self.table.sets.get(name)
    }

    /// The elements of a verdict map: address, protocol and port, the verdict, and the comment.
    fn verdicts(&mut self, map: &str, with_address: bool) -> Vec<(Key, &'a Verdict, Option<&'a str>)> {
        let Some(set) = self.set(map) else { return Vec::new() };
        let mut found = Vec::new();
        for element in set.elements.iter() {
            match (Key::read(self.family, &element.key, with_address), &element.data) {
                (Some(key), Data::Verdict(verdict)) => found.push((key, verdict, element.comment.as_deref())),
                _ => self.find(Kind::NotUnderstood, None, format!("an element of {map} is no frontend")),
            }
        }
        found
    }

    fn find(&mut self, kind: Kind, service: Option<&PortName>, what: String) {
        let what = format!("{} {TABLE}: {what}", nf_family(self.family).name());
        self.findings.push(Finding { kind, service: service.map(|name| name.as_str().to_owned()), what });
    }

    fn port(&mut self, name: &PortName, protocol: Protocol) -> &mut Port {
        let id = PortId { name: name.clone(), family: self.family };
        self.ports.entry(id.clone()).or_insert_with(|| Port::new(id, protocol))
    }

    fn frontend(&mut self, cluster_ips: &BTreeSet<IpAddr>, key: Key, chain: &'a Name) {
        let Some(parsed) = ChainName::parse(chain) else {
            return self.find(
                Kind::NotUnderstood,
                None,
                format!("{key} leads to {chain}, which is no Service's chain"),
            );
        };
        let mut frontend = Frontend::new(key.address(cluster_ips));
        match parsed.prefix.as_str() {
            "service" | "local" => {
                frontend.pool = if parsed.prefix == "local" { PoolKind::Local } else { PoolKind::Cluster };
                frontend.masquerade = self.cluster_masquerade(chain, key);
            }
            "external" => self.external(chain, &mut frontend),
            _ => {
                let what = format!("{key} leads to {chain}, which is not understood");
                return self.find(Kind::NotUnderstood, Some(&parsed.name), what);
            }
        }
        if !self.table.chains.contains_key(chain) {
            self.find(Kind::Missing, Some(&parsed.name), format!("there is no chain {chain}"));
        }
        let id = PortId { name: parsed.name.clone(), family: self.family };
        self.owners.insert((parsed.protocol, frontend.address), id);
        self.port(&parsed.name, parsed.protocol).frontends.push(frontend);
    }

    /// A frontend whose chain is that of all with as many endpoints. Nothing tells the Service's name.
    fn dispatched(&mut self, address: FrontendAddress, key: Key, ip: IpAddr, chain: &'a Name, count: u32) {
        let claim = Claim::new(self.family, key.protocol, address);
        let name = PortName::parse(&format!("{NAMELESS}{claim}"));
        let mut frontend = Frontend::new(address);
        frontend.masquerade = self.cluster_masquerade(chain, key);
        match self.rules(chain).iter().find_map(rule::draws) {
            None if !self.table.chains.contains_key(chain) => {
                self.find(Kind::Missing, Some(&name), format!("there is no chain {chain}"));
            }
            Some(of) if of == count => {}
            _ => self.find(Kind::Damaged, Some(&name), format!("chain {chain} does not draw one of {count}")),
        }
        let (drawn, missing) = self.shared.take(key.protocol, ip, key.port, count);
        for bucket in missing {
            self.find(Kind::Dead, Some(&name), format!("there is no endpoint with the number {bucket} of {count}"));
        }
        let port = self.port(&name, key.protocol);
        port.frontends.push(frontend);
        port.cluster = drawn;
    }

    fn stale_elements(&mut self) {
        let left: Vec<String> =
            self.shared.left().map(|(protocol, to, count)| format!("{to}/{protocol} has {count}")).collect();
        for one in left {
            self.find(Kind::Stale, None, format!("endpoints that nothing draws: {one}"));
        }
        if self.shared.strange > 0 {
            let what = format!("of the map endpoints, {} cannot be read", counted(self.shared.strange, "element"));
            self.find(Kind::NotUnderstood, None, what);
        }
    }

    fn rules(&self, chain: &str) -> &'a [Rule] {
        self.table.chains.get(chain).map_or(&[], |chain| chain.rules.as_slice())
    }

    fn asks_for_masquerade(rule: &Rule) -> bool {
        rule::marks(rule) || rule::leads_to(rule).is_some_and(|chain| chain == MARK_CHAIN)
    }

    /// Whose source is replaced on the way to a ClusterIP: as the Service's chain says, or the first rule for all of them.
    fn cluster_masquerade(&self, chain: &str, key: Key) -> Who {
        let by_all =
            self.rules("services").iter().filter(|one| rule::lookups(one).any(|(set, _)| set == "cluster-ips"));
        let own = self.rules(chain).iter().filter(|one| asks_for(one, key.ip));
        match own.chain(by_all).find(|one| Reader::asks_for_masquerade(one)) {
            Some(one) if rule::asks_for_source(one) => Who::OffCluster,
            Some(_) => Who::Everybody,
            None => Who::Nobody,
        }
    }

    /// Whether the policy is Local is told by whether the chain asks for the node's own connections.
    fn external(&self, chain: &str, frontend: &mut Frontend) {
        let rules = self.rules(chain);
        if rules.iter().any(rule::asks_for_node) {
            (frontend.pool, frontend.short_circuit) = (PoolKind::Local, true);
        } else if rules.iter().any(Reader::asks_for_masquerade) {
            frontend.masquerade = Who::Everybody;
        }
    }

    fn no_endpoints(&mut self, cluster_ips: &BTreeSet<IpAddr>, key: Key, verdict: &Verdict, comment: Option<&str>) {
        let verdict = match verdict {
            Verdict::Drop => NoEndpoints::Drop,
            Verdict::Accept => NoEndpoints::Pass,
            _ => NoEndpoints::Reject,
        };
        let address = key.address(cluster_ips);
        if let Some(frontend) = self.laid_out(key.protocol, address) {
            frontend.no_endpoints = Some(verdict);
            return;
        }
        let Some(comment) = comment else {
            return self.find(Kind::NotUnderstood, None, format!("{key} without endpoints has no comment"));
        };
        let mut frontend = Frontend::new(address);
        frontend.no_endpoints = Some(verdict);
        self.port(&super::port_name(comment), key.protocol).frontends.push(frontend);
    }

    fn firewall(&mut self, key: Key, chain: &str) {
        let Some(ip) = key.ip else { return };
        let listed = self.rules(chain).iter().find_map(|one| {
            let set = rule::lookups(one).find(|(_, invert)| *invert);
            set.map(|(set, _)| self.ruleset.prefixes_of(self.table, set))
                .or_else(|| rule::excludes_source(one).map(|one| vec![one]))
        });
        let Some(sources) = listed else {
            return self.find(Kind::NotUnderstood, None, format!("chain {chain} lists no sources"));
        };
        let address = FrontendAddress::External(ip, key.port);
        if let Some(frontend) = self.laid_out(key.protocol, address) {
            frontend.sources = Some(sources);
        }
    }

    /// The frontend at an address, if a map leads from there to a chain.
    fn laid_out(&mut self, protocol: Protocol, address: FrontendAddress) -> Option<&mut Frontend> {
        let port = self.ports.get_mut(self.owners.get(&(protocol, address))?)?;
        port.frontends.iter_mut().find(|frontend| frontend.address == address)
    }

    /// What the chains of Service ports draw from.
    fn pools(&mut self) {
        for chain in self.table.chains.keys() {
            let Some(parsed) = ChainName::parse(chain) else { continue };
            let kind = match parsed.prefix.as_str() {
                "service" => PoolKind::Cluster,
                "local" => PoolKind::Local,
                _ => continue,
            };
            let id = PortId { name: parsed.name.clone(), family: self.family };
            if !self.ports.contains_key(&id) {
                continue;
            }
            let (drawn, affinity) = (self.drawn(chain, &parsed.name), self.affinity(chain));
            let port = self.port(&parsed.name, parsed.protocol);
            port.affinity = port.affinity.or(affinity);
            match kind {
                PoolKind::Cluster => port.cluster = drawn,
                PoolKind::Local => port.local = drawn,
            }
        }
    }

    fn drawn(&mut self, chain: &str, name: &PortName) -> Vec<Drawn> {
        let mut counts: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for one in self.rules(chain) {
            if let Some(to) = rule::translates_to(one) {
                *counts.entry(to).or_default() += 1;
            }
            let Some(of) = rule::draws(one) else { continue };
            let Some(set) = rule::lookups(one).next().and_then(|(set, _)| self.set(set)) else { continue };
            if set.elements.len() as u32 != of {
                let what = format!("chain {chain} draws one of {of}, and there are {}", set.elements.len());
                self.find(Kind::Damaged, Some(name), what);
            }
            for element in set.elements.iter() {
                let to = match &element.data {
                    Data::Verdict(Verdict::Goto(endpoint)) => self.rules(endpoint).iter().find_map(rule::translates_to),
                    Data::Value(value) => {
                        let length = self.family.address_len();
                        let ip = value.get(..length).and_then(rule::ip);
                        ip.zip(value.get(length..).and_then(rule::port_of)).map(|(ip, port)| SocketAddr::new(ip, port))
                    }
                    _ => None,
                };
                match to {
                    Some(to) => *counts.entry(to).or_default() += 1,
                    None => self.find(Kind::Dead, Some(name), format!("an endpoint of chain {chain} is not there")),
                }
            }
        }
        let total: u32 = counts.values().sum();
        let share = |count: u32| f64::from(count) / f64::from(total);
        counts.into_iter().map(|(to, count)| Drawn { ip: to.ip(), port: to.port(), share: share(count) }).collect()
    }

    /// For how long clients are kept: as long as elements of the endpoints' sets live.
    fn affinity(&self, chain: &str) -> Option<u32> {
        let sets = self.rules(chain).iter().flat_map(rule::lookups).filter(|(set, _)| set.starts_with("affinity-"));
        let timeout = sets.filter_map(|(set, _)| self.set(set)?.set.timeout_ms).next()?;
        u32::try_from(timeout / 1000).ok()
    }

    /// Chains of Services that nothing leads to.
    fn stale_chains(&mut self) {
        let by_elements =
            self.table.sets.values().flat_map(|set| set.elements.iter()).filter_map(|element| match &element.data {
                Data::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain)) => Some(chain),
                _ => None,
            });
        let by_rules = self.table.chains.values().flat_map(|chain| &chain.rules).filter_map(rule::leads_to);
        let used: BTreeSet<&Name> = by_elements.chain(by_rules).collect();
        let stale: Vec<&Name> =
            self.table.chains.keys().filter(|chain| chain.contains('/') && !used.contains(chain)).collect();
        for chain in stale {
            let name = ChainName::parse(chain).map(|parsed| parsed.name);
            self.find(Kind::Stale, name.as_ref(), format!("nothing leads to chain {chain}"));
        }
    }
}

/// Whether a rule asks for this destination, or for none.
fn asks_for(rule: &Rule, ip: Option<IpAddr>) -> bool {
    let Some(ip) = ip else { return true };
    let bytes: Vec<u8> = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut compared = rule.exprs.iter().filter_map(|expr| match expr {
        Expr::Cmp { data, op: 0, .. } if data.len() == bytes.len() => Some(data),
        _ => None,
    });
    compared.any(|data| data[..] == bytes[..])
}

/// A key of one of the maps.
#[derive(Clone, Copy, Debug)]
struct Key {
    ip: Option<IpAddr>,
    protocol: Protocol,
    port: u16,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => write!(f, "{}/{}", SocketAddr::new(ip, self.port), self.protocol),
            None => write!(f, "node port {}/{}", self.port, self.protocol),
        }
    }
}

impl Key {
    fn read(family: Family, bytes: &[u8], with_address: bool) -> Option<Key> {
        let length = if with_address { family.address_len() } else { 0 };
        let (address, rest) = (bytes.get(..length)?, bytes.get(length..)?);
        Some(Key {
            ip: if with_address { Some(rule::ip(address)?) } else { None },
            protocol: Protocol::from_number(*rest.first()?)?,
            port: rule::port_of(rest.get(4..)?)?,
        })
    }

    fn address(self, cluster_ips: &BTreeSet<IpAddr>) -> FrontendAddress {
        match self.ip {
            Some(ip) if cluster_ips.contains(&ip) => FrontendAddress::Cluster(ip, self.port),
            Some(ip) => FrontendAddress::External(ip, self.port),
            None => FrontendAddress::NodePort(self.port),
        }
    }
}
