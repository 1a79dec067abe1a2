//! Each codec reads what the other wrote.

use proptest::collection::vec;
use proptest::prelude::*;

use super::Libnftnl;
use crate::netlink::arbitrary as any_;
use crate::netlink::batch::Batch;
use crate::netlink::codec::{Codec, EncodeError};
use crate::netlink::message::messages;
use crate::netlink::model::*;
use crate::netlink::native::Native;

fn encode(codec: &dyn Codec, ops: &[Op]) -> Batch {
    let mut batch = Batch::default();
    batch.begin(1, None);
    codec.encode(ops, &mut batch).expect("can be written");
    batch.finish();
    batch
}

/// What `reader` makes of the only message that `writer` writes for `op`.
fn through<T>(writer: &dyn Codec, op: Op, read: impl Fn(&[u8]) -> T) -> T {
    let batch = encode(writer, &[op]);
    read(messages(batch.bytes()).nth(1).expect("one between begin and end").bytes)
}

fn elements_of(reader: &dyn Codec, batch: &Batch) -> Vec<Element> {
    let mut elements = Vec::new();
    messages(batch.bytes()).for_each(|m| reader.elements(m.bytes, &mut |element| elements.push(element)));
    elements
}

fn set_ref() -> SetRef {
    SetRef { family: NfFamily::IPV6, table: "t".into(), name: "s".into() }
}

/// The library cannot write these.
fn without_raw(exprs: Vec<Expr>) -> Vec<Expr> {
    exprs.into_iter().filter(|expr| !matches!(expr, Expr::Raw { .. })).collect()
}

const PAIRS: [(&dyn Codec, &dyn Codec); 3] = [(&Libnftnl, &Native), (&Native, &Libnftnl), (&Libnftnl, &Libnftnl)];

proptest! {
    #[test]
    fn tables_are_the_same(table in any_::table()) {
        for (writer, reader) in PAIRS {
            let back = through(writer, Op::AddTable(table.clone()), |m| reader.table(m));
            prop_assert_eq!(back, Some(table.clone()), "{:?} to {:?}", writer, reader);
        }
    }

    #[test]
    fn chains_are_the_same(chain in any_::chain()) {
        for (writer, reader) in PAIRS {
            let back = through(writer, Op::AddChain(chain.clone()), |m| reader.chain(m));
            prop_assert_eq!(back, Some(chain.clone()), "{:?} to {:?}", writer, reader);
        }
    }

    #[test]
    fn rules_are_the_same(mut rule in any_::rule()) {
        rule.exprs = without_raw(rule.exprs);
        let expected = Rule { exprs: any_::canonical(rule.exprs.clone()), ..rule.clone() };
        for (writer, reader) in PAIRS {
            let back = through(writer, Op::AddRule(rule.clone()), |m| reader.rule(m));
            prop_assert_eq!(back, Some(expected.clone()), "{:?} to {:?}", writer, reader);
        }
    }

    #[test]
    fn sets_are_the_same(set in any_::set()) {
        for (writer, reader) in PAIRS {
            let back = through(writer, Op::AddSet(set.clone()), |m| reader.set(m));
            prop_assert_eq!(back, Some(set.clone().canonical()), "{:?} to {:?}", writer, reader);
        }
    }

    #[test]
    fn elements_are_the_same(elements in vec(any_::element(), 1..1500)) {
        let op = Op::AddElements { set: set_ref(), elements: elements.clone() };
        for (writer, reader) in PAIRS {
            let back = elements_of(reader, &encode(writer, std::slice::from_ref(&op)));
            prop_assert_eq!(&back, &elements, "{:?} to {:?}", writer, reader);
        }
    }

    #[test]
    fn operations_are_the_same_messages(ops in vec(any_::op(), 0..10)) {
        let ops: Vec<Op> = ops
            .into_iter()
            .map(|op| match op {
                Op::AddRule(rule) => Op::AddRule(Rule { exprs: without_raw(rule.exprs), ..rule }),
                other => other,
            })
            .collect();
        let heads = |codec: &dyn Codec| -> Vec<(u16, u16, u32, u8)> {
            messages(encode(codec, &ops).bytes()).map(|m| (m.kind, m.flags, m.seq, m.bytes[16])).collect()
        };
        prop_assert_eq!(heads(&Libnftnl), heads(&Native));
    }
}

#[test]
fn elements_are_found_in_many_messages() {
    let elements: Vec<Element> =
        (0u32..5000).map(|n| Element { key: Bytes::from_slice(&n.to_be_bytes()), ..Element::default() }).collect();
    let flush = Op::FlushSet(set_ref());
    let batch = encode(&Libnftnl, &[flush, Op::AddElements { set: set_ref(), elements }]);
    let all: Vec<_> = messages(batch.bytes()).collect();
    assert_eq!(batch.messages(), all.len() - 2);
    let mut seen = 0;
    for message in &all[2..all.len() - 1] {
        // The last element of each message, by the place of its last byte.
        let mut count = 0;
        Native.elements(message.bytes, &mut |_| count += 1);
        seen += count;
        assert_eq!(batch.blame(message.seq, Some(message.bytes.len() - 1)), Some((1, Some(seen - 1))));
    }
    assert_eq!(seen, 5000);
}

