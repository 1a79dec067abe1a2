//! What the native codec writes, it reads; and it reads anything without falling over.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Native, element_len, encoded_len};
use crate::netlink::arbitrary as any_;
use crate::netlink::attr::{MAX, Writer};
use crate::netlink::batch::Batch;
use crate::netlink::codec::Codec;
use crate::netlink::connection::BATCH_BYTES;
use crate::netlink::message::{attrs, messages};
use crate::netlink::model::*;
use crate::netlink::uapi::{elements, message::*};

fn encode(ops: &[Op]) -> Vec<u8> {
    let mut batch = Batch::default();
    batch.begin(1, None);
    Native.encode(ops, &mut batch).expect("fits");
    batch.finish();
    batch.bytes().to_vec()
}

/// The messages between begin and end.
fn bodies(bytes: &[u8]) -> Vec<&[u8]> {
    let all: Vec<&[u8]> = messages(bytes).map(|m| m.bytes).collect();
    all[1..all.len() - 1].to_vec()
}

fn kind(message: &[u8]) -> u8 {
    message[4]
}

proptest! {
    #[test]
    fn tables_come_back(table in any_::table()) {
        let bytes = encode(&[Op::AddTable(table.clone())]);
        prop_assert_eq!(Native.table(bodies(&bytes)[0]), Some(table));
    }

    #[test]
    fn chains_come_back(chain in any_::chain()) {
        let bytes = encode(&[Op::AddChain(chain.clone())]);
        prop_assert_eq!(Native.chain(bodies(&bytes)[0]), Some(chain));
    }

    #[test]
    fn rules_come_back(mut rule in any_::rule()) {
        let bytes = encode(&[Op::AddRule(rule.clone())]);
        rule.exprs = any_::canonical(rule.exprs);
        prop_assert_eq!(Native.rule(bodies(&bytes)[0]), Some(rule));
    }

    #[test]
    fn sets_come_back(set in any_::set()) {
        let bytes = encode(&[Op::AddSet(set.clone())]);
        prop_assert_eq!(Native.set(bodies(&bytes)[0]), Some(set.canonical()));
    }

    #[test]
    fn elements_come_back(elements in vec(any_::element(), 1..600)) {
        let set = SetRef { family: NfFamily::IPV4, table: "t".into(), name: "s".into() };
        let bytes = encode(&[Op::AddElements { set: set.clone(), elements: elements.clone() }]);
        let mut back = Vec::new();
        bodies(&bytes).iter().for_each(|m| Native.elements(m, &mut |element| back.push(element)));
        prop_assert_eq!(&back, &elements);

        let bytes = encode(&[Op::DeleteElements { set, elements: elements.clone() }]);
        let mut keys = Vec::new();
        for message in bodies(&bytes) {
            prop_assert_eq!(kind(message), DELSETELEM);
            let mut message = message.to_vec();
            message[4] = NEWSETELEM;
            Native.elements(&message, &mut |element| keys.push(element));
        }
        let expected: Vec<Element> = elements
            .into_iter()
            .map(|e| Element { key: e.key, key_end: e.key_end, flags: e.flags, ..Element::default() })
            .collect();
        prop_assert_eq!(keys, expected);
    }

    #[test]
    fn lengths_are_foretold(ops in vec(any_::op(), 0..12)) {
        let bytes = encode(&ops);
        prop_assert_eq!(bytes.len(), BATCH_BYTES - 8 + ops.iter().map(encoded_len).sum::<usize>());
    }

    #[test]
    fn messages_are_well_formed(ops in vec(any_::op(), 0..12)) {
        let bytes = encode(&ops);
        let mut length = 0;
        for (index, message) in messages(&bytes).enumerate() {
            prop_assert_eq!(message.seq as usize, index + 1);
            length += message.bytes.len();
            prop_assert_eq!(length % 4, 0);
        }
        prop_assert_eq!(length, bytes.len());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        kind in prop_oneof![Just(NEWTABLE), Just(NEWCHAIN), Just(NEWRULE), Just(NEWSET), Just(NEWSETELEM)],
        junk in vec(any::<u8>(), 0..400),
    ) {
        read_all(&junk);
        read_all(&[&[0, 0, 0, 0, kind, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0][..], &junk].concat());
    }

    #[test]
    fn damaged_messages_are_read_without_a_panic(op in any_::op(), hits in vec((any::<usize>(), any::<u8>()), 1..8)) {
        let mut bytes = encode(&[op]);
        for (at, value) in hits {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        messages(&bytes).for_each(|m| read_all(m.bytes));
        read_all(&bytes[20..]);
    }
}

fn read_all(message: &[u8]) {
    let codec = Native;
    let _ = (codec.table(message), codec.chain(message), codec.rule(message), codec.set(message));
    codec.elements(message, &mut |_| ());
}

#[test]
fn element_lists_fill_their_messages_and_never_pass_64_kib() {
    let element = Element {
        key: Bytes::from_slice(&[7; 16]),
        data: Data::Value(Bytes::from_slice(&[8; 8])),
        ..Default::default()
    };
    let length = element_len(&element, true);
    assert_eq!(length, 44);
    let set = SetRef { family: NfFamily::IPV4, table: "t".into(), name: "s".into() };
    let elements = vec![element; 5000];
    let bytes = encode(&[Op::AddElements { set, elements }]);
    let lists: Vec<usize> =
        bodies(&bytes).iter().map(|m| attrs(m).find(elements::ELEMENTS).unwrap().value.len() + 4).collect();
    assert_eq!(lists.iter().map(|list| (list - 4) / length).sum::<usize>(), 5000);
    assert!(lists.iter().all(|list| *list <= MAX), "{lists:?}");
    assert!(lists[..lists.len() - 1].iter().all(|list| list + length > MAX), "{lists:?}");
}

#[test]
fn what_does_not_fit_is_said() {
    let encode = |op: Op| {
        let mut batch = Batch::default();
        batch.begin(1, None);
        Native.encode(
            &[Op::FlushSet(SetRef { family: NfFamily::IPV4, table: "t".into(), name: "s".into() }), op],
            &mut batch,
        )
    };
    let set = SetRef { family: NfFamily::IPV4, table: "t".into(), name: "s".into() };
    let big = Element { key: Bytes::from_vec(vec![0; 66_000]), ..Element::default() };
    let error = encode(Op::AddElements { set, elements: vec![Element::default(), big] }).unwrap_err();
    assert_eq!((error.op, error.element), (1, Some(1)), "{error:?}");
    let exprs = vec![Expr::Raw { name: "xt".into(), data: vec![0; 66_000] }];
    let rule = Rule { family: NfFamily::IPV4, table: "t".into(), chain: "c".into(), handle: 0, exprs, comment: None };
    let error = encode(Op::AddRule(rule)).unwrap_err();
    assert_eq!((error.op, error.element), (1, None), "{error:?}");
}

#[test]
fn expressions_with_more_attributes_than_are_known_stay_raw() {
    use crate::netlink::uapi::{NFTA_LIST_ELEM, expr as a, rule};
    // A payload expression that writes to the packet: the model has none.
    let mut data = Writer::default();
    for (kind, value) in [(2, 1), (3, 16), (4, 4), (5, 1)] {
        data.u32(kind, value);
    }
    let mut writer = Writer::default();
    writer.bytes = vec![0; 20];
    writer.bytes[4..6].copy_from_slice(&[NEWRULE, 10]);
    writer.nest(rule::EXPRESSIONS, |w| {
        w.nest(NFTA_LIST_ELEM, |w| {
            w.text(a::NAME, "payload");
            w.nest(a::DATA, |w| w.bytes.extend_from_slice(&data.bytes));
        });
    });
    let rule = Native.rule(&writer.bytes).unwrap();
    assert_eq!(rule.exprs, [Expr::Raw { name: "payload".into(), data: data.bytes }]);
}
