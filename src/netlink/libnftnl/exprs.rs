//! Expressions, to and from the library's.

use super::ffi::{self, AnyExpr, Kind, Object, OwnedExpr, Text, U32};
use crate::netlink::model::{Bytes, Data, Expr, Name, Register, Verdict};
use crate::netlink::uapi::{expr as a, verdict};

/// As the library's object.
pub fn write(expr: &Expr) -> Result<OwnedExpr, String> {
    match expr {
        Expr::Payload { .. }
        | Expr::MetaLoad { .. }
        | Expr::Ct { .. }
        | Expr::Numgen { .. }
        | Expr::Fib { .. }
        | Expr::Immediate { .. } => write_load(expr),
        Expr::Cmp { .. } | Expr::Bitwise { .. } | Expr::Byteorder { .. } => write_compute(expr),
        Expr::Lookup { .. } | Expr::Dynset { .. } => write_set_use(expr),
        Expr::MetaSet { .. }
        | Expr::Nat { .. }
        | Expr::Masq { .. }
        | Expr::Redir { .. }
        | Expr::Reject { .. }
        | Expr::Counter { .. } => Ok(write_action(expr)),
        Expr::Raw { name, .. } => Err(format!("libnftnl cannot write the expression {name} that is kept raw")),
    }
}

/// Expressions that fill a register.
fn write_load(expr: &Expr) -> Result<OwnedExpr, String> {
    use ffi::{Ct, Fib, Immediate, Meta, Numgen, Payload};
    Ok(match expr {
        Expr::Payload { dreg, base, offset, len } => make(|e| {
            e.u32(Payload::DREG, *dreg).u32(Payload::BASE, *base);
            e.u32(Payload::OFFSET, *offset).u32(Payload::LEN, *len);
        }),
        Expr::MetaLoad { dreg, key } => make(|e| {
            e.u32(Meta::KEY, *key).u32(Meta::DREG, *dreg);
        }),
        Expr::Ct { dreg, key, direction } => make(|e| {
            e.u32(Ct::KEY, *key).u32(Ct::DREG, *dreg);
            if let Some(direction) = direction {
                e.u8(Ct::DIRECTION, *direction);
            }
        }),
        Expr::Numgen { dreg, modulus, kind, offset } => make(|e| {
            e.u32(Numgen::DREG, *dreg).u32(Numgen::MODULUS, *modulus);
            e.u32(Numgen::TYPE, *kind).u32(Numgen::OFFSET, *offset);
        }),
        Expr::Fib { dreg, result, flags } => make(|e| {
            e.u32(Fib::DREG, *dreg).u32(Fib::RESULT, *result).u32(Fib::FLAGS, *flags);
        }),
        Expr::Immediate { dreg, data } => try_make(|e| {
            e.u32(Immediate::DREG, *dreg);
            match data {
                Data::None => {}
                Data::Value(value) => {
                    e.blob(Immediate::DATA, value)?;
                }
                Data::Verdict(verdict) => write_verdict(e, Immediate::VERDICT, Immediate::CHAIN, verdict)?,
            }
            Ok(())
        })?,
        other => return Err(format!("{other:?} loads nothing")),
    })
}

/// Expressions that compare or change registers.
fn write_compute(expr: &Expr) -> Result<OwnedExpr, String> {
    use ffi::{Bitwise, Byteorder, Cmp};
    match expr {
        Expr::Cmp { sreg, op, data } => try_make(|e| {
            e.u32(Cmp::SREG, *sreg).u32(Cmp::OP, *op).blob(Cmp::DATA, data)?;
            Ok(())
        }),
        Expr::Bitwise { sreg, dreg, len, mask, xor } => try_make(|e| {
            e.u32(Bitwise::SREG, *sreg).u32(Bitwise::DREG, *dreg).u32(Bitwise::LEN, *len);
            e.blob(Bitwise::MASK, mask)?.blob(Bitwise::XOR, xor)?;
            Ok(())
        }),
        Expr::Byteorder { sreg, dreg, op, len, size } => Ok(make(|e| {
            e.u32(Byteorder::SREG, *sreg).u32(Byteorder::DREG, *dreg);
            e.u32(Byteorder::OP, *op).u32(Byteorder::LEN, *len).u32(Byteorder::SIZE, *size);
        })),
        other => Err(format!("{other:?} computes nothing")),
    }
}

