//! What is wrong with a ruleset is found and named.

use std::path::Path;

use svcmap::audit::findings::findings;
use svcmap::audit::{live, readers};
use svcmap::explain::Surroundings;
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::program::Programmer;
use svcmap::trace::Ruleset;

use crate::common::cases::{NodeSettings, Stack};
use crate::common::damages::{DAMAGES, OBJECTS};
use crate::common::world::World;

use crate::peers::NFTABLES;
use crate::{RULESETS, everything, of_manifests, program, sample, script, wanted};

#[test]
fn damage_of_svcmaps_own_table_is_found() {
    let world = of_manifests(&Path::new(RULESETS).join("services.yaml"));
    let whole = script(&world);
    let edits = [
        ("10.96.1.5 . tcp . 80 . 1 : 10.244.2.2 . 8080,", "", "default/web:http: ip svcmap: is missing: endpoints"),
        (
            "10.96.1.5 . tcp . 80 . 1 : 10.244.2.2",
            "10.96.1.5 . tcp . 80 . 1 : 10.244.2.77",
            "- endpoint 10.244.2.77:8080",
        ),
        (
            "type nat hook prerouting priority dstnat;",
            "type nat hook prerouting priority filter;",
            "chain nat-prerouting is not hooked in",
        ),
        ("\tchain refuse {\n\t\treject\n", "\tchain refuse {\n", "chain refuse has no rules"),
        (
            "10.96.1.5 . tcp . 80 comment \"default/web:http\" : goto",
            "10.96.1.5 . tcp . 99 comment \"default/web:http\" : goto",
            "+ cluster IP 10.96.1.5:80/tcp",
        ),
        (
            "\tmap nodeports {",
            "\tset strange {\n\t\ttype mark\n\t}\n\n\tmap nodeports {",
            "set strange is none of svcmap's",
        ),
    ];
    assert_eq!(everything(&readers::read(&whole).unwrap(), &wanted(&world)), "");
    for (from, to, expected) in edits {
        assert!(whole.contains(from), "there is no {from:?} in\n{whole}");
        let reading = readers::read(&whole.replacen(from, to, 1)).unwrap();
        let said = everything(&reading, &wanted(&world));
        assert!(said.contains(expected), "{from:?} -> {to:?}: expected {expected:?}, said\n{said}");
    }
}

/// How many slots are drawn from the rules say: what was lost and what stands behind is named alone, and endpoints have the
/// shares that they really get.
#[test]
fn lost_and_foreign_slots_are_named_alone() {
    let world = of_manifests(&Path::new(RULESETS).join("services.yaml"));
    let whole = script(&world);
    let frontends = ["10.96.1.5 . tcp . 80", "203.0.113.5 . tcp . 80", "tcp . 30080"];
    let lost = |whole: &str, frontend: &str, slot: usize| {
        let at =
            whole.find(&format!("{frontend} . {slot} : 10.")).unwrap_or_else(|| panic!("{frontend} . {slot}: {whole}"));
        let end = at + whole[at..].find([',', '}']).unwrap();
        format!("{}{}", &whole[..at], whole[end..].trim_start_matches(','))
    };
    let said = |text: &str| {
        let reading = readers::read(text).unwrap();
        let web = reading.ports.values().find(|port| port.id.name.as_str() == "default/web:http").unwrap();
        let shares = web.cluster.iter().map(|one| format!("{} {:.3}", one.ip, one.share)).collect::<Vec<_>>();
        (everything(&reading, &wanted(&world)), shares.join(", "))
    };
    let missing = |frontend: &str, what: &str| {
        let map = if frontend.starts_with("tcp") { "nodeport-endpoints" } else { "endpoints" };
        format!("Missing: missing: default/web:http: ip svcmap: is missing: {map} {{ {frontend} . 1{what} }}\n")
    };
    let uneven = "Uneven: uneven: default/web:http: 10.244.1.2:8080 66.7 %, but 10.244.2.3:8080 33.3 %";
    let told = "default/web:http + endpoint 10.244.2.2:8080\n";
    let shares = "10.244.1.2 0.667, 10.244.2.3 0.333";
    // another frontend still says which one it was
    let one = missing(frontends[1], " : 10.244.2.2 . 8080");
    assert_eq!(said(&lost(&whole, frontends[1], 1)), (format!("{told}{one}{uneven}"), shares.into()));
    let all = frontends.iter().fold(whole.clone(), |text, frontend| lost(&text, frontend, 1));
    let of_all = frontends.map(|frontend| missing(frontend, "")).concat();
    assert_eq!(said(&all), (format!("{told}{of_all}{uneven}"), shares.into()));
    let strange = "10.96.1.5 . tcp . 80 . 3 : 10.9.9.9 . 9";
    let foreign = whole.replacen("10.96.1.5 . tcp . 80 . 1 :", &format!("{strange}, 10.96.1.5 . tcp . 80 . 1 :"), 1);
    let (found, shares) = said(&foreign);
    assert_eq!(found, format!("Stale: stale: ip svcmap: belongs to no frontend: endpoints {{ {strange} }}"));
    assert_eq!(shares, "10.244.1.2 0.333, 10.244.2.2 0.333, 10.244.2.3 0.333");
}

