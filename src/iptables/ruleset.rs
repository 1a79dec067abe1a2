//! Both tables of a family, whole or as a change.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::names::SHARED;
use super::saved::Saved;
use super::{filter, nat};
use crate::objects::Family;
use crate::plan::{NodePlan, Plan, PortPlan};

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    name: &'static str,
    /// Rules of the kernel's own chains, in order.
    hooks: Vec<(&'static str, String)>,
    /// Rules without the name of their chain.
    chains: BTreeMap<String, Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(name: &'static str) -> Table {
        Table { name, hooks: Vec::new(), chains: BTreeMap::new() }
    }

    /// Adds a rule to one of the kernel's own chains.
    pub(crate) fn hook(&mut self, chain: &'static str, rule: String) {
        self.hooks.push((chain, rule));
    }

    /// Makes sure that there is a chain.
    pub(crate) fn chain(&mut self, chain: &str) -> &mut Vec<String> {
        if !self.has(chain) {
            self.chains.insert(chain.into(), Vec::new());
        }
        self.chains.get_mut(chain).expect("it was just added")
    }

    /// Adds a rule to a chain.
    pub(crate) fn rule(&mut self, chain: &str, rule: String) {
        self.chain(chain).push(rule);
    }

    /// Whether there is such a chain.
    pub(crate) fn has(&self, chain: &str) -> bool {
        self.chains.contains_key(chain)
    }

    fn rules(&self) -> usize {
        self.hooks.len() + self.chains.values().map(Vec::len).sum::<usize>()
    }

    fn whole(&self, out: &mut String) {
        let _ = writeln!(out, "*{}", self.name);
        self.chains.keys().for_each(|chain| declare(chain, out));
        for (chain, rule) in &self.hooks {
            let _ = writeln!(out, "-A {chain} {rule}");
        }
        self.chains.iter().for_each(|chain| append(chain, out));
        out.push_str("COMMIT\n");
    }

    fn onto(&self, saved: &Saved, out: &mut String) {
        let stale: Vec<_> = saved.chains.iter().filter(|chain| !self.has(chain)).collect();
        let _ = writeln!(out, "*{}", self.name);
        self.chains.keys().chain(stale.iter().copied()).for_each(|chain| declare(chain, out));
        for jump in &saved.jumps {
            let _ = writeln!(out, "-D {jump}");
        }
        // the last one is put in first, so that each is at the head of its chain and all are in order
        for (chain, rule) in self.hooks.iter().rev() {
            let _ = writeln!(out, "-I {chain} {rule}");
        }
        self.chains.iter().for_each(|chain| append(chain, out));
        for chain in stale {
            let _ = writeln!(out, "-X {chain}");
        }
        out.push_str("COMMIT\n");
    }

    fn change_from(&self, before: &Table, out: &mut String) {
        let is_due = |(chain, rules): &(&String, &Vec<String>)| {
            SHARED.contains(&chain.as_str()) || before.chains.get(*chain) != Some(*rules)
        };
        let gone: Vec<_> = before.chains.keys().filter(|chain| !self.has(chain)).collect();
        let _ = writeln!(out, "*{}", self.name);
        self.chains.iter().filter(is_due).for_each(|(chain, _)| declare(chain, out));
        gone.iter().for_each(|chain| declare(chain, out));
        self.chains.iter().filter(is_due).for_each(|chain| append(chain, out));
        for chain in gone {
            let _ = writeln!(out, "-X {chain}");
        }
        out.push_str("COMMIT\n");
    }
}

/// A declared chain is made, or emptied.
fn declare(chain: &str, out: &mut String) {
    let _ = writeln!(out, ":{chain} - [0:0]");
}

fn append((chain, rules): (&String, &Vec<String>), out: &mut String) {
    for rule in rules {
        let _ = writeln!(out, "-A {chain} {rule}");
    }
}

/// The rules of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    tables: [Table; 2],
}

impl Ruleset {
    /// What a plan comes to in one family.
    pub fn new(plan: &Plan, family: Family) -> Ruleset {
        let of_family = || plan.ports.values().filter(move |port| port.id.family == family);
        Ruleset {
            tables: [nat::table(&plan.node, family, of_family()), filter::table(&plan.node, family, of_family())],
        }
    }

    /// These tables, of whatever they are made.
    pub(crate) fn of(tables: [Table; 2]) -> Ruleset {
        Ruleset { tables }
    }

