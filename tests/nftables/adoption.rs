//! Restarts, damage, and other programs' tables.

use std::collections::BTreeSet;
use std::sync::Barrier;

use super::common::cases::{NodeSettings, Stack};
use super::common::damages::OBJECTS;
use super::common::world::World;
use super::support::{apply, assert_same, config, listing, nft, plan, rich_cluster, sorted_listing};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::differences::{self, Difference};
use svcmap::nftables::names::AffinityId;
use svcmap::nftables::program::{Programmer, Rest};
use svcmap::nftables::state::State;
use svcmap::objects::Protocol;
use svcmap::plan::{PlanChange, PortPlan};
use svcmap::source::generate::{self, Options};

netns_test! {
    fn a_restart_sends_nothing() {
        let whole = plan(rich_cluster(60), config());
        apply(whole.clone());
        let mut restarted = Programmer::open(CodecKind::Native).unwrap();
        let applied = restarted.replace(whole.0, whole.1).unwrap();
        assert_eq!(applied.bytes, 0, "{applied:?}");
        assert_eq!(restarted.collect().unwrap().bytes, 0);
    }
}

netns_test! {
    fn a_restart_with_other_objects_leads_to_what_a_fresh_start_makes() {
        for (before, after) in [(60, 40), (10, 60), (60, 0), (0, 20)] {
            nft(&["flush", "ruleset"], "");
            apply(plan(rich_cluster(before), config()));
            let whole = plan(rich_cluster(after), config());
            apply(whole.clone());
            let adopted = sorted_listing();
            nft(&["flush", "ruleset"], "");
            apply(whole);
            assert_same(&adopted, &sorted_listing(), &format!("{before} Services, then {after}"));
        }
    }
}

