//! The behavioural cases of `tests/data/cases`, whose notation its README describes.

mod clients;
mod faults;
mod flow;
mod given;
mod node;
mod stack;
mod tracked;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use svcmap::config::ProxyConfig;
use svcmap::source::Snapshot;
use svcmap::tracker::Stranded;

pub use clients::{Clients, Expect, Round, Sticky, destination, endpoint_ips};
pub use faults::Faults;
pub use flow::{Changes, Client, Flow, Outcome};
pub use given::{Given, Home, NAMESPACE};
pub use node::{LOCAL_NODE, NODE_IPS, NodeSettings, OUTSIDE_INTERFACE, POD_INTERFACE};
pub use stack::{Stack, address, in_family};
pub use tracked::{Step, Tracked, TrackedFlow};

/// One row of a table.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its id, such as `P06`.
    pub id: String,
    /// The row as it is written.
    pub row: String,
    /// The states that are brought about one after the other.
    pub steps: Vec<Arc<Given>>,
    node: NodeSettings,
    what: What,
    excluded: BTreeMap<String, String>,
}

/// What is looked at after the last step.
#[derive(Clone, Debug)]
enum What {
    Flows { text: String, expect: String },
    Nothing,
    Change { expect: String },
    Cost { collected: bool, expect: String },
    Stranded { expect: String },
    Restored,
}

/// What is looked at after the last step, in one stack.
#[derive(Clone, Debug)]
pub enum Look {
    /// These connections.
    Flows(Vec<Flow>),
    /// That no Service is programmed.
    Nothing,
    /// What the last step changed, and how many local endpoints the health checks of Services count after it.
    Change(Changes, BTreeMap<String, usize>),
    /// What the last step sends, or what collecting sends after it.
    Cost {
        /// Whether it is that of collecting.
        collected: bool,
        /// What is expected; nothing where nothing at all is to be sent.
        expect: Option<Cost>,
    },
    /// How many Services have endpoints and none of them here, by internal and by external policy.
    Stranded(Stranded),
    /// That the last step makes of what is left, once it is collected, what the first one made.
    Restored,
}

/// What is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Elements added.
    pub added: usize,
    /// Elements deleted.
    pub deleted: usize,
    /// Messages about anything but elements: tables, chains, rules, maps.
    pub other: usize,
}

impl Cost {
    /// Reads `+ADDED -DELETED other:N`; nothing from `nothing`. In every family, as much is sent.
    fn parse(text: &str, families: usize) -> Option<Cost> {
        if text == "nothing" {
            return None;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let [added, deleted, other] = words[..] else { panic!("{text:?} is no cost") };
        let number = |word: &str, prefix: &str| {
            let number = word.strip_prefix(prefix).and_then(|number| number.parse::<usize>().ok());
            families * number.unwrap_or_else(|| panic!("{word:?} in {text:?}: expected {prefix} and a number"))
        };
        Some(Cost { added: number(added, "+"), deleted: number(deleted, "-"), other: number(other, "other:") })
    }
}

impl Case {
    /// All cases, in the order of the files.
    pub fn all() -> Vec<Case> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases"))
            .expect("the directory of the cases")
            .map(|entry| entry.expect("a file").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "cases"))
            .collect();
        files.sort();
        let cases: Vec<Case> = files.iter().flat_map(|path| read(path)).collect();
        let mut ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
        ids.sort();
        let twice: Vec<_> = ids.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "ids that stand for two cases: {twice:?}");
        cases
    }

    /// Why this ring of tests cannot run the case, if it cannot.
    pub fn excluded_from(&self, ring: &str) -> Option<&str> {
        self.excluded.get(ring).map(String::as_str)
    }

    /// The configuration.
    pub fn config(&self, stack: Stack) -> ProxyConfig {
        self.node.config(stack)
    }

    /// All objects of a step, as one JSON document that `svcmap -f` reads.
    pub fn manifests(&self, step: usize, stack: Stack) -> String {
        manifests(&self.node, &self.steps[step], stack)
    }

    /// What is said of a row whose outcome is wrong, with the objects of its last step.
    pub fn complaint(&self, stack: Stack, failures: &[String]) -> String {
        let objects = self.manifests(self.steps.len() - 1, stack);
        format!("\n{} ({stack:?}): {}\n{}\nof {objects}\n", self.id, self.row, failures.join("\n"))
    }

    /// All objects of a step, as they are read from the manifests.
    pub fn snapshot(&self, step: usize, stack: Stack) -> Snapshot {
        snapshot(&self.manifests(step, stack))
    }

    /// Where the endpoints of a step are.
    pub fn places(&self, step: usize, stack: Stack) -> BTreeMap<IpAddr, Home> {
        self.steps[step].places(stack)
    }

    /// The connections of `FROM,… -> TO,…`, with what shall become of them.
    pub fn flows(&self, text: &str, expect: &str, stack: Stack) -> Vec<Flow> {
        let (last, earlier) = self.steps.split_last().expect("a step");
        let given = last.after(earlier.iter().map(Arc::as_ref));
        stack.families().iter().flat_map(|family| Flow::parse_all(text, expect, &given, *family)).collect()
    }

    /// What is looked at after the last step.
    pub fn look(&self, stack: Stack) -> Look {
        match &self.what {
            What::Nothing => Look::Nothing,
            What::Cost { collected, expect } => {
                Look::Cost { collected: *collected, expect: Cost::parse(expect, stack.families().len()) }
            }
            What::Stranded { expect } => Look::Stranded(stranded(expect)),
            What::Restored => Look::Restored,
            What::Change { expect } => Look::Change(Changes::parse(expect), local_counts(expect)),
            What::Flows { text, expect } => Look::Flows(self.flows(text, expect, stack)),
        }
    }
}

