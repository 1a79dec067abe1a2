//! Elements, written: as many into a message as fit, and nothing allocated for any of them.

use super::expr::{put_data, put_value};
use crate::netlink::attr::{HEADER, MAX, Writer, padded};
use crate::netlink::batch::{Batch, Part, Request};
use crate::netlink::codec::EncodeError;
use crate::netlink::model::{Data, Element, SetRef, Verdict};
use crate::netlink::uapi::*;
use crate::netlink::userdata::{comment_len, put_comment};

/// Writes the messages that add or delete elements.
pub fn encode(
    set: &SetRef,
    elements: &[Element],
    request: Request,
    op: usize,
    batch: &mut Batch,
) -> Result<(), EncodeError> {
    let whole = request.message == message::NEWSETELEM;
    let mut first = 0;
    while first < elements.len() {
        let fitting = count_fitting(&elements[first..], whole);
        if fitting == 0 {
            let why = format!("takes {} bytes, {MAX} are the most", element_len(&elements[first], whole));
            return Err(EncodeError { op, element: Some(first), why });
        }
        let chunk = &elements[first..first + fitting];
        let fits = batch.message(Part { op, element: first }, request, |w| {
            w.text(elements::TABLE, &set.table);
            w.text(elements::SET, &set.name);
            let list = w.open(elements::ELEMENTS);
            chunk.iter().for_each(|element| put(w, element, whole));
            w.close(list);
        });
        if !fits {
            let why = "the name of the set or of its table is too long".into();
            return Err(EncodeError { op, element: None, why });
        }
        first += fitting;
    }
    Ok(())
}

/// The number of elements from the first on that one list holds.
fn count_fitting(elements: &[Element], whole: bool) -> usize {
    let mut room = MAX - HEADER;
    elements
        .iter()
        .take_while(|element| match room.checked_sub(element_len(element, whole)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        })
        .count()
}

/// The bytes that an element takes when it is added (`whole`) or deleted.
#[inline]
pub fn element_len(element: &Element, whole: bool) -> usize {
    let mut length = HEADER;
    if !element.key.is_empty() {
        length += HEADER + padded(element.key.len());
    }
    if let Some(key) = &element.key_end {
        length += HEADER + padded(key.len());
    }
    if element.flags != 0 {
        length += padded(4);
    }
    if whole {
        length += extras_len(element);
    }
    length
}

#[inline]
fn extras_len(element: &Element) -> usize {
    let data = match &element.data {
        Data::None => 0,
        Data::Value(value) => HEADER + padded(value.len()),
        Data::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) => 2 * HEADER + padded(4) + padded(chain.len() + 1),
        Data::Verdict(_) => 2 * HEADER + padded(4),
    };
    let times = [element.timeout_ms, element.expiration_ms].iter().flatten().count() * padded(8);
    let comment = element.comment.as_deref().map_or(0, comment_len);
    let counter = if element.counter.is_some() { 2 * HEADER + padded("counter\0".len()) + 2 * padded(8) } else { 0 };
    data + times + comment + counter
}

#[inline]
fn put(w: &mut Writer, element: &Element, whole: bool) {
    let start = w.open(NFTA_LIST_ELEM);
    if !element.key.is_empty() {
        put_value(w, element::KEY, &element.key);
    }
    if let Some(key) = &element.key_end {
        put_value(w, element::KEY_END, key);
    }
    if element.flags != 0 {
        w.u32(element::FLAGS, element.flags);
    }
    if whole {
        put_data(w, element::DATA, &element.data);
        put_extras(w, element);
    }
    w.close(start);
}

#[inline]
fn put_extras(w: &mut Writer, element: &Element) {
    if let Some(timeout) = element.timeout_ms {
        w.u64(element::TIMEOUT, timeout);
    }
    if let Some(expiration) = element.expiration_ms {
        w.u64(element::EXPIRATION, expiration);
    }
    if let Some(comment) = &element.comment {
        put_comment(w, element::USERDATA, comment);
    }
    if let Some((packets, bytes)) = element.counter {
        w.nest(element::EXPR, |w| {
            w.text(expr::NAME, "counter");
            w.nest(expr::DATA, |w| {
                w.u64(expr::counter::BYTES, bytes);
                w.u64(expr::counter::PACKETS, packets);
            });
        });
    }
}
