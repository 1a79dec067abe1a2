//! What can still be seen of an object that cannot be read.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::json;

use crate::shown::Clipped;
use crate::source::convert::title;

/// The names of an object, as far as they could be read.
#[derive(Debug, Default)]
pub struct Glimpse {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

impl Glimpse {
    /// What the object is called in messages: `Service default/web`. Nothing where too little of it is known.
    pub fn title(&self) -> Option<String> {
        let (kind, name) = (self.kind.as_deref()?, self.name.as_deref()?);
        let title = title(kind, &json!({"metadata": {"namespace": self.namespace, "name": name}}), &"");
        Some(Clipped(&title).to_string())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Glimpse {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Glimpse {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "kind" => self.kind = Some(map.next_value()?),
                "metadata" => map.next_value_seed(Names(self))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// `metadata`.
struct Names<'g>(&'g mut Glimpse);

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "namespace" => self.0.namespace = Some(map.next_value()?),
                "name" => self.0.name = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
