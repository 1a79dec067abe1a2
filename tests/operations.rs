//! What a change costs, counted in elements sent: the size of the change, and never of the cluster.

use svcmap::config::ProxyConfig;
use svcmap::netlink::model::{NfFamily, Op};
use svcmap::nftables::state::State;
use svcmap::nftables::transaction::Transaction;
use svcmap::objects::{EndpointSlice, Service};
use svcmap::source::generate::{self, Families, Options};
use svcmap::source::{Change, Snapshot};
use svcmap::tracker::Tracker;

const SMALL: usize = 100;
const LARGE: usize = 20_000;

/// A cluster that is programmed, as far as the state knows.
struct Cluster {
    tracker: Tracker,
    state: State,
    service: Service,
    slice: EndpointSlice,
}

impl Cluster {
    /// Services with three endpoints each, of which the sample in the middle gets those that the case needs.
    fn new(options: &Options, sample: impl Fn(&mut Service, &mut EndpointSlice)) -> Cluster {
        let mut snapshot: Snapshot = generate::generate(options).unwrap();
        let middle = snapshot.services.len() / 2;
        let key = snapshot.services[middle].key.clone();
        let at = snapshot.slices.iter().position(|slice| slice.service_key() == key).unwrap();
        sample(&mut snapshot.services[middle], &mut snapshot.slices[at]);
        let (service, slice) = (snapshot.services[middle].clone(), snapshot.slices[at].clone());
        let config = ProxyConfig {
            node_name: options.node.clone(),
            cluster_cidrs: generate::pod_cidrs().to_vec(),
            ..ProxyConfig::default()
        };
        let mut cluster = Cluster { tracker: Tracker::new(config), state: State::default(), service, slice };
        cluster.tracker.replace(snapshot);
        cluster.take();
        cluster
    }

    fn take(&mut self) -> Transaction {
        self.state.advance(self.tracker.take().0)
    }

    /// What an edit of the sample's endpoints costs.
    fn edit_slice(&mut self, edit: impl Fn(&mut EndpointSlice)) -> Transaction {
        edit(&mut self.slice);
        self.tracker.apply(Change::Slice(self.slice.clone()));
        self.take()
    }
}

fn options(services: usize) -> Options {
    Options { services, endpoints: 3, nodes: Some(3), local_fraction: Some(0.0), ..Options::default() }
}

/// Runs a case at both sizes; what it counts must be the same.
fn at_both_sizes(what: &str, count: impl Fn(usize) -> usize) -> usize {
    let (small, large) = (count(SMALL), count(LARGE));
    assert_eq!(small, large, "{what}: {small} operations at {SMALL} Services, {large} at {LARGE}");
    small
}

fn operations(transaction: &Transaction) -> usize {
    transaction.elements_added() + transaction.elements_deleted()
}

/// Makes the sample's Service answer on so many addresses more than its ClusterIP.
fn with_external_ips(count: u8) -> impl Fn(&mut Service, &mut EndpointSlice) {
    move |service, _| service.external_ips = (1..=count).map(|n| [203, 0, 113, n].into()).collect()
}

#[test]
fn an_endpoint_replaced_costs_two_operations_per_frontend() {
    for more in [0, 1, 4] {
        let operations = at_both_sizes("endpoint replaced", |services| {
            let mut cluster = Cluster::new(&options(services), with_external_ips(more));
            operations(&cluster.edit_slice(|slice| slice.endpoints[1].address = [10, 128, 9, 9].into()))
        });
        assert_eq!(operations, 2 * (1 + usize::from(more)), "with {more} external addresses");
    }
}

#[test]
fn a_local_endpoint_replaced_costs_its_hairpin_entries_too() {
    let operations = at_both_sizes("local endpoint replaced", |services| {
        let mut cluster = Cluster::new(&options(services), |_, slice| slice.endpoints[1].node = Some("n1".into()));
        operations(&cluster.edit_slice(|slice| slice.endpoints[1].address = [10, 128, 9, 9].into()))
    });
    assert_eq!(operations, 2 + 2);
}

#[test]
fn an_endpoint_added_or_removed_costs_at_most_five_operations_per_frontend() {
    for more in [0u8, 3] {
        let frontends = 1 + usize::from(more);
        let added = at_both_sizes("endpoint added", |services| {
            let mut cluster = Cluster::new(&options(services), with_external_ips(more));
            operations(&cluster.edit_slice(|slice| {
                let mut endpoint = slice.endpoints[0].clone();
                endpoint.address = [10, 128, 9, 9].into();
                slice.endpoints.push(endpoint);
            }))
        });
        assert_eq!(added, 3 * frontends, "added, {frontends} frontends");
        for (which, want) in [(0, 5), (1, 5), (2, 3)] {
            let removed = at_both_sizes("endpoint removed", |services| {
                let mut cluster = Cluster::new(&options(services), |service, slice| {
                    with_external_ips(more)(service, slice);
                    slice.endpoints.sort_by_key(|endpoint| endpoint.address);
                });
                operations(&cluster.edit_slice(|slice| drop(slice.endpoints.remove(which))))
            });
            assert_eq!(removed, want * frontends, "endpoint {which} removed, {frontends} frontends");
        }
    }
}

