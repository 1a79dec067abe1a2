//! Operations, as the library's messages.

use super::exprs::{counter, write as write_expr, write_verdict};
use super::ffi::{self, Add, Assembly, Message, Object, Subject};
use crate::netlink::batch::{Batch, Part};
use crate::netlink::codec::EncodeError;
use crate::netlink::message::attrs;
use crate::netlink::model::*;
use crate::netlink::native::encoded_len;
use crate::netlink::uapi::{self, NLM_F_APPEND, NLM_F_CREATE, message};
use crate::netlink::userdata::comment_bytes;

/// The most that one rule or set may take. The library does not look where its buffer ends, and takes a little more
/// than the native codec, by which this is measured.
const MOST: usize = 32 << 10;
/// Elements per object of the library: they are all in memory at once.
const ELEMENTS: usize = 1000;

/// Adds the messages of `ops` to a batch that has begun.
pub fn encode(ops: &[Op], batch: &mut Batch) -> Result<(), EncodeError> {
    let mut assembly = Assembly::new();
    let mut owners = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let count = put(&mut assembly, op, index).map_err(|Trouble { element, why }| EncodeError {
            op: index,
            element,
            why,
        })?;
        owners.extend(std::iter::repeat_n(index, count));
    }
    let mut owners = owners.into_iter();
    let mut last = Part { op: usize::MAX, element: 0 };
    assembly.for_each(|message| {
        let Some(op) = owners.next() else { return };
        let part = Part { op, element: if last.op == op { last.element } else { 0 } };
        batch.append(part, message);
        let elements = attrs(message).find(uapi::elements::ELEMENTS).map_or(0, |list| list.attrs().count());
        last = Part { op, element: part.element + elements };
    });
    Ok(())
}

/// Why an operation cannot be written.
struct Trouble {
    element: Option<usize>,
    why: String,
}

impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble { element: None, why }
    }
}

/// Writes one operation; gives the number of messages.
fn put(assembly: &mut Assembly, op: &Op, index: usize) -> Result<usize, Trouble> {
    match op {
        Op::AddElements { set, elements } => return put_elements(assembly, set, elements, Add::Yes),
        Op::DeleteElements { set, elements } => return put_elements(assembly, set, elements, Add::No),
        Op::FlushSet(set) => {
            let all = named_set(&set.table, &set.name)?;
            return Ok(assembly.elements(&all, message::DELSETELEM, 0, set.family.0, Add::No));
        }
        _ if encoded_len(op) > MOST => return Err(format!("takes more than {MOST} bytes").into()),
        _ => {}
    }
    let object = object(op, index)?;
    let (kind, flags, family, add) = request(op);
    let subject = object.subject();
    assembly.message(&Message { kind, flags, family: family.0, subject }, add);
    Ok(1)
}

/// Any object that makes a single message.
enum AnyObject {
    Table(ffi::Table),
    Chain(ffi::Chain),
    Rule(ffi::Rule),
    Set(ffi::Set),
}

impl AnyObject {
    fn subject(&self) -> Subject<'_> {
        match self {
            AnyObject::Table(table) => Subject::Table(table),
            AnyObject::Chain(chain) => Subject::Chain(chain),
            AnyObject::Rule(rule) => Subject::Rule(rule),
            AnyObject::Set(set) => Subject::Set(set),
        }
    }
}

/// The object that the operation is about. A whole chain's rules are a rule without any details.
fn object(op: &Op, index: usize) -> Result<AnyObject, String> {
    Ok(match op {
        Op::AddTable(t) => AnyObject::Table(table(&t.name, Some(t))?),
        Op::DeleteTable { name, .. } => AnyObject::Table(table(name, None)?),
        Op::AddChain(c) => AnyObject::Chain(chain(&c.table, &c.name, Some(c))?),
        Op::DeleteChain(c) => AnyObject::Chain(chain(&c.table, &c.name, None)?),
        Op::AddRule(r) => AnyObject::Rule(rule(&r.table, &r.chain, Some(r))?),
        Op::FlushChain(c) => AnyObject::Rule(rule(&c.table, &c.name, None)?),
        Op::DeleteRule { chain, handle } => {
            let mut rule = rule(&chain.table, &chain.name, None)?;
            rule.u64(ffi::Rule::HANDLE, *handle);
            AnyObject::Rule(rule)
        }
        Op::AddSet(s) => AnyObject::Set(new_set(s, index as u32 + 1)?),
        Op::DeleteSet(s) | Op::FlushSet(s) => AnyObject::Set(named_set(&s.table, &s.name)?),
        Op::AddElements { set, .. } | Op::DeleteElements { set, .. } => {
            AnyObject::Set(named_set(&set.table, &set.name)?)
        }
    })
}

fn request(op: &Op) -> (u8, u16, NfFamily, Add) {
    match op {
        Op::AddTable(t) => (message::NEWTABLE, NLM_F_CREATE, t.family, Add::Yes),
        Op::DeleteTable { family, .. } => (message::DELTABLE, 0, *family, Add::No),
        Op::AddChain(c) => (message::NEWCHAIN, NLM_F_CREATE, c.family, Add::Yes),
        Op::DeleteChain(c) => (message::DELCHAIN, 0, c.family, Add::No),
        Op::AddRule(r) => (message::NEWRULE, NLM_F_CREATE | NLM_F_APPEND, r.family, Add::Yes),
        Op::FlushChain(c) | Op::DeleteRule { chain: c, .. } => (message::DELRULE, 0, c.family, Add::No),
        Op::AddSet(s) => (message::NEWSET, NLM_F_CREATE, s.family, Add::Yes),
        Op::DeleteSet(s) => (message::DELSET, 0, s.family, Add::No),
        Op::AddElements { set, .. } => (message::NEWSETELEM, NLM_F_CREATE, set.family, Add::Yes),
        Op::DeleteElements { set, .. } | Op::FlushSet(set) => (message::DELSETELEM, 0, set.family, Add::No),
    }
}

