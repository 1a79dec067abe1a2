//! Properties of plans and of the tracker under random histories.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use svcmap::config::ProxyConfig;
use svcmap::objects::{
    Conditions, Endpoint, EndpointSlice, Family, FamilyOf, Hints, Name, Node, Protocol, Service, ServiceKey,
    ServicePort, ServiceType, SliceKey, SlicePort, Target, TrafficPolicy,
};
use svcmap::plan::{Claim, Frontend, Plan, PlanChange, PoolKind, PortId, PortPlan};
use svcmap::policy::{Context, plan_service};
use svcmap::source::{Change, Snapshot};
use svcmap::tracker::Tracker;

// Few names, addresses and ports, so that objects meet.
const SERVICES: [&str; 4] = ["a", "b", "c", "d"];
const VIPS: [&str; 5] = ["172.30.0.1", "172.30.0.2", "203.0.113.5", "fd00::1", "2001:db8::5"];
const ENDPOINTS: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00:10::1", "fd00:10::2"];
const RANGES: [&str; 4] = ["192.168.0.0/24", "203.0.113.0/24", "203.0.113.0/25", "fd00::/16"];

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: Vec<&str>) -> Vec<T> {
    texts.into_iter().map(|text| text.parse().unwrap()).collect()
}

fn some<T: std::str::FromStr<Err: std::fmt::Debug> + std::fmt::Debug>(
    of: &'static [&'static str],
    at_most: usize,
) -> impl Strategy<Value = Vec<T>> {
    subsequence(of, 0..=at_most).prop_shuffle().prop_map(parse)
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    select(vec![TrafficPolicy::Cluster, TrafficPolicy::Local])
}

fn protocol() -> impl Strategy<Value = Protocol> {
    select(vec![Protocol::Tcp, Protocol::Udp])
}

fn port() -> impl Strategy<Value = ServicePort> {
    (select(vec!["", "x", "y"]), protocol(), 80..83u16, select(vec![0, 0, 30080, 30081])).prop_map(
        |(name, protocol, port, node_port)| ServicePort {
            name: name.into(),
            protocol,
            port,
            node_port,
            target: Target::Number(8080),
        },
    )
}

fn service() -> impl Strategy<Value = Service> {
    let addresses = (some(&VIPS, 2), some(&VIPS, 2), some(&VIPS, 2), some(&RANGES, 2));
    let rest = (vec(port(), 0..4), policy(), policy(), option::of(1..3i64), 0..12u8, option::of(Just(10_800)));
    (select(&SERVICES[..]), addresses, rest).prop_map(|(name, addresses, rest)| {
        let (cluster_ips, external_ips, load_balancer_ips, source_ranges) = addresses;
        let (ports, internal_policy, external_policy, created, oddity, affinity) = rest;
        Service {
            key: ServiceKey::new("ns", name),
            created,
            other_proxy: oddity == 0,
            kind: if oddity == 1 { ServiceType::ExternalName } else { ServiceType::LoadBalancer },
            cluster_ips,
            external_ips,
            load_balancer_ips,
            source_ranges,
            ports,
            internal_policy,
            external_policy,
            affinity,
            health_check_node_port: 0,
            selector: Vec::new(),
            publish_not_ready: false,
            pass_without_endpoints: None,
        }
    })
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let conditions = (any::<bool>(), any::<bool>(), any::<bool>());
    let conditions = conditions.prop_map(|(ready, serving, terminating)| Conditions { ready, serving, terminating });
    let names = |of: &'static [&'static str]| subsequence(of, 0..=of.len()).prop_map(parse::<Name>);
    let hints =
        option::of((names(&["a", "b"]), names(&["n1", "n2"])).prop_map(|(zones, nodes)| Hints { zones, nodes }));
    (select(&ENDPOINTS[..]), conditions, option::of(select(vec!["n1", "n2"])), hints).prop_map(
        |(address, conditions, node, hints)| Endpoint {
            address: address.parse().unwrap(),
            conditions,
            node: node.map(Into::into),
            hints: hints.map(Box::new),
        },
    )
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let slice_port = (select(vec!["", "x", "y"]), protocol(), 8080..8082u16);
    let slice_port = slice_port.prop_map(|(name, protocol, port)| SlicePort { name: name.into(), protocol, port });
    (
        select(vec!["s1", "s2", "s3", "s4"]),
        select(&SERVICES[..]),
        select(Family::BOTH.to_vec()),
        vec(slice_port, 0..3),
        vec(endpoint(), 0..4),
    )
        .prop_map(|(name, service, family, ports, endpoints)| EndpointSlice {
            key: SliceKey { namespace: "ns".into(), name: name.into() },
            service: service.into(),
            family,
            ports,
            endpoints,
        })
}

