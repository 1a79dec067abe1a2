//! Transactions: all or nothing, and what is said when it is nothing; reads while others write.

use svcmap::netlink::model::*;
use svcmap::netlink::{BATCH_BYTES, CodecKind, Commit, CommitError, Connection, ReadError, Sink, batch_bytes};

use crate::ruleset::*;

netns_test! {
    fn a_refused_transaction_changes_nothing_and_names_the_element() {
        for codec in CodecKind::ALL {
            let mut connection = open(*codec);
            connection.commit(&ruleset()).unwrap();
            connection.commit(&[add("endpoints", vec![endpoint(7)])]).unwrap();
            let before = nft(&["list", "ruleset"]);
            elements_are_refused(&mut connection);
            whole_operations_are_refused(&mut connection);
            assert_eq!(nft(&["list", "ruleset"]), before);
            connection.commit(&[add("endpoints", vec![endpoint(7)])]).expect("the connection is as good as before");
            connection.commit(&[delete_table()]).unwrap();
        }
    }
}

fn elements_are_refused(connection: &mut Connection) {
    // Element 800 of the second operation has another value than the one that is there.
    let mut elements: Vec<Element> = (100..1000).map(endpoint).collect();
    elements[800] = Element { data: endpoint(8).data, comment: Some("default/web:http".into()), ..endpoint(7) };
    let error = connection.commit(&[add("plain", vec![]), add("endpoints", elements)]).unwrap_err();
    let expected = "add element 0a600000060000000008\
                    0000 (default/web:http) to set ip t endpoints: File exists (os error 17)";
    assert_eq!(error.to_string(), expected);
    assert_eq!(refusal(error), (libc::EEXIST, Some(1), Some(800), 1));

    // In a list that takes several messages.
    let to = |n: u32, verdict| Element { data: Data::Verdict(verdict), ..key_only(n) };
    let mut elements: Vec<Element> = (0..6000).map(|n| to(n, Verdict::Drop)).collect();
    elements[5321] = to(5321, Verdict::Goto("no-such-chain".into()));
    let error = connection.commit(&[add("services", elements)]).unwrap_err();
    assert_eq!(refusal(error), (libc::ENOENT, Some(0), Some(5321), 1));

    // Deleting what is not there.
    let delete = Op::DeleteElements { set: set_ref("endpoints"), elements: vec![endpoint(7), endpoint(9)] };
    let error = connection.commit(&[delete]).unwrap_err();
    assert_eq!(refusal(error), (libc::ENOENT, Some(0), Some(1), 1));

    // Beyond the declared size.
    let error = connection.commit(&[add("endpoints", (2000..4000).map(endpoint).collect())]).unwrap_err();
    let (errno, op, element, _) = refusal(error);
    assert_eq!((errno, op), (libc::ENFILE, Some(0)));
    assert!(element.is_some_and(|at| at >= 1000), "{element:?}");
}

fn whole_operations_are_refused(connection: &mut Connection) {
    // The set itself is missing, twice.
    let error = connection.commit(&[add("none", vec![endpoint(7)]), add("nil", vec![endpoint(7)])]).unwrap_err();
    assert!(error.to_string().ends_with(", and 1 more"), "{error}");
    assert_eq!(refusal(error), (libc::ENOENT, Some(0), None, 2));

    // Chains that jump in a circle.
    let around = |from: &str, to: &str| {
        let jump = Expr::Immediate { dreg: 0, data: Data::Verdict(Verdict::Jump(to.into())) };
        Op::AddRule(rule(from, vec![jump]))
    };
    let error = connection.commit(&[around("pick", "pick2"), around("pick2", "pick")]).unwrap_err();
    assert!(matches!(error, CommitError::Refused { .. }), "{error:?}");
}

/// Error number, operation, element, and how many refusals there were.
fn refusal(error: CommitError) -> (i32, Option<usize>, Option<usize>, usize) {
    match error {
        CommitError::Refused { errno, what, all, .. } => (errno, what.op, what.element, all.len()),
        other => panic!("{other:?}"),
    }
}

