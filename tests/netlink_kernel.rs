//! The netlink layer against the running kernel, in namespaces of its own.

#[macro_use]
mod common;

use std::process::Command;

use svcmap::netlink::model::*;
use svcmap::netlink::{BATCH_BYTES, CodecKind, Commit, CommitError, Connection, ReadError, Sink, batch_bytes};

const V4: NfFamily = NfFamily::IPV4;

fn open() -> Connection {
    Connection::open(CodecKind::Native).expect("a netlink socket")
}

fn nft(args: &[&str]) -> String {
    let output = Command::new("nft").args(args).output().expect("nft runs");
    assert!(output.status.success(), "nft {args:?}: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn table() -> Op {
    Op::AddTable(Table { family: V4, name: "t".into(), flags: 0, comment: Some("a table's comment".into()) })
}

fn set_ref(name: &str) -> SetRef {
    SetRef { family: V4, table: "t".into(), name: name.into() }
}

fn chain(name: &str, hook: Option<Hook>) -> Op {
    let comment = Some(format!("comment of {name}").into());
    Op::AddChain(Chain { family: V4, table: "t".into(), name: name.into(), hook, comment })
}

fn rule(chain: &str, exprs: Vec<Expr>) -> Rule {
    let comment = Some("a rule's comment".into());
    Rule { family: V4, table: "t".into(), chain: chain.into(), handle: 0, exprs, comment }
}

fn set(name: &str, flags: u32, key_type: u32, key_len: u32) -> Set {
    Set {
        family: V4,
        table: "t".into(),
        name: name.into(),
        flags,
        key_type,
        key_len,
        data_type: 0,
        data_len: 0,
        size: None,
        concat: vec![],
        timeout_ms: None,
        userdata: vec![],
        exprs: vec![],
    }
}

/// nft's numbers of types.
const IPV4_ADDR: u32 = 7;
const INET_PROTOCOL: u32 = 12;
const INET_SERVICE: u32 = 13;

fn concat(types: &[u32]) -> u32 {
    types.iter().fold(0, |all, one| all << 6 | one)
}

/// A map from address . protocol . port to address . port.
fn endpoints(size: Option<u32>) -> Set {
    Set {
        data_type: concat(&[IPV4_ADDR, INET_SERVICE]),
        data_len: 8,
        size,
        ..set("endpoints", set_flags::MAP, concat(&[IPV4_ADDR, INET_PROTOCOL, INET_SERVICE]), 12)
    }
}

fn services() -> Set {
    let key = concat(&[IPV4_ADDR, INET_PROTOCOL, INET_SERVICE]);
    Set { data_type: VERDICT_TYPE, ..set("services", set_flags::MAP, key, 12) }
}

fn key(number: u32) -> Bytes {
    let address = (0x0a60_0000 + number / 1000).to_be_bytes();
    let port = (1 + number % 1000) as u16;
    Bytes::from_iter(address.into_iter().chain([6, 0, 0, 0]).chain(port.to_be_bytes()).chain([0, 0]))
}

fn endpoint(number: u32) -> Element {
    let address = (0x0a80_0000 + number).to_be_bytes();
    let data = Data::Value(Bytes::from_iter(address.into_iter().chain([0x1f, 0x90, 0, 0])));
    Element { key: key(number), data, ..Element::default() }
}

fn key_only(number: u32) -> Element {
    Element { key: key(number), ..Element::default() }
}

fn add(set: &str, elements: Vec<Element>) -> Op {
    Op::AddElements { set: set_ref(set), elements }
}

fn sorted(mut elements: Vec<Element>) -> Vec<Element> {
    elements.sort_by(|a, b| a.key.cmp(&b.key));
    elements
}

fn hook(kind: &str, number: u32, priority: i32) -> Option<Hook> {
    Some(Hook { kind: kind.into(), number, priority, policy: 1 })
}

/// One rule with every expression that svcmap writes.
fn rules() -> Vec<Rule> {
    let daddr = |dreg| Expr::Payload { dreg, base: 1, offset: 16, len: 4 };
    let l4proto = |dreg| Expr::MetaLoad { dreg, key: 16 };
    let dport = |dreg| Expr::Payload { dreg, base: 2, offset: 2, len: 2 };
    let four = |n: u32| Bytes::from_slice(&n.to_ne_bytes());
    vec![
        rule(
            "pre",
            vec![
                daddr(1),
                l4proto(9),
                dport(10),
                Expr::Lookup { sreg: 1, set: "services".into(), dreg: Some(0), invert: false },
            ],
        ),
        rule(
            "pre",
            vec![
                daddr(1),
                Expr::Lookup { sreg: 1, set: "plain".into(), dreg: None, invert: true },
                Expr::Immediate { dreg: 0, data: Data::Verdict(Verdict::Jump("pick".into())) },
            ],
        ),
        rule(
            "pick",
            vec![
                daddr(8),
                l4proto(9),
                dport(10),
                Expr::Lookup { sreg: 1, set: "endpoints".into(), dreg: Some(8), invert: false },
                Expr::Nat {
                    kind: 1,
                    family: 2,
                    addr_min: Some(8),
                    addr_max: None,
                    proto_min: Some(9),
                    proto_max: None,
                    flags: 0,
                },
            ],
        ),
        rule(
            "pick",
            vec![
                Expr::Numgen { dreg: 1, modulus: 7, kind: 1, offset: 32768 },
                Expr::Cmp { sreg: 1, op: 0, data: four(32769) },
                Expr::Counter { packets: 0, bytes: 0 },
            ],
        ),
        rule(
            "post",
            vec![
                Expr::MetaLoad { dreg: 1, key: 3 },
                Expr::Bitwise { sreg: 1, dreg: 1, len: 4, mask: four(!0x4000), xor: four(0x4000) },
                Expr::MetaSet { sreg: 1, key: 3 },
                Expr::Ct { dreg: 1, key: 2, direction: None },
                Expr::Bitwise { sreg: 1, dreg: 1, len: 4, mask: four(0x20), xor: four(0) },
                Expr::Cmp { sreg: 1, op: 1, data: four(0) },
                Expr::Masq { flags: 16, proto_min: None, proto_max: None },
            ],
        ),
        rule(
            "post",
            vec![
                Expr::Immediate { dreg: 1, data: Data::Value(Bytes::from_slice(&[4, 0])) },
                Expr::Immediate { dreg: 2, data: Data::Value(Bytes::from_slice(&[5, 0])) },
                l4proto(3),
                Expr::Cmp { sreg: 3, op: 0, data: Bytes::from_slice(&[6]) },
                Expr::Masq { flags: 4, proto_min: Some(1), proto_max: Some(2) },
            ],
        ),
        rule(
            "post",
            vec![
                l4proto(1),
                Expr::Cmp { sreg: 1, op: 0, data: Bytes::from_slice(&[17]) },
                Expr::Ct { dreg: 1, key: 17, direction: Some(0) },
                Expr::Byteorder { sreg: 1, dreg: 1, op: 0, len: 2, size: 2 },
            ],
        ),
        rule(
            "pre",
            vec![
                Expr::Immediate { dreg: 1, data: Data::Value(Bytes::from_slice(&[4, 0])) },
                l4proto(2),
                Expr::Cmp { sreg: 2, op: 0, data: Bytes::from_slice(&[6]) },
                Expr::Redir { proto_min: Some(1), proto_max: None, flags: 0 },
            ],
        ),
        rule(
            "forward",
            vec![
                Expr::Fib { dreg: 1, result: 3, flags: 1 },
                Expr::Cmp { sreg: 1, op: 0, data: four(2) },
                Expr::Reject { kind: 0, code: 3 },
            ],
        ),
        rule(
            "forward",
            vec![
                l4proto(1),
                Expr::Cmp { sreg: 1, op: 0, data: Bytes::from_slice(&[6]) },
                Expr::Reject { kind: 1, code: 0 },
            ],
        ),
        rule(
            "forward",
            vec![
                Expr::Payload { dreg: 1, base: 1, offset: 12, len: 4 },
                daddr(2),
                Expr::Dynset { op: 1, set: "learnt".into(), sreg_key: 1, sreg_data: Some(2), timeout_ms: Some(8000) },
            ],
        ),
        rule("forward", vec![Expr::Immediate { dreg: 0, data: Data::Verdict(Verdict::Goto("pick2".into())) }]),
        rule(
            "pick2",
            vec![
                Expr::Raw { name: "notrack".into(), data: vec![] },
                Expr::Immediate { dreg: 0, data: Data::Verdict(Verdict::Return) },
            ],
        ),
    ]
}

fn ruleset() -> Vec<Op> {
    let learnt = Set {
        data_type: IPV4_ADDR,
        data_len: 4,
        size: Some(64),
        timeout_ms: Some(60_000),
        ..set("learnt", set_flags::MAP | set_flags::TIMEOUT | set_flags::EVAL, IPV4_ADDR, 4)
    };
    let ranges = Set {
        concat: vec![4, 1, 2],
        ..set("ranges", set_flags::INTERVAL | set_flags::CONCAT, concat(&[IPV4_ADDR, INET_PROTOCOL, INET_SERVICE]), 12)
    };
    let counted = Set { exprs: vec![Expr::Counter { packets: 0, bytes: 0 }], ..set("counted", 0, IPV4_ADDR, 4) };
    let sets = [
        endpoints(Some(1024)),
        services(),
        set("plain", 0, IPV4_ADDR, 4),
        set("intervals", set_flags::INTERVAL, IPV4_ADDR, 4),
        learnt,
        ranges,
        counted,
    ];
    let chains = [
        chain("pick", None),
        chain("pick2", None),
        chain("pre", hook("nat", 0, -100)),
        chain("post", hook("nat", 4, 100)),
        chain("forward", hook("filter", 2, 0)),
    ];
    let mut ops = vec![table()];
    ops.extend(chains);
    ops.extend(sets.map(Op::AddSet));
    ops.extend(rules().into_iter().map(Op::AddRule));
    ops
}

netns_test! {
    fn what_is_committed_is_read_back() {
        let mut connection = open();
        let ops = ruleset();
        let commit = connection.commit(&ops).unwrap();
        assert_eq!(commit.messages, ops.len());

        let mut found: Vec<Op> = connection.tables().unwrap().into_iter().map(Op::AddTable).collect();
        found.extend(connection.chains(V4, "t").unwrap().into_iter().map(Op::AddChain));
        found.extend(connection.sets(V4, "t").unwrap().into_iter().map(Op::AddSet));
        let rules = connection.rules(V4, "t").unwrap();
        assert!(rules.iter().all(|rule| rule.handle != 0));
        found.extend(rules.into_iter().map(|rule| Op::AddRule(rule.without_state())));
        for op in ops {
            let expected = match op {
                Op::AddRule(rule) => Op::AddRule(rule.without_state()),
                Op::AddSet(set) => Op::AddSet(set.canonical()),
                other => other,
            };
            let place = found.iter().position(|op| *op == expected);
            let place = place.unwrap_or_else(|| panic!("expected {expected:?}\namong {found:?}"));
            found.remove(place);
        }
        assert!(found.is_empty(), "unexpected: {found:?}");
    }
}

netns_test! {
    fn elements_of_every_kind_are_read_back() {
        let mut connection = open();
        connection.commit(&ruleset()).unwrap();
        let plain = |n: u8| Element { key: Bytes::from_slice(&[10, 0, 0, n]), ..Element::default() };
        let to = |n: u32, verdict| Element { key: key(n), data: Data::Verdict(verdict), ..Element::default() };
        let cases = [
            ("plain", vec![plain(1), Element { comment: Some("a comment".into()), ..plain(2) }]),
            ("endpoints", (0..20).map(endpoint).collect()),
            (
                "services",
                vec![
                    Element { comment: Some("default/web:http".into()), ..to(1, Verdict::Goto("pick".into())) },
                    to(2, Verdict::Jump("pick2".into())),
                    to(3, Verdict::Drop),
                    to(4, Verdict::Accept),
                    to(5, Verdict::Return),
                    to(6, Verdict::Continue),
                ],
            ),
            ("intervals", vec![plain(4), Element { flags: element_flags::INTERVAL_END, ..plain(8) }]),
            ("ranges", vec![Element { key_end: Some(key(5)), ..key_only(3) }, Element { key_end: Some(key(9)), ..key_only(9) }]),
            ("learnt", vec![Element { timeout_ms: Some(8000), expiration_ms: Some(4000), data: Data::Value(Bytes::from_slice(&[1, 2, 3, 4])), ..plain(1) }]),
            ("counted", vec![Element { counter: Some((3, 500)), ..plain(1) }, plain(2)]),
        ];
        let ops: Vec<Op> = cases.iter().map(|(set, elements)| add(set, elements.clone())).collect();
        connection.commit(&ops).unwrap();
        for (set, elements) in &cases {
            let mut back = connection.elements(&set_ref(set)).unwrap();
            if *set == "learnt" {
                let left = back[0].expiration_ms.take().expect("it expires");
                assert!((3000..=4000).contains(&left), "{left} ms left of 4000");
                back[0].expiration_ms = Some(4000);
            }
            let expected: Vec<Element> = elements
                .iter()
                .map(|element| match *set {
                    "counted" => Element { counter: element.counter.or(Some((0, 0))), ..element.clone() },
                    _ => element.clone(),
                })
                .collect();
            // Intervals end with what is open for ever, which the kernel lists too.
            back.retain(|element| *set != "intervals" || element.key[..] != [0; 4]);
            assert_eq!(sorted(back), sorted(expected), "{set}");
        }

        let deletions: Vec<Op> = cases
            .iter()
            .map(|(set, elements)| Op::DeleteElements { set: set_ref(set), elements: elements.clone() })
            .collect();
        connection.commit(&deletions).unwrap();
        for (set, _) in &cases {
            let mut left = connection.elements(&set_ref(set)).unwrap();
            left.retain(|element| element.key[..] != [0; 4]);
            assert_eq!(left, [], "{set}");
        }
    }
}

netns_test! {
    fn nft_lists_what_is_committed() {
        let mut connection = open();
        connection.commit(&ruleset()).unwrap();
        let to_pick = Element {
            key: key(79),
            data: Data::Verdict(Verdict::Goto("pick".into())),
            comment: Some("default/web:http".into()),
            ..Element::default()
        };
        connection.commit(&[add("services", vec![to_pick]), add("endpoints", vec![endpoint(79)])]).unwrap();
        let listing = nft(&["list", "ruleset"]);
        for expected in [
            "table ip t {\n\tcomment \"a table's comment\"",
            "chain pick {\n\t\tcomment \"comment of pick\"",
            "elements = { 10.96.0.0 . tcp . 80 comment \"default/web:http\" : goto pick }",
            "elements = { 10.96.0.0 . tcp . 80 : 10.128.0.79 . 8080 }",
            "size 1024",
            "type nat hook prerouting priority dstnat; policy accept;",
            "ip daddr . meta l4proto . th dport vmap @services comment \"a rule's comment\"",
            "numgen random mod 7 offset 32768 32769 counter packets 0 bytes 0",
            "update @learnt { ip saddr timeout 8s : ip daddr }",
            "masquerade fully-random",
            "fib saddr type local reject",
            "timeout 1m",
        ] {
            assert!(listing.contains(expected), "expected {expected:?} in\n{listing}");
        }
    }
}

netns_test! {
    fn what_nft_writes_is_read_and_written_back() {
        let script = std::env::temp_dir().join(format!("svcmap-{}.nft", std::process::id()));
        std::fs::write(&script, NFT_SCRIPT).unwrap();
        nft(&["-f", script.to_str().unwrap()]);
        std::fs::remove_file(&script).unwrap();
        let listing = nft(&["list", "table", "ip", "t"]);

        let mut connection = open();
        let table = connection.tables().unwrap().into_iter().find(|table| table.name == "t").unwrap();
        let sets = connection.sets(V4, "t").unwrap();
        let mut ops = vec![Op::DeleteTable { family: V4, name: "t".into() }, Op::AddTable(table)];
        ops.extend(connection.chains(V4, "t").unwrap().into_iter().map(Op::AddChain));
        let rules = connection.rules(V4, "t").unwrap();
        let contents: Vec<Op> = sets
            .iter()
            .map(|set| add(&set.name, connection.elements(&set_ref(&set.name)).unwrap()))
            .collect();
        ops.extend(sets.into_iter().map(Op::AddSet));
        ops.extend(contents);
        ops.extend(rules.into_iter().map(Op::AddRule));
        connection.commit(&ops).unwrap_or_else(|error| panic!("{error}: {error:?}\n{ops:?}"));
        assert_eq!(nft(&["list", "table", "ip", "t"]), listing);
        assert!(listing.contains("0-255"), "the script was loaded: {listing}");
    }
}

/// Without anonymous sets: these have no names to be made again by.
const NFT_SCRIPT: &str = r#"
table ip t {
  comment "whole"
  set hosts { type ipv4_addr; comment "a set's comment"; elements = { 10.0.0.1 comment "one", 10.0.0.2 } }
  set nets { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.168.0.0/16 comment "home", 224.0.0.0-255.255.255.255 } }
  set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80-90, 1.2.3.4 . 443 } }
  set counted { type ipv4_addr; counter; elements = { 1.1.1.1, 2.2.2.2 } }
  set seen { type ipv4_addr; size 128; flags dynamic,timeout; timeout 1h; }
  map where { typeof ip daddr . th dport : ip daddr . th dport; elements = { 1.2.3.4 . 80 : 5.6.7.8 . 8080 } }
  map slots { typeof numgen random mod 65536 : ip daddr; elements = { 0 : 5.6.7.8, 1 : 5.6.7.9 } }
  map verdicts { type ipv4_addr : verdict; elements = { 9.9.9.9 : jump other, 8.8.8.8 comment "c" : drop } }
  chain other { comment "a chain's comment"
    meta mark set meta mark or 0x4000
    ct mark set meta mark
    ip ttl set 9
    limit rate 5/second accept
    tcp flags syn counter
  }
  chain pre { type nat hook prerouting priority -100; policy accept;
    ip daddr vmap @verdicts comment "a rule's comment"
    meta l4proto tcp dnat ip to ip daddr . th dport map @where
    dnat ip to numgen random mod 2 map @slots
    tcp dport 80 redirect to :8080
    udp dport 53 dnat to 1.2.3.4-1.2.3.9:53-60 persistent
  }
  chain post { type nat hook postrouting priority srcnat; policy accept;
    ip saddr @nets ip protocol icmp masquerade random
    tcp dport 1-1000 masquerade to :1024-2048
    snat to 7.7.7.7
  }
  chain filter { type filter hook forward priority filter; policy drop;
    ct state established,related accept
    ct original ip daddr 1.2.3.4 ct direction reply accept
    ip saddr @nets ip saddr != @hosts counter accept
    fib daddr type local meta l4proto tcp reject with tcp reset
    ip saddr . th dport @pairs reject with icmp host-prohibited
    update @seen { ip saddr timeout 5m }
    ip dscp 0x0a icmp code 0-255 log prefix "x" goto other
    notrack
  }
}
"#;

