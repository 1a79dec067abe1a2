//! Expressions and values, read. An expression with an attribute that [`Expr`] has no field for, or without one that it
//! must have, is kept raw, so that nothing of it is lost.

use crate::netlink::attr::{Attr, Reader};
use crate::netlink::model::*;
use crate::netlink::uapi::{data, expr as a, verdict};

use super::decode::name;

/// Reads one expression, in its canonical form.
pub fn expr(attr: Attr) -> Expr {
    let mut kind = Name::default();
    let mut data = &[][..];
    for inner in attr.attrs() {
        match inner.kind {
            a::NAME => kind = name(inner),
            a::DATA => data = inner.value,
            _ => {}
        }
    }
    match known(&kind, data) {
        Some(expr) => expr.canonical(),
        None => Expr::Raw { name: kind, data: data.to_vec() },
    }
}

/// The plain bytes of a value.
pub fn value(attr: Attr) -> Option<Bytes> {
    attr.attrs().find(data::VALUE).map(|value| Bytes::from_slice(value.value))
}

/// A value or verdict.
pub fn data(attr: Attr) -> Option<Data> {
    attr.attrs().find_map(|inner| match inner.kind {
        data::VALUE => Some(Data::Value(Bytes::from_slice(inner.value))),
        data::VERDICT => read_verdict(inner).map(Data::Verdict),
        _ => None,
    })
}

fn read_verdict(attr: Attr) -> Option<Verdict> {
    let code = attr.attrs().find(data::VERDICT_CODE)?.u32()?.cast_signed();
    let chain = attr.attrs().find(data::VERDICT_CHAIN).map(name);
    Some(match (code, chain) {
        (verdict::ACCEPT, _) => Verdict::Accept,
        (verdict::DROP, _) => Verdict::Drop,
        (verdict::CONTINUE, _) => Verdict::Continue,
        (verdict::BREAK, _) => Verdict::Break,
        (verdict::RETURN, _) => Verdict::Return,
        (verdict::JUMP, Some(chain)) => Verdict::Jump(chain),
        (verdict::GOTO, Some(chain)) => Verdict::Goto(chain),
        (code, _) => Verdict::Other(code),
    })
}

/// The attributes of an expression, none of which may be unknown.
struct Fields<'a>([Option<Attr<'a>>; Fields::MOST]);

impl<'a> Fields<'a> {
    const MOST: usize = 12;

    /// Nothing when there are others than `known`.
    fn read(data: &'a [u8], known: &[u16]) -> Option<Fields<'a>> {
        let mut fields = Fields([None; Fields::MOST]);
        for attr in Reader::new(data) {
            if !known.contains(&attr.kind) {
                return None;
            }
            *fields.0.get_mut(usize::from(attr.kind))? = Some(attr);
        }
        Some(fields)
    }

    fn get(&self, kind: u16) -> Option<Attr<'a>> {
        self.0.get(usize::from(kind)).copied().flatten()
    }

    fn u32(&self, kind: u16) -> Option<u32> {
        self.get(kind)?.u32()
    }

    fn u64(&self, kind: u16) -> Option<u64> {
        self.get(kind)?.u64()
    }

    fn u8(&self, kind: u16) -> Option<u8> {
        match self.get(kind)?.value {
            [byte] => Some(*byte),
            _ => None,
        }
    }

    /// `0` where there is none.
    fn flags(&self, kind: u16) -> u32 {
        self.u32(kind).unwrap_or_default()
    }

    fn value(&self, kind: u16) -> Option<Bytes> {
        value(self.get(kind)?)
    }
}

fn known(name: &str, data: &[u8]) -> Option<Expr> {
    match name {
        "payload" => payload(data),
        "meta" => meta(data),
        "ct" => ct(data),
        "cmp" => cmp(data),
        "bitwise" => bitwise(data),
        "byteorder" => byteorder(data),
        "lookup" => lookup(data),
        "numgen" => numgen(data),
        "immediate" => immediate(data),
        "nat" => nat(data),
        "masq" => masq(data),
        "redir" => redir(data),
        "reject" => reject(data),
        "fib" => fib(data),
        "dynset" => dynset(data),
        "counter" => counter(data),
        _ => None,
    }
}

fn payload(data: &[u8]) -> Option<Expr> {
    use a::payload::*;
    let f = Fields::read(data, &[DREG, BASE, OFFSET, LEN])?;
    Some(Expr::Payload { dreg: f.u32(DREG)?, base: f.u32(BASE)?, offset: f.u32(OFFSET)?, len: f.u32(LEN)? })
}

fn meta(data: &[u8]) -> Option<Expr> {
    use a::meta::*;
    let f = Fields::read(data, &[DREG, KEY, SREG])?;
    let key = f.u32(KEY)?;
    match (f.u32(DREG), f.u32(SREG)) {
        (Some(dreg), None) => Some(Expr::MetaLoad { dreg, key }),
        (None, Some(sreg)) => Some(Expr::MetaSet { sreg, key }),
        _ => None,
    }
}

fn ct(data: &[u8]) -> Option<Expr> {
    use a::ct::*;
    let f = Fields::read(data, &[DREG, KEY, DIRECTION])?;
    Some(Expr::Ct { dreg: f.u32(DREG)?, key: f.u32(KEY)?, direction: f.u8(DIRECTION) })
}

