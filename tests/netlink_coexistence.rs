//! Tables of others: whatever is in them, they are left alone, and never in the way.

#[macro_use]
mod common;
#[allow(dead_code)] // the kernel tests use the rest of it
#[path = "netlink_kernel/ruleset.rs"]
mod ruleset;

use svcmap::netlink::attr::Writer;
use svcmap::netlink::batch::{Batch, Part, Request};
use svcmap::netlink::message::{messages, reply};
use svcmap::netlink::model::*;
use svcmap::netlink::sys::Socket;
use svcmap::netlink::{CodecKind, uapi};

use ruleset::*;

/// Everything of everyone, read with every codec that is built in.
fn read_everything() {
    for codec in CodecKind::ALL {
        let mut connection = open(*codec);
        for table in connection.tables().unwrap() {
            let (family, name) = (table.family, table.name.as_str());
            let of = |what: &str| format!("{codec}: {what} of {} {name}", family.name());
            connection.chains(family, name).unwrap_or_else(|error| panic!("{}: {error}", of("chains")));
            connection.rules(family, name).unwrap_or_else(|error| panic!("{}: {error}", of("rules")));
            let sets = connection.sets(family, name).unwrap_or_else(|error| panic!("{}: {error}", of("sets")));
            for set in sets {
                let at = SetRef { family, table: table.name.clone(), name: set.name.clone() };
                connection.elements(&at).unwrap_or_else(|error| panic!("{} {}: {error}", of("elements"), set.name));
            }
        }
    }
}

/// All that is in a table, with the kernel's numbers of the rules.
fn contents(family: NfFamily, table: &str) -> String {
    let mut connection = open(CodecKind::Native);
    let sets = connection.sets(family, table).unwrap();
    let elements: Vec<_> = sets
        .iter()
        .map(|set| SetRef { family, table: table.into(), name: set.name.clone() })
        .map(|at| (at.name.clone(), sorted(connection.elements(&at).unwrap())))
        .collect();
    let (chains, rules) = (connection.chains(family, table).unwrap(), connection.rules(family, table).unwrap());
    format!("{chains:#?}\n{rules:#?}\n{sets:#?}\n{elements:#?}")
}

/// Makes, changes and deletes a table of our own; the others' state is to be the same before and after.
fn live_beside(state: impl Fn() -> String) {
    let before = state();
    read_everything();
    for codec in CodecKind::ALL {
        let mut connection = open(*codec);
        connection.commit(&ruleset()).unwrap();
        connection.commit(&[add("endpoints", (0..50).map(endpoint).collect())]).unwrap();
        read_everything();
        assert_eq!(connection.elements(&set_ref("endpoints")).unwrap().len(), 50, "{codec}");
        connection.commit(&[Op::FlushSet(set_ref("endpoints"))]).unwrap();
        connection.commit(&[delete_table()]).unwrap();
        assert_eq!(state(), before, "{codec}");
    }
}

/// Much of what nft can make and svcmap never does, also under names that svcmap's own tables have.
const FOREIGN: &str = r#"
table inet others {
  flags dormant
  counter hits { packets 3 bytes 4 }
  quota much { over 500 mbytes }
  limit slow { rate 400/minute }
  ct helper ftp { type "ftp" protocol tcp; }
  synproxy shield { mss 1460; wscale 7; }
  map objects { type ipv4_addr : counter; elements = { 1.2.3.4 : "hits" } }
  map marks { type inet_service : mark; flags interval; elements = { 1-100 : 7, 200 : 8, * : 9 } }
  map names { typeof ip saddr . iifname : verdict; elements = { 1.2.3.4 . "lo" : accept } }
  set merged { type ipv6_addr; flags interval; auto-merge; elements = { fe80::/10, 2001:db8::1-2001:db8::9 } }
  set sized { type inet_service; policy memory; size 40; gc-interval 5s; timeout 10m; elements = { 1 timeout 1h, 2 } }
  set rated { type ipv4_addr; limit rate 5/second burst 9 packets; counter; elements = { 5.5.5.5 } }
  set words { type ifname; elements = { "eth0" comment "a \ word" } }
  chain endpoints {
    ip saddr { 1.1.1.1, 2.2.2.2, 3.0.0.0/8 } tcp dport vmap { 1 : accept, 2-9 : drop, 10 : jump pick }
    meter old { ip saddr timeout 5s limit rate 3/second } accept
    add @rated { ip saddr limit rate 1/second }
    ct helper set "ftp"
    counter name "hits" quota name "much" limit name "slow"
    ip6 nexthdr tcp tcp option maxseg size set rt mtu
    numgen inc mod 3 vmap { 0 : jump pick, 1 : continue, 2 : return }
    jhash ip saddr . tcp sport mod 8 seed 0xdead vmap { 0-3 : accept, 4-7 : drop }
    @th,16,16 set 53 meta priority set 1:2 meta nftrace set 1
    synproxy name "shield" log group 2 snaplen 4 queue-threshold 1
    meta time "2024-01-01 00:00:00" meta hour 10:00-11:00 drop
    ip dscp set cs1 ct zone set 4 ct label 3 ct state invalid reject with icmpx no-route
    socket transparent 1 meta mark set 1
    tcp dport 8080 dup to 1.2.3.4 device "lo"
  }
  chain pick { ip version 4 accept
  }
}
table ip6 t {
  map endpoints { type ipv6_addr : verdict; }
  chain pick { accept
  }
}
table arp t {
  chain in { type filter hook input priority 0
    arp operation request accept
  }
}
table bridge t {
  chain f { type filter hook forward priority 0
    ether type ip accept
    vlan id 4 drop
  }
}
"#;