netns_test! {
    fn a_refused_transaction_changes_nothing_and_names_the_element() {
        let mut connection = open();
        connection.commit(&ruleset()).unwrap();
        connection.commit(&[add("services", vec![])]).unwrap();
        connection.commit(&[add("endpoints", vec![endpoint(7)])]).unwrap();
        let before = nft(&["list", "ruleset"]);

        // Element 800 of the second operation has another value than the one that is there.
        let mut elements: Vec<Element> = (100..1000).map(endpoint).collect();
        elements[800] = Element { data: endpoint(8).data, comment: Some("default/web:http".into()), ..endpoint(7) };
        let error = connection.commit(&[add("plain", vec![]), add("endpoints", elements.clone())]).unwrap_err();
        let expected = "add element 0a60000006000000000800\
                        00 (default/web:http) to set ip t endpoints: File exists (os error 17)";
        assert_eq!(error.to_string(), expected);
        let CommitError::Refused { errno, what, all, .. } = error else { panic!("{error:?}") };
        assert_eq!((errno, what.op, what.element, all.len()), (libc::EEXIST, Some(1), Some(800), 1));

        // In a list that takes several messages.
        let missing = |n: u32| Element { data: Data::Verdict(Verdict::Goto("no-such-chain".into())), ..key_only(n) };
        let mut elements: Vec<Element> =
            (0..6000).map(|n| Element { data: Data::Verdict(Verdict::Drop), ..key_only(n) }).collect();
        elements[5321] = missing(5321);
        let error = connection.commit(&[add("services", elements)]).unwrap_err();
        let CommitError::Refused { errno, what, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*errno, what.op, what.element), (libc::ENOENT, Some(0), Some(5321)), "{error}");

        // Deleting what is not there.
        let delete = Op::DeleteElements { set: set_ref("endpoints"), elements: vec![endpoint(7), endpoint(9)] };
        let error = connection.commit(&[delete]).unwrap_err();
        let CommitError::Refused { errno, what, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*errno, what.op, what.element), (libc::ENOENT, Some(0), Some(1)), "{error}");

        // The set itself is missing, twice.
        let error = connection.commit(&[add("none", vec![endpoint(7)]), add("nil", vec![endpoint(7)])]).unwrap_err();
        let CommitError::Refused { errno, what, all, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*errno, what.op, what.element, all.len()), (libc::ENOENT, Some(0), None, 2), "{error}");
        assert_eq!(all[1].what.op, Some(1));

        // Beyond the declared size.
        let error = connection.commit(&[add("endpoints", (2000..4000).map(endpoint).collect())]).unwrap_err();
        let CommitError::Refused { errno, what, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*errno, libc::ENFILE, "{error}");
        assert!(what.element.is_some_and(|at| at >= 1000), "{error:?}");

        // Chains that jump in a circle.
        let around = |from: &str, to: &str| {
            let jump = Expr::Immediate { dreg: 0, data: Data::Verdict(Verdict::Jump(to.into())) };
            Op::AddRule(rule(from, vec![jump]))
        };
        let error = connection.commit(&[around("pick", "pick2"), around("pick2", "pick")]).unwrap_err();
        assert!(matches!(error, CommitError::Refused { .. }), "{error:?}");

        assert_eq!(nft(&["list", "ruleset"]), before);
        connection.commit(&[add("endpoints", vec![endpoint(7)])]).expect("the connection is as good as before");
    }
}