fn node() -> impl Strategy<Value = Node> {
    (select(vec!["n1", "n2"]), option::of(select(vec!["a", "b"])), select(vec!["192.168.0.2", "192.168.7.2"])).prop_map(
        |(name, zone, address)| Node {
            name: name.into(),
            addresses: vec![address.parse().unwrap()],
            pod_cidrs: Vec::new(),
            zone: zone.map(Into::into),
        },
    )
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    Apply(Change),
    Replace(Snapshot),
    Take,
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    (vec(service(), 0..4), vec(slice(), 0..4), vec(node(), 0..2)).prop_map(|(services, slices, nodes)| {
        let mut model = Model::default();
        services.into_iter().for_each(|service| model.apply(Change::Service(service)));
        slices.into_iter().for_each(|slice| model.apply(Change::Slice(slice)));
        Snapshot { nodes, ..model.snapshot() }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => service().prop_map(|service| Step::Apply(Change::Service(service))),
        6 => slice().prop_map(|slice| Step::Apply(Change::Slice(slice))),
        2 => select(&SERVICES[..]).prop_map(|name| Step::Apply(Change::ServiceGone(ServiceKey::new("ns", name)))),
        2 => slice().prop_map(|slice| Step::Apply(Change::SliceGone(slice.key))),
        2 => node().prop_map(|node| Step::Apply(Change::Node(node))),
        1 => some::<IpNet>(&RANGES, 2).prop_map(|networks| Step::Apply(Change::ServiceCidrs(networks))),
        1 => snapshot().prop_map(Step::Replace),
        4 => Just(Step::Take),
    ]
}

/// The objects, held in the plainest way.
#[derive(Clone, Debug, Default)]
struct Model {
    services: BTreeMap<ServiceKey, Service>,
    slices: BTreeMap<String, EndpointSlice>,
    node: Option<Node>,
    service_cidrs: Vec<IpNet>,
}

impl Model {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Service(service) => drop(self.services.insert(service.key.clone(), service)),
            Change::ServiceGone(key) => drop(self.services.remove(&key)),
            Change::Slice(slice) => drop(self.slices.insert(slice.key.to_string(), slice)),
            Change::SliceGone(key) => drop(self.slices.remove(&key.to_string())),
            Change::Node(node) if node.name == "n1" => self.node = Some(node),
            Change::Node(_) => {}
            Change::ServiceCidrs(networks) => self.service_cidrs = networks,
        }
    }

    fn replace(&mut self, snapshot: Snapshot) {
        *self = Model { service_cidrs: snapshot.service_cidrs, ..Model::default() };
        snapshot.services.into_iter().for_each(|service| self.apply(Change::Service(service)));
        snapshot.slices.into_iter().for_each(|slice| self.apply(Change::Slice(slice)));
        self.node = snapshot.nodes.into_iter().find(|node| node.name == "n1");
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            services: self.services.values().cloned().collect(),
            slices: self.slices.values().cloned().collect(),
            nodes: self.node.iter().cloned().collect(),
            service_cidrs: self.service_cidrs.clone(),
        }
    }

    /// What every Service would answer on if it were alone, and of several that would, the one that must get it.
    fn owners(&self) -> BTreeMap<Claim, ServiceKey> {
        let context = Context::new(&config(), self.node.as_ref(), &self.service_cidrs);
        let mut by_age: Vec<&Service> = self.services.values().collect();
        by_age.sort_by_key(|service| (service.created.unwrap_or(i64::MAX), service.key.clone()));
        let mut owners = BTreeMap::new();
        for service in by_age {
            for port in plan_service(&context, service, &[]) {
                for claim in claims(&port) {
                    owners.entry(claim).or_insert_with(|| service.key.clone());
                }
            }
        }
        owners
    }
}

fn config() -> ProxyConfig {
    ProxyConfig {
        node_name: "n1".into(),
        node_ips: parse(vec!["192.168.0.2", "2001:db8::2"]),
        cluster_cidrs: parse(vec!["10.0.0.0/8", "fd00:10::/32"]),
        ..ProxyConfig::default()
    }
}

fn claims(port: &PortPlan) -> impl Iterator<Item = Claim> + '_ {
    port.frontends.iter().map(|frontend| Claim::new(port.id.family, port.protocol, frontend.address))
}

