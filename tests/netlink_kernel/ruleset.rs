//! A ruleset with everything that svcmap writes.

use std::process::Command;

use svcmap::netlink::model::*;
use svcmap::netlink::{CodecKind, Connection};

pub const V4: NfFamily = NfFamily::IPV4;

pub fn open(codec: CodecKind) -> Connection {
    Connection::open(codec).expect("a netlink socket")
}

/// Every pair of a codec that writes and one that reads.
pub fn pairs() -> impl Iterator<Item = (CodecKind, CodecKind)> {
    CodecKind::ALL.iter().flat_map(|writer| CodecKind::ALL.iter().map(|reader| (*writer, *reader)))
}

pub fn delete_table() -> Op {
    Op::DeleteTable { family: V4, name: "t".into() }
}

pub fn nft(args: &[&str]) -> String {
    let output = Command::new("nft").args(args).output().expect("nft runs");
    assert!(output.status.success(), "nft {args:?}: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

pub fn table() -> Op {
    Op::AddTable(Table { family: V4, name: "t".into(), flags: 0, comment: Some("a table's comment".into()) })
}

pub fn set_ref(name: &str) -> SetRef {
    SetRef { family: V4, table: "t".into(), name: name.into() }
}

pub fn chain(name: &str, hook: Option<Hook>) -> Op {
    let comment = Some(format!("comment of {name}").into());
    Op::AddChain(Chain { family: V4, table: "t".into(), name: name.into(), hook, is_bound: false, comment })
}

pub fn rule(chain: &str, exprs: Vec<Expr>) -> Rule {
    let comment = Some("a rule's comment".into());
    Rule { family: V4, table: "t".into(), chain: chain.into(), handle: 0, exprs, comment }
}

pub fn set(name: &str, flags: u32, key_type: u32, key_len: u32) -> Set {
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
pub const IPV4_ADDR: u32 = 7;
pub const INET_PROTOCOL: u32 = 12;
pub const INET_SERVICE: u32 = 13;

pub fn concat(types: &[u32]) -> u32 {
    types.iter().fold(0, |all, one| all << 6 | one)
}

/// A map from address . protocol . port to address . port.
pub fn endpoints(size: Option<u32>) -> Set {
    Set {
        data_type: concat(&[IPV4_ADDR, INET_SERVICE]),
        data_len: 8,
        size,
        ..set("endpoints", set_flags::MAP, concat(&[IPV4_ADDR, INET_PROTOCOL, INET_SERVICE]), 12)
    }
}

pub fn services() -> Set {
    let key = concat(&[IPV4_ADDR, INET_PROTOCOL, INET_SERVICE]);
    Set { data_type: VERDICT_TYPE, ..set("services", set_flags::MAP, key, 12) }
}

pub fn key(number: u32) -> Bytes {
    let address = (0x0a60_0000 + number / 1000).to_be_bytes();
    let port = (1 + number % 1000) as u16;
    Bytes::from_iter(address.into_iter().chain([6, 0, 0, 0]).chain(port.to_be_bytes()).chain([0, 0]))
}

pub fn endpoint(number: u32) -> Element {
    let address = (0x0a80_0000 + number).to_be_bytes();
    let data = Data::Value(Bytes::from_iter(address.into_iter().chain([0x1f, 0x90, 0, 0])));
    Element { key: key(number), data, ..Element::default() }
}

pub fn key_only(number: u32) -> Element {
    Element { key: key(number), ..Element::default() }
}

pub fn add(set: &str, elements: Vec<Element>) -> Op {
    Op::AddElements { set: set_ref(set), elements }
}

pub fn sorted(mut elements: Vec<Element>) -> Vec<Element> {
    elements.sort_by(|a, b| a.key.cmp(&b.key));
    elements
}

pub fn hook(kind: &str, number: u32, priority: i32) -> Option<Hook> {
    Some(Hook { kind: kind.into(), number, priority, policy: 1 })
}

/// Rules with every expression that svcmap writes.
pub fn rules() -> Vec<Rule> {
    [dispatch_rules(), pick_rules(), masquerade_rules(), filter_rules()].concat()
}

fn daddr(dreg: Register) -> Expr {
    Expr::Payload { dreg, base: 1, offset: 16, len: 4 }
}

fn l4proto(dreg: Register) -> Expr {
    Expr::MetaLoad { dreg, key: 16 }
}

fn dport(dreg: Register) -> Expr {
    Expr::Payload { dreg, base: 2, offset: 2, len: 2 }
}

fn four(number: u32) -> Bytes {
    Bytes::from_slice(&number.to_ne_bytes())
}

fn dispatch_rules() -> Vec<Rule> {
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
            "pre",
            vec![
                Expr::Immediate { dreg: 1, data: Data::Value(Bytes::from_slice(&[4, 0])) },
                l4proto(2),
                Expr::Cmp { sreg: 2, op: 0, data: Bytes::from_slice(&[6]) },
                Expr::Redir { proto_min: Some(1), proto_max: None, flags: 0 },
            ],
        ),
    ]
}

fn pick_rules() -> Vec<Rule> {
    vec![
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
            "pick2",
            vec![
                Expr::Counter { packets: 0, bytes: 0 },
                Expr::Immediate { dreg: 0, data: Data::Verdict(Verdict::Return) },
            ],
        ),
    ]
}

fn masquerade_rules() -> Vec<Rule> {
    vec![
        rule(
            "post",
            vec![
                Expr::MetaLoad { dreg: 1, key: 3 },
                Expr::Bitwise { sreg: 1, dreg: 1, len: 4, mask: four(!0x4000).into(), xor: four(0x4000).into() },
                Expr::MetaSet { sreg: 1, key: 3 },
                Expr::Ct { dreg: 1, key: 2, direction: None },
                Expr::Bitwise { sreg: 1, dreg: 1, len: 4, mask: four(0x20).into(), xor: four(0).into() },
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
    ]
}

fn filter_rules() -> Vec<Rule> {
    vec![
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
    ]
}

pub fn ruleset() -> Vec<Op> {
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
