//! The elements of a set or map, and which of them matches a key.

use std::collections::BTreeMap;

use super::registers::Key;
use super::ruleset::SetElements;
use crate::netlink::model::{Bytes, Element, element_flags};

/// Elements by their keys. The ends of ranges come before beginnings with the same key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elements(BTreeMap<(Bytes, bool), Element>);

/// What a set has for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match<'a> {
    /// This element.
    Element(&'a Element),
    /// None.
    None,
    /// Not all of the key is known, and it depends on the rest.
    Unsure,
}

impl Elements {
    fn place(element: &Element) -> (Bytes, bool) {
        (element.key.clone(), element.flags & element_flags::INTERVAL_END == 0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The element that is there for the same key.
    pub fn same_key(&self, element: &Element) -> Option<&Element> {
        self.0.get(&Elements::place(element))
    }

    pub fn insert(&mut self, element: Element) {
        self.0.insert(Elements::place(&element), element);
    }

    pub fn remove(&mut self, element: &Element) -> Option<Element> {
        self.0.remove(&Elements::place(element))
    }

    fn catch_all(&self) -> Option<&Element> {
        self.0.get(&(Bytes::new(), true))
    }
}

impl FromIterator<Element> for Elements {
    fn from_iter<T: IntoIterator<Item = Element>>(elements: T) -> Elements {
        Elements(elements.into_iter().map(|element| (Elements::place(&element), element)).collect())
    }
}

impl SetElements {
    /// The element that matches a key.
    pub fn find(&self, key: &Key) -> Match<'_> {
        let elements = &self.elements;
        if elements.len() == 0 {
            return Match::None;
        }
        let Some(bytes) = key.known() else {
            return if self.may_match(key) { Match::Unsure } else { Match::None };
        };
        let found = if !self.is_interval() {
            elements.0.get(&(bytes, true))
        } else if self.set.concat.is_empty() {
            // the last bound at or below the key: a beginning, or the end of a range
            let below = elements.0.range(..=(bytes, true)).next_back();
            below
                .map(|(_, element)| element)
                .filter(|e| e.flags & element_flags::INTERVAL_END == 0 && !e.key.is_empty())
        } else {
            elements.0.values().find(|element| self.contains(element, &bytes))
        };
        found.or_else(|| elements.catch_all()).map_or(Match::None, Match::Element)
    }

    /// Whether any element may match a key of which not all is known.
    fn may_match(&self, key: &Key) -> bool {
        self.is_interval() || self.elements.0.values().any(|element| element.key.is_empty() || key.may_be(&element.key))
    }

    /// Whether every part of the key is within the element's range of it. Parts begin at multiples of 4 bytes.
    fn contains(&self, element: &Element, key: &[u8]) -> bool {
        let end = element.key_end.as_deref().unwrap_or(&element.key);
        let mut start = 0;
        !element.key.is_empty()
            && self.set.concat.iter().all(|length| {
                let part = start..start + usize::from(*length);
                start = part.end.next_multiple_of(4);
                match (element.key.get(part.clone()), key.get(part.clone()), end.get(part)) {
                    (Some(first), Some(key), Some(last)) => first <= key && key <= last,
                    _ => false,
                }
            })
    }
}
