//! Listed objects as the kernel holds them.

use super::ast::{self, Data, Statement, TableName, Value};
use super::bytes::{Kind, bounds, successor};
use super::{Listing, Note, rules};
use crate::netlink::model::{
    self, Bytes, Chain, Element, Expr, Hook, NfFamily, Op, Rule, Set, SetRef, Table, VERDICT_TYPE, element_flags,
    set_flags, table_flags,
};
use crate::trace::{LISTED_CONDITION, Ruleset};

/// Makes a [`Listing`] of what the readers find.
#[derive(Debug)]
pub struct Compiler {
    ruleset: Ruleset,
    notes: Vec<Note>,
    /// How many sets belong to one rule so far.
    anonymous: usize,
}

impl Default for Compiler {
    fn default() -> Compiler {
        Compiler { ruleset: Ruleset::of_listing(), notes: Vec::new(), anonymous: 0 }
    }
}

/// A set as one rule needs it.
pub struct Anonymous<'a> {
    pub table: &'a TableName,
    pub key: &'a [Kind],
    pub data: MapData<'a>,
}

/// What a map has for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapData<'a> {
    /// Nothing: it is a set.
    None,
    Verdict,
    Value(&'a [Kind]),
}

/// What maps of objects have for their keys.
const OBJECTS: [&str; 8] =
    ["counter", "quota", "limit", "synproxy", "secmark", "ct helper", "ct timeout", "ct expectation"];

impl Compiler {
    pub fn finish(self) -> Listing {
        Listing { ruleset: self.ruleset, notes: self.notes }
    }

    pub fn note(&mut self, line: usize, what: String) {
        self.notes.push(Note { line, what });
    }

    /// Does what cannot fail on a listing that a kernel printed; what does is noted.
    pub fn apply(&mut self, line: usize, op: Op) {
        if let Err(error) = self.ruleset.apply_one(op) {
            self.note(line, error.to_string());
        }
    }

    pub fn table(&mut self, name: &TableName, comment: Option<String>, dormant: bool) {
        let flags = if dormant { table_flags::DORMANT } else { 0 };
        let comment = comment.map(Into::into);
        self.apply(0, Op::AddTable(Table { family: name.family, name: name.name.as_str().into(), flags, comment }));
    }

    pub fn chain(&mut self, table: &TableName, chain: &ast::Chain) {
        let hook = chain.hook.as_ref().and_then(|(kind, hook, priority)| {
            let number = match hook.as_str() {
                "prerouting" => 0,
                "input" => 1,
                "forward" => 2,
                "output" => 3,
                "postrouting" => 4,
                "ingress" | "egress" => 5,
                other => {
                    self.note(0, format!("chain {}: the hook {other:?} is not understood", chain.name));
                    return None;
                }
            };
            let policy = u32::from(!chain.drops);
            Some(Hook { kind: kind.as_str().into(), number, priority: *priority, policy })
        });
        self.apply(
            0,
            Op::AddChain(Chain {
                is_bound: false,
                family: table.family,
                table: table.name.as_str().into(),
                name: chain.name.as_str().into(),
                hook,
                comment: chain.comment.as_deref().map(Into::into),
            }),
        );
    }

