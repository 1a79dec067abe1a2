//! What is not understood is refused where it matters, and only there.

use svcmap::trace::{Origin, Packet, trace};

use crate::support::{expect, in_words, load, node, pod};

fn filter(rules: &str) -> String {
    format!("table ip t {{ chain c {{ type filter hook prerouting priority 0; {rules}; }} }}")
}

netns_test! {
    fn what_is_reached_and_matters_is_refused_with_its_place() {
        for (rules, what) in [
            ("limit rate 1/second drop", "rule 1 (handle 2): limit"),
            ("tcp dport 81 accept; meta cpu 0 drop", "rule 2 (handle 3): meta cpu"),
            ("meta cpu . ip daddr { 0 . 172.30.0.41 } drop", "rule 1 (handle 3): meta cpu"),
            ("meta mark set meta cpu", "rule 1 (handle 2): meta cpu"),
            ("tcp sport 1024-65535 drop", "rule 1 (handle 2): payload (2 bytes at 0 of header 2)"),
            ("ip ttl 1 drop", "rule 1 (handle 2): payload (1 bytes at 8 of header 1)"),
            ("tcp option maxseg size 1400 drop", "rule 1 (handle 2): exthdr"),
            ("ether saddr 02:00:00:00:00:01 drop", "meta iiftype"),
            ("fib saddr oifname \"lo\" drop", "rule 1 (handle 2): fib (result 2, flags 1)"),
            ("ip daddr set 10.0.0.9", "rule 1 (handle 2): payload"),
            ("tcp dport set 81", "rule 1 (handle 2): payload"),
            ("ip ttl set 1", "rule 1 (handle 2): payload"),
            ("tcp option maxseg size set 1400 drop", "rule 1 (handle 2): exthdr"),
            ("quota 10 mbytes drop", "rule 1 (handle 2): quota"),
            ("ct helper \"ftp\" drop", "rule 1 (handle 2): ct helper"),
            ("ct count over 10 reject", "rule 1 (handle 2): connlimit"),
        ] {
            let seen = in_words(trace(&load(&filter(rules)), &node(), &pod()));
            assert!(seen.starts_with("refused: ip t c, rule") && seen.contains(what), "{rules}: {seen}");
        }
    }
}

netns_test! {
    fn what_is_not_reached_or_does_not_matter_is_no_obstacle() {
        let traced = [
            "accept; limit rate 1/second drop",
            "ip daddr 1.2.3.4 limit rate 1/second drop",
            "limit rate 1/second ip daddr 1.2.3.4 drop",
            "limit rate 1/second counter",
            "limit rate 1/second log prefix \"new\"",
            "meta cpu 0 ct state established drop",
            "meta cpu . ip daddr { 0 . 1.2.3.4 } drop",
            "ip daddr 1.2.3.4 ip daddr set 10.0.0.9",
            "ip ttl 1 counter",
            "ip dscp set 1",
            "ip ttl set 64",
            "tcp option maxseg size set 1400",
            "ct label set 1",
        ];
        let scripts = traced.map(filter);
        expect(&scripts.each_ref().map(|script| (script.as_str(), pod(), "untouched")));
    }
}

netns_test! {
    /// A packet comes in where the way back leads, or it does not.
    fn reverse_path_filters_are_followed() {
        let drops = filter("fib saddr . iif oif missing drop");
        let marked = filter("fib saddr . mark . iif oif missing drop");
        let elsewhere = || Packet { origin: Origin::Interface("eth0".into()), ..pod() };
        let somewhere = || Packet { origin: Origin::Somewhere, ..pod() };
        expect(&[
            (&drops, pod(), "untouched"),
            (&marked, pod(), "untouched"),
            (&drops, elsewhere(), "dropped"),
            (&marked, elsewhere(), "dropped"),
            (&drops, somewhere(), "untouched"),
        ]);
    }
}

netns_test! {
    fn elements_that_do_more_than_was_read_are_refused_if_they_match() {
        let script = |address: &str| format!(
            "table ip t {{
               set s {{ type ipv4_addr; flags dynamic; elements = {{ {address} limit rate 1/second, 1.2.3.4 }} }}
               chain c {{ type filter hook prerouting priority 0; ip daddr @s drop; }}
             }}"
        );
        let seen = in_words(trace(&load(&script("172.30.0.41")), &node(), &pod()));
        assert!(seen.contains("rule 1") && seen.contains("the element ac1e0029 of s"), "{seen}");
        expect(&[(&script("172.30.0.42"), pod(), "untouched")]);
    }
}

netns_test! {
    fn addresses_that_the_kernel_picks_are_refused() {
        for (rule, what) in [
            ("dnat to 10.0.0.1-10.0.0.9", "dnat to a range of addresses"),
            ("meta l4proto tcp dnat to 10.0.0.1:8080-8090", "dnat to a range of ports"),
        ] {
            let script = format!("table ip t {{ chain n {{ type nat hook prerouting priority 0; {rule}; }} }}");
            let seen = in_words(trace(&load(&script), &node(), &pod()));
            assert!(seen.contains(what), "{rule}: {seen}");
        }
    }
}

netns_test! {
    fn an_order_that_nobody_knows_is_refused_if_it_matters() {
        let script = |a: &str, b: &str| format!(
            "table ip a {{ chain c {{ type filter hook prerouting priority 0; {a}; }} }}
             table ip b {{ chain c {{ type filter hook prerouting priority 0; {b}; }} }}"
        );
        let refused = "refused: prerouting: ip b c, ip a c have the same priority, and it matters which one is first";
        expect(&[
            (&script("drop", "reject"), pod(), refused),
            (&script("mark set 1", "mark 1 drop"), pod(), refused),
            (&script("drop", "drop"), pod(), "dropped"),
            (&script("drop", "accept"), pod(), "dropped"),
            (&script("tcp dport 81 drop", "tcp dport 82 reject"), pod(), "untouched"),
            (&script("mark set mark or 1", "mark set mark or 2"), pod(), "untouched"),
        ]);
        let nat = |a: &str, b: &str| format!(
            "table ip a {{ chain n {{ type nat hook prerouting priority -100; {a}; }} }}
             table ip b {{ chain n {{ type nat hook prerouting priority -100; {b}; }} }}"
        );
        expect(&[
            (&nat("tcp dport 80 dnat to 1.2.3.4", "tcp dport 81 dnat to 1.2.3.5"), pod(), "1.2.3.4:80"),
            (&nat("dnat to 1.2.3.4", "dnat to 1.2.3.5"), pod(),
             "refused: prerouting: ip b n, ip a n have the same priority, and it matters which one is first"),
        ]);
    }
}

netns_test! {
    fn rules_below_ip_are_refused() {
        expect(&[
            (
                "table netdev t { chain c { type filter hook ingress device lo priority 0; } }",
                pod(),
                "untouched",
            ),
            (
                "table netdev t { chain c { type filter hook ingress device lo priority 0; ip ttl 1 drop; } }",
                pod(),
                "refused: netdev t c sees packets before their addresses are looked at",
            ),
            ("table bridge t { chain c { type filter hook forward priority 0; drop; } }", pod(), "untouched"),
        ]);
        let ruleset = load("table bridge t { chain c { type filter hook forward priority 0; drop; } }");
        let mut node = node();
        node.interfaces[1].is_bridge = true;
        let seen = in_words(trace(&ruleset, &node, &pod()));
        assert_eq!(seen, "refused: bridge t c sees the packets of the bridge pod0");
    }
}
