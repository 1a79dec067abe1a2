//! Objects in YAML.
//!
//! The items of a list are converted one at a time while the text is read, so that a list of a whole cluster never
//! stands in memory as a tree. Where that comes to an end at an item that cannot be read, the text is cut into items, and
//! each is read by itself.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Error, NonFiniteFloatPolicy, Options};

use crate::source::convert::Interner;
use crate::yaml::message;

use super::document::Document;
use super::glimpse::Glimpse;
use super::parse::{ParseError, relocated};
use super::sink::{Parsed, Sink};
use super::{block, flow};

/// Reads a document.
///
/// # Errors
/// It is no YAML, and no list in which that could be said of one item.
pub fn parse(document: &Document, file: &str, interner: &mut Interner) -> Result<Parsed, ParseError> {
    let mut sink = Sink::new(document, file, interner);
    let whole = serde_saphyr::with_deserializer_from_str_with_options(&document.text, options(), |yaml| {
        Root(&mut sink).deserialize(yaml)
    });
    match whole {
        Ok(()) => Ok(sink.parsed),
        Err(error) => {
            let apart = item_by_item(document, Sink::new(document, file, interner));
            apart.ok_or_else(|| fault(&error, document.lines_before, document.number))
        }
    }
}

/// Sizes are the user's business, since the whole text is in memory anyway. What stays limited is what lets a small text
/// become large: the depth, and the aliases (by the library's defaults).
fn options() -> Options {
    serde_saphyr::options! {
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
    }
}

/// For a text that is known to be wrong.
fn lenient() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

fn fault(error: &Error, lines_before: usize, document: usize) -> ParseError {
    ParseError {
        place: match error.location() {
            Some(at) => format!("line {}, column {}", lines_before as u64 + at.line(), at.column()),
            None => format!("document {document}"),
        },
        message: relocated(&message(error), lines_before),
    }
}

/// Reads each item of a list by itself. Nothing where it is no such list, or where that finds no fault: then
/// the fault is in the list.
fn item_by_item(document: &Document, mut sink: Sink) -> Option<Parsed> {
    let list = block::cut(&document.text).or_else(|| flow::cut(&document.text))?;
    let fields = match serde_saphyr::from_str_with_options(&list.without_items, options()).ok()? {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => return None,
    };
    for (position, item) in list.items.iter().enumerate() {
        match serde_saphyr::from_str_with_options::<Value>(&item.text, options()) {
            Ok(value) => sink.take_typed(&fields, value, position),
            Err(error) => {
                let mut glimpse = Glimpse::default();
                // what can be seen before the fault is enough
                let _ = serde_saphyr::with_deserializer_from_str_with_options(&item.text, lenient(), |yaml| {
                    (&mut glimpse).deserialize(yaml)
                });
                let lines_before = document.lines_before + item.lines_before;
                sink.take_unreadable(&glimpse, Some(position), fault(&error, lines_before, document.number));
            }
        }
    }
    sink.parsed.items += 1;
    (!sink.parsed.unreadable.is_empty()).then_some(sink.parsed)
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
            Some(untyped) => untyped.into_iter().for_each(|(at, item)| self.0.take_typed(&fields, item, at)),
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
