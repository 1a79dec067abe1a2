//! Expressions and values, written.

use crate::netlink::attr::Writer;
use crate::netlink::model::{Data, Expr, Register, Verdict};
use crate::netlink::uapi::{NFTA_LIST_ELEM, data, expr as a, verdict};

/// Writes a list of expressions as the attribute `kind`.
pub fn put_list(w: &mut Writer, kind: u16, exprs: &[Expr]) {
    w.nest(kind, |w| exprs.iter().for_each(|expr| put(w, NFTA_LIST_ELEM, expr)));
}

/// Writes one expression as the attribute `kind`.
pub fn put(w: &mut Writer, kind: u16, expr: &Expr) {
    w.nest(kind, |w| {
        w.text(a::NAME, name(expr));
        match expr {
            Expr::Raw { data, .. } if data.is_empty() => {}
            _ => w.nest(a::DATA, |w| put_fields(w, expr)),
        }
    });
}

/// The kernel's name for an expression.
pub fn name(expr: &Expr) -> &str {
    match expr {
        Expr::Payload { .. } => "payload",
        Expr::MetaLoad { .. } | Expr::MetaSet { .. } => "meta",
        Expr::Ct { .. } => "ct",
        Expr::Cmp { .. } => "cmp",
        Expr::Bitwise { .. } => "bitwise",
        Expr::Byteorder { .. } => "byteorder",
        Expr::Lookup { .. } => "lookup",
        Expr::Numgen { .. } => "numgen",
        Expr::Immediate { .. } => "immediate",
        Expr::Nat { .. } => "nat",
        Expr::Masq { .. } => "masq",
        Expr::Redir { .. } => "redir",
        Expr::Reject { .. } => "reject",
        Expr::Fib { .. } => "fib",
        Expr::Dynset { .. } => "dynset",
        Expr::Counter { .. } => "counter",
        Expr::Raw { name, .. } => name,
    }
}

fn put_fields(w: &mut Writer, expr: &Expr) {
    match expr {
        Expr::Payload { .. }
        | Expr::MetaLoad { .. }
        | Expr::Ct { .. }
        | Expr::Numgen { .. }
        | Expr::Fib { .. }
        | Expr::Immediate { .. } => put_load(w, expr),
        Expr::Cmp { .. } | Expr::Bitwise { .. } | Expr::Byteorder { .. } => put_compute(w, expr),
        Expr::Lookup { .. } | Expr::Dynset { .. } => put_set_use(w, expr),
        Expr::MetaSet { .. }
        | Expr::Nat { .. }
        | Expr::Masq { .. }
        | Expr::Redir { .. }
        | Expr::Reject { .. }
        | Expr::Counter { .. } => put_action(w, expr),
        Expr::Raw { data, .. } => w.bytes.extend_from_slice(data),
    }
}

/// Expressions that fill a register.
fn put_load(w: &mut Writer, expr: &Expr) {
    match expr {
        Expr::Payload { dreg, base, offset, len } => {
            w.u32(a::payload::DREG, *dreg);
            w.u32(a::payload::BASE, *base);
            w.u32(a::payload::OFFSET, *offset);
            w.u32(a::payload::LEN, *len);
        }
        Expr::MetaLoad { dreg, key } => {
            w.u32(a::meta::KEY, *key);
            w.u32(a::meta::DREG, *dreg);
        }
        Expr::Ct { dreg, key, direction } => {
            w.u32(a::ct::KEY, *key);
            w.u32(a::ct::DREG, *dreg);
            if let Some(direction) = direction {
                w.u8(a::ct::DIRECTION, *direction);
            }
        }
        Expr::Numgen { dreg, modulus, kind, offset } => {
            w.u32(a::numgen::DREG, *dreg);
            w.u32(a::numgen::MODULUS, *modulus);
            w.u32(a::numgen::TYPE, *kind);
            w.u32(a::numgen::OFFSET, *offset);
        }
        Expr::Fib { dreg, result, flags } => {
            w.u32(a::fib::DREG, *dreg);
            w.u32(a::fib::RESULT, *result);
            w.u32(a::fib::FLAGS, *flags);
        }
        Expr::Immediate { dreg, data } => {
            w.u32(a::immediate::DREG, *dreg);
            put_data(w, a::immediate::DATA, data);
        }
        _ => {}
    }
}

/// Expressions that compare or change registers.
fn put_compute(w: &mut Writer, expr: &Expr) {
    match expr {
        Expr::Cmp { sreg, op, data } => {
            w.u32(a::cmp::SREG, *sreg);
            w.u32(a::cmp::OP, *op);
            put_value(w, a::cmp::DATA, data);
        }
        Expr::Bitwise { sreg, dreg, len, mask, xor } => {
            w.u32(a::bitwise::SREG, *sreg);
            w.u32(a::bitwise::DREG, *dreg);
            w.u32(a::bitwise::LEN, *len);
            put_value(w, a::bitwise::MASK, mask);
            put_value(w, a::bitwise::XOR, xor);
        }
        Expr::Byteorder { sreg, dreg, op, len, size } => {
            w.u32(a::byteorder::SREG, *sreg);
            w.u32(a::byteorder::DREG, *dreg);
            w.u32(a::byteorder::OP, *op);
            w.u32(a::byteorder::LEN, *len);
            w.u32(a::byteorder::SIZE, *size);
        }
        _ => {}
    }
}

