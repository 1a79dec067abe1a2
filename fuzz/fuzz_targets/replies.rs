//! Any bytes, as acknowledgements, errors, and user data: nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svcmap::netlink::message::{done_errno, messages, reply};
use svcmap::netlink::userdata::{comment, fitting};

fuzz_target!(|bytes: &[u8]| {
    for message in messages(bytes) {
        let _ = (reply(&message), done_errno(&message));
    }
    if let Some(text) = comment(bytes) {
        assert!(text.starts_with(fitting(&text)));
    }
});
