//! The elements of a set or map, and which of them matches a key.

use std::collections::BTreeMap;

use super::registers::Key;
use super::ruleset::SetElements;
use super::text::is_end;
use crate::netlink::model::{Bytes, Element, element_flags};

/// Elements by their keys. The ends of ranges come before beginnings with the same key. They are boxed, since a tree has room
/// for eleven in every leaf, and rulesets of others have tens of thousands of sets with two or three.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elements(BTreeMap<(Bytes, bool), Box<Element>>);

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

    /// How many there are; ranges count twice where their ends are elements of their own.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The element that is there for the same key.
    pub fn same_key(&self, element: &Element) -> Option<&Element> {
        self.0.get(&Elements::place(element)).map(|element| &**element)
    }

    /// Puts an element in, in the place of one with the same key.
    pub fn insert(&mut self, element: Element) {
        self.0.insert(Elements::place(&element), Box::new(element));
    }

    /// Takes the element with the same key out.
    pub fn remove(&mut self, element: &Element) -> Option<Element> {
        self.0.remove(&Elements::place(element)).map(|element| *element)
    }

    /// The end of the range that an element begins, in sets of ranges that are no concatenations.
    pub fn end_of(&self, element: &Element) -> Option<&Element> {
        use std::ops::Bound::{Excluded, Unbounded};
        let behind = self.0.range((Excluded(Elements::place(element)), Unbounded)).next();
        behind.map(|(_, element)| &**element).filter(|element| is_end(element))
    }

    /// All of them, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Element> {
        self.0.values().map(|element| &**element)
    }

    fn catch_all(&self) -> Option<&Element> {
        self.0.get(&(Bytes::new(), true)).map(|element| &**element)
    }
}

impl FromIterator<Element> for Elements {
    fn from_iter<T: IntoIterator<Item = Element>>(elements: T) -> Elements {
        Elements(elements.into_iter().map(|element| (Elements::place(&element), Box::new(element))).collect())
    }
}

impl SetElements {
    /// The element that matches a key.
    pub(super) fn find(&self, key: &Key) -> Match<'_> {
        let elements = &self.elements;
        if elements.is_empty() {
            return Match::None;
        }
        let Some(bytes) = key.known() else {
            return if self.may_match(key) { Match::Unsure } else { Match::None };
        };
        let found = if !self.is_interval() {
            elements.0.get(&(bytes, true)).map(|element| &**element)
        } else if self.set.concat.is_empty() {
            // the last bound at or below the key: a beginning, or the end of a range
            let below = elements.0.range(..=(bytes, true)).next_back();
            below
                .map(|(_, element)| &**element)
                .filter(|e| e.flags & element_flags::INTERVAL_END == 0 && !e.key.is_empty())
        } else {
            elements.iter().find(|element| self.contains(element, &bytes))
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