fn refusal(op: Op) -> EncodeError {
    let mut batch = Batch::default();
    batch.begin(1, None);
    Libnftnl.encode(&[Op::FlushSet(set_ref()), op], &mut batch).expect_err("cannot be written")
}

fn rule_with(expr: Expr) -> Op {
    let (family, table, chain) = (NfFamily::INET, "t".into(), "c".into());
    Op::AddRule(Rule { family, table, chain, handle: 0, exprs: vec![expr], comment: None })
}

#[test]
fn what_the_library_cannot_write_is_refused() {
    let long = Bytes::from_vec(vec![0; 65]);
    let good = Element { key: Bytes::from_slice(&[0; 64]), ..Element::default() };
    let add = |bad| Op::AddElements { set: set_ref(), elements: vec![good.clone(), bad] };
    let cases = [
        (rule_with(Expr::Raw { name: "xt".into(), data: vec![] }), None, "kept raw"),
        (rule_with(Expr::Cmp { sreg: 1, op: 0, data: long.clone() }), None, "65 bytes"),
        (rule_with(Expr::Immediate { dreg: 1, data: Data::Value(long.clone()) }), None, "65 bytes"),
        (rule_with(Expr::Lookup { sreg: 1, set: "s".repeat(256).into(), dreg: None, invert: false }), None, "longer"),
        (rule_with(Expr::Raw { name: "xt".into(), data: vec![0; 40_000] }), None, "32768"),
        (add(Element { key: long.clone(), ..Element::default() }), Some(1), "65 bytes"),
        (add(Element { key_end: Some(Box::new(long.clone())), ..good.clone() }), Some(1), "65 bytes"),
        (add(Element { data: Data::Value(long), ..good.clone() }), Some(1), "65 bytes"),
        (add(Element { data: Data::Verdict(Verdict::Goto("a\0b".into())), ..good.clone() }), Some(1), "NUL"),
        (Op::DeleteTable { family: NfFamily::INET, name: "n".repeat(300).into() }, None, "longer"),
    ];
    for (op, element, why) in cases {
        let shown = format!("{op:?}");
        let error = refusal(op);
        assert_eq!((error.op, error.element), (1, element), "{shown}");
        assert!(error.why.contains(why), "expected {why:?} in {:?} for {shown}", error.why);
    }
}

#[test]
fn rules_with_expressions_that_the_library_does_not_know_are_read_all_the_same() {
    let rule = match rule_with(Expr::Raw { name: "from_the_future".into(), data: vec![8, 0, 1, 0, 0, 0, 0, 7] }) {
        Op::AddRule(rule) => rule,
        other => panic!("{other:?}"),
    };
    assert_eq!(through(&Native, Op::AddRule(rule.clone()), |m| Libnftnl.rule(m)), Some(rule));
}

#[test]
fn expressions_that_the_model_has_no_fields_for_stay_raw() {
    // Writes to the packet, which the library can, the model cannot.
    let data =
        [[8, 0, 5, 0, 0, 0, 0, 1], [8, 0, 2, 0, 0, 0, 0, 1], [8, 0, 3, 0, 0, 0, 0, 16], [8, 0, 4, 0, 0, 0, 0, 4]];
    let back =
        through(&Native, rule_with(Expr::Raw { name: "payload".into(), data: data.concat() }), |m| Libnftnl.rule(m));
    let exprs = back.expect("a rule").exprs;
    let [Expr::Raw { name, data: seen }] = exprs.as_slice() else { panic!("{exprs:?}") };
    assert_eq!(name, "payload");
    // The library writes attributes in an order of its own.
    let sorted = |bytes: &[u8]| {
        let mut attrs: Vec<Vec<u8>> = bytes.chunks(8).map(<[u8]>::to_vec).collect();
        attrs.sort();
        attrs
    };
    assert_eq!(sorted(seen), sorted(&data.concat()));
}

#[test]
fn short_and_foreign_messages_are_nothing() {
    for message in [&[][..], &[1, 2, 3], &[0; 16], &[0; 20], &[0xff; 64]] {
        assert_eq!(Libnftnl.table(message), None);
        assert_eq!(Libnftnl.chain(message), None);
        assert_eq!(Libnftnl.rule(message), None);
        assert_eq!(Libnftnl.set(message), None);
        Libnftnl.elements(message, &mut |element| panic!("{element:?}"));
    }
}

#[test]
fn sets_with_statements_that_the_library_does_not_know_are_read_all_the_same() {
    let counter = || Expr::Counter { packets: 0, bytes: 0 };
    let unknown = Expr::Raw { name: "from_the_future".into(), data: vec![8, 0, 1, 0, 0, 0, 0, 7] };
    let exprs = vec![counter(), counter(), unknown];
    let set = Set {
        family: NfFamily::INET,
        table: "t".into(),
        name: "s".into(),
        flags: 0,
        key_type: 7,
        key_len: 4,
        data_type: 0,
        data_len: 0,
        size: None,
        concat: Vec::new(),
        timeout_ms: None,
        userdata: Vec::new(),
        exprs,
    };
    // Many times: memory that is freed twice shows up at some later allocation.
    for _ in 0..100 {
        let back = through(&Native, Op::AddSet(set.clone()), |m| Libnftnl.set(m));
        assert_eq!(back, Some(set.clone().canonical()));
    }
}
