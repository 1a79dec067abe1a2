//! Operations, written.

use super::elements::{self, element_len};
use super::expr::{put, put_list};
use crate::netlink::attr::{HEADER, MAX, Writer, padded};
use crate::netlink::batch::{Batch, Part, Request, single};
use crate::netlink::codec::EncodeError;
use crate::netlink::model::*;
use crate::netlink::uapi::*;
use crate::netlink::userdata::put_comment;

/// Writes one operation, the one at `index` of the transaction.
pub fn encode(op: &Op, index: usize, batch: &mut Batch) -> Result<(), EncodeError> {
    let request = request(op);
    if let Op::AddElements { set, elements } | Op::DeleteElements { set, elements } = op {
        return elements::encode(set, elements, request, index, batch);
    }
    let fits = batch.message(Part { op: index, element: 0 }, request, |w| put_body(w, op, index));
    if fits { Ok(()) } else { Err(EncodeError { op: index, element: None, why: "does not fit into 64 KiB".into() }) }
}

/// The bytes that an operation takes in a transaction.
pub fn encoded_len(op: &Op) -> usize {
    let (set, elements, whole) = match op {
        Op::AddElements { set, elements } => (set, elements, true),
        Op::DeleteElements { set, elements } => (set, elements, false),
        _ => return single(request(op), 0, |w| put_body(w, op, 0)).len(),
    };
    let around = MESSAGE_HEADER + padded(set.table.len() + 1) + padded(set.name.len() + 1) + HEADER;
    let (mut total, mut room) = (0, 0);
    for element in elements {
        let length = element_len(element, whole);
        if length > room {
            total += around;
            room = MAX - HEADER;
        }
        total += length;
        room = room.saturating_sub(length);
    }
    total
}

fn request(op: &Op) -> Request {
    let (message, flags) = match op {
        Op::AddTable(_) => (message::NEWTABLE, NLM_F_CREATE),
        Op::DeleteTable { .. } => (message::DELTABLE, 0),
        Op::AddChain(_) => (message::NEWCHAIN, NLM_F_CREATE),
        Op::DeleteChain(_) => (message::DELCHAIN, 0),
        Op::AddRule(_) => (message::NEWRULE, NLM_F_CREATE | NLM_F_APPEND),
        Op::FlushChain(_) | Op::DeleteRule { .. } => (message::DELRULE, 0),
        Op::AddSet(_) => (message::NEWSET, NLM_F_CREATE),
        Op::DeleteSet(_) => (message::DELSET, 0),
        Op::AddElements { .. } => (message::NEWSETELEM, NLM_F_CREATE),
        Op::DeleteElements { .. } | Op::FlushSet(_) => (message::DELSETELEM, 0),
    };
    Request { message, flags, family: family(op) }
}

fn family(op: &Op) -> NfFamily {
    match op {
        Op::AddTable(table) => table.family,
        Op::DeleteTable { family, .. } => *family,
        Op::AddChain(chain) => chain.family,
        Op::DeleteChain(chain) | Op::FlushChain(chain) | Op::DeleteRule { chain, .. } => chain.family,
        Op::AddRule(rule) => rule.family,
        Op::AddSet(set) => set.family,
        Op::DeleteSet(set) | Op::FlushSet(set) => set.family,
        Op::AddElements { set, .. } | Op::DeleteElements { set, .. } => set.family,
    }
}

fn put_body(w: &mut Writer, op: &Op, index: usize) {
    match op {
        Op::AddTable(table) => put_table(w, table),
        Op::DeleteTable { name, .. } => w.text(table::NAME, name),
        Op::AddChain(chain) => put_chain(w, chain),
        Op::DeleteChain(chain) => {
            w.text(chain::TABLE, &chain.table);
            w.text(chain::NAME, &chain.name);
        }
        Op::AddRule(rule) => put_rule(w, rule),
        Op::FlushChain(chain) => {
            w.text(rule::TABLE, &chain.table);
            w.text(rule::CHAIN, &chain.name);
        }
        Op::DeleteRule { chain, handle } => {
            w.text(rule::TABLE, &chain.table);
            w.text(rule::CHAIN, &chain.name);
            w.u64(rule::HANDLE, *handle);
        }
        // The kernel wants a number on every new set, no other in the transaction may have it.
        Op::AddSet(set) => put_set(w, set, index as u32 + 1),
        Op::DeleteSet(set) => {
            w.text(set::TABLE, &set.table);
            w.text(set::NAME, &set.name);
        }
        // Without a list of elements all are deleted.
        Op::FlushSet(set) | Op::AddElements { set, .. } | Op::DeleteElements { set, .. } => {
            w.text(crate::netlink::uapi::elements::TABLE, &set.table);
            w.text(crate::netlink::uapi::elements::SET, &set.name);
        }
    }
}

fn put_table(w: &mut Writer, table: &Table) {
    w.text(table::NAME, &table.name);
    w.u32(table::FLAGS, table.flags);
    if let Some(comment) = &table.comment {
        put_comment(w, table::USERDATA, comment);
    }
}

fn put_chain(w: &mut Writer, chain: &Chain) {
    w.text(chain::TABLE, &chain.table);
    w.text(chain::NAME, &chain.name);
    if let Some(hook) = &chain.hook {
        w.nest(chain::HOOK, |w| {
            w.u32(chain::HOOK_NUMBER, hook.number);
            w.u32(chain::HOOK_PRIORITY, hook.priority.cast_unsigned());
        });
        w.u32(chain::POLICY, hook.policy);
        w.text(chain::TYPE, &hook.kind);
    }
    if chain.is_bound {
        w.u32(chain::FLAGS, chain::BINDING);
    }
    if let Some(comment) = &chain.comment {
        put_comment(w, chain::USERDATA, comment);
    }
}

fn put_rule(w: &mut Writer, rule: &Rule) {
    w.text(rule::TABLE, &rule.table);
    w.text(rule::CHAIN, &rule.chain);
    put_list(w, rule::EXPRESSIONS, &rule.exprs);
    if let Some(comment) = &rule.comment {
        put_comment(w, rule::USERDATA, comment);
    }
}

fn put_set(w: &mut Writer, set: &Set, id: u32) {
    w.text(set::TABLE, &set.table);
    w.text(set::NAME, &set.name);
    w.u32(set::FLAGS, set.flags);
    w.u32(set::KEY_TYPE, set.key_type);
    w.u32(set::KEY_LEN, set.key_len);
    if set.flags & set_flags::MAP != 0 {
        w.u32(set::DATA_TYPE, set.data_type);
        w.u32(set::DATA_LEN, set.data_len);
    }
    if set.size.is_some() || !set.concat.is_empty() {
        w.nest(set::DESC, |w| put_description(w, set));
    }
    w.u32(set::ID, id);
    if let Some(timeout) = set.timeout_ms {
        w.u64(set::TIMEOUT, timeout);
    }
    if !set.userdata.is_empty() {
        w.put(set::USERDATA, &set.userdata);
    }
    match set.exprs.as_slice() {
        [] => {}
        [one] => put(w, set::EXPR, one),
        many => put_list(w, set::EXPRESSIONS, many),
    }
}

fn put_description(w: &mut Writer, set: &Set) {
    if let Some(size) = set.size {
        w.u32(set::DESC_SIZE, size);
    }
    if !set.concat.is_empty() {
        w.nest(set::DESC_CONCAT, |w| {
            for length in &set.concat {
                w.nest(NFTA_LIST_ELEM, |w| w.u32(set::FIELD_LEN, u32::from(*length)));
            }
        });
    }
}