fn table(name: &str, details: Option<&Table>) -> Result<ffi::Table, String> {
    let mut table = ffi::Table::new();
    table.text(ffi::Table::NAME, name)?;
    if let Some(details) = details {
        table.u32(ffi::Table::FLAGS, details.flags);
        if let Some(comment) = &details.comment {
            table.blob(ffi::Table::USERDATA, &comment_bytes(comment))?;
        }
    }
    Ok(table)
}

fn chain(table: &str, name: &str, details: Option<&Chain>) -> Result<ffi::Chain, String> {
    let mut chain = ffi::Chain::new();
    chain.text(ffi::Chain::TABLE, table)?.text(ffi::Chain::NAME, name)?;
    if let Some(hook) = details.and_then(|details| details.hook.as_ref()) {
        chain.u32(ffi::Chain::HOOK, hook.number).u32(ffi::Chain::PRIORITY, hook.priority.cast_unsigned());
        chain.u32(ffi::Chain::POLICY, hook.policy).text(ffi::Chain::TYPE, &hook.kind)?;
    }
    if details.is_some_and(|details| details.is_bound) {
        chain.u32(ffi::Chain::FLAGS, uapi::chain::BINDING);
    }
    if let Some(comment) = details.and_then(|details| details.comment.as_ref()) {
        chain.blob(ffi::Chain::USERDATA, &comment_bytes(comment))?;
    }
    Ok(chain)
}

fn rule(table: &str, chain: &str, details: Option<&Rule>) -> Result<ffi::Rule, String> {
    let mut rule = ffi::Rule::new();
    rule.text(ffi::Rule::TABLE, table)?.text(ffi::Rule::CHAIN, chain)?;
    if let Some(details) = details {
        for expr in &details.exprs {
            rule.add(write_expr(expr)?);
        }
        if let Some(comment) = &details.comment {
            rule.blob(ffi::Rule::USERDATA, &comment_bytes(comment))?;
        }
    }
    Ok(rule)
}

fn named_set(table: &str, name: &str) -> Result<ffi::Set, String> {
    let mut set = ffi::Set::new();
    set.text(ffi::Set::TABLE, table)?.text(ffi::Set::NAME, name)?;
    Ok(set)
}

fn new_set(details: &Set, id: u32) -> Result<ffi::Set, String> {
    let mut set = named_set(&details.table, &details.name)?;
    set.u32(ffi::Set::FLAGS, details.flags).u32(ffi::Set::ID, id);
    set.u32(ffi::Set::KEY_TYPE, details.key_type).u32(ffi::Set::KEY_LEN, details.key_len);
    if details.flags & set_flags::MAP != 0 {
        set.u32(ffi::Set::DATA_TYPE, details.data_type).u32(ffi::Set::DATA_LEN, details.data_len);
    }
    if let Some(size) = details.size {
        set.u32(ffi::Set::SIZE, size);
    }
    if !details.concat.is_empty() {
        set.blob(ffi::Set::CONCAT, &details.concat)?;
    }
    if let Some(timeout) = details.timeout_ms {
        set.u64(ffi::Set::TIMEOUT, timeout);
    }
    if !details.userdata.is_empty() {
        set.blob(ffi::Set::USERDATA, &details.userdata)?;
    }
    for expr in &details.exprs {
        set.add_expr(write_expr(expr)?);
    }
    Ok(set)
}

fn put_elements(assembly: &mut Assembly, at: &SetRef, elements: &[Element], add: Add) -> Result<usize, Trouble> {
    let (kind, flags) = match add {
        Add::Yes => (message::NEWSETELEM, NLM_F_CREATE),
        Add::No => (message::DELSETELEM, 0),
    };
    let mut messages = 0;
    for (number, some) in elements.chunks(ELEMENTS).enumerate() {
        let mut set = named_set(&at.table, &at.name)?;
        for (index, one) in some.iter().enumerate() {
            let place = Some(number * ELEMENTS + index);
            set.add(element(one, add).map_err(|why| Trouble { element: place, why })?);
        }
        messages += assembly.elements(&set, kind, flags, at.family.0, add);
    }
    Ok(messages)
}

fn element(from: &Element, add: Add) -> Result<ffi::Element, String> {
    let mut element = ffi::Element::new();
    if !from.key.is_empty() {
        element.blob(ffi::Element::KEY, &from.key)?;
    }
    if let Some(key) = &from.key_end {
        element.blob(ffi::Element::KEY_END, key)?;
    }
    if from.flags != 0 {
        element.u32(ffi::Element::FLAGS, from.flags);
    }
    if add == Add::Yes {
        add_details(&mut element, from)?;
    }
    Ok(element)
}

fn add_details(element: &mut ffi::Element, from: &Element) -> Result<(), String> {
    match &from.data {
        Data::None => {}
        Data::Value(value) => {
            element.blob(ffi::Element::DATA, value)?;
        }
        Data::Verdict(verdict) => write_verdict(element, ffi::Element::VERDICT, ffi::Element::CHAIN, verdict)?,
    }
    if let Some(timeout) = from.timeout_ms {
        element.u64(ffi::Element::TIMEOUT, timeout);
    }
    if let Some(expiration) = from.expiration_ms {
        element.u64(ffi::Element::EXPIRATION, expiration);
    }
    if let Some(comment) = &from.comment {
        element.blob(ffi::Element::USERDATA, &comment_bytes(comment))?;
    }
    if let Some((packets, bytes)) = from.counter {
        element.add_expr(counter(packets, bytes));
    }
    Ok(())
}
