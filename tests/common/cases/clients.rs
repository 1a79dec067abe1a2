//! Cases of session affinity: what several clients get, one connection after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use svcmap::config::ProxyConfig;
use svcmap::objects::{Family, Protocol};
use svcmap::source::Snapshot;

use super::flow::Target;
use super::stack::address;
use super::{Given, NodeSettings, Stack, Table, manifests, snapshot};

/// One row of `11-affinity.clients`.
#[derive(Clone, Debug)]
pub struct Sticky {
    /// Its id, such as `A05`.
    pub id: String,
    /// The row as it is written.
    pub row: String,
    /// What happens, one after the other. The first brings about the state that is given.
    pub steps: Vec<Round>,
    /// What is expected of the last round.
    pub expect: Expect,
    node: NodeSettings,
    excluded: BTreeMap<String, String>,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Round {
    /// These are the objects now.
    Sync(Arc<Given>),
    /// The proxy is another. Nothing is different for it, so that nothing is to be sent.
    Restart,
    /// Nothing, for a while.
    Pause(Duration),
    /// Every client of these connects once.
    Connect(Clients, String),
}

/// Who connects, forty of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Hosts outside the cluster.
    Outside,
    /// Pods of another node.
    Pods,
    /// The node, from addresses of its own.
    Node,
}

impl Clients {
    /// All of them.
    pub const ALL: [Clients; 3] = [Clients::Outside, Clients::Pods, Clients::Node];

    /// Their addresses, as they are written.
    pub fn addresses(self) -> impl Iterator<Item = String> {
        let network = match self {
            Clients::Outside => "203.0.113",
            Clients::Pods => "10.2.0",
            Clients::Node => "192.168.0",
        };
        (10..50).map(move |n| format!("{network}.{n}"))
    }

    fn connect(text: &str) -> Round {
        match text.split_once("->").map(|(who, to)| (who.trim(), to.trim())) {
            None => Round::Connect(Clients::Outside, text.to_owned()),
            Some(("pods", to)) => Round::Connect(Clients::Pods, to.to_owned()),
            Some(("node", to)) => Round::Connect(Clients::Node, to.to_owned()),
            Some((who, _)) => panic!("{who:?} are no clients: pods or node"),
        }
    }
}

/// What every client gets in the last round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The endpoint of the round before it; `later` if the kernel will forget it later than after that one.
    Same { later: bool },
    /// Not all of them have the same pod as in the round before it.
    Other,
    /// The endpoint of the round before it, if that is still there; otherwise one that is.
    Kept,
    /// Each of these is somebody's, and nothing else is.
    Among(BTreeSet<String>),
}

impl Sticky {
    /// All cases, in the order of the file.
    pub fn all() -> Vec<Sticky> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/11-affinity.clients");
        let table = Table::read(&path);
        table.rows.iter().map(|row| Sticky::read(row, &table)).collect()
    }

    fn read(row: &str, table: &Table) -> Sticky {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [id, given, node, clients, expect, not_in] = columns[..] else { panic!("six columns in {row:?}") };
        let step = |text: &str| match text {
            "restart" => Round::Restart,
            text => match (text.strip_prefix("=>"), text.strip_suffix(" s")) {
                (Some(given), _) => Round::Sync(table.given(given.trim())),
                (_, Some(seconds)) => Round::Pause(Duration::from_secs_f32(seconds.parse().expect("seconds"))),
                _ => Clients::connect(text),
            },
        };
        let first = Round::Sync(table.given(given));
        Sticky {
            id: id.to_owned(),
            row: row.to_owned(),
            steps: std::iter::once(first).chain(clients.split(';').map(|text| step(text.trim()))).collect(),
            expect: match expect {
                "same" => Expect::Same { later: false },
                "same later" => Expect::Same { later: true },
                "other" => Expect::Other,
                "kept" => Expect::Kept,
                endpoints => Expect::Among(endpoints.split_whitespace().map(str::to_owned).collect()),
            },
            node: NodeSettings::parse(node),
            excluded: table.exclusions(not_in),
        }
    }

    /// The node's configuration.
    pub fn config(&self, stack: Stack) -> ProxyConfig {
        self.node.config(stack)
    }

    /// Why this ring of tests cannot run the case, if it cannot.
    pub fn excluded_from(&self, ring: &str) -> Option<&str> {
        self.excluded.get(ring).map(String::as_str)
    }

    /// What is said of a row whose outcome is wrong, with the objects that there are at its end.
    pub fn complaint(&self, stack: Stack) -> String {
        let last = self.steps.iter().rev().find_map(|step| match step {
            Round::Sync(given) => Some(given),
            _ => None,
        });
        format!("{}\nof {}", self.row, manifests(&self.node, last.expect("a state"), stack))
    }

    /// Objects, as they are read from the manifests.
    pub fn snapshot(&self, given: &Given, stack: Stack) -> Snapshot {
        snapshot(&manifests(&self.node, given, stack))
    }
}

/// Where a round of connections goes to, in the state that there is.
pub fn destination(to: &str, given: &Given, family: Family) -> (Protocol, SocketAddr) {
    let target = Target::parse(to, given);
    (target.port.protocol, SocketAddr::new(address(&target.ip, family), target.port.port.expect("a port number")))
}

/// The addresses of endpoints by their names.
pub fn endpoint_ips<'a>(
    names: impl IntoIterator<Item = &'a String>,
    given: &Given,
    family: Family,
) -> BTreeSet<IpAddr> {
    let ip = |name: &String| given.endpoint(name, family).unwrap_or_else(|| panic!("no endpoint {name}")).0;
    names.into_iter().map(ip).collect()
}