netns_test! {
    fn damage_is_repaired() {
        let whole = plan(rich_cluster(30), config());
        apply(whole.clone());
        let intact = sorted_listing();
        let element = |map: &str| {
            let text = nft(&["list", "map", "ip", "svcmap", map], "");
            let line = text.lines().find(|line| line.contains("elements = {")).unwrap_or_else(|| panic!("{map}: {text}"));
            line.split_once("{ ").unwrap().1.split(" comment").next().unwrap().split(" :").next().unwrap().to_string()
        };
        let [service, endpoint, no_endpoints] = ["services", "endpoints", "no-endpoints"].map(element);
        let damages = [
            format!("delete element ip svcmap services {{ {service} }}"),
            format!("delete element ip svcmap endpoints {{ {endpoint} }}"),
            format!("delete element ip svcmap endpoints {{ {endpoint} }}; add element ip svcmap endpoints {{ {endpoint} : 9.9.9.9 . 9 }}"),
            format!("delete element ip svcmap no-endpoints {{ {no_endpoints} }}; add element ip svcmap no-endpoints {{ {no_endpoints} : drop }}"),
            "add element ip svcmap endpoints { 1.2.3.4 . tcp . 5 . 6 : 7.8.9.10 . 11 }".into(),
            "add element ip svcmap services { 1.2.3.4 . tcp . 5 : goto refuse }".into(),
            "add element ip svcmap services { 1.2.3.4 . tcp . 5 comment \"no/such:service\" : goto refuse }".into(),
            "add element ip svcmap services { 1.2.3.4 . icmp . 5 : accept }".into(),
            "flush map ip svcmap endpoints".into(),
            "flush map ip6 svcmap services".into(),
            "flush set ip svcmap hairpin".into(),
            "flush set ip svcmap cluster-ips".into(),
            "flush set ip6 svcmap pod-cidrs".into(),
            "add element ip svcmap pod-cidrs { 172.16.0.0/12 }".into(),
            "add element ip svcmap nodeport-ips { 172.16.0.1-172.16.0.9 }".into(),
            "flush chain ip svcmap dispatch".into(),
            "flush chain ip svcmap refuse".into(),
            "add rule ip svcmap nat-postrouting counter".into(),
            "insert rule ip svcmap verdicts accept".into(),
            "flush chain ip svcmap pick-3".into(),
            "add chain ip svcmap foreign".into(),
            "add set ip svcmap foreign { type ipv4_addr; }".into(),
            "add set ip svcmap foreign { type ipv4_addr; }; add rule ip svcmap dispatch ip saddr @foreign drop".into(),
            "add rule ip svcmap dispatch ip saddr { 192.0.2.1, 192.0.2.7 } drop".into(),
            "add chain ip svcmap foreign; add rule ip svcmap dispatch jump foreign; add chain ip svcmap other; add rule ip svcmap foreign goto other".into(),
            "add chain ip svcmap foreign; add element ip svcmap services { 1.2.3.4 . tcp . 5 : goto foreign }".into(),
            "add chain ip svcmap foreign { type filter hook prerouting priority -300; policy drop; }".into(),
            "delete chain ip svcmap nat-postrouting".into(),
            "delete chain ip svcmap nat-postrouting; add chain ip svcmap nat-postrouting { type nat hook postrouting priority 300; }".into(),
            "delete chain ip svcmap nat-postrouting; add chain ip svcmap nat-postrouting".into(),
            "delete table ip svcmap; add table ip svcmap; add map ip svcmap services { type ipv4_addr . inet_service : verdict; }".into(),
            "delete table ip svcmap".into(),
            "delete table ip6 svcmap".into(),
            "delete table ip svcmap; add table ip svcmap".into(),
            "delete table ip svcmap; add table ip svcmap; add chain ip svcmap services { type filter hook input priority 0; }".into(),
            "add table ip svcmap { flags dormant; }".into(),
            "add chain ip svcmap guard-prerouting { policy drop; }".into(),
            "add chain ip svcmap nat-output { policy drop; }".into(),
            "add chain ip svcmap nat-prerouting { policy drop; }".into(),
            "add chain ip svcmap nat-postrouting { policy drop; }".into(),
            "add chain ip svcmap filter-forward { policy drop; }".into(),
            "add table ip svcmap { flags dormant; }; delete chain ip svcmap filter-output".into(),
            "add rule ip svcmap dispatch ip saddr 192.0.2.1 jump { counter; drop; }".into(),
            "insert rule ip svcmap filter-input goto { accept; }".into(),
            "add chain ip svcmap foreign; add rule ip svcmap foreign jump { counter; drop; }".into(),
            // names that are nearly svcmap's
            "add chain ip svcmap pick-01; add chain ip svcmap cluster-03; add chain ip svcmap local-00".into(),
            "add chain ip svcmap pick-0; add chain ip svcmap nodeport-pick-local-0; add chain ip svcmap external-0".into(),
            "add chain ip svcmap pick-local-4294967295".into(),
            "add chain ip svcmap q; add map ip svcmap vm { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump q }; }".into(),
        ];
        for damage in damages {
            // the kernel lets no base chains come or go while a table is switched
            for part in damage.split_inclusive("dormant; }; ") {
                let script = part.trim_end_matches("; ").replace("; delete", "\ndelete").replace("; add", "\nadd");
                nft(&["-f", "-"], &script);
            }
            let mut programmer = Programmer::open(CodecKind::Native).unwrap();
            let applied = programmer.replace(whole.0.clone(), whole.1.clone()).unwrap_or_else(|e| panic!("{damage}: {e}"));
            assert!(applied.bytes > 0, "{damage}: was not noticed");
            // a table is switched on when it is as it should be
            let at_once = if damage.contains("dormant; }; ") { 2 } else { 1 };
            assert_eq!(applied.transactions, at_once, "{damage}: was not repaired at once");
            programmer.collect().unwrap();
            assert_same(&intact, &sorted_listing(), &damage);
            let again = programmer.replace(whole.0.clone(), whole.1.clone()).unwrap();
            assert_eq!(again.bytes, 0, "{damage}: the repair left something to do");
        }
    }
}

netns_test! {
    /// Nobody else gets to their rules while the kernel deletes elements by the hundred thousand.
    fn what_is_very_much_to_put_right_is_so_in_several_transactions() {
        let options = Options { services: 5_000, endpoints: 1, ..Options::default() };
        let whole = plan(generate::generate(&options).unwrap(), config());
        let mut programmer = apply(whole.clone());
        let intact = sorted_listing();
        for map in ["services", "endpoints"] {
            nft(&["flush", "map", "ip", "svcmap", map], "");
            let applied = programmer.replace(whole.0.clone(), whole.1.clone()).unwrap();
            let elements = applied.added + applied.deleted;
            assert!(elements >= 5_000 && applied.transactions >= elements.div_ceil(4_000), "{map}: {applied:?}");
            programmer.collect().unwrap();
            assert_same(&intact, &sorted_listing(), map);
        }
    }
}