/// All objects, as one JSON document that `svcmap -f` reads.
pub fn manifests(node: &NodeSettings, given: &Given, stack: Stack) -> String {
    let mut items = node.manifests(stack);
    items.extend(given.manifests(stack));
    serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": items})).expect("JSON")
}

/// Objects of the notation, beside the node, as such a document.
pub fn document(stack: Stack, objects: &[impl AsRef<str>]) -> String {
    let mut given = Given::new("now");
    objects.iter().for_each(|line| given.add(line.as_ref()));
    manifests(&NodeSettings::default(), &given, stack)
}

/// What such a document is read as.
pub fn snapshot(manifests: &str) -> Snapshot {
    let file = tempfile::Builder::new().suffix(".json").tempfile().expect("a temporary file");
    std::fs::write(file.path(), manifests).expect("a temporary file");
    svcmap::source::load(&[file.path().to_owned()]).expect("manifests").snapshot
}

/// Reads `internal=1 external=0`.
fn stranded(expect: &str) -> Stranded {
    let words: Vec<(&str, usize)> = expect
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(policy, count)| (policy, count.parse().expect("a count")))
        .collect();
    let [("internal", internal), ("external", external)] = words[..] else { panic!("{expect:?} is no such count") };
    Stranded { internal, external }
}

fn local_counts(expect: &str) -> BTreeMap<String, usize> {
    let counts = expect.split_whitespace().filter_map(|word| word.strip_prefix("local:")?.split_once('='));
    counts.map(|(service, count)| (service.to_owned(), count.parse().expect("a count"))).collect()
}

/// A file of the notation: the named objects, and the rows.
struct Table {
    givens: BTreeMap<String, Arc<Given>>,
    rows: Vec<String>,
    /// Why no row can run in some rings.
    excluded: BTreeMap<String, String>,
}

impl Table {
    fn read(path: &Path) -> Table {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut givens, mut rows, mut excluded) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut current = None::<Given>;
        for line in text.lines() {
            let bare = if line.trim_start().starts_with('#') { "" } else { line.trim_end() };
            if let (Some(given), true) = (&mut current, bare.starts_with(' ')) {
                given.add(bare);
                continue;
            }
            if let Some(given) = current.take() {
                let name = given.name.clone();
                assert!(givens.insert(name, Arc::new(given)).is_none(), "{}: twice: {line}", path.display());
            }
            if let Some(name) = bare.strip_prefix("given ") {
                current = Some(Given::new(name.trim()));
            } else if let Some(text) = bare.strip_prefix("not in ") {
                excluded.extend(exclusions(text));
            } else if bare.contains('|') && !bare.starts_with("id ") {
                rows.push(bare.to_owned());
            } else {
                assert!(bare.is_empty() || bare.starts_with("id "), "{}: what is {line:?}?", path.display());
            }
        }
        Table { givens, rows, excluded }
    }

    /// Why a row cannot run in some rings: what it says itself, and what the file says of all.
    fn exclusions(&self, row: &str) -> BTreeMap<String, String> {
        self.excluded.clone().into_iter().chain(exclusions(row)).collect()
    }

    fn given(&self, name: &str) -> Arc<Given> {
        self.givens.get(name).unwrap_or_else(|| panic!("no given {name:?}")).clone()
    }
}

/// The rings that there are: one of them for kube-proxy's iptables layout, the last one for the flows of connection tracking.
const RINGS: [&str; 5] = ["policy", "trace", "packets", "iptables", "kernel"];

/// Reads `RING: WHY; RING, RING: WHY`.
fn exclusions(text: &str) -> BTreeMap<String, String> {
    let excluded = text.split(';').filter(|text| !text.trim().is_empty()).flat_map(|text| {
        let (rings, why) = text.split_once(':').unwrap_or_else(|| panic!("no reason in {text:?}"));
        rings.split(',').map(|ring| {
            assert!(RINGS.contains(&ring.trim()), "there is no ring {ring:?}");
            (ring.trim().to_owned(), why.trim().to_owned())
        })
    });
    excluded.collect()
}

fn read(path: &Path) -> Vec<Case> {
    let table = Table::read(path);
    table.rows.iter().map(|line| row(line, &table)).collect()
}

fn row(line: &str, table: &Table) -> Case {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [id, given, node, flow, expect, not_in] = columns[..] else { panic!("six columns in {line:?}") };
    let what = match (flow, expect) {
        ("", "nothing") => What::Nothing,
        ("cost" | "collect", expect) => What::Cost { collected: flow == "collect", expect: expect.to_owned() },
        ("stranded", expect) => What::Stranded { expect: expect.to_owned() },
        ("restored", "same") => What::Restored,
        ("change", expect) => What::Change { expect: expect.to_owned() },
        (flow, expect) => What::Flows { text: flow.to_owned(), expect: expect.to_owned() },
    };
    Case {
        id: id.to_owned(),
        row: line.to_owned(),
        steps: given.split("=>").map(|name| table.given(name.trim())).collect(),
        node: NodeSettings::parse(node),
        what,
        excluded: table.exclusions(not_in),
    }
}