/// A frontend with the external policy Local leads to two pools, and each has its own slots and its own verdict.
#[test]
fn a_local_frontend_costs_at_most_five_operations_per_pool() {
    let local = |service: &mut Service, slice: &mut EndpointSlice| {
        with_external_ips(1)(service, slice);
        service.external_policy = svcmap::objects::TrafficPolicy::Local;
        slice.endpoints.iter_mut().for_each(|endpoint| endpoint.node = Some("n1".into()));
    };
    let removed = at_both_sizes("local endpoint removed", |services| {
        let mut cluster = Cluster::new(&options(services), local);
        operations(&cluster.edit_slice(|slice| drop(slice.endpoints.remove(0))))
    });
    let (cluster_ip, external, hairpin) = (5, 2 * 5, 1);
    assert!(removed <= cluster_ip + external + hairpin, "{removed} operations");
}

#[test]
fn a_large_service_costs_no_more_to_change_than_a_small_one() {
    let mut counts = Vec::new();
    for endpoints in [80, 1000, 10_000] {
        let sample = |_: &mut Service, slice: &mut EndpointSlice| {
            let first = slice.endpoints[0].clone();
            slice.endpoints = (0..endpoints)
                .map(|n: u32| svcmap::objects::Endpoint {
                    address: std::net::Ipv4Addr::from_bits(0x0a80_8000 + n).into(),
                    ..first.clone()
                })
                .collect();
        };
        let mut cluster = Cluster::new(&options(SMALL), sample);
        counts.push(operations(&cluster.edit_slice(|slice| slice.endpoints[7].address = [10, 200, 9, 9].into())));
        counts.push(operations(&cluster.edit_slice(|slice| drop(slice.endpoints.remove(3)))));
    }
    assert!(counts.iter().all(|count| *count <= 5), "{counts:?}");
}

#[test]
fn a_service_added_or_removed_costs_its_own_elements() {
    for endpoints in [1, 10, 50] {
        let options = |services| Options { endpoints, ..options(services) };
        let own = 1 + 1 + endpoints; // services, cluster-ips, endpoints
        let removed = at_both_sizes("Service removed", |services| {
            let mut cluster = Cluster::new(&options(services), |_, _| ());
            cluster.tracker.apply(Change::ServiceGone(cluster.service.key.clone()));
            cluster.tracker.apply(Change::SliceGone(cluster.slice.key.clone()));
            let transaction = cluster.take();
            assert_eq!(transaction.elements_added(), 0);
            transaction.elements_deleted()
        });
        assert_eq!(removed, own, "removed, {endpoints} endpoints");
        let added = at_both_sizes("Service added", |services| {
            let mut cluster = Cluster::new(&options(services), |_, _| ());
            cluster.tracker.apply(Change::ServiceGone(cluster.service.key.clone()));
            cluster.take();
            cluster.tracker.apply(Change::Service(cluster.service.clone()));
            let transaction = cluster.take();
            assert_eq!(transaction.elements_deleted(), 0);
            assert_eq!(transaction.ops.len(), 3, "one message a map: no table, chain or rule is touched");
            transaction.elements_added()
        });
        assert_eq!(added, own, "added, {endpoints} endpoints");
    }
}

#[test]
fn without_a_change_there_is_no_operation_at_all() {
    let mut cluster = Cluster::new(&options(LARGE), |_, _| ());
    let snapshot = generate::generate(&options(LARGE)).unwrap();
    cluster.tracker.apply(Change::Slice(cluster.slice.clone()));
    assert!(cluster.take().is_empty(), "the same slice again");
    cluster.tracker.replace(snapshot);
    assert!(cluster.take().is_empty(), "all objects again");
    let labels_only = |service: &mut Service| service.health_check_node_port = 31_999;
    let mut service = cluster.service.clone();
    labels_only(&mut service);
    cluster.tracker.apply(Change::Service(service));
    assert!(cluster.take().is_empty(), "a field that no rule depends on");
}

#[test]
fn a_dual_stack_change_is_one_transaction() {
    let options = Options { family: Families::Dual, ..options(SMALL) };
    let mut cluster = Cluster::new(&options, |_, _| ());
    cluster.tracker.apply(Change::ServiceGone(cluster.service.key.clone()));
    let transaction = cluster.take();
    let families: std::collections::BTreeSet<_> = transaction
        .ops
        .iter()
        .map(|op| match op {
            Op::DeleteElements { set, .. } => set.family,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(families.len(), 2);
}

/// Case S14.
#[test]
fn other_service_cidrs_touch_one_set_of_their_family() {
    let options = Options { family: Families::Dual, ..options(SMALL) };
    let mut cluster = Cluster::new(&options, |_, _| ());
    let ranges = |texts: &[&str]| Change::ServiceCidrs(texts.iter().map(|text| text.parse().unwrap()).collect());
    cluster.tracker.apply(ranges(&["172.30.0.0/16", "fd00:5c::/108"]));
    cluster.take();
    cluster.tracker.apply(ranges(&["172.30.0.0/16", "172.31.0.0/16", "fd00:5c::/108"]));
    let sets: Vec<String> = cluster
        .take()
        .ops
        .iter()
        .map(|op| match op {
            Op::FlushSet(set) | Op::AddElements { set, .. } | Op::DeleteElements { set, .. } => {
                format!("{:?} {}", set.family, set.name)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        !sets.is_empty() && sets.iter().all(|set| *set == format!("{:?} service-cidrs", NfFamily::IPV4)),
        "{sets:?}"
    );
    // which is in force with the change: no later sync is needed
    assert!(cluster.take().is_empty());
}
