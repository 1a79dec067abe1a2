//! Any bytes, as messages of every kind: nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svcmap::netlink::codec::Codec;
use svcmap::netlink::message::messages;
use svcmap::netlink::native::Native;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    messages(bytes).for_each(|message| read(message.bytes));
});

fn read(message: &[u8]) {
    let _ = (Native.table(message), Native.chain(message), Native.rule(message), Native.set(message));
    Native.elements(message, &mut |_| ());
}