netns_test! {
    fn nothing_to_do_sends_nothing() {
        let mut connection = open();
        let before = connection.generation().unwrap();
        assert_eq!(connection.commit(&[]).unwrap(), Commit::default());
        assert_eq!(connection.commit(&[add("no-such-set", vec![])]).unwrap(), Commit::default());
        assert_eq!(connection.generation().unwrap(), before);
    }
}

netns_test! {
    fn a_transaction_for_another_generation_is_refused() {
        let (mut ours, mut theirs) = (open(), open());
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
        let mut connection = open();
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
        let mut connection = open();
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
    common::netns::run_through(&inner, module_path!(), "without_the_right_to_change_rules_the_error_says_so", || {
        let error = open().commit(&[table()]).unwrap_err();
        assert_eq!(error.to_string(), "the transaction: Operation not permitted (os error 1)");
    });
}

netns_test! {
    fn a_transaction_that_the_send_buffer_cannot_hold_is_not_sent() {
        let mut connection = open();
        connection.commit(&ruleset()).unwrap();
        connection.commit(&[Op::AddSet(Set { name: "big".into(), ..endpoints(None) })]).unwrap();
        let limit = connection.max_batch_bytes();
        let each = batch_bytes(&add("big", vec![endpoint(0), endpoint(1)])) - batch_bytes(&add("big", vec![endpoint(0)]));
        let most = (limit / each) as u32;
        let over = add("big", (0..most + 1).map(endpoint).collect());
        let error = connection.commit(std::slice::from_ref(&over)).unwrap_err();
        let CommitError::TooLarge { bytes, limit: said } = error else { panic!("{error:?}") };
        assert_eq!((bytes, said), (batch_bytes(&over) + BATCH_BYTES - 8, limit));
        assert_eq!(connection.elements(&set_ref("big")).unwrap(), []);

        // The foretold limit is the kernel's: as much as fits into it is committed.
        let mut count = most;
        let fitting = loop {
            let op = add("big", (0..count).map(endpoint).collect());
            if batch_bytes(&op) + BATCH_BYTES <= limit {
                break op;
            }
            count -= 1;
        };
        let commit = connection.commit(&[fitting]).unwrap();
        assert!(limit - commit.bytes < 256, "{} of {limit}", commit.bytes);
        assert_eq!(connection.elements(&set_ref("big")).unwrap().len(), count as usize);
    }
}

netns_test! {
    fn a_hundred_thousand_elements_in_pieces() {
        const COUNT: u32 = 100_000;
        let mut connection = open();
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
        let mut connection = open();
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
        let mut sink = Disturbing { other: open(), elements: Vec::new(), resets: 0 };
        connection.for_each_element(&set_ref("big"), &mut sink).unwrap();
        assert_eq!((sink.resets, sink.elements.len()), (1, 5001));
        assert!(sink.elements.contains(&endpoint(90_000)));
    }
}
