//! What `nft` lists is traced as what the kernel holds.

use std::path::Path;

use svcmap::listing::{self, Listing};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::trace::{Ruleset, trace};

use crate::common::cases::{Case, Look, Stack};
use crate::common::trace::{node, packet};
use crate::common::world::World;
use crate::support::{self, in_words, load};

/// What `nft` lists, as text and as JSON.
fn listings() -> [(&'static str, Listing); 2] {
    [("text", &["list", "ruleset"][..]), ("JSON", &["-j", "list", "ruleset"])].map(|(form, arguments)| {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let output = std::process::Command::new("nft").args(arguments).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        (form, listing::read(&text).unwrap_or_else(|error| panic!("{form}: {error}\n{text}")))
    })
}

netns_test! {
    fn svcmaps_rules_are_traced_from_their_listings_as_from_the_kernel() {
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let (mut flows_seen, mut wrong) = (0, String::new());
        // every third case: each lists the ruleset twice
        for case in Case::all().into_iter().step_by(3) {
            let Look::Flows(flows) = case.look(Stack::Dual) else { continue };
            let world = World::of(&case, Stack::Dual);
            for transaction in &world.transactions {
                connection.commit(transaction).unwrap();
            }
            for (form, listing) in listings() {
                assert!(listing.notes.is_empty(), "{}, {form}: {:?}", case.id, listing.notes);
                for flow in &flows {
                    flows_seen += 1;
                    let [held, listed] = [&world.ruleset, &listing.ruleset]
                        .map(|ruleset| in_words(trace(ruleset, &node(), &packet(flow))));
                    if held != listed {
                        wrong += &format!("{} {flow}, {form}\nheld   {held}\nlisted {listed}\n", case.id);
                    }
                }
            }
            for table in connection.tables().unwrap() {
                let delete = svcmap::netlink::model::Op::DeleteTable { family: table.family, name: table.name };
                connection.commit(&[delete]).unwrap();
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(flows_seen > 200, "only {flows_seen} connections were traced");
    }
}

netns_test! {
    fn rules_of_others_are_traced_from_their_listings_as_from_the_kernel() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/foreign");
        let mut seen = 0;
        let mut wrong = String::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let held = load(&std::fs::read_to_string(&path).unwrap());
            for (form, listing) in listings() {
                for (from, to) in
                    [("10.0.0.2", "172.30.0.41:80"), ("192.168.0.2", "10.0.0.7:443"), ("192.0.2.1", "192.168.0.2:22")]
                {
                    seen += 1;
                    let [held, listed] = [&held, &listing.ruleset].map(|ruleset: &Ruleset| {
                        in_words(trace(ruleset, &support::node(), &support::tcp(from, to)))
                    });
                    // that a rule is not understood is said in other words
                    let both_refuse = held.starts_with("refused") && listed.starts_with("refused");
                    if held != listed && !both_refuse {
                        wrong += &format!("{} {form} {from} {to}\nheld   {held}\nlisted {listed}\n", path.display());
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(seen > 30, "only {seen} connections were traced");
    }
}

/// What a rule may ask for and do, each of which nft lists in its own way.
const STATEMENTS: &str = include_str!("statements.txt");

/// Of these a listing says more than the expressions: that they are of another protocol, or that objects are counters.
const BETTER: [&str; 2] = ["sctp chunk", "counter name ip saddr map"];

/// The sets, maps and objects that the statements name.
const NAMED: &str = "
    counter hits { packets 1 bytes 2; }
    quota much { over 10 mbytes; }
    limit slow { rate 5/minute; }
    synproxy sp { mss 1460; wscale 7; }
    ct helper ftp-standard {
        type \"ftp\" protocol tcp
        l3proto ip
    }
    set known { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }
    set seen { type ipv4_addr; size 128; flags dynamic,timeout; timeout 1m; }
    set metered { type ipv4_addr; size 128; flags dynamic; limit rate 10/second; }
    set held { type ipv4_addr; size 128; flags dynamic; elements = { 10.0.0.2 limit rate 10/second }; }
    set counted { type ipv4_addr; size 128; flags dynamic; counter; elements = { 10.0.0.2 counter packets 3 bytes 4 }; }
    set conns { type ipv4_addr; size 128; flags dynamic; ct count over 5; }
    set quoted { type ipv4_addr; size 128; flags dynamic; quota 10 mbytes; }
    map chosen { type ipv4_addr : mark; size 128; flags dynamic; }
    map fixed { type ipv4_addr : mark; elements = { 10.0.0.2 : 7 }; }
    map objs { type ipv4_addr : counter; elements = { 10.0.0.2 : \"hits\" }; }
";

netns_test! {
    /// Whatever a rule says, its listing is read to the end, and a packet fares as in the kernel; or the statement is named.
    fn every_statement_is_read_from_its_listings() {
        let mut wrong = String::new();
        let mut chain = "";
        let mut seen = 0;
        for line in STATEMENTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(kind) = line.strip_prefix("= ") {
                chain = kind;
                continue;
            }
            // what is behind the rule is to be read, too
            let script = format!(
                "table inet t {{ {NAMED} chain c {{ type {chain}; {line}; }} }}\n\
                 table inet u {{ chain c {{ type filter hook prerouting priority 500; tcp dport 80 accept; }} }}"
            );
            let held = load(&script);
            for (form, listing) in listings() {
                seen += 1;
                let u = listing.ruleset.tables().find(|table| table.table.name == "u").expect("it is listed");
                assert_eq!(u.chains["c"].rules.len(), 1, "{line}, {form}");
                let [held, listed] = [&held, &listing.ruleset]
                    .map(|ruleset| in_words(trace(ruleset, &support::node(), &support::pod())));
                // text lists no handles
                let [held, listed] = [held, listed].map(|said| match said.split_once(" (handle ") {
                    Some((place, rest)) => format!("{place}{}", rest.split_once(')').map_or("", |(_, what)| what)),
                    None => said,
                });
                let is_refused = |said: &str| said.starts_with("refused: inet t c, rule 1: ");
                let is_named = line.split(' ').any(|word| word.len() > 1 && listed.contains(word));
                let is_better = is_refused(&held) && BETTER.iter().any(|known| line.starts_with(known));
                if held != listed && !(is_refused(&listed) && is_named) && !is_better {
                    wrong += &format!("{line}, {form}\nheld   {held}\nlisted {listed}\n");
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(seen > 300, "only {seen} listings were read");
    }
}

/// Reads a listing, and expects what becomes of the pod's packet; or that the trace stops and names this.
fn read_and_expect(listing: &str, expected: &str) {
    let read = listing::read(listing).unwrap_or_else(|error| panic!("{error}: {listing}"));
    let said = in_words(trace(&read.ruleset, &support::node(), &support::pod()));
    let is_named = said.starts_with("refused: ip t c, rule 1") && said.contains(expected);
    assert!(said == expected || is_named, "{listing}: {said}");
}

/// A table with a set, a map and a rule, as text.
fn table(rule: &str) -> String {
    format!(
        "table ip t {{
\tset s {{
\t\ttype ipv4_addr
\t\tflags dynamic
\t\tstrange thing 7
\t}}

\tmap m {{
\t\ttype ipv4_addr : mark
\t\tflags dynamic
\t}}

\tchain c {{
\t\ttype filter hook prerouting priority filter; policy accept;
\t\t{rule}
\t}}
}}
"
    )
}

/// The same as JSON.
fn objects(rule: &str) -> String {
    let head = r#"{"table": {"family": "ip", "name": "t"}},
        {"set": {"family": "ip", "table": "t", "name": "s", "type": "ipv4_addr"}},
        {"map": {"family": "ip", "table": "t", "name": "m", "type": "ipv4_addr", "map": "mark"}},
        {"chain": {"family": "ip", "table": "t", "name": "c", "type": "filter", "hook": "prerouting", "prio": 0}}"#;
    let rule = format!(r#"{{"rule": {{"family": "ip", "table": "t", "chain": "c", "expr": [{rule}]}}}}"#);
    format!(r#"{{"nftables": [{head}, {rule}]}}"#)
}

/// What nft 1.1 lists otherwise than 1.0.6 does, and what not every kernel takes.
#[test]
fn later_forms_are_read() {
    for (rule, expected) in [
        ("tcp flags & (fin | syn | rst | ack) == syn drop", "dropped"),
        ("tcp flags & (fin|syn|rst|ack) == syn drop", "dropped"),
        ("tcp flags & (syn | ack) == (syn | ack) drop", "untouched"),
        ("tcp flags & (syn | ack) == syn | ack drop", "untouched"),
        ("add @s { ip saddr limit rate 10/second } drop", "limit rate 10/second"),
        ("update @s { ip saddr timeout 30s counter packets 0 bytes 0 } drop", "dropped"),
        ("update @s { ip saddr ct count over 5 } drop", "ct count over 5"),
        ("update @m { ip saddr counter packets 0 bytes 0 : 0x00000001 } drop", "dropped"),
        ("update @m { ip saddr limit rate over 1 mbytes/second : meta mark } drop", "limit rate over 1 mbytes/second"),
        ("last used never counter packets 0 bytes 0 drop", "dropped"),
        ("queue flags bypass,fanout to 1-3", "queue flags bypass,fanout to 1-3"),
        ("dup to 10.0.0.1 device \"lo\"", "dup to 10.0.0.1"),
        ("fwd ip to 10.0.0.1 device \"lo\"", "fwd ip to 10.0.0.1"),
    ] {
        read_and_expect(&table(rule), expected);
    }
    // what a set says and is not understood is named
    let notes = listing::read(&table("accept")).unwrap().notes;
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["line 2: set s: \"strange thing 7\" is not understood"]);
}

/// The same of JSON: also what rules put into sets and maps only as long as a statement lets them.
#[test]
fn later_objects_are_read() {
    let update = |kind: &str, name: &str, data: &str, statement: &str| {
        let saddr = r#"{"payload": {"protocol": "ip", "field": "saddr"}}"#;
        let head = format!(r#"{{"{kind}": {{"op": "update", "elem": {saddr}, "{kind}": "@{name}""#);
        format!(r#"{head}{data}, "stmt": [{statement}]}}}}, {{"drop": null}}"#)
    };
    let limit = r#"{"limit": {"rate": 10, "burst": 5, "per": "second"}}"#;
    let counter = r#"{"counter": {"packets": 0, "bytes": 0}}"#;
    let count = r#"{"ct count": {"val": 5, "inv": true}}"#;
    let flags = r#"{"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, {"|": ["fin", "syn", "ack"]}]}"#;
    for (rule, expected) in [
        (update("set", "s", "", limit), "limit rate 10/second"),
        (update("set", "s", "", counter), "dropped"),
        (update("map", "m", r#", "data": 1"#, counter), "dropped"),
        (update("map", "m", r#", "data": {"meta": {"key": "mark"}}"#, count), "ct count over 5"),
        (format!(r#"{limit}, {{"drop": null}}"#), "limit rate 10/second"),
        (format!(r#"{count}, {{"drop": null}}"#), "ct count over 5"),
        (format!(r#"{{"match": {{"op": "==", "left": {flags}, "right": "syn"}}}}, {{"drop": null}}"#), "dropped"),
        (r#"{"queue": {"num": 1, "flags": ["bypass"]}}"#.into(), "queue"),
        (r#"{"dup": {"addr": "10.0.0.1"}}"#.into(), "dup"),
        (r#"{"fwd": {"addr": "10.0.0.1", "dev": "lo", "family": "ip"}}"#.into(), "fwd"),
        (r#"{"tproxy": {"port": 8080}}"#.into(), "tproxy"),
    ] {
        read_and_expect(&objects(&rule), expected);
    }
}
