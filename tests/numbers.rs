//! That numbers lead somewhere. Cases: every id there has to be is a row of `tests/data/cases`, or is said to be a test
//! elsewhere, and every row runs in every ring, or says why it cannot. Rows of the rules: every file that
//! `docs/behaviour.md` names for one cites it. Section 15 of the cases, names, is here too.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use common::cases::{Case, Sticky, Tracked};
use svcmap::iptables::names::PortChains;
use svcmap::nftables::names::AffinityId;
use svcmap::objects::{Family, Protocol, ServiceKey};
use svcmap::plan::{PoolKind, PortId, PortName, PortPlan};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn data(file: &str) -> String {
    let path = root().join("tests/data/cases").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The case that a row belongs to: its id without the letters behind it.
fn case_of(row: &str) -> &str {
    row.trim_end_matches(|c: char| c.is_ascii_lowercase())
}

/// The rows of the file of names: their columns, and why there is nothing to be named where that is so.
fn names() -> Vec<Vec<String>> {
    let text = data("15-names.names");
    let rows = text.lines().filter(|line| line.contains('|') && !line.starts_with('#') && !line.starts_with("id "));
    rows.map(|row| row.split('|').map(|column| column.trim().to_owned()).collect()).collect()
}

/// The ids of all rows of all files.
fn rows() -> BTreeSet<String> {
    let cases = Case::all().into_iter().map(|case| case.id);
    let tracked = Tracked::all().into_iter().map(|case| case.id);
    let sticky = Sticky::all().into_iter().map(|case| case.id);
    cases.chain(tracked).chain(sticky).chain(names().into_iter().map(|mut row| row.swap_remove(0))).collect()
}

#[test]
fn every_case_is_a_row_or_a_test() {
    let rows = rows();
    let cases: BTreeSet<&str> = rows.iter().map(|row| case_of(row)).collect();
    let (mut wanted, mut elsewhere) = (BTreeSet::new(), BTreeMap::new());
    let ids = data("ids");
    for line in ids.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (head, rest) = line.split_once(char::is_whitespace).unwrap_or_else(|| panic!("what is {line:?}?"));
        match head.strip_suffix(':') {
            Some(_) => rest.split_whitespace().for_each(|id| assert!(wanted.insert(id), "{id} is there twice")),
            None => _ = elsewhere.insert(head, rest.trim()),
        }
    }
    assert!(wanted.len() > 170, "only {} ids", wanted.len());
    for id in &wanted {
        match (cases.contains(id), elsewhere.get(id)) {
            (true, None) => {}
            (true, Some(_)) => panic!("{id} is a row: {:?} need not be named", elsewhere[id]),
            (false, None) => panic!("{id} is no row, and no other test is named"),
            (false, Some(place)) => assert_is_a_test(id, place),
        }
    }
    let unknown: Vec<_> = elsewhere.keys().filter(|id| !wanted.contains(*id)).collect();
    assert!(unknown.is_empty(), "{unknown:?} are in no section");
}

/// `FILE NAME`: the name of a function, or of a trial.
fn assert_is_a_test(id: &str, place: &str) {
    let (file, name) = place.split_once(' ').unwrap_or_else(|| panic!("{id}: no file and name in {place:?}"));
    let source = std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{id}: {file}: {error}"));
    let is_there = [format!("fn {name}()"), format!("(\"{name}\",")].iter().any(|text| source.contains(text));
    assert!(is_there, "{id}: there is no test {name} in {file}");
}

#[test]
fn every_row_runs_in_every_ring_or_says_why_not() {
    // Rows of connections run in all three rings unless they say otherwise; those of the other files in one.
    for case in Tracked::all() {
        let missing: Vec<_> = ["trace", "packets"].into_iter().filter(|r| case.excluded_from(r).is_none()).collect();
        assert!(missing.is_empty(), "{}: why not in {missing:?}?", case.id);
        let rings = ["policy", "kernel"].map(|ring| case.excluded_from(ring));
        assert!(rings.contains(&None), "{} runs nowhere: {rings:?}", case.id);
    }
    for case in Sticky::all() {
        let missing: Vec<_> = ["policy", "trace"].into_iter().filter(|r| case.excluded_from(r).is_none()).collect();
        assert!(missing.is_empty(), "{}: why not in {missing:?}?", case.id);
    }
    for case in Case::all() {
        for ring in ["policy", "trace", "packets"] {
            assert_ne!(case.excluded_from(ring), Some(""), "{}: why not in {ring}?", case.id);
        }
    }
}

/// `x*63` is so many letters.
fn whole(text: &str) -> String {
    let words = text.split_inclusive(['/', ':', '~']);
    let word = |word: &str| {
        let (name, end) = word.split_at(word.trim_end_matches(['/', ':', '~']).len());
        let name = match name.split_once('*') {
            Some((letter, times)) => letter.repeat(times.parse().unwrap()),
            None => name.to_owned(),
        };
        name + end
    };
    words.map(word).collect()
}