fn cmp(data: &[u8]) -> Option<Expr> {
    use a::cmp::*;
    let f = Fields::read(data, &[SREG, OP, DATA])?;
    Some(Expr::Cmp { sreg: f.u32(SREG)?, op: f.u32(OP)?, data: f.value(DATA)? })
}

fn bitwise(data: &[u8]) -> Option<Expr> {
    use a::bitwise::*;
    let f = Fields::read(data, &[SREG, DREG, LEN, MASK, XOR, OP])?;
    if f.flags(OP) != OP_MASK_XOR {
        return None;
    }
    Some(Expr::Bitwise {
        sreg: f.u32(SREG)?,
        dreg: f.u32(DREG)?,
        len: f.u32(LEN)?,
        mask: Box::new(f.value(MASK)?),
        xor: Box::new(f.value(XOR)?),
    })
}

fn byteorder(data: &[u8]) -> Option<Expr> {
    use a::byteorder::*;
    let f = Fields::read(data, &[SREG, DREG, OP, LEN, SIZE])?;
    Some(Expr::Byteorder {
        sreg: f.u32(SREG)?,
        dreg: f.u32(DREG)?,
        op: f.u32(OP)?,
        len: f.u32(LEN)?,
        size: f.u32(SIZE)?,
    })
}

fn lookup(data: &[u8]) -> Option<Expr> {
    use a::lookup::*;
    let f = Fields::read(data, &[SET, SREG, DREG, FLAGS])?;
    let flags = f.flags(FLAGS);
    if flags & !F_INVERT != 0 {
        return None;
    }
    let set = f.get(SET).map(name)?;
    Some(Expr::Lookup { sreg: f.u32(SREG)?, set, dreg: f.u32(DREG), invert: flags == F_INVERT })
}

fn numgen(data: &[u8]) -> Option<Expr> {
    use a::numgen::*;
    let f = Fields::read(data, &[DREG, MODULUS, TYPE, OFFSET])?;
    Some(Expr::Numgen { dreg: f.u32(DREG)?, modulus: f.u32(MODULUS)?, kind: f.u32(TYPE)?, offset: f.flags(OFFSET) })
}

fn immediate(data: &[u8]) -> Option<Expr> {
    use a::immediate::*;
    let f = Fields::read(data, &[DREG, DATA])?;
    Some(Expr::Immediate { dreg: f.u32(DREG)?, data: self::data(f.get(DATA)?)? })
}

fn nat(data: &[u8]) -> Option<Expr> {
    use a::nat::*;
    let f = Fields::read(data, &[TYPE, FAMILY, ADDR_MIN, ADDR_MAX, PROTO_MIN, PROTO_MAX, FLAGS])?;
    Some(Expr::Nat {
        kind: f.u32(TYPE)?,
        family: f.u32(FAMILY)?,
        addr_min: f.u32(ADDR_MIN),
        addr_max: f.u32(ADDR_MAX),
        proto_min: f.u32(PROTO_MIN),
        proto_max: f.u32(PROTO_MAX),
        flags: f.flags(FLAGS),
    })
}

fn masq(data: &[u8]) -> Option<Expr> {
    use a::masq::*;
    let f = Fields::read(data, &[FLAGS, PROTO_MIN, PROTO_MAX])?;
    Some(Expr::Masq { flags: f.flags(FLAGS), proto_min: f.u32(PROTO_MIN), proto_max: f.u32(PROTO_MAX) })
}

fn redir(data: &[u8]) -> Option<Expr> {
    use a::redir::*;
    let f = Fields::read(data, &[PROTO_MIN, PROTO_MAX, FLAGS])?;
    Some(Expr::Redir { proto_min: f.u32(PROTO_MIN), proto_max: f.u32(PROTO_MAX), flags: f.flags(FLAGS) })
}

fn reject(data: &[u8]) -> Option<Expr> {
    use a::reject::*;
    let f = Fields::read(data, &[TYPE, CODE])?;
    Some(Expr::Reject { kind: f.u32(TYPE)?, code: f.u8(CODE).unwrap_or_default() })
}

fn fib(data: &[u8]) -> Option<Expr> {
    use a::fib::*;
    let f = Fields::read(data, &[DREG, RESULT, FLAGS])?;
    Some(Expr::Fib { dreg: f.u32(DREG)?, result: f.u32(RESULT)?, flags: f.u32(FLAGS)? })
}

fn dynset(data: &[u8]) -> Option<Expr> {
    use a::dynset::*;
    let f = Fields::read(data, &[SET, OP, SREG_KEY, SREG_DATA, TIMEOUT, PAD, FLAGS])?;
    if f.flags(FLAGS) != 0 {
        return None;
    }
    Some(Expr::Dynset {
        op: f.u32(OP)?,
        set: f.get(SET).map(name)?,
        sreg_key: f.u32(SREG_KEY)?,
        sreg_data: f.u32(SREG_DATA),
        timeout_ms: f.u64(TIMEOUT),
    })
}

fn counter(data: &[u8]) -> Option<Expr> {
    use a::counter::*;
    let f = Fields::read(data, &[BYTES, PACKETS, PAD])?;
    Some(Expr::Counter { packets: f.u64(PACKETS)?, bytes: f.u64(BYTES)? })
}
