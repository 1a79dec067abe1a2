//! Edits of svcmap's tables by somebody else.

/// The Services whose tables are edited.
pub const OBJECTS: [&str; 7] = [
    "service svc ip=172.30.0.41 port=80@3001 vip=5.6.7.8",
    "slice svc L1 R2 R3",
    "service local ip=172.30.0.42 port=80@3002 vip=5.6.7.9 eTP=Local ranges=203.0.113.0/24",
    "slice local L1 R2",
    "service none ip=172.30.0.43 port=80",
    "service sticky ip=172.30.0.44 port=80 affinity=600",
    "slice sticky L1 R2",
];

/// Edits, each one transaction of `nft`, and how an audit names what is wrong then.
pub const DAMAGES: [(&str, &str); 36] = [
    ("flush ruleset", "ns/svc: + cluster IP 172.30.0.41:80/tcp"),
    ("delete table ip svcmap", "ns/svc: + cluster IP 172.30.0.41:80/tcp"),
    ("delete table ip6 svcmap", "there is no table ip6 svcmap"),
    ("delete table ip svcmap\nadd table ip svcmap", "chain dispatch is not there"),
    ("add table ip svcmap { flags dormant; }", "the table is dormant"),
    // elements
    ("delete element ip svcmap services { 172.30.0.41 . tcp . 80 }", "172.30.0.41"),
    (
        "delete element ip svcmap services { 172.30.0.41 . tcp . 80 }\nadd element ip svcmap services { 172.30.0.41 . tcp . 80 : drop }",
        "services { 172.30.0.41 . tcp . 80 : drop }",
    ),
    (
        "add element ip svcmap services { 172.30.0.99 . tcp . 80 comment \"default/ghost:\" : goto pick-3 }",
        "172.30.0.99",
    ),
    (
        "delete element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 0 }",
        "is missing: endpoints { 172.30.0.41 . tcp . 80 . 0",
    ),
    (
        "delete element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 0 }\nadd element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 0 : 10.180.9.9 . 8080 }",
        "10.180.9.9 . 8080",
    ),
    (
        "add element ip svcmap endpoints { 172.30.0.41 . tcp . 80 . 77 : 10.180.9.9 . 8080 }",
        "belongs to no frontend: endpoints { 172.30.0.41 . tcp . 80 . 77",
    ),
    ("delete element ip svcmap nodeports { tcp . 3001 }", "node port IPv4 node port 3001/tcp"),
    ("delete element ip svcmap no-endpoints { 172.30.0.43 . tcp . 80 }", "cluster IP 172.30.0.43:80/tcp"),
    ("delete element ip svcmap short-circuit { 5.6.7.9 . tcp . 80 }", "is missing: short-circuit { 5.6.7.9"),
    ("delete element ip svcmap cluster-ips { 172.30.0.41 }", "ns/svc - external IP 172.30.0.41:80/tcp"),
    ("flush map ip svcmap services", "ns/svc: + cluster IP 172.30.0.41:80/tcp"),
    ("flush map ip svcmap endpoints", "is missing: endpoints"),
    ("flush set ip svcmap hairpin", "is missing: hairpin"),
    ("flush set ip svcmap allowed", "5.6.7.9"),
    ("flush set ip svcmap firewalled", "5.6.7.9"),
    ("add element ip svcmap nodeport-ips { 198.51.100.0/24 }", "nodeport-ips holds other prefixes"),
    // chains and rules
    ("flush chain ip svcmap dispatch", "chain dispatch"),
    ("insert rule ip svcmap dispatch drop", "chain dispatch"),
    ("flush chain ip svcmap nat-postrouting", "chain nat-postrouting"),
    ("insert rule ip svcmap nat-prerouting accept", "chain nat-prerouting"),
    ("flush chain ip svcmap pick-3", "chain pick-3"),
    ("add rule ip svcmap verdicts counter accept", "chain verdicts"),
    ("add chain ip svcmap guard-prerouting { policy drop; }", "chain guard-prerouting"),
    ("add chain ip svcmap nat-prerouting { policy drop; }", "chain nat-prerouting"),
    ("delete chain ip svcmap nat-prerouting", "chain nat-prerouting"),
    (
        "delete chain ip svcmap nat-prerouting\nadd chain ip svcmap nat-prerouting { type nat hook prerouting priority 100; }",
        "chain nat-prerouting",
    ),
    (
        "add chain ip svcmap mine { type filter hook prerouting priority -150; policy drop; }",
        "chain mine is none of svcmap's",
    ),
    (
        "add chain ip svcmap mine\nadd rule ip svcmap mine drop\ninsert rule ip svcmap dispatch jump mine",
        "chain mine is none of svcmap's",
    ),
    // maps
    (
        "add chain ip svcmap mine\nadd map ip svcmap vm { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump mine }; }",
        "set vm is none of svcmap's",
    ),
    (
        "add set ip svcmap mine { type ipv4_addr; elements = { 10.0.0.2 }; }\ninsert rule ip svcmap dispatch ip saddr @mine drop",
        "set mine is none of svcmap's",
    ),
    (
        "delete table ip svcmap\nadd table ip svcmap\nadd map ip svcmap services { type ipv4_addr . inet_service : verdict; }",
        "ns/svc: + cluster IP 172.30.0.41:80/tcp",
    ),
];