/// Rules of others that end or divert connections are found, whichever table they are in; and two proxies are one too many.
#[test]
fn what_others_do_to_services_is_found() {
    let own = script(&of_manifests(&Path::new(RULESETS).join("services.yaml")));
    let firewall = "table inet host {\n\tchain in {\n\t\ttype filter hook forward priority filter + 10; policy accept;\n\t\tip saddr 192.0.2.0/24 drop\n\t}\n}\n";
    let second = "table ip other {\n\tchain nat {\n\t\ttype nat hook prerouting priority dstnat - 5; policy accept;\n\t\tip daddr 203.0.113.5 tcp dport 80 dnat to 10.9.9.9:80\n\t}\n}\n";
    let mut surroundings = Surroundings::with_addresses(&["192.168.0.2".parse().unwrap()]);
    surroundings.pods = vec!["10.128.0.0/14".parse().unwrap()];
    let said = |text: String| {
        let found = findings(&readers::read(&text).unwrap(), &surroundings);
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(said(own.clone()), "");
    let found = said(format!("{own}{firewall}"));
    assert!(found.contains("diverted: default/web:http: inet host in, rule 1: drop"), "{found}");
    let found = said(format!("{own}{second}"));
    assert!(found.contains("diverted: default/web:http: ip other nat, rule 1: to 10.9.9.9:80"), "{found}");
    let found = said(format!("{own}{}", sample(NFTABLES[2])));
    assert!(found.contains("leftover: there are rules of svcmap and of kube-proxy (nftables)"), "{found}");
}

/// Where it is not known what a rule of others does, that is said once, and what stands behind it is found all the same.
#[test]
fn what_others_do_is_found_also_where_it_is_not_understood() {
    let own = script(&of_manifests(&Path::new(RULESETS).join("services.yaml")));
    let mut surroundings = Surroundings::with_addresses(&["192.168.0.2".parse().unwrap()]);
    surroundings.pods = vec!["10.128.0.0/14".parse().unwrap()];
    let behind = "chain behind { type filter hook forward priority filter + 10; ip saddr 192.0.2.0/24 drop\n }";
    let drops = "diverted: default/web:http: inet host behind, rule 1: drop (perhaps)";
    let raw = "type filter hook prerouting priority raw; policy accept;";
    let stopped = "connections cannot be followed beyond";
    let cases = [
        (
            format!("inet host {{ chain in {{ {raw} ip daddr set 10.9.9.9\n }} {behind} }}"),
            vec!["beyond inet host in, rule 1: ", drops],
        ),
        (
            format!("inet host {{ chain in {{ {raw} meta l4proto tcp tproxy to :50080\n }} {behind} }}"),
            vec![stopped, drops],
        ),
        (
            format!("inet host {{ chain in {{ {raw} tcp dport 80 synproxy mss 1460 wscale 7\n }} {behind} }}"),
            vec![stopped, drops],
        ),
        (
            "ip host { chain in { type nat hook prerouting priority dstnat - 5; tcp dport 80 redirect to :8080\n } }"
                .into(),
            vec!["beyond ip host in, rule 1: redirect"],
        ),
        (
            format!("ip host {{ chain in {{ {raw} ip daddr 10.96.0.0/12 notrack\n }} }}"),
            vec!["ip host in, rule 1: untracked, for example"],
        ),
        (
            "ip host { chain in { type nat hook prerouting priority dstnat; ip daddr 10.96.1.5 dnat to 10.9.9.9\n } }"
                .into(),
            vec!["have the same priority, and it matters which one is first"],
        ),
        (
            format!(
                "netdev early {{ chain in {{ type filter hook ingress device \"eth0\" priority 0; ip saddr 192.0.2.0/24 drop\n }} }}\ntable inet host {{ {behind} }}"
            ),
            vec!["beyond netdev early in sees packets before", drops],
        ),
    ];
    for (table, expected) in cases {
        let found = findings(&readers::read(&format!("{own}table {table}\n")).unwrap(), &surroundings);
        let said = found.iter().map(|one| format!("{one}\n")).collect::<String>();
        for expected in expected {
            assert_eq!(said.matches(expected).count(), 1, "{table}: {expected:?} in\n{said}");
        }
        assert!(!said.contains("astray"), "{said}");
    }
}

/// Of tables that lead every connection to a Service on, nothing is said; of those that may stop some, no more than that.
#[test]
fn harmless_tables_of_others_are_no_findings() {
    let own = script(&of_manifests(&Path::new(RULESETS).join("services.yaml")));
    let kube_proxy = sample(NFTABLES[2]);
    let mut surroundings = Surroundings::with_addresses(&["192.168.0.2".parse().unwrap()]);
    let foreign = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/foreign").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    for (text, pods) in [(&own, "10.128.0.0/14"), (&kube_proxy, "10.244.0.0/16")] {
        surroundings.pods = vec![pods.parse().unwrap()];
        let said = |name: &str| {
            let found = findings(&readers::read(&format!("{text}{}", foreign(name))).unwrap(), &surroundings);
            found.iter().map(|one| format!("{one}\n")).collect::<String>()
        };
        for name in ["calico.nft", "firewalld.nft", "marks.nft"] {
            assert_eq!(said(name), "", "{name}");
        }
        let docker = said("docker.nft");
        assert!(!docker.contains("DOCKER-FORWARD"), "{docker}");
        assert!(docker.lines().all(|line| line.contains("(perhaps)") || line.contains("same priority")), "{docker}");
    }
}

