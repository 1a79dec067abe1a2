//! Tables, chains, rules, sets and elements, read. Attributes that are not known are passed over; those that are and
//! make no sense are taken for absent.

use compact_str::CompactString;

use super::decode_expr::{self, value};
use crate::netlink::attr::{Attr, Reader};
use crate::netlink::message::{attrs, family as family_of};
use crate::netlink::model::*;
use crate::netlink::uapi::*;
use crate::netlink::userdata::comment;

/// Whether a message is an nf_tables message of that type.
fn is(message: &[u8], kind: u8) -> bool {
    message.get(4..6) == Some(&(NFNL_SUBSYS_NFTABLES << 8 | u16::from(kind)).to_ne_bytes())
}

fn family(message: &[u8]) -> Option<NfFamily> {
    family_of(message).map(NfFamily)
}

/// A text attribute as a name.
pub fn name(attr: Attr) -> Name {
    CompactString::from(attr.text())
}

pub fn table(message: &[u8]) -> Option<Table> {
    if !is(message, message::NEWTABLE) {
        return None;
    }
    let mut table = Table { family: family(message)?, name: Name::default(), flags: 0, comment: None };
    for attr in attrs(message) {
        match attr.kind {
            table::NAME => table.name = name(attr),
            table::FLAGS => table.flags = attr.u32().unwrap_or_default(),
            table::USERDATA => table.comment = comment(attr.value),
            _ => {}
        }
    }
    Some(table)
}

pub fn chain(message: &[u8]) -> Option<Chain> {
    if !is(message, message::NEWCHAIN) {
        return None;
    }
    let mut chain = Chain {
        family: family(message)?,
        table: Name::default(),
        name: Name::default(),
        hook: None,
        is_bound: false,
        comment: None,
    };
    let (mut kind, mut policy) = (Name::default(), 0);
    for attr in attrs(message) {
        match attr.kind {
            chain::TABLE => chain.table = name(attr),
            chain::NAME => chain.name = name(attr),
            chain::HOOK => chain.hook = Some(hook(attr)),
            chain::POLICY => policy = attr.u32().unwrap_or_default(),
            chain::TYPE => kind = name(attr),
            chain::FLAGS => chain.is_bound = attr.u32().is_some_and(|flags| flags & chain::BINDING != 0),
            chain::USERDATA => chain.comment = comment(attr.value),
            _ => {}
        }
    }
    if let Some(hook) = &mut chain.hook {
        (hook.kind, hook.policy) = (kind, policy);
    }
    Some(chain)
}

fn hook(attr: Attr) -> Hook {
    let number = |kind| attr.attrs().find(kind).and_then(Attr::u32).unwrap_or_default();
    Hook {
        kind: Name::default(),
        number: number(chain::HOOK_NUMBER),
        priority: number(chain::HOOK_PRIORITY).cast_signed(),
        policy: 0,
    }
}

pub fn rule(message: &[u8]) -> Option<Rule> {
    if !is(message, message::NEWRULE) {
        return None;
    }
    let mut rule = Rule {
        family: family(message)?,
        table: Name::default(),
        chain: Name::default(),
        handle: 0,
        exprs: Vec::new(),
        comment: None,
    };
    for attr in attrs(message) {
        match attr.kind {
            rule::TABLE => rule.table = name(attr),
            rule::CHAIN => rule.chain = name(attr),
            rule::HANDLE => rule.handle = attr.u64().unwrap_or_default(),
            rule::EXPRESSIONS => rule.exprs = exprs(attr),
            rule::USERDATA => rule.comment = comment(attr.value),
            _ => {}
        }
    }
    Some(rule)
}

/// A list of expressions.
fn exprs(list: Attr) -> Vec<Expr> {
    list.attrs().filter(|attr| attr.kind == NFTA_LIST_ELEM).map(decode_expr::expr).collect()
}

pub fn set(message: &[u8]) -> Option<Set> {
    if !is(message, message::NEWSET) {
        return None;
    }
    let mut set = Set {
        family: family(message)?,
        table: Name::default(),
        name: Name::default(),
        flags: 0,
        key_type: 0,
        key_len: 0,
        data_type: 0,
        data_len: 0,
        size: None,
        concat: Vec::new(),
        timeout_ms: None,
        userdata: Vec::new(),
        exprs: Vec::new(),
    };
    for attr in attrs(message) {
        set_attr(&mut set, attr);
    }
    Some(set.canonical())
}

fn set_attr(set: &mut Set, attr: Attr) {
    let number = || attr.u32().unwrap_or_default();
    match attr.kind {
        set::TABLE => set.table = name(attr),
        set::NAME => set.name = name(attr),
        set::FLAGS => set.flags = number(),
        set::KEY_TYPE => set.key_type = number(),
        set::KEY_LEN => set.key_len = number(),
        set::DATA_TYPE => set.data_type = number(),
        set::DATA_LEN => set.data_len = number(),
        set::DESC => {
            set.size = attr.attrs().find(set::DESC_SIZE).and_then(Attr::u32);
            set.concat = attr.attrs().find(set::DESC_CONCAT).map(concat).unwrap_or_default();
        }
        set::TIMEOUT => set.timeout_ms = attr.u64(),
        set::USERDATA => set.userdata = attr.value.to_vec(),
        set::EXPR => set.exprs = vec![decode_expr::expr(attr)],
        set::EXPRESSIONS => set.exprs = exprs(attr),
        _ => {}
    }
}

/// The lengths of the parts of a concatenation.
fn concat(list: Attr) -> Vec<u8> {
    list.attrs()
        .filter_map(|field| field.attrs().find(set::FIELD_LEN)?.u32())
        .filter_map(|length| u8::try_from(length).ok())
        .collect()
}

pub fn elements(message: &[u8], each: &mut dyn FnMut(Element)) {
    if !is(message, message::NEWSETELEM) {
        return;
    }
    for list in attrs(message).filter(|attr| attr.kind == elements::ELEMENTS) {
        // libnftnl numbers them instead of giving all the type NFTA_LIST_ELEM; so the type is not looked at.
        list.attrs().for_each(|attr| each(element(attr.attrs())));
    }
}

fn element(attrs: Reader) -> Element {
    let mut element = Element::default();
    for attr in attrs {
        match attr.kind {
            element::KEY => element.key = value(attr).unwrap_or_default(),
            element::KEY_END => element.key_end = value(attr).map(Box::new),
            element::DATA => match decode_expr::data(attr) {
                Some(data) => element.data = data,
                None => element.unread = true,
            },
            element::FLAGS => element.flags = attr.u32().unwrap_or_default(),
            element::TIMEOUT => element.timeout_ms = attr.u64(),
            element::EXPIRATION => element.expiration_ms = attr.u64(),
            element::USERDATA => element.comment = comment(attr.value),
            element::EXPR => statement(&mut element, attr),
            element::EXPRESSIONS => attr.attrs().for_each(|attr| statement(&mut element, attr)),
            element::OBJREF => element.unread = true,
            _ => {}
        }
    }
    element
}

/// What an element does when it matches. Of that, only counters have a place in the model.
fn statement(element: &mut Element, attr: Attr) {
    match decode_expr::expr(attr) {
        Expr::Counter { packets, bytes } => element.counter = element.counter.or(Some((packets, bytes))),
        _ => element.unread = true,
    }
}
