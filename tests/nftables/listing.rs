//! What people read: the script, the listing, and that they are one.

use super::support::{
    apply, assert_same, config, listing, manifests, nft, plan, render, rich_cluster, sorted, sorted_listing,
};
use svcmap::config::{DetectLocal, NodePortAddresses, ProxyConfig};

/// The script loaded by nft, and svcmap's own transaction, make the same ruleset; and the listing loads again.
fn check(what: &str, snapshot: svcmap::source::Snapshot, config: ProxyConfig) {
    let whole = plan(snapshot, config);
    nft(&["flush", "ruleset"], "");
    nft(&["-f", "-"], &render(whole.clone()));
    let by_nft = listing();
    let programmer = apply(whole.clone());
    assert_same(&by_nft, &listing(), &format!("{what}: svcmap changed what nft had loaded from its script"));
    drop(programmer);

    nft(&["flush", "ruleset"], "");
    apply(whole);
    let by_svcmap = listing();
    assert_same(&sorted(&by_nft), &sorted(&by_svcmap), &format!("{what}: nft -f and apply"));
    assert_same(&source_ranges(&by_nft), &source_ranges(&by_svcmap), &format!("{what}: the order of source ranges"));

    nft(&["flush", "ruleset"], "");
    nft(&["-f", "-"], &by_svcmap);
    assert_same(&by_svcmap, &listing(), &format!("{what}: the listing loaded again"));
}

/// The kernel lists these in the order in which they came, where hashes have none.
fn source_ranges(listing: &str) -> String {
    let sets = listing.split("\tset allowed {").skip(1).filter_map(|rest| rest.split_once("\t}\n"));
    sets.map(|(set, _)| set).collect()
}

netns_test! {
    fn script_and_transaction_make_the_same_ruleset() {
        for (name, snapshot) in manifests() {
            check(&name, snapshot, config());
        }
        // nft itself cannot send much more from inside a user namespace
        check("a rich cluster", rich_cluster(12), config());
        let mut long = rich_cluster(2);
        for service in &mut long.services {
            service.key.namespace = "n".repeat(63).into();
            service.key.name = format!("{}{}", "s".repeat(61), service.key.name.chars().last().unwrap()).into();
        }
        check("long names", long, config());
        check("no objects at all", svcmap::source::Snapshot::default(), config());
    }
}

netns_test! {
    fn every_configuration_makes_a_ruleset_that_loads_again() {
        let detectors = [
            DetectLocal::ClusterCidr,
            DetectLocal::NodeCidr,
            DetectLocal::BridgeInterface("cni0".into()),
            DetectLocal::InterfaceNamePrefix("cali".into()),
        ];
        for detect_local in detectors {
            check(&format!("{detect_local:?}"), rich_cluster(9), ProxyConfig { detect_local, ..config() });
        }
        check("no prefix", rich_cluster(9), ProxyConfig { cluster_cidrs: Vec::new(), ..config() });
        check("affinity", rich_cluster(9), ProxyConfig { affinity_clients: Some(100_000), ..config() });
        check("counters", rich_cluster(9), ProxyConfig { counters: true, ..config() });
        check("masqueradeAll", rich_cluster(9), ProxyConfig { masquerade_all: true, ..config() });
        for masquerade_bit in [0, 31] {
            check(&format!("bit {masquerade_bit}"), rich_cluster(9), ProxyConfig { masquerade_bit, ..config() });
        }
        for list in [&["0.0.0.0/0", "::/0"][..], &["192.168.0.0/24", "192.168.1.0/24", "2001:db8::/64"]] {
            let networks = list.iter().map(|text| text.parse().unwrap()).collect();
            let node_port_addresses = NodePortAddresses::Networks(networks);
            check(&format!("{list:?}"), rich_cluster(9), ProxyConfig { node_port_addresses, ..config() });
        }
    }
}

netns_test! {
    fn a_change_of_configuration_leads_to_what_a_fresh_start_makes() {
        let configs = [
            config(),
            ProxyConfig { masquerade_all: true, ..config() },
            ProxyConfig { counters: true, affinity_clients: Some(100_000), ..config() },
            ProxyConfig { masquerade_bit: 3, cluster_cidrs: Vec::new(), ..config() },
            ProxyConfig { detect_local: DetectLocal::BridgeInterface("cni0".into()), ..config() },
            ProxyConfig {
                node_port_addresses: NodePortAddresses::Networks(vec!["0.0.0.0/0".parse().unwrap()]),
                ..config()
            },
        ];
        for config in configs {
            let whole = plan(rich_cluster(20), config);
            apply(whole.clone());
            let changed = sorted_listing();
            nft(&["flush", "ruleset"], "");
            apply(whole);
            assert_same(&changed, &sorted_listing(), "changed in place, and made anew");
        }
    }
}
