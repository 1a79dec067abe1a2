//! Where the objects of a document go, one by one.

use std::fmt;

use serde_json::{Map, Value};

use crate::source::Problem;
use crate::source::convert::{Interner, Object, Shown, convert};

use super::document::Document;
use super::glimpse::Glimpse;
use super::parse::ParseError;

/// What a document says.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The objects of kinds that matter.
    pub objects: Vec<Object>,
    /// What is wrong with them.
    pub problems: Vec<Problem>,
    /// The objects that cannot be read at all, while others can.
    pub unreadable: Vec<ParseError>,
    /// How many objects there are, of any kind, and lists.
    pub items: usize,
}

/// Takes objects as they come.
pub struct Sink<'s> {
    document: usize,
    file: &'s str,
    interner: &'s mut Interner,
    /// What came so far.
    pub parsed: Parsed,
}

impl<'s> Sink<'s> {
    /// A sink for the objects of one document.
    pub fn new(document: &Document, file: &'s str, interner: &'s mut Interner) -> Sink<'s> {
        Sink { document: document.number, file, interner, parsed: Parsed::default() }
    }

    /// Takes one object, or the items of a list within a list.
    pub fn take(&mut self, value: &Value, item: Option<usize>) {
        self.parsed.items += 1;
        let place = Place { file: self.file, document: self.document, item };
        if let Some(Value::Array(items)) = value.get("items") {
            for (i, item) in items.iter().enumerate() {
                self.take(item, Some(i));
            }
        } else if is_unfinished(value) && item.is_none() {
            let message = "kind: is missing, so the object cannot be read".into();
            self.parsed.unreadable.push(ParseError { place: format!("document {}", self.document), message });
        } else if value.get("kind").and_then(Value::as_str).is_none_or(str::is_empty) {
            let what = match value.get("kind") {
                None | Some(Value::Null | Value::String(_)) => "is missing".into(),
                Some(other) => format!("{} is not a string", Shown(other)),
            };
            self.parsed.problems.push(Problem {
                object: place.to_string(),
                field: "kind".into(),
                message: format!("{what}, so this is no Kubernetes object"),
                skipped: true,
            });
        } else {
            let object = convert(value, &place, self.interner, &mut self.parsed.problems);
            self.parsed.objects.extend(object);
        }
    }

    /// Takes an item of a `ServiceList` and the like, which does not say its kind.
    pub fn take_typed(&mut self, list: &Map<String, Value>, mut item: Value, position: usize) {
        let kind = list.get("kind").and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List"));
        if let (Some(kind), Value::Object(fields)) = (kind.filter(|kind| !kind.is_empty()), &mut item)
            && !fields.contains_key("kind")
        {
            fields.insert("kind".into(), kind.into());
            fields.insert("apiVersion".into(), list.get("apiVersion").cloned().unwrap_or_default());
        }
        self.take(&item, Some(position));
    }

    /// Takes note of an object that cannot be read, of which no more than this is known.
    pub fn take_unreadable(&mut self, glimpse: &Glimpse, item: Option<usize>, error: ParseError) {
        self.parsed.items += 1;
        let what = glimpse.title().unwrap_or_else(|| match item {
            Some(item) => format!("items[{item}]"),
            None => format!("document {}", self.document),
        });
        let message = format!("{what}: {}", error.message);
        self.parsed.unreadable.push(ParseError { message, ..error });
    }
}

/// Whether it is the beginning of an object, as in a file that somebody has only written a part of.
fn is_unfinished(value: &Value) -> bool {
    value.get("apiVersion").is_some() && matches!(value.get("kind"), None | Some(Value::Null))
}

/// Where an object stands.
struct Place<'p> {
    file: &'p str,
    document: usize,
    item: Option<usize>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)?;
        self.item.map_or(Ok(()), |i| write!(f, ", items[{i}]"))
    }
}