/// Expressions that read or write sets.
fn write_set_use(expr: &Expr) -> Result<OwnedExpr, String> {
    use ffi::{Dynset, Lookup};
    match expr {
        Expr::Lookup { sreg, set, dreg, invert } => try_make(|e| {
            e.text(Lookup::SET, set)?.u32(Lookup::SREG, *sreg);
            register(e, Lookup::DREG, *dreg);
            flags(e, Lookup::FLAGS, if *invert { a::lookup::F_INVERT } else { 0 });
            Ok(())
        }),
        Expr::Dynset { op, set, sreg_key, sreg_data, timeout_ms } => try_make(|e| {
            e.text(Dynset::SET, set)?.u32(Dynset::OP, *op).u32(Dynset::SREG_KEY, *sreg_key);
            register(e, Dynset::SREG_DATA, *sreg_data);
            if let Some(timeout) = timeout_ms {
                e.u64(Dynset::TIMEOUT, *timeout);
            }
            Ok(())
        }),
        other => Err(format!("{other:?} uses no set")),
    }
}

/// Expressions that do something to the packet.
fn write_action(expr: &Expr) -> OwnedExpr {
    use ffi::{Masq, Meta, Nat, Redir, Reject};
    let given = |register: &Option<Register>, flag| if register.is_some() { flag } else { 0 };
    match expr {
        Expr::Nat { kind, family, addr_min, addr_max, proto_min, proto_max, flags: more } => make(|e| {
            e.u32(Nat::TYPE, *kind).u32(Nat::FAMILY, *family);
            register(e, Nat::ADDR_MIN, *addr_min);
            register(e, Nat::ADDR_MAX, *addr_max);
            register(e, Nat::PROTO_MIN, *proto_min);
            register(e, Nat::PROTO_MAX, *proto_max);
            flags(e, Nat::FLAGS, more | given(addr_min, a::nat::F_ADDR) | given(proto_min, a::nat::F_PROTO));
        }),
        Expr::Masq { flags: more, proto_min, proto_max } => make(|e| {
            register(e, Masq::PROTO_MIN, *proto_min);
            register(e, Masq::PROTO_MAX, *proto_max);
            flags(e, Masq::FLAGS, more | given(proto_min, a::nat::F_PROTO));
        }),
        Expr::Redir { proto_min, proto_max, flags: more } => make(|e| {
            register(e, Redir::PROTO_MIN, *proto_min);
            register(e, Redir::PROTO_MAX, *proto_max);
            flags(e, Redir::FLAGS, more | given(proto_min, a::nat::F_PROTO));
        }),
        Expr::Reject { kind, code } => make(|e| {
            e.u32(Reject::TYPE, *kind).u8(Reject::CODE, *code);
        }),
        Expr::MetaSet { sreg, key } => make(|e| {
            e.u32(Meta::KEY, *key).u32(Meta::SREG, *sreg);
        }),
        Expr::Counter { packets, bytes } => counter(*packets, *bytes),
        _ => counter(0, 0),
    }
}

/// A counter at these numbers.
pub fn counter(packets: u64, bytes: u64) -> OwnedExpr {
    make(|e| {
        e.u64(ffi::Counter::PACKETS, packets).u64(ffi::Counter::BYTES, bytes);
    })
}

fn make<K: Kind>(fill: impl FnOnce(&mut ffi::Expr<K>)) -> OwnedExpr {
    let mut expr = ffi::Expr::new();
    fill(&mut expr);
    expr.any()
}

fn try_make<K: Kind>(fill: impl FnOnce(&mut ffi::Expr<K>) -> Result<(), String>) -> Result<OwnedExpr, String> {
    let mut expr = ffi::Expr::new();
    fill(&mut expr)?;
    Ok(expr.any())
}

fn register<K: Kind>(expr: &mut ffi::Expr<K>, attr: U32<ffi::Expr<K>>, register: Option<Register>) {
    if let Some(register) = register {
        expr.u32(attr, register);
    }
}

fn flags<K: Kind>(expr: &mut ffi::Expr<K>, attr: U32<ffi::Expr<K>>, flags: u32) {
    if flags != 0 {
        expr.u32(attr, flags);
    }
}

/// Sets a verdict on whatever has one.
pub fn write_verdict<O: Object>(object: &mut O, code: U32<O>, chain: Text<O>, value: &Verdict) -> Result<(), String> {
    let (number, to) = match value {
        Verdict::Accept => (verdict::ACCEPT, None),
        Verdict::Drop => (verdict::DROP, None),
        Verdict::Continue => (verdict::CONTINUE, None),
        Verdict::Break => (verdict::BREAK, None),
        Verdict::Return => (verdict::RETURN, None),
        Verdict::Jump(to) => (verdict::JUMP, Some(to)),
        Verdict::Goto(to) => (verdict::GOTO, Some(to)),
        Verdict::Other(number) => (*number, None),
    };
    object.u32(code, number.cast_unsigned());
    if let Some(to) = to {
        object.text(chain, to)?;
    }
    Ok(())
}

