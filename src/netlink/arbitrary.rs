//! Arbitrary objects for the property tests of the codecs.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::model::*;

pub fn name() -> impl Strategy<Value = Name> {
    "[a-z][a-z0-9_-]{0,30}".prop_map(Name::from)
}

fn comment() -> impl Strategy<Value = Option<Arc<str>>> {
    option::of("[^\0]{0,32}").prop_map(|text| text.map(Arc::from))
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 1..64).prop_map(Bytes::from_vec)
}

fn register() -> impl Strategy<Value = Register> {
    prop_oneof![1u32..5, 8u32..24]
}

fn family() -> impl Strategy<Value = NfFamily> {
    prop_oneof![Just(NfFamily::INET), Just(NfFamily::IPV4), Just(NfFamily::IPV6)]
}

pub fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Accept),
        Just(Verdict::Drop),
        Just(Verdict::Continue),
        Just(Verdict::Break),
        Just(Verdict::Return),
        name().prop_map(Verdict::Jump),
        name().prop_map(Verdict::Goto),
        (2i32..9).prop_map(Verdict::Other),
    ]
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![bytes().prop_map(Data::Value), verdict().prop_map(Data::Verdict)]
}

/// Every expression that has a name here.
pub fn known_expr() -> impl Strategy<Value = Expr> {
    let r = register;
    let maybe = || option::of(register());
    let n = any::<u32>;
    prop_oneof![
        (r(), n(), n(), n()).prop_map(|(dreg, base, offset, len)| Expr::Payload { dreg, base, offset, len }),
        (r(), n()).prop_map(|(dreg, key)| Expr::MetaLoad { dreg, key }),
        (r(), n()).prop_map(|(sreg, key)| Expr::MetaSet { sreg, key }),
        (r(), n(), option::of(0u8..2)).prop_map(|(dreg, key, direction)| Expr::Ct { dreg, key, direction }),
        (r(), n(), bytes()).prop_map(|(sreg, op, data)| Expr::Cmp { sreg, op, data }),
        (r(), r(), n(), bytes(), bytes()).prop_map(|(sreg, dreg, len, mask, xor)| Expr::Bitwise {
            sreg,
            dreg,
            len,
            mask: Box::new(mask),
            xor: Box::new(xor)
        }),
        (r(), r(), n(), n(), n()).prop_map(|(sreg, dreg, op, len, size)| Expr::Byteorder { sreg, dreg, op, len, size }),
        (r(), name(), maybe(), any::<bool>()).prop_map(|(sreg, set, dreg, invert)| Expr::Lookup {
            sreg,
            set,
            dreg,
            invert
        }),
        (r(), n(), n(), n()).prop_map(|(dreg, modulus, kind, offset)| Expr::Numgen { dreg, modulus, kind, offset }),
        (r(), data()).prop_map(|(dreg, data)| Expr::Immediate { dreg, data }),
        (0u32..2, n(), maybe(), maybe(), maybe(), maybe(), n()).prop_map(
            |(kind, family, addr_min, addr_max, proto_min, proto_max, flags)| Expr::Nat {
                kind,
                family,
                addr_min,
                addr_max,
                proto_min,
                proto_max,
                flags
            }
        ),
        (n(), maybe(), maybe()).prop_map(|(flags, proto_min, proto_max)| Expr::Masq { flags, proto_min, proto_max }),
        (n(), maybe(), maybe()).prop_map(|(flags, proto_min, proto_max)| Expr::Redir { proto_min, proto_max, flags }),
        (0u32..3, any::<u8>()).prop_map(|(kind, code)| Expr::Reject { kind, code }),
        (r(), n(), n()).prop_map(|(dreg, result, flags)| Expr::Fib { dreg, result, flags }),
        (n(), name(), r(), maybe(), option::of(any::<u64>())).prop_map(|(op, set, sreg_key, sreg_data, timeout_ms)| {
            Expr::Dynset { op, set, sreg_key, sreg_data, timeout_ms }
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(packets, bytes)| Expr::Counter { packets, bytes }),
    ]
}

/// An expression that has no name here, or has attributes that have none.
fn raw_expr() -> impl Strategy<Value = Expr> {
    let data = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..40)];
    ("(xt|objref|quota|limit)", data).prop_map(|(name, data)| Expr::Raw { name: name.into(), data })
}

