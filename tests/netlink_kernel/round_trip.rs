//! What is committed is read back; what nft writes is read, and written again.

use svcmap::netlink::model::*;
use svcmap::netlink::{CodecKind, Connection};

use crate::ruleset::*;

netns_test! {
    fn what_is_committed_is_read_back() {
        for (writer, reader) in pairs() {
            committed_and_read_back(open(writer), open(reader));
        }
    }
}

fn committed_and_read_back(mut writer: Connection, mut reader: Connection) {
    let ops = ruleset();
    let commit = writer.commit(&ops).unwrap();
    assert_eq!(commit.messages, ops.len());

    let mut found: Vec<Op> = reader.tables().unwrap().into_iter().map(Op::AddTable).collect();
    found.extend(reader.chains(V4, "t").unwrap().into_iter().map(Op::AddChain));
    found.extend(reader.sets(V4, "t").unwrap().into_iter().map(Op::AddSet));
    let rules = reader.rules(V4, "t").unwrap();
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
    writer.commit(&[delete_table()]).unwrap();
}

netns_test! {
    fn elements_of_every_kind_are_read_back() {
        for (writer, reader) in pairs() {
            elements_read_back(open(writer), open(reader));
        }
    }
}

fn cases() -> [(&'static str, Vec<Element>); 7] {
    let plain = |n: u8| Element { key: Bytes::from_slice(&[10, 0, 0, n]), ..Element::default() };
    let to = |n: u32, verdict| Element { key: key(n), data: Data::Verdict(verdict), ..Element::default() };
    let value = |bytes| Data::Value(Bytes::from_slice(bytes));
    [
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
        (
            "ranges",
            vec![
                Element { key_end: Some(key(5).into()), ..key_only(3) },
                Element { key_end: Some(key(9).into()), ..key_only(9) },
            ],
        ),
        (
            "learnt",
            vec![Element { timeout_ms: Some(8000), expiration_ms: Some(4000), data: value(&[1, 2, 3, 4]), ..plain(1) }],
        ),
        ("counted", vec![Element { counter: Some((3, 500)), ..plain(1) }, plain(2)]),
    ]
}

fn elements_read_back(mut writer: Connection, mut reader: Connection) {
    writer.commit(&ruleset()).unwrap();
    let ops: Vec<Op> = cases().into_iter().map(|(set, elements)| add(set, elements)).collect();
    writer.commit(&ops).unwrap();
    for (set, elements) in cases() {
        let mut back = read_without_rest(&mut reader, set);
        if set == "learnt" {
            let left = back[0].expiration_ms.replace(4000).expect("it expires");
            assert!((3000..=4000).contains(&left), "{left} ms left of 4000");
        }
        let counter = |element: &Element| element.counter.or((set == "counted").then_some((0, 0)));
        let expected = elements.into_iter().map(|element| Element { counter: counter(&element), ..element });
        assert_eq!(sorted(back), sorted(expected.collect()), "{set}");
    }

    let deletions: Vec<Op> =
        cases().into_iter().map(|(set, elements)| Op::DeleteElements { set: set_ref(set), elements }).collect();
    writer.commit(&deletions).unwrap();
    for (set, _) in cases() {
        assert_eq!(read_without_rest(&mut reader, set), [], "{set}");
    }
    writer.commit(&[delete_table()]).unwrap();
}

/// Without the end of the last range's complement, which the kernel adds to intervals.
fn read_without_rest(reader: &mut Connection, set: &str) -> Vec<Element> {
    let mut elements = reader.elements(&set_ref(set)).unwrap();
    elements.retain(|element| element.key[..] != [0; 4]);
    elements
}

netns_test! {
    fn nft_lists_what_is_committed() {
        let mut connection = open(CodecKind::Native);
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

        let mut connection = open(CodecKind::Native);
        let table = connection.tables().unwrap().into_iter().find(|table| table.name == "t").unwrap();
        let sets = connection.sets(V4, "t").unwrap();
        assert_all_codecs_read_the_same();
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

fn assert_all_codecs_read_the_same() {
    let mut native = open(CodecKind::Native);
    for codec in CodecKind::ALL {
        let mut other = open(*codec);
        assert_eq!(other.tables().unwrap(), native.tables().unwrap(), "{codec}");
        assert_eq!(other.chains(V4, "t").unwrap(), native.chains(V4, "t").unwrap(), "{codec}");
        let sets = native.sets(V4, "t").unwrap();
        assert_eq!(other.sets(V4, "t").unwrap(), sets, "{codec}");
        for set in sets {
            let expected = sorted(native.elements(&set_ref(&set.name)).unwrap());
            assert_eq!(sorted(other.elements(&set_ref(&set.name)).unwrap()), expected, "{codec}: {}", set.name);
        }
        let rules = |connection: &mut Connection| -> Vec<Rule> {
            connection.rules(V4, "t").unwrap().into_iter().map(without_raw_bytes).collect()
        };
        assert_eq!(rules(&mut other), rules(&mut native), "{codec}");
    }
}

/// libnftnl writes the attributes of what is kept raw in an order of its own.
fn without_raw_bytes(mut rule: Rule) -> Rule {
    for expr in &mut rule.exprs {
        if let Expr::Raw { data, .. } = expr {
            data.clear();
        }
    }
    rule
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