netns_test! {
    /// Of chains that are emptied together, none may be taken for right because another one is not.
    fn chains_that_are_emptied_together_are_filled() {
        let whole = plan(rich_cluster(6), config());
        apply(whole.clone());
        let intact = sorted_listing();
        let mut table = "";
        let mut chains: Vec<String> = Vec::new();
        for line in intact.lines() {
            table = line.strip_prefix("table ").map_or(table, |line| line.trim_end_matches(" {"));
            let chain = line.trim().strip_prefix("chain ").map(|line| line.trim_end_matches(" {"));
            chains.extend(chain.map(|chain| format!("{table} {chain}")));
        }
        let sticky: Vec<&String> = chains.iter().filter(|name| name.contains(" sticky-")).collect();
        let id = sticky[0].rsplit('-').next().unwrap();
        let of_one: Vec<&String> = sticky.iter().filter(|name| name.ends_with(id)).copied().collect();
        assert!(of_one.len() > 4, "{of_one:?}");
        let pairs = of_one.iter().flat_map(|a| of_one.iter().map(move |b| vec![*a, *b])).filter(|pair| pair[0] < pair[1]);
        let all_but_one = chains.iter().map(|left| chains.iter().filter(|name| *name != left).collect());
        for emptied in pairs.chain([chains.iter().collect(), of_one.clone(), sticky.clone()]).chain(all_but_one) {
            let flushes: Vec<String> = emptied.iter().map(|chain| format!("flush chain {chain}\n")).collect();
            nft(&["-f", "-"], &flushes.concat());
            let mut programmer = Programmer::open(CodecKind::Native).unwrap();
            let applied = programmer.replace(whole.0.clone(), whole.1.clone()).unwrap();
            assert_eq!(applied.transactions, 1, "{emptied:?}");
            programmer.collect().unwrap();
            assert_same(&intact, &sorted_listing(), &format!("{emptied:?}"));
        }
    }
}

netns_test! {
    /// Both find nothing, and rules are appended: the one that comes too late must not append them again.
    fn two_that_begin_at_once_make_the_tables_once() {
        let whole = plan(rich_cluster(3), config());
        apply(whole.clone());
        let intact = sorted_listing();
        let start = Barrier::new(2);
        let begin = || {
            let mut programmer = Programmer::open(CodecKind::Native).unwrap();
            start.wait();
            while programmer.replace(whole.0.clone(), whole.1.clone()).is_err() {}
        };
        for _ in 0..30 {
            nft(&["flush", "ruleset"], "");
            std::thread::scope(|scope| {
                scope.spawn(begin);
                begin();
            });
            assert_same(&intact, &sorted_listing(), "made by two");
        }
    }
}

netns_test! {
    /// A cold start that ends before the rules that lead to the verdicts: the next one puts them in.
    fn a_cold_start_that_was_broken_off_is_finished() {
        let whole = plan(rich_cluster(3000), config());
        apply(whole.clone());
        let intact = sorted_listing();
        for chain in ["nat-prerouting", "nat-output", "filter-input", "filter-forward", "filter-output"] {
            nft(&["flush", "chain", "ip", "svcmap", chain], "");
            nft(&["flush", "chain", "ip6", "svcmap", chain], "");
        }
        nft(&["flush", "map", "ip6", "svcmap", "services"], "");
        let applied = Programmer::open(CodecKind::Native).unwrap().replace(whole.0, whole.1).unwrap();
        assert!(applied.bytes > 0);
        assert_same(&intact, &sorted_listing(), "begun, and finished by another");
    }
}

netns_test! {
    /// The making of a table with large maps is cut behind them: wherever it ends, the next start finishes it.
    fn a_table_that_was_made_by_half_is_finished() {
        let mut whole = plan(rich_cluster(3), config());
        // their endpoints get other numbers where there is a map already: nobody knows which clients it has
        whole.1.retain(|port| port.affinity.is_none());
        let mut programmer = apply(whole.clone());
        let intact = sorted_listing();
        let change = PlanChange { node: Some(whole.0.clone()), changed: whole.1.clone(), removed: Vec::new() };
        let ops = State::default().advance(change).ops;
        assert!(ops.len() > 100, "{}", ops.len());
        for made in 1..ops.len() {
            programmer.cleanup().unwrap();
            Connection::open(CodecKind::Native).unwrap().commit(&ops[..made]).unwrap();
            programmer.replace(whole.0.clone(), whole.1.clone()).unwrap();
            assert_same(&intact, &sorted_listing(), &format!("{made} operations, the last one {:?}", ops[made - 1]));
        }
    }
}