fn exprs() -> impl Strategy<Value = Vec<Expr>> {
    vec(prop_oneof![9 => known_expr(), 1 => raw_expr()], 0..12)
}

pub fn element() -> impl Strategy<Value = Element> {
    let times = (option::of(any::<u64>()), option::of(any::<u64>()));
    let value = prop_oneof![Just(Data::None), data()];
    let key = prop_oneof![1 => Just(Bytes::new()), 9 => bytes()];
    (key, option::of(bytes()), value, 0u32..4, times, comment(), option::of(any::<(u64, u64)>())).prop_map(
        |(key, key_end, data, flags, (timeout_ms, expiration_ms), comment, counter)| Element {
            key,
            key_end: key_end.map(Box::new),
            data,
            flags,
            timeout_ms,
            expiration_ms,
            comment,
            counter,
            unread: false,
        },
    )
}

fn set_ref() -> impl Strategy<Value = SetRef> {
    (family(), name(), name()).prop_map(|(family, table, name)| SetRef { family, table, name })
}

fn chain_ref() -> impl Strategy<Value = ChainRef> {
    (family(), name(), name()).prop_map(|(family, table, name)| ChainRef { family, table, name })
}

fn hook() -> impl Strategy<Value = Hook> {
    ("(nat|filter|route)", 0u32..5, any::<i32>(), 0u32..2).prop_map(|(kind, number, priority, policy)| Hook {
        kind: kind.into(),
        number,
        priority,
        policy,
    })
}

pub fn table() -> impl Strategy<Value = Table> {
    (family(), name(), any::<u32>(), comment()).prop_map(|(family, name, flags, comment)| Table {
        family,
        name,
        flags,
        comment,
    })
}

pub fn chain() -> impl Strategy<Value = Chain> {
    (chain_ref(), option::of(hook()), any::<bool>(), comment()).prop_map(|(at, hook, is_bound, comment)| Chain {
        family: at.family,
        table: at.table,
        name: at.name,
        hook,
        is_bound,
        comment,
    })
}

pub fn rule() -> impl Strategy<Value = Rule> {
    (chain_ref(), exprs(), comment()).prop_map(|(at, exprs, comment)| Rule {
        family: at.family,
        table: at.table,
        chain: at.name,
        handle: 0,
        exprs,
        comment,
    })
}

pub fn set() -> impl Strategy<Value = Set> {
    let numbers = (0u32..0x200, any::<u32>(), 1u32..65, any::<u32>(), 0u32..65);
    let details = (option::of(any::<u32>()), vec(1u8..17, 0..5), option::of(any::<u64>()));
    let exprs = vec(known_expr(), 0..3);
    (set_ref(), numbers, details, vec(any::<u8>(), 0..120), exprs).prop_map(
        |(at, (flags, key_type, key_len, data_type, data_len), (size, concat, timeout_ms), userdata, exprs)| Set {
            family: at.family,
            table: at.table,
            name: at.name,
            flags,
            key_type,
            key_len,
            data_type,
            data_len,
            size,
            concat,
            timeout_ms,
            userdata,
            exprs,
        },
    )
}

pub fn op() -> impl Strategy<Value = Op> {
    let elements = || vec(element(), 0..40);
    prop_oneof![
        table().prop_map(Op::AddTable),
        (family(), name()).prop_map(|(family, name)| Op::DeleteTable { family, name }),
        chain().prop_map(Op::AddChain),
        chain_ref().prop_map(Op::DeleteChain),
        rule().prop_map(Op::AddRule),
        chain_ref().prop_map(Op::FlushChain),
        (chain_ref(), any::<u64>()).prop_map(|(chain, handle)| Op::DeleteRule { chain, handle }),
        set().prop_map(Op::AddSet),
        set_ref().prop_map(Op::DeleteSet),
        (set_ref(), elements()).prop_map(|(set, elements)| Op::AddElements { set, elements }),
        (set_ref(), elements()).prop_map(|(set, elements)| Op::DeleteElements { set, elements }),
        set_ref().prop_map(Op::FlushSet),
    ]
}

/// What a reader is to make of an expression.
pub fn canonical(exprs: Vec<Expr>) -> Vec<Expr> {
    exprs.into_iter().map(Expr::canonical).collect()
}