    /// The text that makes all of it next to what others have, loaded with `--noflush`: `saved` is what there is of ours in
    /// both tables, and is replaced.
    pub fn onto(&self, saved: &[Saved; 2]) -> String {
        let mut out = String::new();
        self.tables.iter().zip(saved).for_each(|(table, saved)| table.onto(saved, &mut out));
        out
    }

    /// Whether both have the same rules in the kernel's own chains, which [`Ruleset::change_from`] does not touch.
    pub fn has_jumps_of(&self, other: &Ruleset) -> bool {
        self.tables.iter().zip(&other.tables).all(|(table, other)| table.hooks == other.hooks)
    }

    /// The text that makes all of it. Loaded without `--noflush` it replaces both tables as a whole.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.tables.iter().for_each(|table| table.whole(&mut out));
        out
    }

    /// The text that makes it out of another ruleset, loaded with `--noflush`: as kube-proxy does it, the chains of all
    /// Services together are written anew, and of the Services' own those that differ.
    pub fn change_from(&self, before: &Ruleset) -> String {
        let mut out = String::new();
        for (table, before) in self.tables.iter().zip(&before.tables) {
            table.change_from(before, &mut out);
        }
        out
    }

    /// How many chains of its own there are.
    pub fn chains(&self) -> usize {
        self.tables.iter().map(|table| table.chains.len()).sum()
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.tables.iter().map(Table::rules).sum()
    }
}

/// Both families' rules, under comments that say what loads them.
pub fn render(node: NodePlan, ports: Vec<PortPlan>) -> String {
    let plan = Plan::new(node, ports);
    let mut out = String::new();
    for (family, program) in [(Family::V4, "iptables-restore"), (Family::V6, "ip6tables-restore")] {
        let _ = writeln!(out, "# {family}: for {program}, which replaces the tables nat and filter");
        out.push_str(&Ruleset::new(&plan, family).text());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Protocol, ServiceKey};
    use crate::plan::{Endpoint, Frontend, FrontendAddress, Masquerade, PoolKind, PortId, PortName};

    fn plan(endpoints: &[[u8; 4]]) -> Plan {
        let id = PortId { name: PortName::new(&ServiceKey::new("ns1", "svc1"), "p80"), family: Family::V4 };
        let frontend = Frontend {
            address: FrontendAddress::Cluster([172, 30, 0, 41].into(), 80),
            pool: PoolKind::Cluster,
            short_circuit: false,
            masquerade: Masquerade::OffCluster,
            no_endpoints: None,
            sources: None,
        };
        let cluster = endpoints.iter().map(|ip| Endpoint { ip: (*ip).into(), port: 80, local: false }).collect();
        let port = PortPlan {
            id: id.clone(),
            protocol: Protocol::Tcp,
            frontends: vec![frontend],
            cluster,
            local: Vec::new(),
            affinity: None,
            counted: false,
        };
        Plan { node: NodePlan::default(), ports: [(id, port)].into() }
    }

    /// The same probability for each of three.
    #[test]
    fn endpoints_are_drawn_one_after_the_other() {
        let text = Ruleset::new(&plan(&[[10, 180, 0, 1], [10, 180, 0, 2], [10, 180, 0, 3]]), Family::V4).text();
        let draws: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("-A KUBE-SVC-XPGD46QRK7WJZT7O") && line.contains(" -> "))
            .map(|line| line.split_once("--probability ").map(|(_, rest)| &rest[..12]))
            .collect();
        assert_eq!(draws, [Some("0.3333333333"), Some("0.5000000000"), None], "{text}");
    }

    /// What kube-proxy writes on a change: what all Services share, the Service's chain, the new endpoint's and the old one's.
    #[test]
    fn a_change_names_only_the_chains_that_differ() {
        let rules = |endpoints| Ruleset::new(&plan(endpoints), Family::V4);
        let before = rules(&[[10, 180, 0, 1], [10, 180, 0, 2]]);
        let change = rules(&[[10, 180, 0, 1], [10, 180, 0, 3]]).change_from(&before);
        let own = |start: &str| change.lines().filter(|l| l.starts_with(start)).count();
        assert_eq!([own(":KUBE-SVC-"), own(":KUBE-SEP-"), own("-X KUBE-SEP-"), own("-X ")], [1, 2, 1, 1], "{change}");
        assert_eq!(own("-A KUBE-SEP-"), 2, "{change}");
        assert!(!before.change_from(&before).contains("KUBE-SEP-"), "nothing differs");
    }
}
