//! What rules mean that others write.

use crate::support::{expect, pod, tcp};

/// A table `ip t` with a prerouting filter chain of these rules.
macro_rules! filter {
    ($($rules:literal)*) => {
        concat!("table ip t { chain c { type filter hook prerouting priority 0; ", $($rules, "\n",)* "} }")
    };
}

netns_test! {
    fn comparisons() {
        expect(&[
            (filter!("tcp dport 80 drop"), pod(), "dropped"),
            (filter!("tcp dport 81 drop"), pod(), "untouched"),
            (filter!("udp dport 80 drop"), pod(), "untouched"),
            (filter!("tcp dport 70-80 drop"), pod(), "dropped"),
            (filter!("tcp dport 81-90 drop"), pod(), "untouched"),
            (filter!("tcp dport != 70-80 drop"), pod(), "untouched"),
            (filter!("tcp dport != 81-90 drop"), pod(), "dropped"),
            (filter!("ip saddr 10.0.0.0/24 ip daddr 172.16.0.0/12 drop"), pod(), "dropped"),
            (filter!("ip saddr != 10.0.0.0/12 drop"), pod(), "untouched"),
            (filter!("tcp flags & (syn | ack) == syn drop"), pod(), "dropped"),
            (filter!("tcp flags & (syn | ack) == ack drop"), pod(), "untouched"),
            (filter!("ip protocol tcp ip frag-off & 0x1fff == 0 drop"), pod(), "dropped"),
            (filter!("iifname \"pod*\" drop"), pod(), "dropped"),
            (filter!("iifname { \"eth0\", \"eth1\" } drop"), pod(), "untouched"),
            (filter!("iif lo drop"), tcp("192.168.0.2", "192.168.1.2:80"), "dropped"),
            (filter!("iif lo drop"), tcp("192.168.0.2", "1.2.3.4:80"), "untouched"),
            (filter!("fib daddr type local drop"), tcp("10.0.0.2", "192.168.1.2:80"), "dropped"),
            (filter!("fib daddr type local drop"), pod(), "untouched"),
            (filter!("fib saddr type != unicast drop"), pod(), "untouched"),
            (filter!("meta mark set 0x12 meta mark set meta mark and 0xf0 or 0x3" "meta mark 0x13 drop"), pod(), "dropped"),
            (filter!("ct mark set 7 meta mark set ct mark" "mark 7 drop"), pod(), "dropped"),
        ]);
    }
}

netns_test! {
    fn connections_are_new() {
        expect(&[
            (filter!("ct state new drop"), pod(), "dropped"),
            (filter!("ct state established,related drop"), pod(), "untouched"),
            (filter!("ct state vmap { established : accept, new : drop }"), pod(), "dropped"),
            (filter!("meta l4proto tcp ct direction original ct original ip daddr 172.30.0.41 ct original proto-dst 80 drop"), pod(), "dropped"),
            ("table ip t { chain c { type filter hook prerouting priority raw; ct state invalid drop; } }", pod(), "dropped"),
            (
                "table ip t {
                   chain raw { type filter hook prerouting priority raw; notrack; }
                   chain c { type filter hook prerouting priority 0; ct state untracked accept; drop; }
                   chain nat { type nat hook prerouting priority dstnat; dnat to 1.2.3.4; }
                 }",
                pod(),
                "untouched",
            ),
        ]);
    }
}

netns_test! {
    fn chains_lead_to_chains() {
        let chains = |rule: &str| format!(
            "table ip t {{
               chain last {{ tcp dport 80 return; }}
               chain deep {{ goto last; }}
               chain c {{ type filter hook prerouting priority 0; policy drop; {rule}; }}
             }}"
        );
        expect(&[
            (&chains("jump deep; accept"), pod(), "untouched"),
            // a goto does not come back
            (&chains("goto deep; accept"), pod(), "dropped"),
            (&chains("return; accept"), pod(), "dropped"),
            (&chains("tcp dport vmap { 80 : jump deep, 81 : drop }; accept"), pod(), "untouched"),
            ("table ip t { flags dormant; chain c { type filter hook prerouting priority 0; drop; } }", pod(), "untouched"),
            ("table ip6 t { chain c { type filter hook prerouting priority 0; drop; } }", pod(), "untouched"),
            ("table inet t { chain c { type filter hook forward priority 0; meta nfproto ipv6 drop; reject; } }", pod(),
             "rejected with ICMP unreachable 3"),
            ("table inet t { chain c { type filter hook forward priority 0; reject with tcp reset; } }", pod(),
             "rejected with TCP reset"),
            ("table inet t { chain c { type filter hook forward priority 0; reject with icmpx type admin-prohibited; } }",
             tcp("fd00::2", "[fd01::1]:80"), "rejected with ICMP unreachable 1"),
        ]);
    }
}

