//! A cursor over an object of the Kubernetes API, as JSON values, that knows where it stands and reports what it
//! cannot read.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde_json::Value;

use crate::amounts::counted;
use crate::objects::{Family, FamilyOf, Name, parse_address, parse_network};
use crate::shown::Clipped;
use crate::source::Problem;

/// How many problems of one object are told one by one.
const TOLD_PER_OBJECT: usize = 10;

/// Collects what is wrong with one object. Conversions carry on after a problem, so one object can have many.
pub struct Report {
    object: String,
    problems: RefCell<Vec<Problem>>,
    /// The fields that were looked into although they are no mappings.
    shapeless: RefCell<HashSet<String>>,
}

impl Report {
    /// A report on the object that is called so: `Service default/web`.
    pub fn new(object: String) -> Report {
        Report { object, problems: RefCell::default(), shapeless: RefCell::default() }
    }

    fn push(&self, field: String, message: String, skipped: bool) {
        self.problems.borrow_mut().push(Problem { object: self.object.clone(), field, message, skipped });
    }

    /// The problems found, in the order in which they were: a cause before what it leads to. Of an object with very many,
    /// the first ones, those that cost the whole object, and a count.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        if problems.len() > TOLD_PER_OBJECT {
            let all = problems.len();
            let mut room = TOLD_PER_OBJECT - problems.iter().filter(|p| p.skipped).count().min(TOLD_PER_OBJECT);
            problems.retain(|p| {
                let others = room;
                room -= usize::from(!p.skipped && room > 0);
                p.skipped || others > 0
            });
            let untold = all - problems.len();
            problems.push(Problem {
                object: self.object,
                field: String::new(),
                message: format!("not listed: {} of this object", counted(untold, "more problem")),
                skipped: false,
            });
        }
        problems
    }
}

/// One step of a path.
#[derive(Clone, Copy)]
enum Step<'f> {
    Root,
    Name(&'f str),
    Key(&'f str),
    Index(usize),
}

/// A field of an object: its value, null where it is absent, and the way to it.
#[derive(Clone, Copy)]
pub struct Field<'f> {
    parent: Option<&'f Field<'f>>,
    step: Step<'f>,
    value: &'f Value,
    report: &'f Report,
}

static ABSENT: Value = Value::Null;

