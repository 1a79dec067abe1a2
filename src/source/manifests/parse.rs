//! One document to objects: YAML or JSON, one object or a list of them.
//!
//! The items of a list are converted one at a time while the text is read, so that a list of a whole cluster never
//! stands in memory as a tree.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::shown::Clipped;
use crate::source::Problem;
use crate::source::convert::{Interner, Object, Shown, convert};

use super::document::{Document, DocumentError};

/// What a document says.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The objects of kinds that matter.
    pub objects: Vec<Object>,
    /// What is wrong with them.
    pub problems: Vec<Problem>,
    /// How many objects there are, of any kind, and lists.
    pub items: usize,
}

/// Why a document cannot be read.
#[derive(Debug)]
pub struct ParseError {
    /// The line of the file, or the number of the document.
    pub place: String,
    /// What is wrong.
    pub message: String,
}

impl From<DocumentError> for ParseError {
    fn from(error: DocumentError) -> ParseError {
        ParseError { place: String::new(), message: error.to_string() }
    }
}

/// Reads a document. Text that begins with `{` is JSON, or else YAML that looks like it.
pub fn parse(document: &Document, file: &str, interner: &mut Interner) -> Result<Parsed, ParseError> {
    let body = document.text.strip_prefix("---").unwrap_or(&document.text).trim_start();
    let json_error = if body.starts_with('{') {
        match parse_json(document, body, file, interner) {
            Ok(parsed) => return Ok(parsed),
            Err(error) => Some(error),
        }
    } else {
        None
    };
    parse_yaml(document, file, interner).map_err(|yaml_error| json_error.unwrap_or(yaml_error))
}

/// One JSON text, or several after another.
fn parse_json(document: &Document, body: &str, file: &str, interner: &mut Interner) -> Result<Parsed, ParseError> {
    let skipped = &document.text[..document.text.len() - body.len()];
    let lines_before = document.lines_before + skipped.matches('\n').count();
    let mut sink = Sink::new(document, file, interner);
    let mut json = serde_json::Deserializer::from_str(body);
    loop {
        Root(&mut sink).deserialize(&mut json).map_err(|error| ParseError {
            place: format!("line {}, column {}", lines_before + error.line().max(1), error.column()),
            message: relocated(&error.to_string(), lines_before),
        })?;
        if json.end().is_ok() {
            return Ok(sink.parsed);
        }
    }
}

fn parse_yaml(document: &Document, file: &str, interner: &mut Interner) -> Result<Parsed, ParseError> {
    // Sizes are the user's business, since the whole text is in memory anyway. What stays limited is what lets a
    // small text become large: the depth, and the aliases (by the library's defaults).
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: None,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
        },
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        strict_booleans: true,
        with_snippet: false,
    };
    let mut sink = Sink::new(document, file, interner);
    serde_saphyr::with_deserializer_from_str_with_options(&document.text, options, |yaml| {
        Root(&mut sink).deserialize(yaml)
    })
    .map_err(|error| ParseError {
        place: match error.location() {
            Some(at) => format!("line {}, column {}", document.lines_before as u64 + at.line(), at.column()),
            None => format!("document {}", document.number),
        },
        message: relocated(&error.render_with_formatter(&serde_saphyr::UserMessageFormatter), document.lines_before),
    })?;
    Ok(sink.parsed)
}

/// A library's message with the lines counted from the beginning of the file, and without the position that ends
/// it: that is the problem's place already.
fn relocated(message: &str, lines_before: usize) -> String {
    let mut parts = message.split("line ");
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = part.split_at(digits);
        let position = rest.trim_start_matches(',').strip_prefix(" column ");
        match (number.parse::<usize>(), position) {
            (Ok(_), Some(column)) if column.bytes().all(|b| b.is_ascii_digit()) && text.ends_with(" at ") => {
                text.truncate(text.len() - " at ".len());
            }
            (Ok(number), Some(_)) => text.push_str(&format!("line {}{rest}", number + lines_before)),
            _ => text.push_str(&format!("line {part}")),
        }
    }
    Clipped(&text).to_string()
}

/// Takes objects as they come.
struct Sink<'s> {
    document: usize,
    file: &'s str,
    interner: &'s mut Interner,
    parsed: Parsed,
}

impl<'s> Sink<'s> {
    fn new(document: &Document, file: &'s str, interner: &'s mut Interner) -> Sink<'s> {
        Sink { document: document.number, file, interner, parsed: Parsed::default() }
    }

    /// Takes one object, or the items of a list within a list.
    fn take(&mut self, value: &Value, item: Option<usize>) {
        self.parsed.items += 1;
        let place = Place { file: self.file, document: self.document, item };
        if let Some(Value::Array(items)) = value.get("items") {
            for (i, item) in items.iter().enumerate() {
                self.take(item, Some(i));
            }
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

    /// Takes the items of a `ServiceList` and the like, which do not say their kind.
    fn take_typed(&mut self, list: &Map<String, Value>, items: Vec<(usize, Value)>) {
        let kind = list.get("kind").and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List"));
        for (i, mut item) in items {
            if let (Some(kind), Value::Object(fields)) = (kind.filter(|kind| !kind.is_empty()), &mut item) {
                fields.insert("kind".into(), kind.into());
                fields.insert("apiVersion".into(), list.get("apiVersion").cloned().unwrap_or_default());
            }
            self.take(&item, Some(i));
        }
    }
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

/// The root of a document: an object, or a list whose items go to the sink as they are read.
struct Root<'r, 's>(&'r mut Sink<'s>);

impl<'de> DeserializeSeed<'de> for Root<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Root<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    /// What templates make where they have nothing to say.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut fields, mut list) = (Map::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            if key == "items" && list.is_none() {
                list = map.next_value_seed(Items(self.0))?;
            } else if fields.insert(key.clone(), map.next_value()?).is_some() {
                return Err(A::Error::custom(format_args!("{key} is there twice")));
            }
        }
        match list {
            Some(untyped) => self.0.take_typed(&fields, untyped),
            None => self.0.take(&Value::Object(fields), None),
        }
        Ok(())
    }
}

/// The value of `items`: where it is a list, those that do not say their kind come back with their positions, and
/// the others have gone to the sink.
struct Items<'r, 's>(&'r mut Sink<'s>);

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = Option<Vec<(usize, Value)>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = Option<Vec<(usize, Value)>>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of Kubernetes objects")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(Vec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let (mut untyped, mut position) = (Vec::new(), 0);
        while let Some(item) = items.next_element::<Value>()? {
            match item.get("kind") {
                Some(_) => self.0.take(&item, Some(position)),
                None => untyped.push((position, item)),
            }
            position += 1;
        }
        self.0.parsed.items += 1;
        Ok(Some(untyped))
    }
}
