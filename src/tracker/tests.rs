//! Tracker tests: what is touched, and who has a contested address.

use super::*;
use crate::objects::{
    Conditions, Endpoint, Hints, Protocol, ServicePort, ServiceType, SliceKey, SlicePort, Target, TrafficPolicy,
};
use crate::plan::{FrontendAddress, Plan};

fn tracker() -> Tracker {
    Tracker::new(ProxyConfig {
        node_name: "n1".into(),
        node_ips: vec!["192.168.0.2".parse().unwrap()],
        cluster_cidrs: vec!["10.0.0.0/8".parse().unwrap()],
        ..ProxyConfig::default()
    })
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("ns", name)
}

fn service(name: &str, ip: &str, created: i64) -> Service {
    Service {
        key: key(name),
        created: Some(created),
        other_proxy: false,
        kind: ServiceType::ClusterIp,
        cluster_ips: vec![ip.parse().unwrap()],
        external_ips: Vec::new(),
        load_balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        ports: vec![ServicePort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
            target: Target::Number(8080),
        }],
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: 0,
        selector: vec![("app".into(), name.into())],
        publish_not_ready: false,
        pass_without_endpoints: None,
    }
}

fn slice(service: &str, endpoints: &[(&str, &str)]) -> EndpointSlice {
    EndpointSlice {
        key: SliceKey { namespace: "ns".into(), name: format!("{service}-1").into() },
        service: service.into(),
        family: Family::V4,
        ports: vec![SlicePort { name: "".into(), protocol: Protocol::Tcp, port: 8080 }],
        endpoints: endpoints
            .iter()
            .map(|(ip, node)| Endpoint {
                address: ip.parse().unwrap(),
                conditions: Conditions::default(),
                node: Some((*node).into()),
                hints: None,
            })
            .collect(),
    }
}

/// The names of the changed and removed ports, sorted.
fn names(change: &PlanChange) -> (Vec<String>, Vec<String>) {
    let mut changed: Vec<_> = change.changed.iter().map(|plan| plan.id.name.to_string()).collect();
    let mut removed: Vec<_> = change.removed.iter().map(|id| id.name.to_string()).collect();
    changed.sort();
    removed.sort();
    (changed, removed)
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| value.to_string()).collect()
}

/// Takes the change into the plan and returns who answers on `ip`, port 80.
fn owner(tracker: &mut Tracker, plan: &mut Plan, ip: &str) -> (Option<String>, Vec<Warning>) {
    let (change, warnings) = tracker.take();
    for id in change.removed {
        plan.ports.remove(&id).expect("what is removed was there");
    }
    for port in change.changed {
        plan.ports.insert(port.id.clone(), port);
    }
    let ip: std::net::IpAddr = ip.parse().unwrap();
    let mut owners = plan.ports.values().filter(|port| {
        let is_here = |address: FrontendAddress| address.ip() == Some(ip) && address.port() == 80;
        port.frontends.iter().any(|frontend| is_here(frontend.address))
    });
    let owner = owners.next().map(|port| port.id.name.to_string());
    assert_eq!(owners.next(), None, "one address, two owners");
    (owner, warnings)
}