netns_test! {
    fn nothing_to_do_sends_nothing() {
        let mut connection = open(CodecKind::Native);
        let before = connection.generation().unwrap();
        assert_eq!(connection.commit(&[]).unwrap(), Commit::default());
        assert_eq!(connection.commit(&[add("no-such-set", vec![])]).unwrap(), Commit::default());
        assert_eq!(connection.generation().unwrap(), before);
    }
}

netns_test! {
    fn a_transaction_for_another_generation_is_refused() {
        let (mut ours, mut theirs) = (open(CodecKind::Native), open(CodecKind::Native));
        ours.commit(&ruleset()).unwrap();
        let generation = ours.generation().unwrap();
        theirs.commit(&[add("plain", vec![Element { key: Bytes::from_slice(&[1; 4]), ..Element::default() }])]).unwrap();
        assert_ne!(ours.generation().unwrap(), generation);
        let delete = [Op::FlushSet(set_ref("plain"))];
        let error = ours.commit_since(&delete, Some(generation)).unwrap_err();
        assert!(matches!(error, CommitError::Outdated), "{error:?}");
        assert_eq!(ours.elements(&set_ref("plain")).unwrap().len(), 1);
        let generation = ours.generation().unwrap();
        ours.commit_since(&delete, Some(generation)).unwrap();
        assert_eq!(ours.elements(&set_ref("plain")).unwrap(), []);
    }
}

netns_test! {
    fn every_kind_of_deletion_works() {
        let mut connection = open(CodecKind::Native);
        connection.commit(&ruleset()).unwrap();
        let at = |name: &str| ChainRef { family: V4, table: "t".into(), name: name.into() };
        connection.commit(&[add("plain", vec![Element { key: Bytes::from_slice(&[1; 4]), ..Element::default() }])]).unwrap();
        connection.commit(&[Op::FlushSet(set_ref("plain"))]).unwrap();
        assert_eq!(connection.elements(&set_ref("plain")).unwrap(), []);
        connection.commit(&[Op::FlushChain(at("post")), Op::DeleteChain(at("forward")), Op::DeleteSet(set_ref("learnt"))]).unwrap();
        let rules = connection.rules(V4, "t").unwrap();
        assert!(rules.iter().all(|rule| rule.chain != "post" && rule.chain != "forward"), "{rules:?}");
        assert!(connection.chains(V4, "t").unwrap().iter().all(|chain| chain.name != "forward"));
        let error = connection.elements(&set_ref("learnt")).unwrap_err();
        assert!(matches!(error, ReadError::NotFound(_)), "{error:?}");

        connection.commit(&[Op::DeleteTable { family: V4, name: "t".into() }]).unwrap();
        assert_eq!(connection.tables().unwrap(), []);
        let errors = [
            connection.chains(V4, "t").map(drop),
            connection.rules(V4, "t").map(drop),
            connection.sets(V4, "t").map(drop),
            connection.elements(&set_ref("plain")).map(drop),
        ];
        for error in errors {
            assert!(matches!(error, Err(ReadError::NotFound(_))), "{error:?}");
        }
    }
}

netns_test! {
    fn an_empty_table_is_not_a_missing_one() {
        let mut connection = open(CodecKind::Native);
        connection.commit(&[table()]).unwrap();
        assert_eq!(connection.chains(V4, "t").unwrap(), []);
        assert_eq!(connection.rules(V4, "t").unwrap(), []);
        assert_eq!(connection.sets(V4, "t").unwrap(), []);
        let error = connection.sets(NfFamily::IPV6, "t").unwrap_err();
        assert_eq!(error.to_string(), "table ip6 t: not found");
    }
}

#[test]
fn without_the_right_to_change_rules_the_error_says_so() {
    // A further user namespace has no say over the network namespace around it.
    let inner = ["unshare", "--user", "--"];
    crate::common::netns::run_through(
        &inner,
        module_path!(),
        "without_the_right_to_change_rules_the_error_says_so",
        || {
            let error = open(CodecKind::Native).commit(&[table()]).unwrap_err();
            assert_eq!(error.to_string(), "the transaction: Operation not permitted (os error 1)");
        },
    );
}