/// The verdict of whatever has one.
pub fn read_verdict<O: Object>(object: &O, code: U32<O>, chain: Text<O>) -> Option<Verdict> {
    let number = object.get_u32(code)?.cast_signed();
    let to = || object.get_text(chain).map(Name::from);
    Some(match number {
        verdict::ACCEPT => Verdict::Accept,
        verdict::DROP => Verdict::Drop,
        verdict::CONTINUE => Verdict::Continue,
        verdict::BREAK => Verdict::Break,
        verdict::RETURN => Verdict::Return,
        verdict::JUMP => to().map_or(Verdict::Other(number), Verdict::Jump),
        verdict::GOTO => to().map_or(Verdict::Other(number), Verdict::Goto),
        other => Verdict::Other(other),
    })
}

/// From the library's object, in the canonical form; raw when it says more than [`Expr`] has fields for.
pub fn read(expr: AnyExpr) -> Expr {
    let known =
        read_load(expr).or_else(|| read_compute(expr)).or_else(|| read_set_use(expr)).or_else(|| read_action(expr));
    match known {
        Some(expr) => expr.canonical(),
        None => Expr::Raw { name: expr.name().to_string_lossy().into(), data: expr.attributes() },
    }
}

fn read_load(expr: AnyExpr) -> Option<Expr> {
    use ffi::{Ct, Fib, Immediate, Meta, Numgen, Payload};
    match expr.name().to_bytes() {
        b"payload" => expr.with(|e: &ffi::Expr<Payload>| {
            let (base, offset, len) =
                (e.get_u32(Payload::BASE)?, e.get_u32(Payload::OFFSET)?, e.get_u32(Payload::LEN)?);
            let dreg = e.get_u32(Payload::DREG).filter(|_| e.get_u32(Payload::SREG).is_none())?;
            Some(Expr::Payload { dreg, base, offset, len })
        }),
        b"meta" => expr.with(|e: &ffi::Expr<Meta>| {
            let key = e.get_u32(Meta::KEY)?;
            match (e.get_u32(Meta::DREG), e.get_u32(Meta::SREG)) {
                (Some(dreg), None) => Some(Expr::MetaLoad { dreg, key }),
                (None, Some(sreg)) => Some(Expr::MetaSet { sreg, key }),
                _ => None,
            }
        }),
        b"ct" => expr.with(|e: &ffi::Expr<Ct>| {
            let dreg = e.get_u32(Ct::DREG).filter(|_| e.get_u32(Ct::SREG).is_none())?;
            Some(Expr::Ct { dreg, key: e.get_u32(Ct::KEY)?, direction: e.get_u8(Ct::DIRECTION) })
        }),
        b"numgen" => expr.with(|e: &ffi::Expr<Numgen>| {
            Some(Expr::Numgen {
                dreg: e.get_u32(Numgen::DREG)?,
                modulus: e.get_u32(Numgen::MODULUS)?,
                kind: e.get_u32(Numgen::TYPE)?,
                offset: e.get_u32(Numgen::OFFSET).unwrap_or_default(),
            })
        }),
        b"fib" => expr.with(|e: &ffi::Expr<Fib>| {
            let (result, flags) = (e.get_u32(Fib::RESULT)?, e.get_u32(Fib::FLAGS)?);
            Some(Expr::Fib { dreg: e.get_u32(Fib::DREG)?, result, flags })
        }),
        b"immediate" => expr.with(|e: &ffi::Expr<Immediate>| {
            let verdict = read_verdict(e, Immediate::VERDICT, Immediate::CHAIN).map(Data::Verdict);
            let value = || e.get_blob(Immediate::DATA).map(|value| Data::Value(Bytes::from_slice(value)));
            Some(Expr::Immediate { dreg: e.get_u32(Immediate::DREG)?, data: verdict.or_else(value)? })
        }),
        _ => None,
    }
}

