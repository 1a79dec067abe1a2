//! Cases of connection tracking: a flow that is there when the objects change.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use svcmap::config::ProxyConfig;
use svcmap::objects::{Family, Protocol};
use svcmap::source::Snapshot;

use super::flow::Target;
use super::stack::address;
use super::{Given, NodeSettings, Stack, Table, manifests, snapshot};

/// One row of `10-conntrack.flows`.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// Its id, such as `X03`.
    pub id: String,
    /// The row as it is written.
    pub row: String,
    /// What happens, one after the other.
    pub steps: Vec<Step>,
    node: NodeSettings,
    flow: String,
    /// Whether the flow is there at the end.
    pub stays: bool,
    excluded: BTreeMap<String, String>,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Step {
    /// These are the objects now, and they are programmed.
    Sync(Arc<Given>),
    /// These are the objects now, but programming them fails.
    Failure(Arc<Given>),
    /// The proxy is another, which knows nothing yet.
    Restart,
}

impl Step {
    fn given(&self) -> Option<&Given> {
        match self {
            Step::Sync(given) | Step::Failure(given) => Some(given),
            Step::Restart => None,
        }
    }
}

/// A flow that is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackedFlow {
    pub protocol: Protocol,
    /// Who sends.
    pub client: IpAddr,
    /// Where the client sends to.
    pub destination: SocketAddr,
    /// Where the answers come from.
    pub answerer: SocketAddr,
}

impl Tracked {
    /// All cases, in the order of the file.
    pub fn all() -> Vec<Tracked> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/10-conntrack.flows");
        let table = Table::read(&path);
        table.rows.iter().map(|row| Tracked::read(row, &table)).collect()
    }

    fn read(row: &str, table: &Table) -> Tracked {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [id, given, node, flow, expect, not_in] = columns[..] else { panic!("six columns in {row:?}") };
        let step = |text: &str| match text.trim().strip_suffix('!') {
            Some(name) => Step::Failure(table.given(name)),
            None if text.trim() == "restart" => Step::Restart,
            None => Step::Sync(table.given(text.trim())),
        };
        assert!(["stays", "ends"].contains(&expect), "neither stays nor ends: {row:?}");
        Tracked {
            id: id.to_owned(),
            row: row.to_owned(),
            steps: given.split("=>").map(step).collect(),
            node: NodeSettings::parse(node),
            flow: flow.to_owned(),
            stays: expect == "stays",
            excluded: table.exclusions(not_in),
        }
    }

    /// Why this ring of tests cannot run the case, if it cannot.
    pub fn excluded_from(&self, ring: &str) -> Option<&str> {
        self.excluded.get(ring).map(String::as_str)
    }

    /// Before which step the flow begins: before the only one, or after the first.
    pub fn begins_before(&self) -> usize {
        usize::from(self.steps.len() > 1)
    }

    /// The configuration.
    pub fn config(&self, stack: Stack) -> ProxyConfig {
        self.node.config(stack)
    }

    /// Objects, as they are read from the manifests.
    pub fn snapshot(&self, given: &Given, stack: Stack) -> Snapshot {
        snapshot(&manifests(&self.node, given, stack))
    }

    /// What is said of a row whose outcome is wrong, with the objects of its last step.
    pub fn complaint(&self, stack: Stack, failures: &[String]) -> String {
        let last = self.steps.iter().rev().find_map(Step::given).expect("a state");
        let objects = manifests(&self.node, last, stack);
        format!("\n{} ({stack:?}): {}\n  {}\nof {objects}\n", self.id, self.row, failures.join("\n  "))
    }

    /// The flow in every family of the stack, or in the other one.
    pub fn flows(&self, stack: Stack) -> Vec<TrackedFlow> {
        let (text, families) = match (self.flow.strip_prefix("other family:"), stack) {
            (None, stack) => (self.flow.as_str(), stack.families()),
            (Some(text), Stack::V4) => (text, &[Family::V6][..]),
            (Some(text), Stack::V6) => (text, &[Family::V4][..]),
            (Some(text), Stack::Dual) => (text, &[][..]),
        };
        families.iter().map(|family| self.flow(text.trim(), *family)).collect()
    }

    fn flow(&self, text: &str, family: Family) -> TrackedFlow {
        let (to, from) = text.split_once("->").unwrap_or_else(|| panic!("no -> in {text:?}"));
        let mut givens: Vec<&Given> = self.steps.iter().filter_map(Step::given).collect();
        let last = givens.pop().expect("a state");
        let given = last.after(givens.into_iter());
        let target = Target::parse(to.trim(), &given);
        let destination = SocketAddr::new(address(&target.ip, family), target.port.port.expect("a port number"));
        let answerer = match from.trim() {
            "itself" => destination,
            endpoint => target.endpoint(endpoint, &given, family),
        };
        TrackedFlow { protocol: target.port.protocol, client: address("10.0.0.2", family), destination, answerer }
    }
}
