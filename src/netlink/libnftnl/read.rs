//! The kernel's messages, read by the library. Nothing for what it does not understand.

use super::exprs::{read as read_expr, read_counter, read_verdict};
use super::ffi::{self, Object};
use crate::netlink::message::family as family_of;
use crate::netlink::model::*;
use crate::netlink::uapi::{self, NFNL_SUBSYS_NFTABLES, message};
use crate::netlink::userdata::comment;

/// Whether a message is an nf_tables message of that type.
fn is(message: &[u8], kind: u8) -> bool {
    message.get(4..6) == Some(&(NFNL_SUBSYS_NFTABLES << 8 | u16::from(kind)).to_ne_bytes())
}

fn family(message: &[u8]) -> Option<NfFamily> {
    family_of(message).map(NfFamily)
}

pub fn table(message: &[u8]) -> Option<Table> {
    let table = ffi::Table::parse(message).filter(|_| is(message, message::NEWTABLE))?;
    Some(Table {
        family: family(message)?,
        name: table.get_text(ffi::Table::NAME)?.into(),
        flags: table.get_u32(ffi::Table::FLAGS).unwrap_or_default(),
        comment: table.get_blob(ffi::Table::USERDATA).and_then(comment),
    })
}

pub fn chain(message: &[u8]) -> Option<Chain> {
    let chain = ffi::Chain::parse(message).filter(|_| is(message, message::NEWCHAIN))?;
    let hook = chain.get_u32(ffi::Chain::HOOK).map(|number| Hook {
        kind: chain.get_text(ffi::Chain::TYPE).unwrap_or_default().into(),
        number,
        priority: chain.get_u32(ffi::Chain::PRIORITY).unwrap_or_default().cast_signed(),
        policy: chain.get_u32(ffi::Chain::POLICY).unwrap_or_default(),
    });
    Some(Chain {
        family: family(message)?,
        table: chain.get_text(ffi::Chain::TABLE)?.into(),
        name: chain.get_text(ffi::Chain::NAME)?.into(),
        hook,
        is_bound: chain.get_u32(ffi::Chain::FLAGS).is_some_and(|flags| flags & uapi::chain::BINDING != 0),
        comment: chain.get_blob(ffi::Chain::USERDATA).and_then(comment),
    })
}

pub fn rule(message: &[u8]) -> Option<Rule> {
    let rule = ffi::Rule::parse(message).filter(|_| is(message, message::NEWRULE))?;
    Some(Rule {
        family: family(message)?,
        table: rule.get_text(ffi::Rule::TABLE)?.into(),
        chain: rule.get_text(ffi::Rule::CHAIN)?.into(),
        handle: rule.get_u64(ffi::Rule::HANDLE).unwrap_or_default(),
        exprs: rule.exprs().into_iter().map(read_expr).collect(),
        comment: rule.get_blob(ffi::Rule::USERDATA).and_then(comment),
    })
}

pub fn set(message: &[u8]) -> Option<Set> {
    let set = ffi::Set::parse(message).filter(|_| is(message, message::NEWSET))?;
    let number = |attr| set.get_u32(attr).unwrap_or_default();
    let read = Set {
        family: family(message)?,
        table: set.get_text(ffi::Set::TABLE)?.into(),
        name: set.get_text(ffi::Set::NAME)?.into(),
        flags: number(ffi::Set::FLAGS),
        key_type: number(ffi::Set::KEY_TYPE),
        key_len: number(ffi::Set::KEY_LEN),
        data_type: number(ffi::Set::DATA_TYPE),
        data_len: number(ffi::Set::DATA_LEN),
        size: set.get_u32(ffi::Set::SIZE),
        concat: set.get_blob(ffi::Set::CONCAT).unwrap_or_default().to_vec(),
        timeout_ms: set.get_u64(ffi::Set::TIMEOUT),
        userdata: set.get_blob(ffi::Set::USERDATA).unwrap_or_default().to_vec(),
        exprs: set.exprs().into_iter().map(read_expr).collect(),
    };
    Some(read.canonical())
}

pub fn elements(message: &[u8]) -> Option<Vec<Element>> {
    let set = ffi::Set::parse_elements(message).filter(|_| is(message, message::NEWSETELEM))?;
    let mut elements = Vec::new();
    set.for_each(|from| elements.push(element(from)));
    Some(elements)
}

fn element(from: &ffi::Element) -> Element {
    let bytes = |attr| from.get_blob(attr).map(Bytes::from_slice);
    let counters: Vec<_> = from.exprs().into_iter().map(read_counter).collect();
    let verdict = read_verdict(from, ffi::Element::VERDICT, ffi::Element::CHAIN).map(Data::Verdict);
    Element {
        key: bytes(ffi::Element::KEY).unwrap_or_default(),
        key_end: bytes(ffi::Element::KEY_END).map(Box::new),
        data: verdict.or_else(|| bytes(ffi::Element::DATA).map(Data::Value)).unwrap_or_default(),
        flags: from.get_u32(ffi::Element::FLAGS).unwrap_or_default(),
        timeout_ms: from.get_u64(ffi::Element::TIMEOUT),
        expiration_ms: from.get_u64(ffi::Element::EXPIRATION),
        comment: from.get_blob(ffi::Element::USERDATA).and_then(comment),
        counter: counters.iter().copied().flatten().next(),
        unread: counters.iter().any(Option::is_none) || from.get_text(ffi::Element::OBJREF).is_some(),
    }
}