impl<'f> Field<'f> {
    /// The object itself.
    pub fn root(value: &'f Value, report: &'f Report) -> Field<'f> {
        Field { parent: None, step: Step::Root, value, report }
    }

    /// The field of this name, such as `spec`.
    pub fn get(&'f self, name: &'f str) -> Field<'f> {
        self.child(Step::Name(name), name)
    }

    /// The entry of this key, such as a label.
    pub fn entry(&'f self, key: &'f str) -> Field<'f> {
        self.child(Step::Key(key), key)
    }

    /// What is no mapping has no fields; that is reported once.
    fn child(&'f self, step: Step<'f>, key: &str) -> Field<'f> {
        if !matches!(self.value, Value::Object(_) | Value::Null)
            && self.report.shapeless.borrow_mut().insert(self.to_string())
        {
            self.wrong_type("a mapping");
        }
        let value = self.value.get(key).unwrap_or(&ABSENT);
        Field { parent: Some(self), step, value, report: self.report }
    }

    /// The value itself.
    pub fn value(&self) -> &'f Value {
        self.value
    }

    /// Whether the field is absent or null.
    pub fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Reports that the field cannot be used and was left out, or what it was taken for.
    pub fn problem(&self, message: impl fmt::Display) {
        self.report.push(self.to_string(), message.to_string(), false);
    }

    /// Whether it is absent or a mapping; else that is reported, and what becomes of it.
    pub fn is_mapping(&self, consequence: &str) -> bool {
        let is_mapping = matches!(self.value, Value::Object(_) | Value::Null);
        if !is_mapping {
            self.wrong_type(&format!("a mapping; {consequence}"));
        }
        is_mapping
    }

    /// Reports that the whole object cannot be used because of this field.
    pub fn fatal(&self, message: impl fmt::Display) {
        self.report.push(self.to_string(), message.to_string(), true);
    }

    /// Reports that the value is not what it should be, and what becomes of it where that is not plain.
    pub fn wrong_type(&self, wanted: &str) {
        self.problem(format_args!("{} is not {wanted}", Shown(self.value)));
    }

    /// The entries of a list; none where it is absent, or reported not to be a list.
    pub fn items(&'f self) -> impl Iterator<Item = Field<'f>> {
        let items: &[Value] = match self.value {
            Value::Array(items) => items,
            Value::Null => &[],
            _ => {
                self.wrong_type("a list");
                &[]
            }
        };
        let (parent, report) = (Some(self), self.report);
        items.iter().enumerate().map(move |(i, value)| Field { parent, step: Step::Index(i), value, report })
    }

    /// The entries of a list that are mappings; others are reported, with what becomes of them.
    pub fn mappings(&'f self, consequence: &'f str) -> impl Iterator<Item = Field<'f>> {
        self.items().filter(move |item| item.is_absent() || item.is_mapping(consequence))
    }

    /// The entries of a mapping; none where it is absent, or reported not to be a mapping.
    pub fn entries(&'f self) -> impl Iterator<Item = (&'f str, Field<'f>)> {
        let map = match self.value {
            Value::Object(map) => Some(map),
            Value::Null => None,
            _ => {
                self.wrong_type("a mapping");
                None
            }
        };
        let (parent, report) = (Some(self), self.report);
        map.into_iter()
            .flatten()
            .map(move |(key, value)| (key.as_str(), Field { parent, step: Step::Key(key), value, report }))
    }

    /// The text of the field; absent or reported not to be text: none.
    pub fn text(&self) -> Option<&'f str> {
        match self.value {
            Value::String(text) => Some(text),
            Value::Null => None,
            _ => {
                self.wrong_type("text");
                None
            }
        }
    }

    /// True, false, or neither.
    pub fn boolean(&self) -> Option<bool> {
        match self.value {
            Value::Bool(yes) => Some(*yes),
            Value::Null => None,
            _ => {
                self.wrong_type("true or false");
                None
            }
        }
    }

    /// True or false, or the default where it is absent; nothing where it is neither, with what becomes of that.
    pub fn boolean_or(&self, default: bool, consequence: &str) -> Option<bool> {
        match self.value {
            Value::Bool(yes) => Some(*yes),
            Value::Null => Some(default),
            _ => {
                self.wrong_type(&format!("true or false; {consequence}"));
                None
            }
        }
    }

    /// A whole number in a range; `what` completes "… is not".
    pub fn number(&self, range: std::ops::RangeInclusive<u32>, what: &str) -> Option<u32> {
        if self.is_absent() {
            return None;
        }
        let number = self.value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| range.contains(n));
        if number.is_none() {
            self.wrong_type(what);
        }
        number
    }

    /// A port number, 1 to 65535.
    pub fn port(&self) -> Option<u16> {
        self.number(1..=65535, "a port").map(|n| n as u16)
    }

    /// A number where there is one, whatever the field is otherwise. Nothing is reported.
    pub fn peek_number(&self) -> Option<u64> {
        self.value.as_u64()
    }

    /// The text where there is some, whatever the field is otherwise. Nothing is reported.
    pub fn peek_text(&self) -> Option<&'f str> {
        self.value.as_str()
    }

    /// An address, in any of the spellings of behaviour row A13.
    pub fn address(&self) -> Option<IpAddr> {
        let text = self.text()?;
        let address = parse_address(text);
        if address.is_none() {
            self.wrong_type("an IP address");
        }
        address
    }

    /// An address that a Service can have: not unspecified, loopback, multicast or broadcast.
    pub fn unicast_address(&self) -> Option<IpAddr> {
        let address = self.address()?;
        let what = if address.is_unspecified() {
            "the unspecified address"
        } else if address.is_loopback() {
            "a loopback address"
        } else if address.is_multicast() {
            "a multicast address"
        } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
            "the broadcast address"
        } else {
            return Some(address);
        };
        self.problem(format_args!("{address} is {what}, which cannot stand here"));
        None
    }

    /// An address that is not link-local either. The API server demands that of external addresses and of endpoints,
    /// because they would hand the node's own traffic to others.
    pub fn routable_address(&self) -> Option<IpAddr> {
        let address = self.unicast_address()?;
        let link_local = match address {
            IpAddr::V4(a) => a.is_link_local(),
            IpAddr::V6(a) => a.is_unicast_link_local(),
        };
        if link_local {
            self.problem(format_args!("{address} is a link-local address, which cannot stand here"));
        }
        (!link_local).then_some(address)
    }

    /// A prefix, in any of the spellings of rows A13 and A14.
    pub fn network(&self) -> Option<IpNet> {
        let text = self.text()?;
        let network = parse_network(text);
        if network.is_none() {
            self.wrong_type("a prefix such as 10.0.0.0/8");
        }
        network
    }

    /// `IPv4` or `IPv6`.
    pub fn family(&self) -> Option<Family> {
        match self.text()? {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => {
                self.wrong_type("IPv4 or IPv6");
                None
            }
        }
    }

    /// One of a few words. `what` completes "… is not", and says what the field is taken for.
    pub fn word<T: Copy>(&self, words: &[(&str, T)], what: &str) -> Option<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if found.is_none() {
            self.wrong_type(what);
        }
        found
    }

    /// The name of a port: a DNS label, or empty. Names are shown in rulesets, so nothing else gets through.
    pub fn port_name(&self) -> Option<Name> {
        let text = match self.value {
            Value::Null => return Some(Name::default()),
            _ => self.text()?,
        };
        if text.is_empty() || is_dns_label(text) {
            return Some(text.into());
        }
        self.wrong_type("a port name (at most 63 of a-z, 0-9 and -)");
        None
    }

    /// Keeps the address if it is of the family; otherwise reports it.
    pub fn of_family(&self, address: IpAddr, family: Family) -> Option<IpAddr> {
        if address.family() == family {
            return Some(address);
        }
        self.problem(format_args!("{address} is not an {family} address"));
        None
    }
}

/// At most 63 letters, digits and hyphens, none of these at an end.
pub fn is_dns_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Labels with dots between them, at most 253 bytes.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// The path of the field, as `kubectl explain` writes it: `spec.ports[1].port`.
impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        parent.fmt(f)?;
        match self.step {
            Step::Root => Ok(()),
            Step::Name(name) if parent.parent.is_none() => f.write_str(name),
            Step::Name(name) => write!(f, ".{name}"),
            Step::Key(key) => write!(f, "[{}]", Clipped(key)),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A value as it is shown in a message: text quoted, lists and mappings only named.
pub struct Shown<'v>(pub &'v Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(yes) => write!(f, "{yes}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::String(text) => write!(f, "\"{}\"", Clipped(text)),
            Value::Array(_) => f.write_str("a list"),
            Value::Object(_) => f.write_str("a mapping"),
        }
    }
}
