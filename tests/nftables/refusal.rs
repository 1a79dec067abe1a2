//! What the kernel refuses, and what does not fit.

use super::seen::without_slots;
use super::support::{apply, assert_same, config, nft, plan, rich_cluster, sorted, sorted_listing};
use svcmap::netlink::CodecKind;
use svcmap::nftables::program::{Programmer, SyncError};
use svcmap::objects::EndpointSlice;
use svcmap::source::Change;
use svcmap::source::generate::{self, Options};
use svcmap::tracker::Tracker;

netns_test! {
    fn a_refused_transaction_changes_nothing_and_names_the_service() {
        for (is_sticky, key) in [(false, " . tcp . "), (true, " 7300:")] {
            nft(&["flush", "ruleset"], "");
            refused(is_sticky, key);
        }
    }
}

/// A change of a Service with or without session affinity, whose elements have such keys.
fn refused(is_sticky: bool, key: &str) {
    let snapshot = rich_cluster(20);
    let of = |slice: &EndpointSlice| snapshot.services.iter().find(|service| service.key == slice.service_key());
    let fits = |slice: &&EndpointSlice| {
        slice.endpoints.len() == 3 && of(slice).is_some_and(|service| service.affinity.is_some() == is_sticky)
    };
    let mut slice = snapshot.slices.iter().find(fits).unwrap().clone();
    let service = slice.service_key().to_string();
    let mut tracker = Tracker::new(config());
    tracker.replace(snapshot.clone());
    tracker.take();
    let (node, ports) = tracker.whole().unwrap();
    let mut programmer = Programmer::open(CodecKind::Native).unwrap();
    programmer.replace(node, ports).unwrap();

    // somebody else takes an endpoint's place: what svcmap is going to delete is no longer there
    let family = if slice.family == svcmap::objects::Family::V4 { "ip" } else { "ip6" };
    let listed = nft(&["list", "table", family, "svcmap"], "");
    let maps = listed.lines().filter_map(|line| line.strip_prefix("\tmap ")?.strip_suffix(" {"));
    let wanted = |map: &&str| if is_sticky { map.starts_with("members-") } else { *map == "endpoints" };
    maps.filter(wanted).for_each(|map| drop(nft(&["flush", "map", family, "svcmap", map], "")));
    let before = sorted_listing();
    slice.endpoints.remove(0);
    tracker.apply(Change::Slice(slice));
    let error = programmer.change(tracker.take().0).unwrap_err();
    let SyncError::Commit { object: Some(object), .. } = &error else { panic!("{error}") };
    assert_eq!(object.name.service(), service, "{error}");
    // the key as nft lists it
    assert!(error.to_string().contains(key), "{error}");
    assert_same(&before, &sorted_listing(), "before and after the refusal");
    assert!(!programmer.is_in_step());
    let refused = programmer.change(Default::default()).unwrap_err();
    assert!(matches!(refused, SyncError::OutOfStep), "{refused}");

    let (node, ports) = tracker.whole().unwrap();
    programmer.replace(node.clone(), ports.clone()).unwrap();
    programmer.collect().unwrap();
    let recovered = sorted_listing();
    nft(&["flush", "ruleset"], "");
    apply((node, ports));
    let [recovered, anew] = [recovered, sorted_listing()].map(|text| sorted(&without_slots(&text)));
    assert_same(&recovered, &anew, "recovered, and made anew");
}

netns_test! {
    fn what_does_not_fit_into_one_message_is_cut() {
        // as inside a user namespace on a machine with the kernel's default send buffer
        const SEND_BUFFER: usize = 2 * 212_992;
        let snapshot = generate::generate(&Options {
            services: 3,
            endpoints: 10_000,
            local_fraction: Some(0.0),
            ..Options::default()
        }).unwrap();
        let whole = plan(snapshot, config());
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        programmer.limit_transactions(SEND_BUFFER);
        let applied = programmer.replace(whole.0.clone(), whole.1.clone()).unwrap();
        assert!(applied.transactions > 3, "{applied:?}");
        assert_eq!(applied.added, 3 * (10_000 + 2) + ranges(&whole), "{applied:?}");
        let mut fewer = whole.1.clone();
        fewer.iter_mut().for_each(|port| port.cluster.truncate(100));
        programmer.replace(whole.0.clone(), fewer.clone()).unwrap();
        programmer.collect().unwrap();
        let cut = sorted_listing();
        nft(&["flush", "ruleset"], "");
        apply((whole.0, fewer));
        // the sizes of maps remember the larger load
        let unsized_of = |text: &str| text.lines().filter(|l| !l.contains("\t\tsize ")).collect::<Vec<_>>().join("\n");
        assert_same(&unsized_of(&cut), &unsized_of(&sorted_listing()), "shrunk, and made anew");
    }
}

/// The elements of sets of prefixes: a beginning and an end each.
fn ranges(whole: &super::support::Whole) -> usize {
    use svcmap::nftables::ranges::{RANGE_SETS, prefixes, to_wire};
    let families = svcmap::objects::Family::BOTH;
    let all = families.iter().flat_map(|family| RANGE_SETS.map(|map| prefixes(map, *family, &whole.0)));
    all.map(|prefixes| to_wire(&prefixes).len()).sum()
}

netns_test! {
    fn a_map_is_made_again_before_it_is_full() {
        let small = plan(rich_cluster(20), config());
        let mut programmer = apply(small.clone());
        nft(&["-f", "-"], &learned());
        let clients = |text: &str| text.lines().filter(|line| line.contains("192.0.2.77 timeout")).count();
        assert!(clients(&sorted_listing()) > 0);
        let before = clients(&sorted_listing());
        let large = plan(rich_cluster(3000), config());
        let change = svcmap::plan::PlanChange { node: None, changed: large.1.clone(), removed: Vec::new() };
        let applied = programmer.change(change).unwrap();
        assert!(applied.transactions >= 1);
        assert_eq!(clients(&sorted_listing()), before, "clients were forgotten when the table was made again");
        let again = programmer.replace(large.0.clone(), large.1.clone()).unwrap();
        assert_eq!(again.bytes, 0, "{again:?}");
    }
}

/// Notes a client in every affinity map of IPv4, as the rules would.
fn learned() -> String {
    let mut script = String::new();
    for line in nft(&["list", "table", "ip", "svcmap"], "").lines() {
        let Some(name) = line.trim().strip_prefix("map affinity-").and_then(|rest| rest.strip_suffix(" {")) else {
            continue;
        };
        script += &format!("add element ip svcmap affinity-{name} {{ 192.0.2.77 timeout 1h : 7300:1 }}\n");
    }
    script
}