    pub fn set(&mut self, table: &TableName, set: ast::Set) {
        for what in &set.unknown {
            self.note(set.line, format!("set {}: {what:?} is not understood", set.name));
        }
        // rules that look a map of objects up name it, and only these
        if set.data.as_ref().is_some_and(|data| matches!(data.as_slice(), [kind] if OBJECTS.contains(&kind.as_str()))) {
            return;
        }
        let kinds = |types: &[String]| types.iter().map(|name| Kind::of_type(name)).collect::<Option<Vec<Kind>>>();
        let Some(key) = kinds(&set.key) else {
            return self
                .note(set.line, format!("set {}: the type {:?} is not understood", set.name, set.key.join(" . ")));
        };
        let data_kinds = match &set.data {
            Some(data) if *data == ["verdict"] => Some(Vec::new()),
            Some(data) => kinds(data),
            None => None,
        };
        let data = match (&set.data, &data_kinds) {
            (None, _) => MapData::None,
            (Some(data), Some(_)) if *data == ["verdict"] => MapData::Verdict,
            (Some(_), Some(kinds)) => MapData::Value(kinds),
            (Some(data), None) => {
                let data = data.join(" . ");
                return self.note(set.line, format!("map {}: the type {data:?} is not understood", set.name));
            }
        };
        let has = |flag: &str| set.flags.iter().any(|there| there == flag);
        let flags = [
            ("interval", set_flags::INTERVAL),
            ("constant", set_flags::CONSTANT),
            ("timeout", set_flags::TIMEOUT),
            ("dynamic", set_flags::EVAL),
        ];
        let flags = flags.iter().filter(|(name, _)| has(name)).fold(0, |flags, (_, flag)| flags | flag);
        let mut made = declaration(table, &set.name, &key, data, flags);
        (made.size, made.timeout_ms) = (set.size, set.timeout_ms);
        if set.counter {
            made.exprs.push(Expr::Counter { packets: 0, bytes: 0 });
        }
        let condition = |text: String| Expr::Raw { name: LISTED_CONDITION.into(), data: text.into_bytes() };
        made.exprs.extend(set.conditions.into_iter().map(condition));
        self.fill(set.line, made, &key, data, set.elements);
    }

    /// Makes a set for one rule; its name.
    pub fn anonymous(&mut self, line: usize, set: &Anonymous, elements: Vec<ast::Element>) -> model::Name {
        let is_range = |value: &Value| matches!(value, Value::Prefix(..) | Value::Range(..));
        let has_ranges = elements.iter().any(|element| match &element.key {
            Value::Concat(parts) => parts.iter().any(is_range),
            value => is_range(value),
        });
        let ranges = if has_ranges { set_flags::INTERVAL } else { 0 };
        let name = format!("__set{}", self.anonymous);
        self.anonymous += 1;
        let flags = set_flags::ANONYMOUS | set_flags::CONSTANT | ranges;
        let made = declaration(set.table, &name, set.key, set.data, flags);
        self.fill(line, made, set.key, set.data, elements);
        name.into()
    }

    fn fill(&mut self, line: usize, set: Set, key: &[Kind], data: MapData, elements: Vec<ast::Element>) {
        let place = SetRef { family: set.family, table: set.table.clone(), name: set.name.clone() };
        let ranges = set.flags & set_flags::INTERVAL != 0;
        self.apply(line, Op::AddSet(set));
        let mut made = Vec::with_capacity(elements.len());
        for element in elements {
            match element_of(&element, key, data, ranges) {
                Some(elements) => made.extend(elements.into_iter().flatten()),
                None => self.note(line, format!("an element of {} is not understood: {}", place.name, element.key)),
            }
        }
        self.apply(line, Op::AddElements { set: place, elements: made });
    }

    /// Whether the values of a map have two parts.
    pub fn gives_two(&self, table: &TableName, map: &str) -> bool {
        self.ruleset.set(table.family, &table.name, map).is_some_and(|set| set.data_type >= 1 << 6)
    }

    /// What the values of a map are.
    pub fn data_kind(&self, table: &TableName, map: &str) -> Option<Kind> {
        Kind::of_number(self.ruleset.set(table.family, &table.name, map)?.data_type)
    }

    pub fn rule(&mut self, table: &TableName, chain: &str, rule: ast::Rule) {
        let exprs = rules::compile(self, table, &rule);
        for statement in &rule.statements {
            if let Statement::Unknown(text) | Statement::Extension(text) = statement {
                let (family, name) = (table.family.name(), &table.name);
                self.note(rule.line, format!("{family} {name} {chain}: {text:?} is not understood"));
            }
        }
        self.apply(
            rule.line,
            Op::AddRule(Rule {
                family: table.family,
                table: table.name.as_str().into(),
                chain: chain.into(),
                handle: rule.handle,
                exprs,
                comment: rule.comment.map(Into::into),
            }),
        );
    }
}