fn read_compute(expr: AnyExpr) -> Option<Expr> {
    use ffi::{Bitwise, Byteorder, Cmp};
    match expr.name().to_bytes() {
        b"cmp" => expr.with(|e: &ffi::Expr<Cmp>| {
            let data = Bytes::from_slice(e.get_blob(Cmp::DATA)?);
            Some(Expr::Cmp { sreg: e.get_u32(Cmp::SREG)?, op: e.get_u32(Cmp::OP)?, data })
        }),
        b"bitwise" => expr.with(|e: &ffi::Expr<Bitwise>| {
            if e.get_u32(Bitwise::OP).is_some_and(|op| op != a::bitwise::OP_MASK_XOR) {
                return None;
            }
            Some(Expr::Bitwise {
                sreg: e.get_u32(Bitwise::SREG)?,
                dreg: e.get_u32(Bitwise::DREG)?,
                len: e.get_u32(Bitwise::LEN)?,
                mask: Box::new(Bytes::from_slice(e.get_blob(Bitwise::MASK)?)),
                xor: Box::new(Bytes::from_slice(e.get_blob(Bitwise::XOR)?)),
            })
        }),
        b"byteorder" => expr.with(|e: &ffi::Expr<Byteorder>| {
            Some(Expr::Byteorder {
                sreg: e.get_u32(Byteorder::SREG)?,
                dreg: e.get_u32(Byteorder::DREG)?,
                op: e.get_u32(Byteorder::OP)?,
                len: e.get_u32(Byteorder::LEN)?,
                size: e.get_u32(Byteorder::SIZE)?,
            })
        }),
        _ => None,
    }
}

fn read_set_use(expr: AnyExpr) -> Option<Expr> {
    use ffi::{Dynset, Lookup};
    match expr.name().to_bytes() {
        b"lookup" => expr.with(|e: &ffi::Expr<Lookup>| {
            let flags = e.get_u32(Lookup::FLAGS).unwrap_or_default();
            if flags & !a::lookup::F_INVERT != 0 {
                return None;
            }
            Some(Expr::Lookup {
                sreg: e.get_u32(Lookup::SREG)?,
                set: e.get_text(Lookup::SET)?.into(),
                dreg: e.get_u32(Lookup::DREG),
                invert: flags == a::lookup::F_INVERT,
            })
        }),
        b"dynset" => expr.with(|e: &ffi::Expr<Dynset>| {
            if e.get_u32(Dynset::FLAGS).is_some_and(|flags| flags != 0) || e.is_stateful() {
                return None;
            }
            Some(Expr::Dynset {
                op: e.get_u32(Dynset::OP)?,
                set: e.get_text(Dynset::SET)?.into(),
                sreg_key: e.get_u32(Dynset::SREG_KEY)?,
                sreg_data: e.get_u32(Dynset::SREG_DATA),
                timeout_ms: e.get_u64(Dynset::TIMEOUT),
            })
        }),
        _ => None,
    }
}

fn read_action(expr: AnyExpr) -> Option<Expr> {
    use ffi::{Masq, Nat, Redir, Reject};
    match expr.name().to_bytes() {
        b"nat" => expr.with(|e: &ffi::Expr<Nat>| {
            Some(Expr::Nat {
                kind: e.get_u32(Nat::TYPE)?,
                family: e.get_u32(Nat::FAMILY)?,
                addr_min: e.get_u32(Nat::ADDR_MIN),
                addr_max: e.get_u32(Nat::ADDR_MAX),
                proto_min: e.get_u32(Nat::PROTO_MIN),
                proto_max: e.get_u32(Nat::PROTO_MAX),
                flags: e.get_u32(Nat::FLAGS).unwrap_or_default(),
            })
        }),
        b"masq" => expr.with(|e: &ffi::Expr<Masq>| {
            let flags = e.get_u32(Masq::FLAGS).unwrap_or_default();
            Some(Expr::Masq { flags, proto_min: e.get_u32(Masq::PROTO_MIN), proto_max: e.get_u32(Masq::PROTO_MAX) })
        }),
        b"redir" => expr.with(|e: &ffi::Expr<Redir>| {
            let flags = e.get_u32(Redir::FLAGS).unwrap_or_default();
            Some(Expr::Redir { proto_min: e.get_u32(Redir::PROTO_MIN), proto_max: e.get_u32(Redir::PROTO_MAX), flags })
        }),
        b"reject" => expr.with(|e: &ffi::Expr<Reject>| {
            Some(Expr::Reject { kind: e.get_u32(Reject::TYPE)?, code: e.get_u8(Reject::CODE).unwrap_or_default() })
        }),
        b"counter" => read_counter(expr).map(|(packets, bytes)| Expr::Counter { packets, bytes }),
        _ => None,
    }
}

/// Packets and bytes, if it is a counter.
pub fn read_counter(expr: AnyExpr) -> Option<(u64, u64)> {
    expr.with(|e: &ffi::Expr<ffi::Counter>| Some((e.get_u64(ffi::Counter::PACKETS)?, e.get_u64(ffi::Counter::BYTES)?)))
}
