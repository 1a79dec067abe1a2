//! What was read, written and read again, is the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svcmap::netlink::batch::Batch;
use svcmap::netlink::codec::Codec;
use svcmap::netlink::message::messages;
use svcmap::netlink::model::{Element, NfFamily, Op, SetRef};
use svcmap::netlink::native::Native;

fuzz_target!(|bytes: &[u8]| {
    // The first byte chooses the kind of message; the rest are its attributes.
    let [kind, attributes @ ..] = bytes else { return };
    let header = [0, 0, 0, 0, [0, 3, 6, 9, 12][usize::from(*kind) % 5], 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
    let message = [&header[..], attributes].concat();
    if let Some(table) = Native.table(&message) {
        again(Op::AddTable(table.clone()), |m| assert_eq!(Native.table(m).map(|t| t.name), Some(table.name.clone())));
    }
    if let Some(chain) = Native.chain(&message) {
        again(Op::AddChain(chain.clone()), |m| assert_eq!(Native.chain(m).map(|c| c.hook), Some(chain.hook.clone())));
    }
    if let Some(rule) = Native.rule(&message) {
        let expected = Some(rule.clone().without_state());
        again(Op::AddRule(rule), |m| assert_eq!(Native.rule(m).map(|rule| rule.without_state()), expected));
    }
    if let Some(set) = Native.set(&message) {
        again(Op::AddSet(set.clone()), |m| assert_eq!(Native.set(m), Some(set.clone())));
    }
    elements(&message);
});

/// Writes the operation, and has its only message read.
fn again(op: Op, read: impl Fn(&[u8])) {
    let mut batch = Batch::default();
    batch.begin(1, None);
    if Native.encode(&[op], &mut batch).is_ok() {
        batch.finish();
        read(messages(batch.bytes()).nth(1).expect("one message").bytes);
    }
}

fn elements(message: &[u8]) {
    let mut elements: Vec<Element> = Vec::new();
    Native.elements(message, &mut |element| elements.push(element.without_state()));
    let set = SetRef { family: NfFamily::IPV4, table: "t".into(), name: "s".into() };
    let mut batch = Batch::default();
    batch.begin(1, None);
    if Native.encode(&[Op::AddElements { set, elements: elements.clone() }], &mut batch).is_ok() {
        batch.finish();
        let mut back = Vec::new();
        messages(batch.bytes()).for_each(|m| Native.elements(m.bytes, &mut |element| back.push(element)));
        assert_eq!(back, elements);
    }
}