/// The chain of a Service port in the iptables mode.
fn chain(name: PortName, protocol: Protocol) -> String {
    PortChains::new(&PortPlan {
        id: PortId { name, family: Family::V4 },
        protocol,
        frontends: Vec::new(),
        cluster: Vec::new(),
        local: Vec::new(),
        affinity: None,
        counted: false,
    })
    .pool(PoolKind::Cluster)
}

/// Section 15: how Service ports are called in the ruleset.
#[test]
fn every_name_is_the_one_of_its_row() {
    let mut ids = BTreeSet::new();
    for row in names() {
        let columns: Vec<&str> = row.iter().map(String::as_str).collect();
        let [_, namespace, service, port, protocol, comment, id, iptables, why] = columns[..] else {
            panic!("nine columns in {row:?}")
        };
        if !why.is_empty() {
            eprintln!("{} has no name: {why}", row[0]);
            continue;
        }
        let name = PortName::new(&ServiceKey::new(&whole(namespace), &whole(service)), &whole(port));
        assert_eq!(name.as_str(), whole(comment), "{row:?}");
        let protocol = Protocol::from_kubernetes(protocol).expect("a protocol");
        assert_eq!(AffinityId::new(&name, protocol).to_string(), id, "{row:?}");
        assert_eq!(chain(name, protocol), iptables, "{row:?}");
        assert!(ids.insert(id.to_owned()), "{row:?}: the id is another row's, too");
    }
    assert!(ids.len() > 5, "only {} rows were found", ids.len());
}

/// The rows that a word names: `C3`, `F1–F4`.
fn rows_of(word: &str) -> Vec<String> {
    let number = |text: &str| -> Option<(char, u32)> {
        let (letter, number) = (text.chars().next()?, text.get(1..)?);
        ('A'..='M').contains(&letter).then_some((letter, number.parse().ok()?))
    };
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let (first, last) = word.split_once('–').unwrap_or((word, word));
    match (number(first), number(last)) {
        (Some((letter, first)), Some((_, last))) => (first..=last).map(|number| format!("{letter}{number}")).collect(),
        _ => Vec::new(),
    }
}

/// The rows that a source file cites, as `row C3` or `rows F1–F4 and H2`, also over the ends of lines.
fn cited(source: &str) -> BTreeSet<String> {
    let lines = source.lines().map(|line| line.trim_start().trim_start_matches(['/', '!']));
    let text = lines.collect::<Vec<_>>().join(" ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_citing = |word: &str| ["row", "rows"].contains(&word.trim_matches('(').to_lowercase().as_str());
    let mut rows = BTreeSet::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| is_citing(word)) {
        let named = words[at + 1..].iter().filter(|word| **word != "and").map(|word| rows_of(word));
        rows.extend(named.take_while(|rows| !rows.is_empty()).flatten());
    }
    rows
}

#[test]
fn every_row_of_the_rules_is_cited_where_the_table_says_it_is_kept() {
    let source = |path: &str| std::fs::read_to_string(root().join(path)).map(|text| cited(&text));
    let table = std::fs::read_to_string(root().join("docs/behaviour.md")).unwrap();
    let mut wrong = Vec::new();
    let mut rows = BTreeMap::new();
    for line in table.lines() {
        let columns: Vec<&str> = line.split(" | ").collect();
        let Some(row) = line.strip_prefix("| ").map(|_| columns[0].trim_start_matches("| ").to_owned()) else {
            continue;
        };
        if rows_of(&row) != [row.as_str()] {
            continue;
        }
        let place = columns[2..].join(" ");
        let paths = place.split('`').skip(1).step_by(2).filter(|word| word.starts_with("src/"));
        for path in paths {
            match source(path) {
                Ok(cited) if cited.contains(&row) => {}
                Ok(_) => wrong.push(format!("{path} does not cite row {row}")),
                Err(_) if root().join(path).is_dir() => {}
                Err(error) => wrong.push(format!("row {row}: {path}: {error}")),
            }
        }
        assert!(rows.insert(row, place).is_none(), "twice: {line}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (letter, last) in [("A", 14), ("B", 10), ("C", 16), ("D", 10), ("E", 12), ("F", 12), ("G", 8), ("H", 10)] {
        let missing: Vec<u32> = (1..=last).filter(|number| !rows.contains_key(&format!("{letter}{number}"))).collect();
        assert!(missing.is_empty(), "rows {letter} {missing:?} are not in the table");
    }
}

#[test]
fn rows_are_read_as_they_are_written() {
    let source =
        "/// The policy (row C3, and not C4), see rows\n    /// D1, D3–D5 and H2: the row of houses.\n// Row A1: x";
    assert_eq!(cited(source).into_iter().collect::<Vec<_>>(), ["A1", "C3", "D1", "D3", "D4", "D5", "H2"]);
}