/// Takes a change into a plan; everything in it must be one.
fn merge(plan: &mut Plan, change: PlanChange) -> Result<(), TestCaseError> {
    if let Some(node) = change.node {
        plan.node = node;
    }
    for id in change.removed {
        prop_assert!(plan.ports.remove(&id).is_some(), "{} was not there", id.name);
    }
    for port in change.changed {
        prop_assert_ne!(plan.ports.get(&port.id), Some(&port), "no difference");
        plan.ports.insert(port.id.clone(), port);
    }
    Ok(())
}

fn fresh(model: &Model) -> Result<Plan, TestCaseError> {
    let (mut tracker, mut plan) = (Tracker::new(config()), Plan::default());
    tracker.replace(model.snapshot());
    merge(&mut plan, tracker.take().0)?;
    Ok(plan)
}

fn check_port(id: &PortId, port: &PortPlan) -> Result<(), TestCaseError> {
    prop_assert_eq!(id, &port.id);
    prop_assert!(!port.frontends.is_empty(), "{} answers nowhere", id.name);
    prop_assert!(port.frontends.windows(2).all(|pair| pair[0].address < pair[1].address), "order of frontends");
    let uses = |kind| {
        let uses = |f: &Frontend| f.pool == kind || (kind == PoolKind::Cluster && f.short_circuit);
        port.frontends.iter().any(uses)
    };
    for kind in [PoolKind::Cluster, PoolKind::Local] {
        let pool = port.pool(kind);
        prop_assert!(pool.is_empty() || uses(kind), "{}: nobody uses {:?}", id.name, pool);
        let place = |endpoint: &svcmap::plan::Endpoint| (endpoint.ip, endpoint.port);
        prop_assert!(pool.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])), "order of endpoints: {:?}", pool);
        prop_assert!(pool.iter().all(|endpoint| endpoint.ip.family() == id.family), "family of {:?}", pool);
    }
    prop_assert!(port.local.iter().all(|endpoint| endpoint.local), "{:?}", port.local);
    for frontend in &port.frontends {
        prop_assert_eq!(frontend.no_endpoints.is_some(), port.pool(frontend.pool).is_empty(), "{:?}", frontend);
        prop_assert!(frontend.address.ip().is_none_or(|ip: IpAddr| ip.family() == id.family), "{:?}", frontend);
    }
    Ok(())
}

fn check(plan: &Plan, model: &Model) -> Result<(), TestCaseError> {
    for (id, port) in &plan.ports {
        check_port(id, port)?;
    }
    let mut owners = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for (port, claim) in plan.ports.values().flat_map(|port| claims(port).map(move |claim| (port, claim))) {
        if owners.insert(claim, port.id.name.service().to_owned()).is_some() {
            twice.insert(claim);
        }
    }
    prop_assert!(twice.is_empty(), "two have {:?}", twice);
    let expected = model.owners().into_iter().map(|(claim, key)| (claim, key.to_string())).collect::<BTreeMap<_, _>>();
    prop_assert_eq!(owners, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened before: what the tracker has said adds up to what a new one says of the objects as they are.
    #[test]
    fn a_history_leads_to_the_plan_of_its_last_objects(steps in vec(step(), 0..30)) {
        let (mut tracker, mut model, mut plan) = (Tracker::new(config()), Model::default(), Plan::default());
        for step in steps.into_iter().chain([Step::Take]) {
            match step {
                Step::Apply(change) => {
                    model.apply(change.clone());
                    tracker.apply(change);
                }
                Step::Replace(snapshot) => {
                    model.replace(snapshot.clone());
                    tracker.replace(snapshot);
                }
                Step::Take => {
                    merge(&mut plan, tracker.take().0)?;
                    check(&plan, &model)?;
                    let fresh = fresh(&model)?;
                    prop_assert_eq!(&plan, &fresh);
                    let (node, ports) = tracker.whole().expect("a plan that was taken");
                    let ports = ports.into_iter().map(|port| (port.id.clone(), port)).collect();
                    prop_assert_eq!(&plan, &Plan { node, ports });
                }
            }
        }
        tracker.replace(model.snapshot());
        prop_assert!(!tracker.is_touched(), "what is held already touches nothing");
        let (change, warnings) = tracker.take();
        prop_assert!(change.is_empty() && warnings.is_empty());
        prop_assert_eq!(tracker.counts().services, model.services.len());
        prop_assert_eq!(tracker.counts().endpoints, model.slices.values().map(|s| s.endpoints.len()).sum::<usize>());
    }
}