netns_test! {
    fn what_nft_makes_for_others_stays() {
        // Not every kernel has all of it: lines that this one refuses are left out, but most must be there.
        let (loaded, refused) = load_line_by_line(FOREIGN);
        assert!(refused.len() * 4 < loaded, "{loaded} lines loaded, too many were refused: {refused:#?}");
        println!("{refused:#?}");
        live_beside(|| {
            let listing = nft(&["list", "ruleset"]);
            [contents(NfFamily::INET, "others"), contents(NfFamily::IPV6, "t"), listing].concat()
        });
    }
}

/// Loads a script with as many of the lines inside chains and tables as the kernel and nft take.
fn load_line_by_line(script: &str) -> (usize, Vec<String>) {
    let mut lines: Vec<&str> = script.lines().collect();
    let mut refused = Vec::new();
    loop {
        let path = std::env::temp_dir().join(format!("svcmap-foreign-{}.nft", std::process::id()));
        std::fs::write(&path, lines.join("\n")).unwrap();
        let output = std::process::Command::new("nft").arg("-f").arg(&path).output().expect("nft runs");
        std::fs::remove_file(&path).unwrap();
        if output.status.success() {
            return (lines.len(), refused);
        }
        // FILE:LINE:COLUMNS: Error: …
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let number: Option<usize> = text.split(':').nth(1).and_then(|number| number.parse().ok());
        let number = number.filter(|number| *number <= lines.len()).unwrap_or_else(|| panic!("{text}"));
        refused.push(format!("{}: {}", lines.remove(number - 1).trim(), text.lines().next().unwrap_or_default()));
    }
}

/// Sends messages that no codec would write, straight to the kernel.
fn send_raw(fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::default();
    batch.begin(1, None);
    fill(&mut batch);
    batch.finish();
    let socket = Socket::open().unwrap();
    socket.send(batch.bytes()).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut acknowledged = false;
    while let Ok(length) = socket.receive(&mut buffer, false) {
        for reply in messages(&buffer[..length]).filter_map(|message| reply(&message)) {
            assert_eq!(reply.errno, 0, "{reply:?}");
            acknowledged |= reply.seq == batch.last_seq();
        }
    }
    assert!(acknowledged);
}

fn raw(batch: &mut Batch, message: u8, body: impl FnOnce(&mut Writer)) {
    let flags = uapi::NLM_F_CREATE | uapi::NLM_F_APPEND;
    let request = Request { message, flags, family: NfFamily::IPV4 };
    assert!(batch.message(Part { op: 0, element: 0 }, request, |w| {
        body(w);
        // Attributes of kernels to come; this one passes over them.
        w.u32(60, 1);
        w.nest(61, |w| w.text(1, "future"));
    }));
}

/// User data that follows no convention, or breaks nft's.
const JUNK: [&[u8]; 5] = [&[], &[0], &[0, 200, b'x'], &[0, 1, b'x'], &[7, 3, 0, 0, 0, 0, 2, 0xff, 0]];

