//! Objects in JSON.
//!
//! The text is cut first, by its brackets alone, and every object is read by itself: what cannot be read of one, such as a
//! number beyond all bounds, does not matter to the others.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};

use super::document::Document;
use super::glimpse::Glimpse;
use super::parse::{ParseError, relocated};
use super::sink::{Parsed, Sink};
use super::strict::{Strict, insert};

/// How many lists may hold each other. Each of them is looked through once more.
const DEEPEST: usize = 16;

/// Reads one JSON text, or several after another.
///
/// # Errors
/// It is not JSON.
pub fn parse(document: &Document, body: &str, sink: Sink) -> Result<Parsed, ParseError> {
    let skipped = &document.text[..document.text.len() - body.len()];
    let lines_before = document.lines_before + skipped.matches('\n').count();
    let mut reader = Reader { sink, places: Places { text: body, lines_before, line: 0, at: 0 } };
    let mut json = serde_json::Deserializer::from_str(body);
    loop {
        let object = <&RawValue>::deserialize(&mut json).map_err(|error| reader.places.fault(body, &error))?;
        reader.object(object.get(), None, DEEPEST);
        if json.end().is_ok() {
            return Ok(reader.sink.parsed);
        }
    }
}

struct Reader<'t, 's> {
    sink: Sink<'s>,
    places: Places<'t>,
}

impl<'t> Reader<'t, '_> {
    /// Reads an object, or a list of them; `item` is its position in a list, with the fields of that.
    fn object(&mut self, text: &'t str, item: Option<(usize, &Map<String, Value>)>, depth: usize) {
        if let Err(error) = self.try_object(text, item, depth) {
            let mut glimpse = Glimpse::default();
            // what can be seen before the fault is enough
            let _ = (&mut glimpse).deserialize(&mut serde_json::Deserializer::from_str(text));
            let error = self.places.fault(text, &error);
            self.sink.take_unreadable(&glimpse, item.map(|(position, _)| position), error);
        }
    }

    fn try_object(
        &mut self,
        text: &'t str,
        item: Option<(usize, &Map<String, Value>)>,
        depth: usize,
    ) -> Result<(), Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let Entry { fields, items } = match item {
            // an object that is none is one without a kind, in a list
            Some((position, list)) if !text.starts_with('{') => {
                self.sink.take_typed(list, Strict.deserialize(&mut json)?, position);
                return Ok(());
            }
            _ => Entry::deserialize(&mut json)?,
        };
        let is_list = |items: &&RawValue| item.is_none() || items.get().starts_with(['[', 'n']);
        // an object of another kind may have a field of that name
        let Some(items) = items.filter(is_list) else {
            match item {
                Some((position, list)) => self.sink.take_typed(list, Value::Object(fields), position),
                // what templates make where they have nothing to say
                None if text == "null" => {}
                None => self.sink.take(&Value::Object(fields), None),
            }
            return Ok(());
        };
        let items: Vec<&RawValue> = match items.get() {
            "null" => Vec::new(),
            list if list.starts_with('[') => serde_json::from_str(list)?,
            _ => return Err(Error::custom("items is not a list of Kubernetes objects")),
        };
        let depth = depth.checked_sub(1).ok_or_else(|| Error::custom("there are too many lists within each other"))?;
        self.sink.parsed.items += 1;
        for (position, item) in items.into_iter().enumerate() {
            self.object(item.get(), Some((position, &fields)), depth);
        }
        Ok(())
    }
}

/// The fields of an object; and those called `items`, which are not read yet.
#[derive(Default)]
struct Entry<'t> {
    fields: Map<String, Value>,
    items: Option<&'t RawValue>,
}

impl<'de> Deserialize<'de> for Entry<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Entry<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a Kubernetes object")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Entry::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entry = Entry::default();
                while let Some(key) = map.next_key::<String>()? {
                    match (key.as_str(), &entry.items) {
                        ("items", None) => entry.items = Some(map.next_value()?),
                        ("items", Some(_)) => return Err(A::Error::custom("items is there twice")),
                        _ => insert(&mut entry.fields, key, map.next_value_seed(Strict)?)?,
                    }
                }
                Ok(entry)
            }
        }

        deserializer.deserialize_any(Fields)
    }
}

/// Places in a text as lines and columns of its file. Looking for one begins where the last one was found.
struct Places<'t> {
    text: &'t str,
    lines_before: usize,
    line: usize,
    at: usize,
}

impl Places<'_> {
    /// An error in a part of the text.
    fn fault(&mut self, part: &str, error: &Error) -> ParseError {
        let start = part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr()).min(self.text.len());
        if start < self.at {
            (self.line, self.at) = (0, 0);
        }
        self.line += self.text.as_bytes()[self.at..start].iter().filter(|byte| **byte == b'\n').count();
        self.at = start;
        let column = match error.line() {
            0 | 1 => start - self.text[..start].rfind('\n').map_or(0, |end| end + 1),
            _ => 0,
        };
        let lines_before = self.lines_before + self.line;
        ParseError {
            place: format!("line {}, column {}", lines_before + error.line().max(1), column + error.column()),
            message: relocated(&error.to_string(), lines_before),
        }
    }
}