netns_test! {
    fn a_transaction_that_the_send_buffer_cannot_hold_is_not_sent() {
        let mut connection = open(CodecKind::Native);
        connection.commit(&ruleset()).unwrap();
        connection.commit(&[Op::AddSet(Set { name: "big".into(), ..endpoints(Some(1 << 20)) })]).unwrap();
        let limit = connection.max_batch_bytes();
        let each = batch_bytes(&add("big", vec![endpoint(0), endpoint(1)])) - batch_bytes(&add("big", vec![endpoint(0)]));
        let most = (limit / each) as u32;
        let over = add("big", (0..most + 1).map(endpoint).collect());
        let error = connection.commit(std::slice::from_ref(&over)).unwrap_err();
        let CommitError::TooLarge { bytes, limit: said } = error else { panic!("{error:?}") };
        assert_eq!((bytes, said), (batch_bytes(&over) + BATCH_BYTES - 8, limit));
        assert_eq!(connection.elements(&set_ref("big")).unwrap(), []);

        // The foretold limit is the kernel's: as much as fits into it is committed.
        let excess = |op: &Op| (batch_bytes(op) + BATCH_BYTES).saturating_sub(limit).div_ceil(each);
        let mut fitting = over;
        let count = loop {
            let Op::AddElements { elements, .. } = &fitting else { panic!("{fitting:?}") };
            let (count, excess) = (elements.len(), excess(&fitting));
            if excess == 0 {
                break count;
            }
            let Op::AddElements { elements, .. } = &mut fitting else { panic!("{fitting:?}") };
            elements.truncate(count - excess);
        };
        let commit = connection.commit(&[fitting]).unwrap();
        assert!(limit - commit.bytes < 256, "{} of {limit}", commit.bytes);
        assert_eq!(connection.elements(&set_ref("big")).unwrap().len(), count);
    }
}

netns_test! {
    fn a_hundred_thousand_elements_in_pieces() {
        const COUNT: u32 = 100_000;
        let mut connection = open(CodecKind::Native);
        let set = Set { name: "big".into(), ..endpoints(Some(1 << 17)) };
        connection.commit(&[table(), Op::AddSet(set)]).unwrap();
        let all: Vec<Element> = (0..COUNT).map(endpoint).collect();
        for piece in all.chunks(5000) {
            connection.commit(&[add("big", piece.to_vec())]).unwrap();
        }
        let back = sorted(connection.elements(&set_ref("big")).unwrap());
        let all = sorted(all);
        assert_eq!(back.len(), all.len());
        let difference = back.iter().zip(&all).find(|(seen, expected)| seen != expected);
        assert_eq!(difference, None);
    }
}

netns_test! {
    fn a_listing_that_is_disturbed_starts_over() {
        let mut connection = open(CodecKind::Native);
        connection.commit(&[table(), Op::AddSet(Set { name: "big".into(), ..endpoints(None) })]).unwrap();
        connection.commit(&[add("big", (0..5000).map(endpoint).collect())]).unwrap();

        /// Changes the ruleset in the middle of the first listing.
        struct Disturbing {
            other: Connection,
            elements: Vec<Element>,
            resets: usize,
        }
        impl Sink for Disturbing {
            type Item = Element;
            fn push(&mut self, element: Element) {
                self.elements.push(element);
                if self.elements.len() == 100 && self.resets == 0 {
                    self.other.commit(&[add("big", vec![endpoint(90_000)])]).unwrap();
                }
            }
            fn reset(&mut self) {
                self.elements.clear();
                self.resets += 1;
            }
        }
        let mut sink = Disturbing { other: open(CodecKind::Native), elements: Vec::new(), resets: 0 };
        connection.for_each_element(&set_ref("big"), &mut sink).unwrap();
        assert_eq!((sink.resets, sink.elements.len()), (1, 5001));
        assert!(sink.elements.contains(&endpoint(90_000)));
    }
}