netns_test! {
    fn every_edit_that_is_healed_is_named_by_an_audit() {
        let world = World::with(&OBJECTS, Stack::Dual, NodeSettings::default().config(Stack::Dual));
        let (node, wanted) = (world.state.node(), wanted(&world));
        let load = || {
            let ports = world.state.ports().cloned().collect();
            Programmer::open(CodecKind::Native).unwrap().replace(node.clone(), ports).unwrap();
        };
        let audited = || {
            let reading = live::read(Ruleset::read(&mut Connection::open(CodecKind::Native).unwrap()).unwrap());
            let ruleset = reading.ruleset.as_ref().unwrap();
            let (rules, ranges) =
                (readers::svcmap::check_against(ruleset, node), readers::svcmap::check_ranges(ruleset, node));
            let against = rules.iter().chain(&ranges).map(|one| format!("\n{:?}: {one}", one.kind)).collect::<String>();
            everything(&reading, &wanted).replace(" + ", ": + ") + &against
        };
        let mut wrong = String::new();
        for (damage, named) in DAMAGES {
            load();
            assert_eq!(audited(), "", "before {damage:?}");
            program("nft", &["-f", "-"], damage);
            let said = audited();
            if !said.contains(named) {
                wrong += &format!("{damage:?}: {named:?} is not in\n{said}\n");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}