netns_test! {
    fn hooks_run_in_order() {
        let two = |first: &str, second: &str| format!(
            "table ip t {{
               chain a {{ type filter hook prerouting priority {first}; mark 0 mark set 1; mark 2 drop; }}
               chain b {{ type filter hook prerouting priority {second}; mark 0 mark set 2; mark 1 accept; }}
             }}"
        );
        expect(&[
            (&two("0", "1"), pod(), "untouched"),
            (&two("1", "0"), pod(), "dropped"),
            // the later first
            (&two("0", "0"), pod(), "dropped"),
            // nat chains are run at their own place, whatever their priority
            (
                "table ip t {
                   chain n { type nat hook prerouting priority 50; dnat to 10.0.0.9; }
                   chain f { type filter hook prerouting priority 0; ip daddr 10.0.0.9 drop; }
                 }",
                pod(),
                "dropped",
            ),
            // the way of a packet to the node itself
            (
                "table ip t {
                   chain o { type filter hook output priority 0; oifname lo mark set 1; }
                   chain q { type filter hook postrouting priority 0; oifname lo mark 1 mark set 2; }
                   chain p { type filter hook prerouting priority 0; iifname lo mark 2 mark set 3; }
                   chain i { type filter hook input priority 0; iif lo mark 3 drop; }
                 }",
                tcp("192.168.0.2", "192.168.1.2:80"),
                "dropped",
            ),
        ]);
    }
}

netns_test! {
    fn sets_and_maps() {
        expect(&[
            (filter!("ip daddr { 172.30.0.41, 1.2.3.4 } drop"), pod(), "dropped"),
            (filter!("ip daddr != { 172.30.0.41, 1.2.3.4 } drop"), pod(), "untouched"),
            (filter!("ip daddr { 172.30.0.0/26, 1.2.3.4 } drop"), pod(), "dropped"),
            (filter!("ip daddr { 172.30.0.42-172.30.0.99 } drop"), pod(), "untouched"),
            (filter!("ip daddr . tcp dport { 172.30.0.0/24 . 80-90 } drop"), pod(), "dropped"),
            (filter!("ip daddr . tcp dport { 172.30.0.0/24 . 81-90 } drop"), pod(), "untouched"),
            (filter!("ip daddr . tcp dport vmap { 172.30.0.41 . 80 : drop }"), pod(), "dropped"),
            (filter!("ip saddr vmap { 1.2.3.4 : accept, * : drop }"), pod(), "dropped"),
            (filter!("meta mark set ip daddr map { 172.30.0.0/24 : 5, 1.2.3.4 : 6 }" "mark 5 drop"), pod(), "dropped"),
            (filter!("numgen random mod 4 vmap { 0 : drop, 1 : accept, 2-3 : continue }"), pod(),
             "3/4 untouched; 1/4 dropped"),
            (
                "table ip t {
                   set seen { type ipv4_addr; flags dynamic; size 2; }
                   chain c { type filter hook prerouting priority 0; ip saddr @seen drop; add @seen { ip saddr };
                             ip saddr @seen mark set 1; mark 1 drop; }
                 }",
                pod(),
                "dropped",
            ),
        ]);
    }
}

netns_test! {
    fn translation() {
        let nat = |hook: &str, rules: &str| format!(
            "table ip t {{ chain n {{ type nat hook {hook} priority 0; {rules}; }}
                          chain x {{ type filter hook postrouting priority 200; ct status snat mark set 1; }} }}"
        );
        expect(&[
            (&nat("prerouting", "tcp dport 80 dnat to 10.0.0.9:8080; dnat to 10.0.0.8"), pod(), "10.0.0.9:8080"),
            (&nat("prerouting", "tcp dport 80 dnat to :8080"), pod(), "172.30.0.41:8080"),
            (&nat("prerouting", "dnat to ip daddr map { 172.30.0.41 : 10.0.0.9 }"), pod(), "10.0.0.9:80"),
            (&nat("prerouting", "dnat to numgen random mod 2 map { 0 : 10.0.0.8, 1 : 10.0.0.9 }"), pod(),
             "1/2 10.0.0.8:80; 1/2 10.0.0.9:80"),
            (&nat("prerouting", "tcp dport 80 redirect to :8080"), pod(), "169.254.1.1:8080"),
            (&nat("output", "redirect"), tcp("192.168.0.2", "1.2.3.4:80"), "127.0.0.1:80"),
            (&nat("postrouting", "masquerade"), pod(), "172.30.0.41:80, masqueraded"),
            (&nat("postrouting", "oifname pod0 masquerade"), pod(), "untouched"),
            (&nat("postrouting", "oifname eth0 iifname pod0 snat to 192.168.1.2"), pod(), "172.30.0.41:80, from 192.168.1.2"),
            (&nat("input", "snat to 1.2.3.4"), tcp("10.0.0.2", "192.168.0.2:80"), "192.168.0.2:80, from 1.2.3.4"),
            // what the node sends itself has its source decided on in postrouting
            (&nat("input", "snat to 1.2.3.4"), tcp("192.168.0.2", "192.168.1.2:80"), "untouched"),
            (&nat("prerouting", "accept; dnat to 10.0.0.9"), pod(), "untouched"),
            (&nat("prerouting", "drop"), pod(), "dropped"),
            ("table inet t { chain n { type nat hook prerouting priority 0; dnat ip6 to fd00::9; dnat ip to 10.0.0.9; } }",
             pod(), "10.0.0.9:80"),
            ("table ip6 t { chain n { type nat hook prerouting priority 0; dnat to fd00::9; } }",
             tcp("fd00::2", "[fd01::1]:80"), "[fd00::9]:80"),
        ]);
    }
}
