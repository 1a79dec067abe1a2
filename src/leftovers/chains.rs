//! Which chains of a table in the layout of iptables are kube-proxy's, and which of them nobody else needs: pure rules.

use std::collections::BTreeSet;

/// The chains of kube-proxy's modes iptables and ipvs. The kubelet's (`KUBE-FIREWALL`, `KUBE-MARK-DROP`,
/// `KUBE-KUBELET-CANARY`) and those of others that begin with `KUBE-` are not among them.
const NAMES: [&str; 14] = [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-NODEPORTS",
    POSTROUTING,
    MARK,
    MARK_OFF_CLUSTER,
    "KUBE-FORWARD",
    "KUBE-PROXY-FIREWALL",
    "KUBE-PROXY-CANARY",
    "KUBE-NODE-PORT",
    "KUBE-LOAD-BALANCER",
    "KUBE-SOURCE-RANGES-FIREWALL",
    "KUBE-IPVS-FILTER",
    "KUBE-IPVS-OUT-FILTER",
];
/// The same for all but pods. kube-proxy has no such chain, svcmap has it in the same modes.
const MARK_OFF_CLUSTER: &str = crate::iptables::names::MARK_OFF_CLUSTER;
/// Marks packets whose source is to be replaced; others jump there, too.
const MARK: &str = "KUBE-MARK-MASQ";
/// Replaces the sources of packets with that mark.
const POSTROUTING: &str = "KUBE-POSTROUTING";
/// What precedes the hash in the names of chains of a Service port or an endpoint.
const PREFIXES: [&str; 6] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-XLB-", "KUBE-SEP-"];
/// The length of that hash, which is in base 32.
const HASH: usize = 16;
/// The chains in which packets begin.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// The tables that kube-proxy has chains in.
pub const TABLES: [&str; 3] = ["nat", "filter", "mangle"];

/// A rule that leads from one chain to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump<R> {
    /// The chain that the rule stands in.
    pub from: String,
    /// The chain that it leads to.
    pub to: String,
    /// How the rule is told to somebody who is to delete it.
    pub rule: R,
}

/// What has to go from a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal<R> {
    /// Rules of chains that stay.
    pub jumps: Vec<Jump<R>>,
    /// Chains, with all their rules. They may lead to each other.
    pub chains: Vec<String>,
}

impl<R> Removal<R> {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.jumps.is_empty() && self.chains.is_empty()
    }

    /// As a line of a report.
    pub fn describe(&self, table: &str) -> String {
        let plural = |count| if count == 1 { "" } else { "s" };
        let (chains, jumps) = (self.chains.len(), self.jumps.len());
        format!("{chains} chain{} of table {table}, and {jumps} rule{} that led there", plural(chains), plural(jumps))
    }
}

fn is_of_kube_proxy(chain: &str) -> bool {
    let is_hash = |text: &str| {
        text.len() == HASH && text.bytes().all(|byte| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte))
    };
    NAMES.contains(&chain) || PREFIXES.iter().any(|prefix| chain.strip_prefix(prefix).is_some_and(is_hash))
}