/// What a table looked like while clients' addresses and ports were learned behind DNAT.
const FORMER: &str = "
    table ip svcmap {
        comment \"svcmap: Kubernetes Services as maps\"
        map services { typeof ip daddr . meta l4proto . th dport : verdict; size 3072; }
        map unpinned { typeof ip daddr . meta l4proto . th dport : verdict; size 3072; }
        map learn { typeof ip daddr . meta l4proto . th dport : verdict; size 3072; }
        map affinity-cluster-0123456789abcdef {
            typeof ip saddr : ip daddr; flags dynamic,timeout; elements = { 192.0.2.7 timeout 1h : 10.128.0.10 }
        }
        map affinity-cluster-port-0123456789abcdef {
            typeof ip saddr : th dport; flags dynamic,timeout; elements = { 192.0.2.7 timeout 1h : 8080 }
        }
        chain sticky-pick-0123456789abcdef {
            meta l4proto tcp dnat to ip saddr map @affinity-cluster-0123456789abcdef:ip saddr map @affinity-cluster-port-0123456789abcdef
            ip daddr . meta l4proto . th dport vmap @unpinned
        }
        chain nat-prerouting { type nat hook prerouting priority dstnat; ip daddr . meta l4proto . th dport vmap @services; }
    }
    add element ip svcmap services { 10.96.0.1 . tcp . 80 comment \"default/web\" : goto sticky-pick-0123456789abcdef }
";

netns_test! {
    fn a_table_of_a_former_layout_is_replaced_in_one_transaction() {
        let whole = plan(rich_cluster(12), config());
        apply(whole.clone());
        let intact = sorted_listing();
        nft(&["flush", "ruleset"], "");
        nft(&["-f", "-"], FORMER);
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        let applied = programmer.replace(whole.0.clone(), whole.1.clone()).unwrap();
        assert_eq!(applied.transactions, 1, "nobody must find neither: {applied:?}");
        assert_same(&intact, &sorted_listing(), "in place of a former layout, and made anew");
        assert_eq!(programmer.replace(whole.0, whole.1).unwrap().bytes, 0);
    }
}

netns_test! {
    fn differences_are_told_in_words() {
        let whole = plan(rich_cluster(3), config());
        let mut programmer = apply(whole.clone());
        let cidr = whole.0.service_cidrs.iter().find(|cidr| cidr.addr().is_ipv4()).expect("the cluster has a range");
        let listed = nft(&["list", "set", "ip", "svcmap", "pod-cidrs"], "");
        let pods = listed.split_once("elements = { ").unwrap().1.split_once(" }").unwrap().0;
        for (damage, expected) in [
            ("add table ip svcmap { flags dormant; }", vec!["~ ip table svcmap: is dormant".to_string()]),
            (
                "flush set ip svcmap service-cidrs",
                vec![format!("~ ip set service-cidrs: other prefixes, wanted {{ {cidr} }}")],
            ),
            (
                "add element ip svcmap pod-cidrs { 172.16.0.0/12 }",
                vec![format!("~ ip set pod-cidrs: other prefixes, wanted {{ {pods} }}")],
            ),
            ("add chain ip svcmap foo\nadd rule ip svcmap foo drop", vec!["- ip chain foo".into()]),
            (
                "delete chain ip svcmap nat-postrouting\n\
                 add chain ip svcmap nat-postrouting { type nat hook postrouting priority 300; }",
                vec!["~ ip chain nat-postrouting: is hooked in another way".into()],
            ),
            ("flush chain ip svcmap dispatch", vec!["~ ip chain dispatch: other rules".into()]),
        ] {
            nft(&["-f", "-"], damage);
            let preview = programmer.preview(whole.0.clone(), whole.1.clone()).unwrap();
            let told: Vec<String> = differences::of(&preview, programmer.state())
                .iter()
                .map(|found| format!("{} {} {}", found.sign, found.family, found.what))
                .collect();
            assert_eq!(told, expected, "{damage}");
            programmer = apply(whole.clone());
        }
    }
}

netns_test! {
    /// How many slots are drawn from the rules say, and not what is in them: nothing else differs.
    fn a_slot_that_is_lost_or_foreign_is_one_difference() {
        let world = World::with(&OBJECTS, Stack::V4, NodeSettings::default().config(Stack::V4));
        let whole = (world.state.node().clone(), world.state.ports().cloned().collect::<Vec<_>>());
        let of = |name: &str| whole.1.iter().find(|port| port.id.name.as_str() == name).unwrap_or_else(|| panic!("{name}"));
        let endpoint = |name: &str, slot: usize| format!("{} . {}", of(name).cluster[slot].ip, of(name).cluster[slot].port);
        let sticky = AffinityId::new(&of("ns/sticky").id.name, Protocol::Tcp);
        apply(whole.clone());
        let intact = sorted_listing();
        let second = endpoint("ns/svc", 1);
        let key = "172.30.0.41 . tcp . 80";
        let frontends =
            [("endpoints", key), ("endpoints", "5.6.7.8 . tcp . 80"), ("nodeport-endpoints", "tcp . 3001")];
        let delete = |(map, key): (&str, &str), slot| format!("delete element ip svcmap {map} {{ {key} . {slot} }}\n");
        let is_back = |(map, key): (&str, &str)| format!("+ ip {map} {{ {key} . 1 : {second} }}");
        let numbered = nft(&["list", "map", "ip", "svcmap", &format!("slots-cluster-{sticky}")], "");
        let number = numbered.split("1 : ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap().to_owned();
        for (damage, mut expected) in [
            (delete(frontends[0], 1), vec![is_back(frontends[0])]),
            (frontends.map(|frontend| delete(frontend, 1)).concat(), frontends.map(is_back).to_vec()),
            (
                delete(frontends[0], 0),
                vec![format!("+ ip endpoints {{ {key} . 0 : {} }}", endpoint("ns/svc", 0))],
            ),
            (
                format!("add element ip svcmap endpoints {{ {key} . 3 : 10.9.9.9 . 9 }}"),
                vec![format!("- ip endpoints {{ {key} . 3 : 10.9.9.9 . 9 }}")],
            ),
            (
                format!("delete element ip svcmap slots-cluster-{sticky} {{ 1 }}"),
                vec![format!("+ ip slots-cluster-{sticky} {{ 1 : {number} }}")],
            ),
            (
                format!("add element ip svcmap slots-cluster-{sticky} {{ 2 : 7300:1 }}"),
                vec![format!("- ip slots-cluster-{sticky} {{ 2 : 7300:1 }}")],
            ),
        ] {
            nft(&["-f", "-"], &damage);
            let mut programmer = Programmer::open(CodecKind::Native).unwrap();
            let preview = programmer.preview(whole.0.clone(), whole.1.clone()).unwrap();
            let differences = differences::of(&preview, programmer.state());
            let mut told: Vec<String> =
                differences.iter().map(|found| format!("{} {} {}", found.sign, found.family, found.what)).collect();
            told.sort();
            expected.sort();
            assert_eq!(told, expected, "{damage}");
            apply(whole.clone());
            assert_same(&intact, &sorted_listing(), &damage);
        }
        // what a Service that is kept has lost nobody knows: the others are drawn alike
        nft(&["-f", "-"], &frontends.map(|frontend| delete(frontend, 1)).concat());
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        programmer.set_rest(Rest::Keep);
        programmer.replace(whole.0.clone(), Vec::new()).unwrap();
        let port = programmer.state().ports().find(|port| port.id.name.as_str() == "ns/svc").unwrap();
        assert_eq!(port.cluster.len(), 2);
        assert!(sorted_listing().contains(&format!("{key} comment \"ns/svc\" : goto cluster-2")), "{}", sorted_listing());
    }
}

netns_test! {
    fn larger_maps_are_one_difference() {
        let many = plan(rich_cluster(4000), config());
        let few = (many.0.clone(), many.1[..40].to_vec());
        let mut programmer = apply(few.clone());
        let preview = programmer.preview(many.0, many.1).unwrap();
        let before: BTreeSet<_> = few.1.iter().map(|port| port.id.name.to_string()).collect();
        let differences = differences::of(&preview, programmer.state());
        let told = "~ table svcmap: larger maps";
        let of_old = |d: &&Difference| d.service.as_ref().is_some_and(|name| before.contains(name));
        assert_eq!(differences.iter().filter(|d| format!("{} {}", d.sign, d.what) == told).count(), 2);
        assert_eq!(differences.iter().filter(of_old).collect::<Vec<_>>(), Vec::<&Difference>::new());
        let kinds = ["map ", "set ", "table svcmap is", "pod-cidrs", "chain dispatch"];
        let needless = differences.iter().filter(|d| d.service.is_none() && kinds.iter().any(|k| d.what.starts_with(k)));
        assert_eq!(needless.collect::<Vec<_>>(), Vec::<&Difference>::new());
    }
}

netns_test! {
    fn other_tables_are_left_alone() {
        let foreign = "
            table inet firewalld {
                set s { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 1-100 }; }
                chain services { type filter hook input priority 10; policy accept; ip saddr . tcp dport @s counter; }
            }
            table ip nat {
                chain DOCKER { }
                chain PREROUTING { type nat hook prerouting priority dstnat; jump DOCKER; }
            }
            table ip6 svcmap2 { map services { type ipv6_addr : verdict; }; }
            table bridge svcmap { chain services { }; }
        ";
        nft(&["-f", "-"], foreign);
        let before = listing();
        let mut programmer = apply(plan(rich_cluster(10), config()));
        let removed = programmer.cleanup().unwrap();
        assert_eq!(removed.len(), 2);
        assert_same(&before, &listing(), "before svcmap came, and after it went");
        assert!(programmer.cleanup().unwrap().is_empty(), "there was nothing to remove any more");
    }
}

netns_test! {
    fn what_the_input_may_only_lack_for_now_stays() {
        let known = plan(rich_cluster(20), config());
        apply(known.clone());
        let all = sorted_listing();
        // half of the Services can be read
        let half: Vec<_> = known.1.iter().step_by(2).cloned().collect();
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        programmer.set_rest(Rest::Keep);
        let applied = programmer.replace(known.0.clone(), half.clone()).unwrap();
        assert_eq!(applied.bytes, 0, "{applied:?}");
        assert_same(&all, &sorted_listing(), "before and after");

        // and so does what serves a Service of which no endpoint can be read
        let mut bare = half.clone();
        let empty = |port: &mut PortPlan| (port.cluster, port.local) = (Vec::new(), Vec::new());
        bare.iter_mut().for_each(empty);
        let applied = programmer.replace(known.0.clone(), bare).unwrap();
        assert_eq!(applied.bytes, 0, "{applied:?}");

        // one of the others has lost its frontends to a Service that can be read
        let mut heir = half.clone();
        let loser = known.1[5].clone();
        let mut winner = half[0].clone();
        winner.frontends = loser.frontends.clone();
        winner.id.family = loser.id.family;
        winner.protocol = loser.protocol;
        heir[0] = winner;
        programmer.replace(known.0.clone(), heir.clone()).unwrap();
        programmer.collect().unwrap();
        let ids = |programmer: &Programmer| programmer.state().ports().map(|port| port.id.clone()).collect::<Vec<_>>();
        assert!(!ids(&programmer).contains(&loser.id));
        assert!(ids(&programmer).contains(&known.1[7].id));

        // now the input is complete
        programmer.set_rest(Rest::Delete);
        programmer.replace(known.0.clone(), half.clone()).unwrap();
        programmer.collect().unwrap();
        let left = sorted_listing();
        nft(&["flush", "ruleset"], "");
        apply((known.0, half));
        assert_same(&left, &sorted_listing(), "the rest removed, and made anew");
    }
}

netns_test! {
    fn a_small_difference_to_a_large_plan_is_one_transaction() {
        let cluster = |endpoints| generate::generate(&Options { services: 1000, endpoints, ..Options::default() }).unwrap();
        let before = plan(cluster(10), config());
        apply(before.clone());
        let mut wanted = before.clone();
        wanted.1.iter_mut().step_by(100).for_each(|port| port.cluster.truncate(9));
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        let applied = programmer.replace(wanted.0.clone(), wanted.1.clone()).unwrap();
        assert_eq!((applied.transactions, applied.added), (1, 10), "{applied:?}");
        programmer.collect().unwrap();
        let left = sorted_listing();
        nft(&["flush", "ruleset"], "");
        apply(wanted);
        assert_same(&left, &sorted_listing(), "changed, and made anew");
    }
}
