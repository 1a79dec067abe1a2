//! The table as a script for `nft`, whole or as a change.

use std::fmt::Write;

use super::table::{Elements, Set, TABLE, Table};
use crate::nftables::rule::ip_word;

/// What `nft list tables` shows beside the name.
const COMMENT: &str = "svcmap: Kubernetes Services by a process that carries each connection";

/// The script that makes the table, in the place of whatever there is of it.
pub fn whole(table: &Table) -> String {
    let ip = ip_word(table.family);
    let mut out = format!("add table {ip} {TABLE}\ndelete table {ip} {TABLE}\ntable {ip} {TABLE} {{\n");
    let _ = writeln!(out, "\tcomment \"{COMMENT}\"");
    for (set, elements) in &table.elements {
        let (kind, declaration) = set.declaration(table.family);
        let _ = write!(out, "\n\t{kind} {} {{\n{declaration}", set.name());
        if !elements.is_empty() {
            let _ = writeln!(out, "\t\telements = {{ {} }}", list(elements.iter(), ",\n\t\t\t     "));
        }
        out.push_str("\t}\n");
    }
    let _ = writeln!(out, "{}}}", table.frame);
    out
}

/// The script that makes it out of another one, which has to have the same frame: elements deleted, then elements added.
pub fn change(before: &Table, after: &Table) -> String {
    let mut out = String::new();
    for (verb, from, to) in [("delete", before, after), ("add", after, before)] {
        for (set, elements) in &from.elements {
            let Some(elements) = differing(*set, elements, to) else { continue };
            let _ = writeln!(out, "{verb} element {} {TABLE} {} {{ {elements} }}", ip_word(from.family), set.name());
        }
    }
    out
}

/// The elements that the other table has not, or not so; none where there are none.
fn differing(set: Set, elements: &Elements, other: &Table) -> Option<String> {
    let other = other.elements.get(&set);
    let is_new = |(key, rest): &(&String, &String)| other.and_then(|other| other.get(*key)) != Some(*rest);
    let text = list(elements.iter().filter(is_new), ", ");
    (!text.is_empty()).then_some(text)
}

fn list<'a>(elements: impl Iterator<Item = (&'a String, &'a String)>, between: &str) -> String {
    elements.map(|(key, rest)| format!("{key}{rest}")).collect::<Vec<_>>().join(between)
}
