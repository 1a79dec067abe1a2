//! The kernel's own part of adding a Service: its search for loops.

use svcmap::lab::median;
use svcmap::netlink::model::{Chain, Data, Element, Hook, Name, Op, Rule, SetRef, Table, Verdict};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::state::State;
use svcmap::plan::{NodePlan, PlanChange};

/// Changes; the median is taken.
const CHANGES: u32 = 51;
/// Elements in a transaction.
const CHUNK: usize = 4_000;
const TABLE: &str = "svcmap-bench-walk";

/// The kernel's time for one more verdict in a table that has nothing but so many of them, in a map like `services` that two
/// base chains look up, all leading to a chain without rules: what adding a Service cannot go below.
pub fn measure(verdicts: usize) -> anyhow::Result<f64> {
    let mut connection = Connection::open(CodecKind::Native)?;
    connection.commit(&table(u32::try_from(2 * verdicts)?))?;
    for first in (0..verdicts).step_by(CHUNK) {
        let keys = first..verdicts.min(first + CHUNK);
        connection.commit(&[add(keys.map(|i| element(i as u32)).collect())])?;
    }
    // until a base chain leads to the map, there is no search
    connection.commit(&gates()?)?;
    let mut times = Vec::new();
    for i in 0..CHANGES {
        let more = add(vec![element(verdicts as u32 + i)]);
        times.push(connection.commit(&[more])?.kernel.as_secs_f64());
    }
    connection.commit(&[Op::DeleteTable { family: set().family, name: TABLE.into() }])?;
    Ok(median(times))
}

fn set() -> SetRef {
    let family = svcmap::nftables::rule::nf_family(svcmap::objects::Family::V4);
    SetRef { family, table: TABLE.into(), name: "services".into() }
}

fn add(elements: Vec<Element>) -> Op {
    Op::AddElements { set: set(), elements }
}

/// `172.16.0.0/12 . tcp . 80 comment … : goto leaf`, one after the other.
fn element(number: u32) -> Element {
    let mut key = (0xac10_0000 + number).to_be_bytes().to_vec();
    key.extend([6, 0, 0, 0, 0, 80, 0, 0]);
    Element {
        key: key.as_slice().into(),
        data: Data::Verdict(Verdict::Goto("leaf".into())),
        comment: Some(format!("default/service-{number}:http").into()),
        ..Element::default()
    }
}

/// What svcmap makes of a node without Services.
fn skeleton() -> Vec<Op> {
    State::default().advance(PlanChange { node: Some(NodePlan::default()), ..PlanChange::default() }).ops
}

fn table(size: u32) -> Vec<Op> {
    let SetRef { family, table, name } = set();
    let services = skeleton().into_iter().find_map(|op| match op {
        Op::AddSet(set) if set.name == name && set.family == family => Some(set),
        _ => None,
    });
    let chain = |name: &str, hook| {
        let (table, name) = (table.clone(), name.into());
        Chain { family, table, name, hook, is_bound: false, comment: None }
    };
    let base = |number| Hook { kind: "filter".into(), number, priority: 0, policy: 1 };
    let mut services = services.expect("the skeleton has a map of Services");
    services.table = table.clone();
    services.size = Some(size);
    vec![
        Op::AddTable(Table { family, name: table.clone(), flags: 0, comment: None }),
        Op::AddSet(services),
        Op::AddChain(chain("leaf", None)),
        Op::AddChain(chain("prerouting", Some(base(0)))),
        Op::AddChain(chain("output", Some(base(3)))),
    ]
}

/// The rule of `dispatch` that looks Services up, in both base chains.
fn gates() -> anyhow::Result<Vec<Op>> {
    let SetRef { family, table, .. } = set();
    let lookup = skeleton().into_iter().find_map(|op| match op {
        Op::AddRule(rule) if rule.chain == "dispatch" && rule.family == family => Some(rule),
        _ => None,
    });
    let lookup = lookup.ok_or_else(|| anyhow::anyhow!("the skeleton has no rule in dispatch"))?;
    let rule = |chain: &str| Op::AddRule(Rule { table: table.clone(), chain: Name::from(chain), ..lookup.clone() });
    Ok(vec![rule("prerouting"), rule("output")])
}