/// Expressions that read or write sets. They name them; the kernel needs a set's number only for sets without names.
fn put_set_use(w: &mut Writer, expr: &Expr) {
    match expr {
        Expr::Lookup { sreg, set, dreg, invert } => {
            w.text(a::lookup::SET, set);
            w.u32(a::lookup::SREG, *sreg);
            put_register(w, a::lookup::DREG, *dreg);
            if *invert {
                w.u32(a::lookup::FLAGS, a::lookup::F_INVERT);
            }
        }
        Expr::Dynset { op, set, sreg_key, sreg_data, timeout_ms } => {
            w.text(a::dynset::SET, set);
            w.u32(a::dynset::OP, *op);
            w.u32(a::dynset::SREG_KEY, *sreg_key);
            put_register(w, a::dynset::SREG_DATA, *sreg_data);
            if let Some(timeout) = timeout_ms {
                w.u64(a::dynset::TIMEOUT, *timeout);
            }
        }
        _ => {}
    }
}

/// Expressions that do something to the packet.
fn put_action(w: &mut Writer, expr: &Expr) {
    match expr {
        Expr::MetaSet { sreg, key } => {
            w.u32(a::meta::KEY, *key);
            w.u32(a::meta::SREG, *sreg);
        }
        Expr::Nat { kind, family, addr_min, addr_max, proto_min, proto_max, flags } => {
            w.u32(a::nat::TYPE, *kind);
            w.u32(a::nat::FAMILY, *family);
            put_register(w, a::nat::ADDR_MIN, *addr_min);
            put_register(w, a::nat::ADDR_MAX, *addr_max);
            put_register(w, a::nat::PROTO_MIN, *proto_min);
            put_register(w, a::nat::PROTO_MAX, *proto_max);
            let addr = if addr_min.is_some() { a::nat::F_ADDR } else { 0 };
            put_flags(w, a::nat::FLAGS, addr | nat_flags(*flags, *proto_min));
        }
        Expr::Masq { flags, proto_min, proto_max } => {
            put_flags(w, a::masq::FLAGS, nat_flags(*flags, *proto_min));
            put_register(w, a::masq::PROTO_MIN, *proto_min);
            put_register(w, a::masq::PROTO_MAX, *proto_max);
        }
        Expr::Redir { proto_min, proto_max, flags } => {
            put_register(w, a::redir::PROTO_MIN, *proto_min);
            put_register(w, a::redir::PROTO_MAX, *proto_max);
            put_flags(w, a::redir::FLAGS, nat_flags(*flags, *proto_min));
        }
        Expr::Reject { kind, code } => {
            w.u32(a::reject::TYPE, *kind);
            w.u8(a::reject::CODE, *code);
        }
        Expr::Counter { packets, bytes } => {
            w.u64(a::counter::BYTES, *bytes);
            w.u64(a::counter::PACKETS, *packets);
        }
        _ => {}
    }
}

/// A port that is given must be said to be given.
fn nat_flags(flags: u32, proto_min: Option<Register>) -> u32 {
    flags | if proto_min.is_some() { a::nat::F_PROTO } else { 0 }
}

fn put_flags(w: &mut Writer, kind: u16, flags: u32) {
    if flags != 0 {
        w.u32(kind, flags);
    }
}

fn put_register(w: &mut Writer, kind: u16, register: Option<Register>) {
    if let Some(register) = register {
        w.u32(kind, register);
    }
}

/// Writes plain bytes, wrapped as nf_tables wants them, as the attribute `kind`.
#[inline]
pub fn put_value(w: &mut Writer, kind: u16, value: &[u8]) {
    w.nest(kind, |w| w.put(data::VALUE, value));
}

/// Writes a value as the attribute `kind`; nothing where there is none.
#[inline]
pub fn put_data(w: &mut Writer, kind: u16, value: &Data) {
    match value {
        Data::None => {}
        Data::Value(bytes) => put_value(w, kind, bytes),
        Data::Verdict(verdict) => w.nest(kind, |w| put_verdict(w, verdict)),
    }
}

fn put_verdict(w: &mut Writer, value: &Verdict) {
    let (code, chain) = match value {
        Verdict::Accept => (verdict::ACCEPT, None),
        Verdict::Drop => (verdict::DROP, None),
        Verdict::Continue => (verdict::CONTINUE, None),
        Verdict::Break => (verdict::BREAK, None),
        Verdict::Return => (verdict::RETURN, None),
        Verdict::Jump(chain) => (verdict::JUMP, Some(chain)),
        Verdict::Goto(chain) => (verdict::GOTO, Some(chain)),
        Verdict::Other(code) => (*code, None),
    };
    w.nest(data::VERDICT, |w| {
        w.u32(data::VERDICT_CODE, code.cast_unsigned());
        if let Some(chain) = chain {
            w.text(data::VERDICT_CHAIN, chain);
        }
    });
}
