//! Where a mode cannot do what the cases say, and what it does there.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Case, Flow, Look, Stack};

/// The faults of a mode, by the id of the case.
#[derive(Clone, Debug)]
pub struct Faults(BTreeMap<String, Vec<Fault>>);

/// Connections of a case, and what becomes of them.
#[derive(Clone, Debug)]
struct Fault {
    flows: String,
    expect: String,
}

impl Faults {
    /// Reads a file beside the cases.
    pub fn read(name: &str) -> Faults {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases").join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut faults = BTreeMap::<String, Vec<Fault>>::new();
        for line in text.lines().filter(|line| line.contains('|') && !line.starts_with(['#', 'i'])) {
            let columns: Vec<&str> = line.split('|').map(str::trim).collect();
            let [id, flows, expect, why] = columns[..] else { panic!("four columns in {line:?}") };
            assert!(!why.is_empty(), "{id}: why?");
            faults.entry(id.to_owned()).or_default().push(Fault { flows: flows.to_owned(), expect: expect.to_owned() });
        }
        Faults(faults)
    }

    /// What becomes of the connections of a case in this mode; none where it has none.
    pub fn flows(&self, case: &Case, stack: Stack) -> Vec<Flow> {
        let Look::Flows(mut flows) = case.look(stack) else { return Vec::new() };
        for fault in self.0.get(&case.id).into_iter().flatten() {
            for other in case.flows(&fault.flows, &fault.expect, stack) {
                let is_same = |flow: &&mut Flow| {
                    (flow.from.ip, flow.to, flow.protocol) == (other.from.ip, other.to, other.protocol)
                };
                let flow = flows.iter_mut().find(is_same);
                let flow = flow.unwrap_or_else(|| panic!("{}: {other} is no connection of the case", case.id));
                assert_ne!(flow.expect, other.expect, "{}: {other} is no fault", case.id);
                flow.expect = other.expect;
            }
        }
        flows
    }

    /// Whether a case has one.
    pub fn has(&self, case: &Case) -> bool {
        self.0.contains_key(&case.id)
    }

    /// There is no fault of a case that there is not.
    pub fn check(&self, cases: &[Case]) {
        let unknown: Vec<_> = self.0.keys().filter(|id| cases.iter().all(|case| case.id != **id)).collect();
        assert!(unknown.is_empty(), "faults of cases that there are not: {unknown:?}");
    }
}