netns_test! {
    fn what_follows_no_convention_is_read_all_the_same() {
        use uapi::{chain, element, elements, message, rule, set, table};
        for junk in JUNK {
            send_raw(|batch| {
                raw(batch, message::NEWTABLE, |w| {
                    w.text(table::NAME, "odd");
                    w.put(table::USERDATA, junk);
                });
                raw(batch, message::NEWCHAIN, |w| {
                    w.text(chain::TABLE, "odd");
                    w.text(chain::NAME, "c");
                    w.put(chain::USERDATA, junk);
                });
                raw(batch, message::NEWSET, |w| {
                    w.text(set::TABLE, "odd");
                    w.text(set::NAME, "s");
                    w.u32(set::KEY_TYPE, 0xdead_beef);
                    w.u32(set::KEY_LEN, 7);
                    w.u32(set::ID, 1);
                    w.put(set::USERDATA, junk);
                });
                raw(batch, message::NEWRULE, |w| {
                    w.text(rule::TABLE, "odd");
                    w.text(rule::CHAIN, "c");
                    w.put(rule::USERDATA, junk);
                });
                raw(batch, message::NEWSETELEM, |w| {
                    w.text(elements::TABLE, "odd");
                    w.text(elements::SET, "s");
                    w.nest(elements::ELEMENTS, |w| {
                        w.nest(uapi::NFTA_LIST_ELEM, |w| {
                            w.nest(element::KEY, |w| w.put(uapi::data::VALUE, &[1, 2, 3, 4, 5, 6, 7]));
                            w.put(element::USERDATA, junk);
                        });
                    });
                });
            });
            read_everything();
            let mut connection = open(CodecKind::Native);
            let sets = connection.sets(V4, "odd").unwrap();
            assert_eq!((sets[0].key_type, sets[0].key_len, &sets[0].userdata[..]), (0xdead_beef, 7, junk));
            let at = SetRef { family: V4, table: "odd".into(), name: "s".into() };
            let found = connection.elements(&at).unwrap();
            assert_eq!(found[0].key[..], [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(connection.rules(V4, "odd").unwrap().len(), 1);
            // nft would not list such a table.
            live_beside(|| contents(V4, "odd"));
            connection.commit(&[Op::DeleteTable { family: V4, name: "odd".into() }]).unwrap();
        }
    }
}

#[cfg(feature = "rustables-test")]
netns_test! {
    fn what_rustables_makes_stays() {
        use rustables::expr::Log;
        use rustables::set::SetBuilder;
        use rustables::{Batch, Chain, ChainPolicy, Hook, HookClass, MsgType, Protocol, ProtocolFamily, Rule, Set, Table};
        use std::net::Ipv4Addr;

        let mut batch = Batch::new();
        let table = Table::new(ProtocolFamily::Ipv4).with_name("firewall").add_to_batch(&mut batch);
        let chain = Chain::new(&table)
            .with_name("in")
            .with_hook(Hook::new(HookClass::In, 0))
            .with_policy(ChainPolicy::Accept)
            .add_to_batch(&mut batch);
        let network = "192.168.1.0/24".parse().unwrap();
        let rules = [
            Rule::new(&chain).unwrap().established().unwrap().accept(),
            Rule::new(&chain).unwrap().iiface("lo").unwrap().accept(),
            Rule::new(&chain).unwrap().dport(80, Protocol::TCP).snetwork(network).unwrap().accept(),
            Rule::new(&chain).unwrap().icmp().with_expr(Log::new(Some(1), Some("seen")).unwrap()).drop(),
        ];
        for rule in rules {
            rule.add_to_batch(&mut batch);
        }
        let mut addresses = SetBuilder::<Ipv4Addr>::new("addresses", &table).unwrap();
        addresses.add(&Ipv4Addr::new(10, 0, 0, 1));
        addresses.add(&Ipv4Addr::new(10, 0, 0, 2));
        let (set, elements) = addresses.finish();
        // The builder leaves out what the kernel wants.
        let set = Set { family: ProtocolFamily::Ipv4, id: Some(1), ..set };
        batch.add(&set, MsgType::Add);
        batch.add(&elements, MsgType::Add);
        batch.send().unwrap();

        let mut connection = open(CodecKind::Native);
        assert_eq!(connection.rules(V4, "firewall").unwrap().len(), 4);
        let at = SetRef { family: V4, table: "firewall".into(), name: "addresses".into() };
        let keys: Vec<Bytes> = sorted(connection.elements(&at).unwrap()).into_iter().map(|e| e.key).collect();
        assert_eq!(keys, [Bytes::from_slice(&[10, 0, 0, 1]), Bytes::from_slice(&[10, 0, 0, 2])]);
        // Not compared by what nft lists: 1.0.6 falls over these rules.
        live_beside(|| contents(V4, "firewall"));
    }
}