#[test]
fn only_what_is_touched_is_planned_and_what_says_nothing_new_touches_nothing() {
    let mut tracker = tracker();
    for name in ["a", "b"] {
        tracker.apply(Change::Service(service(name, if name == "a" { "172.30.0.1" } else { "172.30.0.2" }, 1)));
        tracker.apply(Change::Slice(slice(name, &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")])));
    }
    let (change, warnings) = tracker.take();
    assert_eq!(warnings, vec![]);
    assert!(change.node.is_some(), "the first change holds the node's part");
    assert_eq!(names(&change), (owned(&["ns/a", "ns/b"]), vec![]));
    assert_eq!(tracker.counts(), Counts { services: 2, proxied: 2, slices: 2, endpoints: 4 });
    assert_eq!(tracker.local_ready(&key("a"), Family::V4), 1);
    assert_eq!(tracker.local_ready(&key("a"), Family::V6), 0);

    assert!(!tracker.is_touched());
    tracker.apply(Change::Slice(slice("a", &[("10.0.0.1", "n1"), ("10.0.0.2", "n3")])));
    assert!(!tracker.is_touched(), "which other node an endpoint is on makes no difference");
    let mut selected = service("b", "172.30.0.2", 1);
    selected.selector.clear();
    tracker.apply(Change::Service(selected));
    assert!(!tracker.is_touched(), "the selector makes no difference here");

    tracker.apply(Change::Slice(slice("a", &[("10.0.0.2", "n2"), ("10.0.0.1", "n1")])));
    let (change, _) = tracker.take();
    assert!(change.is_empty(), "another order is no change, but came out as {change:?}");

    tracker.apply(Change::Slice(slice("a", &[("10.0.0.1", "n1"), ("10.0.0.3", "n2")])));
    assert_eq!(names(&tracker.take().0), (owned(&["ns/a"]), vec![]));

    tracker.apply(Change::ServiceGone(key("a")));
    assert_eq!(names(&tracker.take().0), (vec![], owned(&["ns/a"])));
    tracker.apply(Change::Service(service("a", "172.30.0.1", 1)));
    let (change, _) = tracker.take();
    assert_eq!(names(&change), (owned(&["ns/a"]), vec![]));
    assert_eq!(change.changed[0].cluster.len(), 2, "the slices outlive the Service");
}

#[test]
fn a_change_that_is_undone_before_it_is_taken_is_none() {
    let mut tracker = tracker();
    tracker.apply(Change::Service(service("a", "172.30.0.1", 1)));
    tracker.apply(Change::Slice(slice("a", &[("10.0.0.1", "n1")])));
    tracker.take();
    tracker.apply(Change::ServiceGone(key("a")));
    tracker.apply(Change::SliceGone(slice("a", &[]).key));
    tracker.apply(Change::Slice(slice("a", &[("10.0.0.1", "n1")])));
    tracker.apply(Change::Service(service("a", "172.30.0.1", 1)));
    let (change, warnings) = tracker.take();
    assert!(change.is_empty() && warnings.is_empty(), "{change:?} {warnings:?}");
}

#[test]
fn a_slice_that_moves_to_another_service_touches_both() {
    let mut tracker = tracker();
    tracker.apply(Change::Service(service("a", "172.30.0.1", 1)));
    tracker.apply(Change::Service(service("b", "172.30.0.2", 1)));
    let mut moving = slice("a", &[("10.0.0.1", "n1")]);
    tracker.apply(Change::Slice(moving.clone()));
    tracker.take();
    moving.service = "b".into();
    tracker.apply(Change::Slice(moving));
    let (change, _) = tracker.take();
    assert_eq!(names(&change), (owned(&["ns/a", "ns/b"]), vec![]));
    for port in &change.changed {
        assert_eq!(port.cluster.len(), usize::from(port.id.name.as_str() == "ns/b"), "{port:?}");
    }
}

#[test]
fn a_snapshot_is_compared_with_what_is_held() {
    let mut tracker = tracker();
    let mut snapshot = Snapshot {
        services: vec![service("a", "172.30.0.1", 1), service("b", "172.30.0.2", 1), service("c", "172.30.0.3", 1)],
        slices: vec![slice("a", &[("10.0.0.1", "n1")]), slice("b", &[("10.0.0.1", "n1")])],
        ..Snapshot::default()
    };
    tracker.replace(snapshot.clone());
    assert_eq!(names(&tracker.take().0), (owned(&["ns/a", "ns/b", "ns/c"]), vec![]));
    tracker.replace(snapshot.clone());
    assert!(!tracker.is_touched());
    snapshot.services.remove(0);
    snapshot.slices.remove(1);
    tracker.replace(snapshot);
    assert_eq!(names(&tracker.take().0), (owned(&["ns/b"]), owned(&["ns/a"])));
    assert_eq!(tracker.counts(), Counts { services: 2, proxied: 2, slices: 1, endpoints: 1 });
}

/// Row A11: the older Service wins, whoever came first; the loser takes over as soon as the winner lets go.
#[test]
fn a_contested_address_belongs_to_the_oldest_service_that_asks_for_it() {
    let (mut tracker, mut plan) = (tracker(), Plan::default());
    let contested = "203.0.113.5";
    let external = |name: &str, ip: &str, created: i64| {
        let mut service = service(name, ip, created);
        service.external_ips = vec![contested.parse().unwrap()];
        service
    };
    tracker.apply(Change::Service(external("young", "172.30.0.1", 20)));
    assert_eq!(owner(&mut tracker, &mut plan, contested), (Some("ns/young".into()), vec![]));

    // One that has it as its ClusterIP, and is older.
    tracker.apply(Change::Service(service("old", contested, 10)));
    let (owned_by, warnings) = owner(&mut tracker, &mut plan, contested);
    assert_eq!(owned_by.as_deref(), Some("ns/old"));
    assert_eq!(
        warnings.iter().map(Warning::to_string).collect::<Vec<_>>(),
        [
            "Service ns/young: 203.0.113.5:80/tcp belongs to Service ns/old, the older one or the first by name; ns/young does not answer on it"
        ]
    );
    assert_eq!(plan.ports.len(), 2, "the loser keeps its other address: {plan:?}");

    // A third in between, and one of no age: no change of owner; each is told once.
    tracker.apply(Change::Service(external("middle", "172.30.0.3", 15)));
    let mut ageless = external("ageless", "172.30.0.4", 0);
    ageless.created = None;
    tracker.apply(Change::Service(ageless));
    let (owned_by, warnings) = owner(&mut tracker, &mut plan, contested);
    assert_eq!((owned_by.as_deref(), warnings.len()), (Some("ns/old"), 2), "{warnings:?}");

    // Endpoints of a loser change: no warning again.
    tracker.apply(Change::Slice(slice("young", &[("10.0.0.1", "n1")])));
    assert_eq!(owner(&mut tracker, &mut plan, contested), (Some("ns/old".into()), vec![]));

    // The winner moves away: the next oldest has it in the same change.
    tracker.apply(Change::Service(service("old", "172.30.0.9", 10)));
    let (owned_by, warnings) = owner(&mut tracker, &mut plan, contested);
    assert_eq!((owned_by.as_deref(), warnings.len()), (Some("ns/middle"), 2), "{warnings:?}");
    tracker.apply(Change::ServiceGone(key("middle")));
    assert_eq!(owner(&mut tracker, &mut plan, contested).0.as_deref(), Some("ns/young"));
    // The winner is made anew, and is the youngest but for the one that has no age.
    tracker.apply(Change::Service(external("middle", "172.30.0.3", 30)));
    tracker.apply(Change::ServiceGone(key("young")));
    assert_eq!(owner(&mut tracker, &mut plan, contested).0.as_deref(), Some("ns/middle"));
    tracker.apply(Change::ServiceGone(key("middle")));
    assert_eq!(owner(&mut tracker, &mut plan, contested).0.as_deref(), Some("ns/ageless"));
    tracker.apply(Change::ServiceGone(key("ageless")));
    assert_eq!(owner(&mut tracker, &mut plan, contested).0, None);
}

#[test]
fn a_service_that_loses_its_only_address_is_not_planned() {
    let (mut tracker, mut plan) = (tracker(), Plan::default());
    tracker.apply(Change::Service(service("b", "172.30.0.1", 5)));
    tracker.apply(Change::Service(service("a", "172.30.0.1", 5)));
    assert_eq!(owner(&mut tracker, &mut plan, "172.30.0.1").0.as_deref(), Some("ns/a"), "same age: by name");
    assert_eq!(plan.ports.len(), 1);
    tracker.apply(Change::ServiceGone(key("a")));
    assert_eq!(owner(&mut tracker, &mut plan, "172.30.0.1").0.as_deref(), Some("ns/b"));
    // An older one of the same key: what it asks for is asked for with its new age.
    tracker.apply(Change::Service(service("a", "172.30.0.1", 9)));
    assert_eq!(owner(&mut tracker, &mut plan, "172.30.0.1").0.as_deref(), Some("ns/b"));
    tracker.apply(Change::Service(service("a", "172.30.0.1", 1)));
    assert_eq!(owner(&mut tracker, &mut plan, "172.30.0.1").0.as_deref(), Some("ns/a"));
}

#[test]
fn a_service_does_not_contest_itself() {
    let mut twice = service("a", "172.30.0.1", 1);
    twice.external_ips = ["203.0.113.5", "172.30.0.1", "203.0.113.5"].iter().map(|ip| ip.parse().unwrap()).collect();
    twice.load_balancer_ips = vec!["203.0.113.5".parse().unwrap()];
    twice.source_ranges = vec!["192.0.2.0/24".parse().unwrap()];
    let mut tracker = tracker();
    tracker.apply(Change::Service(twice));
    let (change, warnings) = tracker.take();
    assert_eq!(warnings, vec![]);
    let frontends = &change.changed[0].frontends;
    let [cluster, external] = &frontends[..] else { panic!("two addresses, but {frontends:?}") };
    assert_eq!(cluster.address, FrontendAddress::Cluster("172.30.0.1".parse().unwrap(), 80));
    assert_eq!(external.address, FrontendAddress::External("203.0.113.5".parse().unwrap(), 80));
    assert!(external.sources.is_some(), "the source ranges of a load balancer's address hold");
}

#[test]
fn the_own_node_matters_and_no_other() {
    let mut tracker = tracker();
    let mut ranged = service("a", "172.30.0.1", 1);
    ranged.load_balancer_ips = vec!["203.0.113.5".parse().unwrap()];
    ranged.source_ranges = vec!["192.168.7.0/24".parse().unwrap()];
    tracker.apply(Change::Service(ranged));
    tracker.apply(Change::Service(service("b", "172.30.0.2", 1)));
    tracker.take();
    let node = |name: &str, ip: &str| Node {
        name: name.into(),
        addresses: vec![ip.parse().unwrap()],
        pod_cidrs: Vec::new(),
        zone: None,
        leaving: false,
    };
    tracker.apply(Change::Node(node("n2", "192.168.7.2")));
    assert!(!tracker.is_touched());
    tracker.apply(Change::Node(node("n1", "192.168.7.2")));
    let (change, _) = tracker.take();
    assert_eq!(change.node.as_ref().unwrap().node_ips, vec!["192.168.7.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(names(&change), (owned(&["ns/a"]), vec![]), "its ranges now hold the node (row F8)");
    tracker.apply(Change::ServiceCidrs(vec!["172.30.0.0/16".parse().unwrap()]));
    let (change, _) = tracker.take();
    assert_eq!(change.node.as_ref().map(|node| node.service_cidrs.len()), Some(1));
    assert_eq!(names(&change), (vec![], vec![]));
}

#[test]
fn another_zone_means_other_endpoints() {
    let mut tracker = tracker();
    tracker.apply(Change::Service(service("a", "172.30.0.1", 1)));
    tracker.apply(Change::Service(service("b", "172.30.0.2", 1)));
    let mut hinted = slice("a", &[("10.0.0.1", "n2"), ("10.0.0.2", "n3")]);
    for (endpoint, zone) in hinted.endpoints.iter_mut().zip(["x", "y"]) {
        endpoint.hints = Some(Box::new(Hints { zones: vec![zone.into()], nodes: Vec::new() }));
    }
    tracker.apply(Change::Slice(hinted));
    for (zone, expected) in [(None, vec![1, 2]), (Some("x"), vec![1]), (Some("y"), vec![2]), (Some("z"), vec![1, 2])] {
        let addresses = vec!["192.168.0.2".parse().unwrap()];
        let zone = zone.map(Into::into);
        tracker.apply(Change::Node(Node { name: "n1".into(), addresses, zone: zone.clone(), ..Node::default() }));
        let (change, _) = tracker.take();
        let port = change.changed.iter().find(|port| port.id.name.as_str() == "ns/a").expect("another plan");
        let last = |ip: std::net::IpAddr| ip.to_string().rsplit('.').next().unwrap().parse::<u8>().unwrap();
        assert_eq!(port.cluster.iter().map(|e| last(e.ip)).collect::<Vec<_>>(), expected, "in zone {zone:?}");
    }
    assert!(!tracker.is_touched());
}

/// Row A9: an endpoint that stands in two slices in the same state counts once, and with the hints of the first slice by
/// name, whichever came first.
#[test]
fn the_order_in_which_slices_come_makes_no_difference() {
    let hinted = |suffix: &str, zone: &str| {
        let mut slice = slice("a", &[("10.0.0.1", "n2")]);
        slice.key.name = format!("a-{suffix}").into();
        slice.endpoints[0].hints = Some(Box::new(Hints { zones: vec![zone.into()], nodes: Vec::new() }));
        slice
    };
    let plan_of = |slices: Vec<EndpointSlice>| {
        let mut tracker = tracker();
        tracker.apply(Change::Service(service("a", "172.30.0.1", 1)));
        let zone = Some("x".into());
        tracker.apply(Change::Node(Node { name: "n1".into(), zone, ..Node::default() }));
        slices.into_iter().for_each(|slice| tracker.apply(Change::Slice(slice)));
        tracker.take().0.changed
    };
    let (first, second, other) = (hinted("1", "x"), hinted("2", "y"), {
        let mut other = hinted("3", "x");
        other.endpoints[0].address = "10.0.0.2".parse().unwrap();
        other
    });
    let forwards = plan_of(vec![first.clone(), second.clone(), other.clone()]);
    assert_eq!(forwards[0].cluster.len(), 2, "both are meant for the zone: {forwards:?}");
    assert_eq!(plan_of(vec![other, second, first]), forwards);
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    let mut tracker = tracker();
    for round in 0..3 {
        tracker.apply(Change::Service(service("a", "172.30.0.1", round)));
        tracker.apply(Change::Slice(slice("a", &[("10.0.0.1", "n1")])));
        tracker.apply(Change::Slice(slice("b", &[("10.0.0.1", "n1")])));
        tracker.take();
        assert_eq!(tracker.store.service_ids().count(), 2);
        tracker.apply(Change::ServiceGone(key("a")));
        tracker.apply(Change::SliceGone(slice("a", &[]).key));
        tracker.take();
        assert_eq!(tracker.store.service_ids().count(), 1, "the Service that only a slice names");
        tracker.apply(Change::SliceGone(slice("b", &[]).key));
        tracker.apply(Change::SliceGone(slice("never", &[]).key));
        tracker.apply(Change::ServiceGone(key("never")));
        tracker.take();
        assert_eq!((tracker.store.service_ids().count(), tracker.counts()), (0, Counts::default()));
        assert_eq!(tracker.whole().map(|(_, ports)| ports), Some(vec![]));
    }
}

#[test]
fn what_is_wrong_with_the_configuration_is_said_once() {
    let mut tracker = Tracker::new(ProxyConfig { node_name: "n1".into(), ..ProxyConfig::default() });
    let node = |ip: &str| {
        Change::Node(Node {
            name: "n1".into(),
            addresses: vec![ip.parse().unwrap()],
            pod_cidrs: Vec::new(),
            zone: None,
            leaving: false,
        })
    };
    let told = |tracker: &mut Tracker| tracker.take().1.iter().map(Warning::to_string).collect::<Vec<_>>();
    assert_eq!(told(&mut tracker).len(), 1, "no address is known");
    tracker.apply(node("192.168.0.2"));
    let warnings = told(&mut tracker);
    assert!(warnings.len() == 1 && warnings[0].starts_with("clusterCIDR: no IPv4 prefix"), "{warnings:?}");
    tracker.apply(node("192.168.0.3"));
    assert_eq!(told(&mut tracker), [""; 0], "the same again");
}

/// Rows H1, H5, H6: what is unsettled until it is settled, however often changes were taken.
#[test]
fn udp_frontends_are_unsettled_until_somebody_looks_after_them() {
    let udp = |name: &str, ip: &str| {
        let mut service = service(name, ip, 1);
        service.ports[0].protocol = Protocol::Udp;
        service
    };
    let udp_slice = |service: &str, endpoints: &[(&str, &str)]| {
        let mut slice = slice(service, endpoints);
        slice.ports[0].protocol = Protocol::Udp;
        slice
    };
    let mut tracker = tracker();
    let settled = |tracker: &mut Tracker| {
        let mut settled: Vec<String> = tracker
            .settle(&[])
            .into_iter()
            .map(|(claim, serving)| {
                let places: Vec<String> = serving.iter().map(|(ip, port)| format!("{ip}:{port}")).collect();
                format!("{claim} {}", places.join(" ")).trim_end().to_owned()
            })
            .collect();
        settled.sort();
        settled
    };
    tracker.apply(Change::Service(udp("a", "172.30.0.1")));
    tracker.apply(Change::Service(service("t", "172.30.0.2", 1)));
    tracker.apply(Change::Slice(slice("t", &[("10.0.0.9", "n2")])));
    tracker.take();
    assert_eq!(settled(&mut tracker), ["172.30.0.1:80/udp"], "the first time, all UDP frontends");
    tracker.take();
    assert_eq!(settled(&mut tracker), [""; 0]);

    tracker.apply(Change::Slice(udp_slice("a", &[("10.0.0.1", "n1"), ("10.0.0.2", "n2")])));
    assert!(tracker.unsettled().is_empty(), "what is not taken is not programmed");
    tracker.take();
    tracker.apply(Change::Service(udp("b", "172.30.0.3")));
    tracker.apply(Change::Service(service("t", "172.30.0.4", 1)));
    tracker.take();
    assert_eq!(tracker.unsettled().len(), 2);
    assert_eq!(settled(&mut tracker), ["172.30.0.1:80/udp 10.0.0.1:8080 10.0.0.2:8080", "172.30.0.3:80/udp"]);

    // there and back is unsettled, too: flows may have begun in between
    tracker.apply(Change::ServiceGone(key("b")));
    tracker.take();
    tracker.apply(Change::Service(udp("b", "172.30.0.3")));
    tracker.take();
    tracker.apply(Change::ServiceGone(key("a")));
    tracker.take();
    tracker.unsettle([Claim::address("172.30.0.7".parse().unwrap(), Protocol::Udp, 80)]);
    assert_eq!(settled(&mut tracker), ["172.30.0.1:80/udp", "172.30.0.3:80/udp", "172.30.0.7:80/udp"]);
}

/// Rows F5, H4: what was sent to an address before it was the node's went elsewhere.
#[test]
fn node_ports_are_unsettled_where_the_nodes_addresses_change() {
    let mut tracker = tracker();
    let mut object = service("a", "172.30.0.1", 1);
    object.kind = ServiceType::NodePort;
    object.ports[0] = ServicePort { protocol: Protocol::Udp, node_port: 30080, ..object.ports[0].clone() };
    tracker.apply(Change::Service(object));
    let node = |ip: &str, zone: &str| {
        Change::Node(Node {
            name: "n1".into(),
            addresses: vec![ip.parse().unwrap()],
            zone: Some(zone.into()),
            ..Node::default()
        })
    };
    tracker.apply(node("192.168.0.2", "a"));
    tracker.take();
    tracker.settle(&[]);
    tracker.apply(node("192.168.0.2", "b"));
    tracker.take();
    assert!(tracker.unsettled().is_empty(), "another zone is no other address");
    tracker.apply(node("192.168.1.2", "b"));
    tracker.take();
    let node_port = Claim::node_port(Family::V4, Protocol::Udp, 30080);
    assert_eq!(tracker.unsettled(), &BTreeSet::from([node_port]));
}
