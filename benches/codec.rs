//! What a codec takes for an element and for a rule, written and read. `cargo bench --bench codec`; with
//! `--features libnftnl` the C library stands beside the native codec.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use svcmap::netlink::CodecKind;
use svcmap::netlink::batch::Batch;
use svcmap::netlink::codec::Codec;
use svcmap::netlink::message::messages;
use svcmap::netlink::model::*;

const COUNT: u32 = 10_000;

/// VIP . protocol . port . slot : address . port, as in the map `endpoints`.
fn endpoint(number: u32) -> Element {
    let vip = (0x0a60_0000 + number / 3).to_be_bytes();
    let key = [&vip[..], &[6, 0, 0, 0, 0, 80, 0, 0], &(number % 3).to_ne_bytes()].concat();
    let data = [&(0x0a80_0000 + number).to_be_bytes()[..], &[0x1f, 0x90, 0, 0]].concat();
    Element { key: Bytes::from_vec(key), data: Data::Value(Bytes::from_vec(data)), ..Element::default() }
}

/// VIP . protocol . port : goto, with a comment, as in the map `services`.
fn service(number: u32) -> Element {
    let vip = (0x0a60_0000 + number).to_be_bytes();
    Element {
        key: Bytes::from_vec([&vip[..], &[6, 0, 0, 0, 0, 80, 0, 0]].concat()),
        data: Data::Verdict(Verdict::Goto("pick-3".into())),
        comment: Some(format!("namespace-{}/service-{number}:http", number % 50).into()),
        ..Element::default()
    }
}

fn add(element: fn(u32) -> Element) -> Vec<Op> {
    let set = SetRef { family: NfFamily::IPV4, table: "svcmap".into(), name: "map".into() };
    vec![Op::AddElements { set, elements: (0..COUNT).map(element).collect() }]
}

/// A rule that picks one of `number` endpoints.
fn pick(number: u32) -> Op {
    let register = |dreg, offset, len| Expr::Payload { dreg, base: 2, offset, len };
    Op::AddRule(Rule {
        family: NfFamily::IPV4,
        table: "svcmap".into(),
        chain: format!("pick-{number}").into(),
        handle: 0,
        exprs: vec![
            Expr::Payload { dreg: 1, base: 1, offset: 16, len: 4 },
            Expr::MetaLoad { dreg: 9, key: 16 },
            register(10, 2, 2),
            Expr::Numgen { dreg: 11, modulus: number, kind: 1, offset: 0 },
            Expr::Lookup { sreg: 1, set: "endpoints".into(), dreg: Some(1), invert: false },
            Expr::Nat {
                kind: 1,
                family: 2,
                addr_min: Some(1),
                addr_max: None,
                proto_min: Some(9),
                proto_max: None,
                flags: 0,
            },
        ],
        comment: None,
    })
}

fn encode(codec: &dyn Codec, ops: &[Op], batch: &mut Batch) {
    batch.begin(1, None);
    codec.encode(ops, batch).expect("can be written");
    batch.finish();
}

fn write(criterion: &mut Criterion) {
    let cases = [
        ("endpoints", add(endpoint)),
        ("services", add(service)),
        ("rules", (1..=1000).map(pick).collect::<Vec<Op>>()),
    ];
    let mut group = criterion.benchmark_group("write");
    for (name, ops) in &cases {
        group.throughput(Throughput::Elements(ops.iter().map(|op| op.weight() as u64).sum()));
        for kind in CodecKind::ALL {
            let (codec, mut batch) = (kind.codec(), Batch::default());
            group.bench_function(BenchmarkId::new(*name, kind), |bencher| {
                bencher.iter(|| encode(&*codec, black_box(ops), &mut batch));
            });
        }
    }
}

/// What the kernel lists is laid out as what it is sent.
fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    for (name, ops) in [("endpoints", add(endpoint)), ("services", add(service))] {
        let mut batch = Batch::default();
        encode(&*CodecKind::Native.codec(), &ops, &mut batch);
        group.throughput(Throughput::Elements(u64::from(COUNT)));
        for kind in CodecKind::ALL {
            let codec = kind.codec();
            group.bench_function(BenchmarkId::new(name, kind), |bencher| {
                bencher.iter(|| {
                    for message in messages(black_box(batch.bytes())) {
                        codec.elements(message.bytes, &mut |element| drop(black_box(element)));
                    }
                });
            });
        }
    }
}

criterion_group!(benches, write, read);
criterion_main!(benches);
