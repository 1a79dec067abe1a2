//! Lists, streamed and in pages, and what is watched after them.

use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::fake::{CIDRS, Fake, Manner, NODES, SERVICES, SLICES};
use crate::model::{Followed, cidr, labelled, node, service, slice};

const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "service.kubernetes.io/headless";

fn pages() -> Manner {
    Manner { streams: false, ..Manner::default() }
}

/// Puts some objects of every kind in.
fn fill(server: &Fake, services: u32) {
    for n in 0..services {
        server.put(SERVICES, service(&format!("s{n:04}"), n));
        server.put(SLICES, slice(&format!("s{n:04}-a"), &format!("s{n:04}"), 2));
    }
    server.put(NODES, node("n1", "192.0.2.1"));
    server.put(NODES, node("n2", "192.0.2.2"));
    server.put(CIDRS, cidr("kubernetes", "10.96.0.0/16"));
}

#[test]
fn a_list_is_streamed_and_goes_on_as_a_watch() {
    let server = Fake::start(Manner::default());
    fill(&server, 30);
    let mut followed = Followed::new(&server);
    followed.wait_until_listed();
    assert_eq!((followed.services.len(), followed.slices.len()), (30, 30));
    assert_eq!(followed.node.as_ref().unwrap().addresses, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(followed.cidrs, ["10.96.0.0/16".parse().unwrap()]);

    server.put(SERVICES, service("new", 999));
    server.delete(SERVICES, "default/s0003");
    server.put(SLICES, slice("s0001-a", "s0001", 7));
    server.delete(SLICES, "default/s0002-a");
    server.put(CIDRS, cidr("more", "10.97.0.0/16"));
    server.put(NODES, node("n1", "192.0.2.9"));
    followed.wait_for("the changes", |f| {
        f.services.contains_key("default/new")
            && !f.services.contains_key("default/s0003")
            && f.slices["default/s0001-a"].endpoints.len() == 7
            && !f.slices.contains_key("default/s0002-a")
            && f.cidrs.len() == 2
            && f.node.as_ref().unwrap().addresses == ["192.0.2.9".parse::<std::net::IpAddr>().unwrap()]
    });
    server.delete(CIDRS, "kubernetes");
    followed.wait_for("a ServiceCIDR less", |f| f.cidrs == ["10.97.0.0/16".parse().unwrap()]);
    for resource in [SERVICES, SLICES, NODES, CIDRS] {
        let requests = server.requests_for(resource);
        assert_eq!(requests.len(), 1, "{resource} in one request: {requests:?}");
        assert_eq!(requests[0].get("sendInitialEvents"), Some("true"));
        assert_eq!(requests[0].get("resourceVersionMatch"), Some("NotOlderThan"));
        assert_eq!(requests[0].get("allowWatchBookmarks"), Some("true"));
    }
    assert_eq!(followed.listed, 1);
}

/// Silence behind the objects does not mean that they were all.
#[test]
fn where_streams_do_not_say_their_end_lists_come_in_pages() {
    let server = Fake::start(Manner { endless: true, ..Manner::default() });
    fill(&server, 3);
    let mut followed = Followed::new(&server);
    followed.wait_until_listed();
    assert_eq!((followed.services.len(), followed.slices.len(), followed.listed), (3, 3, 1));
    let pages = server.requests_for(SERVICES).iter().filter(|query| query.get("watch").is_none()).count();
    assert_eq!(pages, 1);
}

#[test]
fn where_streaming_is_refused_lists_come_in_pages() {
    let server = Fake::start(pages());
    fill(&server, 450);
    let mut followed = Followed::new(&server);
    followed.wait_until_listed();
    assert_eq!((followed.services.len(), followed.slices.len()), (450, 450));
    let requests = server.requests_for(SERVICES);
    let lists: Vec<_> = requests.iter().filter(|query| query.get("watch").is_none()).collect();
    assert_eq!(lists.len(), 3, "{requests:?}");
    assert!(lists[1..].iter().all(|query| query.get("continue").is_some()), "{lists:?}");

    server.put(SERVICES, service("new", 999));
    followed.wait_for("a change", |f| f.services.contains_key("default/new"));
    let watch = server.requests_for(SERVICES).pop().unwrap();
    assert_eq!((watch.get("watch"), watch.get("sendInitialEvents")), (Some("true"), None));
}

/// Rows A1 and A3: what is not for this proxy is not even sent.
#[test]
fn what_is_not_wanted_is_not_asked_for() {
    for manner in [Manner::default(), pages()] {
        let server = Fake::start(manner);
        server.put(SERVICES, service("mine", 1));
        server.put(SERVICES, labelled(service("theirs", 2), OTHER_PROXY, "other"));
        let mut headless = service("headless", 3);
        headless["spec"]["clusterIP"] = json!("None");
        server.put(SERVICES, headless);
        server.put(SLICES, slice("mine-a", "mine", 1));
        server.put(SLICES, labelled(slice("theirs-a", "theirs", 1), OTHER_PROXY, "other"));
        server.put(SLICES, labelled(slice("headless-a", "headless", 1), HEADLESS, ""));
        server.put(NODES, node("n2", "192.0.2.2"));
        let mut followed = Followed::new(&server);
        followed.wait_until_listed();
        assert_eq!(followed.names(), ["default/mine"]);
        assert_eq!(followed.slices.keys().collect::<Vec<_>>(), ["default/mine-a"]);
        assert_eq!(followed.node, None, "it is another one");
        for request in server.requests_for(SERVICES) {
            assert_eq!(request.get("labelSelector"), Some("!service.kubernetes.io/service-proxy-name"));
            assert_eq!(request.get("fieldSelector"), Some("spec.clusterIP!=None"));
        }

        server.put(SERVICES, labelled(service("mine", 1), OTHER_PROXY, "other"));
        server.put(SERVICES, service("theirs", 2));
        followed.wait_for("the labels to change", |f| f.names() == ["default/theirs"]);
    }
}

/// Row A12.
#[test]
fn it_counts_as_listed_when_services_and_slices_have_come_to_their_ends() {
    for streams in [true, false] {
        for held_back in [SERVICES, SLICES] {
            let server = Fake::start(Manner { streams, held_back: vec![held_back], ..Manner::default() });
            fill(&server, 3);
            let mut followed = Followed::new(&server);
            let other_is_there = |f: &Followed| {
                if held_back == SERVICES { f.slices.len() == 3 } else { f.services.len() == 3 }
            };
            followed.wait_for("the other kind", other_is_there);
            followed.wait_for_silence();
            assert_eq!(followed.listed, 0, "{held_back} is missing");
            server.set(|manner| manner.held_back.clear());
            followed.wait_until_listed();
            assert_eq!((followed.services.len(), followed.slices.len()), (3, 3));
        }
    }
}

#[test]
fn an_api_server_without_service_cidrs_is_fine() {
    for manner in [Manner::default(), pages()] {
        let server = Fake::start(Manner { refused: [(CIDRS, 404)].into(), ..manner });
        fill(&server, 3);
        let mut followed = Followed::new(&server);
        followed.wait_until_listed();
        assert_eq!(followed.cidrs, []);
        followed.wait_for_silence();
        assert_eq!(server.requests_for(CIDRS).len(), 1, "it is not asked again at once");
    }
}

/// Row J16: the time of a change is told where the change is, not where it is old news.
#[test]
fn the_time_of_a_change_comes_with_it() {
    for manner in [Manner::default(), pages()] {
        let server = Fake::start(manner);
        let later = "2200-01-01T00:00:00.5Z";
        let stamped = |name: &str, time: &str| {
            let mut slice = slice(name, "s", 1);
            slice["metadata"]["annotations"] = json!({"endpoints.kubernetes.io/last-change-trigger-time": time});
            slice
        };
        server.put(SLICES, stamped("listed", later));
        let mut followed = Followed::new(&server);
        followed.wait_until_listed();
        server.put(SLICES, stamped("old", "2001-01-01T00:00:00Z"));
        server.put(SLICES, stamped("bad", "yesterday"));
        server.put(SLICES, stamped("new", later));
        followed.wait_for("slices", |f| f.slices.len() == 4);
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(7_258_118_400_500);
        assert_eq!(followed.triggered, [time]);
    }
}

#[test]
fn what_cannot_be_used_is_as_good_as_gone() {
    let server = Fake::start(Manner::default());
    fill(&server, 2);
    let mut followed = Followed::new(&server);
    followed.wait_until_listed();
    let mut broken = service("s0000", 0);
    broken["spec"]["clusterIP"] = json!("not an address");
    server.put(SERVICES, broken);
    followed.wait_for("the other one alone", |f| f.names() == ["default/s0001"]);
    server.put(SERVICES, service("s0000", 0));
    followed.wait_for("both", |f| f.services.len() == 2);
}