fn declaration(table: &TableName, name: &str, key: &[Kind], data: MapData, mut flags: u32) -> Set {
    let (data_type, data_len) = match data {
        MapData::None => (0, 0),
        MapData::Verdict => (VERDICT_TYPE, 0),
        MapData::Value(kinds) => (type_number(kinds), padded_len(kinds)),
    };
    if data != MapData::None {
        flags |= set_flags::MAP;
    }
    let concatenated = flags & set_flags::INTERVAL != 0 && key.len() > 1;
    if concatenated {
        flags |= set_flags::CONCAT;
    }
    Set {
        family: table.family,
        table: table.name.as_str().into(),
        name: name.into(),
        flags,
        key_type: type_number(key),
        key_len: padded_len(key),
        data_type,
        data_len,
        size: None,
        concat: if concatenated { key.iter().map(|kind| kind.len() as u8).collect() } else { Vec::new() },
        timeout_ms: None,
        userdata: Vec::new(),
        exprs: Vec::new(),
    }
}

fn type_number(kinds: &[Kind]) -> u32 {
    kinds.iter().fold(0, |number, kind| number << 6 | kind.number())
}

/// A single value has its own length, each part of a concatenation is padded to 4 bytes.
pub fn padded_len(kinds: &[Kind]) -> u32 {
    match kinds {
        [kind] => kind.len() as u32,
        _ => kinds.iter().map(|kind| kind.len().next_multiple_of(4) as u32).sum(),
    }
}

/// One element, or in sets of ranges two: where the range begins, and what is behind it.
fn element_of(element: &ast::Element, key: &[Kind], data: MapData, ranges: bool) -> Option<[Option<Element>; 2]> {
    let data = match (&element.data, data) {
        (None, _) => model::Data::None,
        (Some(Data::Verdict(verdict)), MapData::Verdict) => model::Data::Verdict(verdict.clone()),
        (Some(Data::Value(value)), MapData::Value(kinds)) => model::Data::Value(concatenated(kinds, value)?.0),
        _ => return None,
    };
    let mut made = Element {
        data,
        timeout_ms: element.timeout_ms,
        expiration_ms: element.expires_ms,
        comment: element.comment.as_deref().map(Into::into),
        counter: element.counter,
        unread: element.is_conditional,
        ..Element::default()
    };
    if element.key == Value::Word("*".into()) {
        made.flags = element_flags::CATCHALL;
        return Some([Some(made), None]);
    }
    let (first, last) = concatenated(key, &element.key)?;
    if first != last && key.iter().any(|kind| kind.is_of_host()) {
        return None;
    }
    made.key = first;
    match (ranges, key.len()) {
        (false, _) if made.key != last => None,
        (false, _) => Some([Some(made), None]),
        (true, 1) => {
            let end =
                successor(&last).map(|key| Element { key, flags: element_flags::INTERVAL_END, ..Element::default() });
            Some([Some(made), end])
        }
        (true, _) => {
            made.key_end = Some(Box::new(last));
            Some([Some(made), None])
        }
    }
}

/// The first and the last key that is meant.
pub fn concatenated(kinds: &[Kind], value: &Value) -> Option<(Bytes, Bytes)> {
    let parts = match value {
        Value::Concat(parts) => parts.as_slice(),
        value => std::slice::from_ref(value),
    };
    if parts.len() != kinds.len() {
        return None;
    }
    if let ([kind], [value]) = (kinds, parts) {
        return bounds(*kind, value);
    }
    let (mut first, mut last) = (Bytes::new(), Bytes::new());
    for (kind, part) in kinds.iter().zip(parts) {
        let (from, to) = bounds(*kind, part)?;
        first.extend_from_slice(&from);
        last.extend_from_slice(&to);
        let padded = first.len().next_multiple_of(4);
        first.resize(padded, 0);
        last.resize(padded, 0);
    }
    Some((first, last))
}

/// The kind of address of a family's packets.
pub fn address_kind(family: NfFamily) -> Option<Kind> {
    match family {
        NfFamily::IPV4 => Some(Kind::Ipv4),
        NfFamily::IPV6 => Some(Kind::Ipv6),
        _ => None,
    }
}