/// What goes from a table with these chains and jumps. A chain that a chain of somebody else leads to stays, with all that it
/// needs; where that is the one that marks packets, also the one that acts on the mark.
pub fn removal<R>(chains: Vec<String>, jumps: Vec<Jump<R>>) -> Removal<R> {
    let is_foreign = |chain: &str| !BUILT_IN.contains(&chain) && !is_of_kube_proxy(chain);
    let mut needed: Vec<&str> =
        jumps.iter().filter(|jump| is_foreign(&jump.from)).map(|jump| jump.to.as_str()).collect();
    let mut kept = BTreeSet::new();
    while let Some(chain) = needed.pop() {
        if is_of_kube_proxy(chain) && kept.insert(chain.to_owned()) {
            needed.extend(jumps.iter().filter(|jump| jump.from == chain).map(|jump| jump.to.as_str()));
            needed.extend((chain == MARK).then_some(POSTROUTING));
        }
    }
    let goes = |chain: &str| is_of_kube_proxy(chain) && !kept.contains(chain);
    let is_cut = |jump: &Jump<R>| {
        BUILT_IN.contains(&jump.from.as_str())
            && is_of_kube_proxy(&jump.to)
            && (jump.to != POSTROUTING || goes(POSTROUTING))
    };
    Removal {
        chains: chains.into_iter().filter(|chain| goes(chain)).collect(),
        jumps: jumps.into_iter().filter(is_cut).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(chains: &[&str], jumps: &[(&str, &str)]) -> (Vec<String>, Vec<usize>) {
        let jumps =
            jumps.iter().enumerate().map(|(rule, (from, to))| Jump { from: (*from).into(), to: (*to).into(), rule });
        let removal = removal(chains.iter().map(ToString::to_string).collect(), jumps.collect());
        (removal.chains, removal.jumps.iter().map(|jump| jump.rule).collect())
    }

    #[test]
    fn only_what_kube_proxy_names_is_its_own() {
        for chain in ["KUBE-SERVICES", "KUBE-SVC-XPGD46QRK7WJZT7O", "KUBE-SEP-SXIVWICOYRO3J4NJ", "KUBE-IPVS-FILTER"] {
            assert!(is_of_kube_proxy(chain), "{chain}");
        }
        for chain in [
            "KUBE-FIREWALL",
            "KUBE-MARK-DROP",
            "KUBE-KUBELET-CANARY",
            "KUBE-HOSTPORTS",
            "KUBE-HP-XPGD46QRK7WJZT7O",
            "KUBE-ROUTER-SERVICES",
            "KUBE-POD-FW-XPGD46QRK7WJZT7O",
            "KUBE-FW-OF-MY-OWN",
            "KUBE-SVC-XPGD46QRK7WJZT7",
            "KUBE-SVC-XPGD46QRK7WJZT7O1",
            "kube-services",
            "DOCKER",
            "",
        ] {
            assert!(!is_of_kube_proxy(chain), "{chain}");
        }
    }

    #[test]
    fn its_chains_go_and_so_do_the_rules_that_lead_there() {
        let chains = ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC-XPGD46QRK7WJZT7O", "DOCKER", "KUBE-KUBELET-CANARY"];
        let jumps =
            [("PREROUTING", "KUBE-SERVICES"), ("PREROUTING", "DOCKER"), ("KUBE-SERVICES", "KUBE-SVC-XPGD46QRK7WJZT7O")];
        let (gone, cut) = outcome(&chains, &jumps);
        assert_eq!(gone, ["KUBE-SERVICES", "KUBE-SVC-XPGD46QRK7WJZT7O"]);
        assert_eq!(cut, [0]);
    }

    #[test]
    fn what_somebody_else_needs_stays() {
        let chains = ["KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-POSTROUTING", "CNI-HOSTPORT", "KUBE-NODEPORTS"];
        let jumps = [
            ("PREROUTING", "KUBE-SERVICES"),
            ("POSTROUTING", "KUBE-POSTROUTING"),
            ("CNI-HOSTPORT", "KUBE-MARK-MASQ"),
            ("KUBE-SERVICES", "KUBE-NODEPORTS"),
        ];
        let (gone, cut) = outcome(&chains, &jumps);
        assert_eq!(gone, ["KUBE-SERVICES", "KUBE-NODEPORTS"]);
        assert_eq!(cut, [0], "what acts on the mark is still led to");

        let jumps = [("OUTPUT", "KUBE-SERVICES"), ("MINE", "KUBE-SERVICES"), ("KUBE-SERVICES", "KUBE-NODEPORTS")];
        let (gone, cut) = outcome(&chains, &jumps);
        assert_eq!(gone, ["KUBE-MARK-MASQ", "KUBE-POSTROUTING"], "with all that it leads to");
        assert_eq!(cut, [0], "packets do not come there of themselves any more");
    }
}
