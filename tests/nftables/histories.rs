//! Random histories in the kernel: whatever happened to the objects, and to the tables, in between, the kernel holds
//! what a fresh start with the last objects makes.
//!
//! After every sync, the tables of the node that has the history are read back and compared with those that a new proxy
//! makes of the same objects in another namespace, and a third proxy looks whether there were anything to repair. Some
//! things may differ, and are made the same before they are compared:
//!
//! - **Slots.** Who stays keeps its slot, so that the order of endpoints is a matter of history. What is compared is
//!   which endpoints a frontend has, and that their slots are the first ones, without a gap or a double.
//! - **Chains and maps that nothing leads to** are kept for a while (`State::collect`). Until they are collected, the
//!   old node may have more; none of those that both have may differ. From then on it must not.
//! - **Order** of chains, maps and elements is that in which they were made, and means nothing. That of rules does.
//! - **Numbers** of endpoints with session affinity are a matter of history, too.
//! - **Learned clients** are the history's own: the endpoints that they are sent to are compared with those that it should
//!   have kept.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};

use super::seen::{Place, Seen, without_slots};
use super::support::sorted;
use crate::common::cases::{Given, NodeSettings, Stack, manifests, snapshot};
use crate::common::history::{self, Model};
use svcmap::config::{DetectLocal, NodePortAddresses, ProxyConfig};
use svcmap::lab::Namespace;
use svcmap::netlink::model::{Bytes, Data, Element, NfFamily, Op, Set, SetRef, set_flags};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::differences;
use svcmap::nftables::element::Value;
use svcmap::nftables::names::{AffinityId, Chain, Map, TABLE};
use svcmap::nftables::program::{Programmer, SyncError};
use svcmap::objects::Family;
use svcmap::plan::PortPlan;
use svcmap::tracker::Tracker;

/// How many steps all histories have together, and one of them at most.
const STEPS: usize = 3000;
const LONGEST: usize = 80;

/// The configurations that a proxy may be started with: the first is the one that it begins with.
fn settings() -> Vec<ProxyConfig> {
    let config = history::config;
    let networks = |texts: &[&str]| {
        NodePortAddresses::Networks(texts.iter().map(|text| text.parse().expect("a prefix")).collect())
    };
    vec![
        config(),
        ProxyConfig { masquerade_all: true, ..config() },
        ProxyConfig { masquerade_bit: 3, cluster_cidrs: Vec::new(), ..config() },
        ProxyConfig { counters: true, ..config() },
        ProxyConfig { counters: true, localhost_node_ports: true, ..config() },
        ProxyConfig { affinity_clients: Some(1000), ..config() },
        ProxyConfig { affinity_clients: Some(100_000), pass_without_endpoints: true, ..config() },
        ProxyConfig { localhost_node_ports: true, ..config() },
        ProxyConfig { pass_without_endpoints: true, ..config() },
        ProxyConfig { node_port_addresses: networks(&["192.168.7.0/24", "fd00::/16"]), ..config() },
        ProxyConfig { node_port_addresses: networks(&["0.0.0.0/0", "127.0.0.0/8"]), ..config() },
        ProxyConfig { detect_local: DetectLocal::BridgeInterface("pod0".into()), ..config() },
        ProxyConfig { detect_local: DetectLocal::InterfaceNamePrefix("pod".into()), counters: true, ..config() },
        ProxyConfig { detect_local: DetectLocal::NodeCidr, ..config() },
        // pods are told in one family alone, and the node has addresses in one alone
        ProxyConfig {
            cluster_cidrs: config().cluster_cidrs[..1].to_vec(),
            node_ips: config().node_ips[..1].to_vec(),
            ..config()
        },
    ]
}

#[derive(Clone, Debug)]
enum Step {
    /// Something happens to the objects. [`history::Step::Take`] syncs.
    Objects(Box<history::Step>),
    /// The proxy is another, with one of the [`settings`], and transactions of so many bytes at most.
    Restart(usize, Option<usize>),
    /// Somebody else changes the tables. Nobody notices before a transaction fails or the proxy is another.
    Damage(Damage, Index),
    /// A client is noted for one of the endpoints, as the rules would.
    Learn(Index, u8),
    /// What nothing leads to any more is deleted.
    Collect,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    DeleteElement,
    ReplaceValue,
    AddElement,
    EmptySet,
    EmptyChain,
    DeleteTable,
}

fn step() -> impl Strategy<Value = Step> {
    use Damage::*;
    let damage =
        select(vec![DeleteElement, DeleteElement, ReplaceValue, AddElement, EmptySet, EmptyChain, DeleteTable]);
    prop_oneof![
        20 => history::step().prop_map(|step| Step::Objects(Box::new(step))),
        7 => Just(Step::Objects(Box::new(history::Step::Take))),
        2 => (0..settings().len(), select(vec![None, None, Some(10_000), Some(40_000)]))
            .prop_map(|(settings, limit)| Step::Restart(settings, limit)),
        2 => (damage, any::<Index>()).prop_map(|(damage, index)| Step::Damage(damage, index)),
        5 => (any::<Index>(), 1..5u8).prop_map(|(index, client)| Step::Learn(index, client)),
        2 => Just(Step::Collect),
    ]
}

/// A node whose proxy has a history.
struct Node<'a> {
    namespace: &'a Namespace,
    /// For looking on.
    connection: Connection,
    config: ProxyConfig,
    model: Model,
    tracker: Tracker,
    programmer: Programmer,
    /// Whether somebody else has changed something that nobody noticed yet.
    is_damaged: bool,
    /// The clients that must be known.
    clients: BTreeMap<Place, Bytes>,
}

impl<'a> Node<'a> {
    fn new(namespace: &'a Namespace) -> Node<'a> {
        let config = history::config();
        let (connection, programmer) = namespace
            .run(|| (Connection::open(CodecKind::Native).unwrap(), Programmer::open(CodecKind::Native).unwrap()));
        let tracker = Tracker::new(config.clone());
        let (model, clients) = (Model::default(), BTreeMap::new());
        let mut node = Node { namespace, connection, config, model, tracker, programmer, is_damaged: false, clients };
        node.programmer.cleanup().unwrap();
        node
    }

    /// Whether the kernel should be what the objects want now.
    fn step(&mut self, step: &Step) -> Result<bool, TestCaseError> {
        match step {
            Step::Objects(step) => return self.objects(step),
            Step::Restart(settings, limit) => {
                self.restart(*settings, *limit)?;
                return Ok(true);
            }
            Step::Damage(damage, index) => self.damage(*damage, *index),
            Step::Learn(index, client) => self.learn(*index, *client),
            Step::Collect => self.collect()?,
        }
        Ok(false)
    }

    fn objects(&mut self, step: &history::Step) -> Result<bool, TestCaseError> {
        match step {
            history::Step::Apply(change) => self.apply(change.clone()),
            history::Step::Edit(edit) => {
                if let Some(change) = self.model.edited(edit) {
                    self.apply(change);
                }
            }
            history::Step::Replace(snapshot) => {
                self.model.replace(snapshot.clone());
                self.tracker.replace(snapshot.clone());
            }
            history::Step::Take => {
                self.sync()?;
                return Ok(!self.is_damaged);
            }
        }
        Ok(false)
    }

    fn apply(&mut self, change: svcmap::source::Change) {
        self.model.apply(change.clone());
        self.tracker.apply(change);
    }

    /// As the daemon does it: where a change is refused, everything is compared.
    fn sync(&mut self) -> Result<(), TestCaseError> {
        let (change, _) = self.tracker.take();
        let is_known = self.programmer.is_in_step();
        let result = if is_known { self.programmer.change(change) } else { Err(SyncError::OutOfStep) };
        if let Err(error) = result {
            prop_assert!(!is_known || self.is_damaged, "refused, although nobody else changed anything: {}", error);
            let (node, ports) = self.tracker.whole().expect("a plan was taken");
            self.programmer.replace(node, ports).map_err(|error| TestCaseError::fail(error.to_string()))?;
            self.is_damaged = false;
        }
        self.forget();
        Ok(())
    }

    fn restart(&mut self, settings: usize, limit: Option<usize>) -> Result<(), TestCaseError> {
        self.config = self::settings()[settings].clone();
        self.tracker = Tracker::new(self.config.clone());
        self.tracker.replace(self.model.snapshot());
        self.programmer = self.namespace.run(|| Programmer::open(CodecKind::Native)).unwrap();
        if let Some(bytes) = limit {
            self.programmer.limit_transactions(bytes);
        }
        self.sync()
    }

    fn collect(&mut self) -> Result<(), TestCaseError> {
        match self.programmer.collect() {
            Ok(_) | Err(SyncError::OutOfStep) => Ok(()),
            Err(_) if self.is_damaged => Ok(()),
            Err(error) => Err(TestCaseError::fail(format!("collecting: {error}"))),
        }
    }

    /// Drops the clients that must not be sent to their endpoint any more, also if it comes back: it left.
    fn forget(&mut self) {
        let known: BTreeSet<(Place, Bytes)> = self.programmer.state().ports().flat_map(places).collect();
        self.clients
            .retain(|(family, map, _), data| known.contains(&((*family, map.clone(), Bytes::new()), data.clone())));
    }

    fn learn(&mut self, index: Index, client: u8) {
        if self.is_damaged || !self.programmer.is_in_step() {
            return;
        }
        let mut ports: Vec<PortPlan> = self.programmer.state().ports().cloned().collect();
        ports.sort_by(|a, b| a.id.cmp(&b.id));
        let all: Vec<_> = ports.iter().flat_map(places).collect();
        if !all.is_empty() {
            let (place, endpoint) = index.get(&all);
            let (family, map, _) = place;
            let number = Seen::read(&mut self.connection).number(place, endpoint);
            let key: Bytes = if *family == NfFamily::IPV4 {
                Bytes::from_slice(&[192, 0, 2, client])
            } else {
                Bytes::from_iter([0x20, 1, 0xd, 0xb8].into_iter().chain([0; 11]).chain([client]))
            };
            let set = SetRef { family: *family, table: TABLE.into(), name: map.as_str().into() };
            let place = (*family, map.clone(), key.clone());
            let element = Element { key, ..Element::default() };
            // it may be noted with a number that leads nowhere: then rules forget it first, too
            let gone = Op::DeleteElements { set: set.clone(), elements: vec![element.clone()] };
            let _ = self.connection.commit(&[gone]);
            let element = Element { data: Data::Value(number), timeout_ms: Some(3_600_000), ..element };
            self.connection.commit(&[Op::AddElements { set, elements: vec![element] }]).unwrap();
            self.clients.insert(place, endpoint.clone());
        }
    }

    fn damage(&mut self, damage: Damage, index: Index) {
        let seen = Seen::read(&mut self.connection);
        let set_ref = |(family, name): &(NfFamily, String)| SetRef {
            family: *family,
            table: TABLE.into(),
            name: name.as_str().into(),
        };
        let plain = |set: &&Set| set.flags & (set_flags::INTERVAL | set_flags::EVAL) == 0;
        let sets: Vec<_> = seen.sets.iter().filter(|(_, set)| plain(set)).map(|(at, _)| at).collect();
        let elements: Vec<(SetRef, &Element)> =
            sets.iter().flat_map(|at| seen.elements[*at].iter().map(|element| (set_ref(at), element))).collect();
        let delete = |(set, element): &(SetRef, &Element)| Op::DeleteElements {
            set: set.clone(),
            elements: vec![Element { key: element.key.clone(), ..Element::default() }],
        };
        let ops = match damage {
            Damage::EmptySet if !seen.sets.is_empty() => {
                let sets: Vec<_> = seen.sets.keys().cloned().collect();
                vec![Op::FlushSet(set_ref(index.get(&sets)))]
            }
            Damage::EmptyChain if !seen.chains.is_empty() => {
                let chains: Vec<_> = seen.chains.values().map(|(chain, _)| chain).collect();
                let chain = index.get(&chains);
                let (family, table, name) = (chain.family, chain.table.clone(), chain.name.clone());
                vec![Op::FlushChain(svcmap::netlink::model::ChainRef { family, table, name })]
            }
            Damage::DeleteTable if !seen.tables.is_empty() => {
                vec![Op::DeleteTable { family: *index.get(&seen.tables), name: TABLE.into() }]
            }
            Damage::DeleteElement if !elements.is_empty() => vec![delete(index.get(&elements))],
            Damage::ReplaceValue if !elements.is_empty() => {
                let target = index.get(&elements);
                let (set, element) = target;
                let donor = elements.iter().find(|(of, other)| of == set && other.data != element.data);
                let data = donor.map_or(Data::None, |(_, donor)| donor.data.clone());
                if donor.is_none() {
                    return;
                }
                let element = Element { data, ..(*element).clone() };
                vec![delete(target), Op::AddElements { set: set.clone(), elements: vec![element] }]
            }
            Damage::AddElement if !elements.is_empty() => {
                let (set, element) = index.get(&elements);
                let mut element = (*element).clone();
                element.key[0] ^= 0x55;
                vec![Op::AddElements { set: set.clone(), elements: vec![element] }]
            }
            _ => return,
        };
        self.connection.commit(&ops).unwrap();
        self.is_damaged = true;
        self.clients.clear();
        for at in seen.sets.iter().filter(|(_, set)| set.flags & set_flags::EVAL != 0).map(|(at, _)| at) {
            // whether they were in what is lost does not matter here
            let _ = self.connection.commit(&[Op::FlushSet(set_ref(at))]);
        }
    }

    /// The kernel holds what a fresh start makes, nothing is to be repaired, and the right clients are known.
    fn check(&mut self, beside: &mut Fresh) -> Result<(), TestCaseError> {
        let seen = Seen::read(&mut self.connection);
        let fresh = beside.start(&self.config, &self.model);
        seen.compare(&fresh)?;
        let clients: BTreeMap<Place, Bytes> = seen.clients().collect();
        prop_assert_eq!(&clients, &self.clients, "clients known, and to be known");
        let mut another = self.namespace.run(|| Programmer::open(CodecKind::Native)).unwrap();
        let (node, ports) = self.tracker.whole().expect("a plan was taken");
        let preview = another.preview(node, ports).map_err(|error| TestCaseError::fail(error.to_string()))?;
        // An address that is one Service's ClusterIP and another's external one is read as a ClusterIP of both; what
        // follows is deleted and added again, which is no difference.
        let mut differences = differences::of(&preview, another.state());
        // Chains that nothing leads to may say anything: it is put right when something does.
        differences.retain(|found| {
            let chain = found.what.strip_prefix("chain ").and_then(|text| text.strip_suffix(": other rules"));
            chain.is_none_or(|chain| {
                fresh.chains.keys().any(|(family, name)| (family.name(), name.as_str()) == (found.family, chain))
            })
        });
        prop_assert!(differences.is_empty(), "a restart would repair {:#?}", differences);
        Ok(())
    }

    /// At the end: nothing is left over, and nft shows the same.
    fn finish(&mut self, beside: &mut Fresh) -> Result<(), TestCaseError> {
        self.restart(0, None)?;
        self.check(beside)?;
        self.collect()?;
        let (seen, fresh) = (Seen::read(&mut self.connection), Seen::read(&mut beside.connection));
        prop_assert_eq!(seen.chains.keys().collect::<Vec<_>>(), fresh.chains.keys().collect::<Vec<_>>());
        prop_assert_eq!(seen.sets.keys().collect::<Vec<_>>(), fresh.sets.keys().collect::<Vec<_>>());
        for (family, name) in seen.sets.iter().filter(|(_, set)| set.flags & set_flags::EVAL != 0).map(|(at, _)| at) {
            let set = SetRef { family: *family, table: TABLE.into(), name: name.as_str().into() };
            self.connection.commit(&[Op::FlushSet(set)]).unwrap();
        }
        let list = |namespace: &Namespace| namespace.command("nft", &["list", "ruleset"], "").unwrap();
        let [lived, fresh] = [list(self.namespace), list(&beside.namespace)].map(|text| sorted(&without_slots(&text)));
        prop_assert_eq!(lived, fresh, "what nft lists");
        Ok(())
    }
}

/// Where clients of a port may be noted, for each of its endpoints. The client is left out.
fn places(port: &PortPlan) -> impl Iterator<Item = (Place, Bytes)> + '_ {
    let family = if port.id.family == Family::V4 { NfFamily::IPV4 } else { NfFamily::IPV6 };
    let map = Map::Affinity(AffinityId::new(&port.id.name, port.protocol)).name().to_string();
    let endpoints = port.cluster.iter().chain(&port.local).filter(|_| port.affinity.is_some());
    let places: BTreeSet<(Place, Bytes)> = endpoints
        .map(|endpoint| {
            let Data::Value(data) = Value::Endpoint(endpoint.ip, endpoint.port).to_wire(Chain::name) else {
                panic!("{endpoint:?} is an address and a port")
            };
            ((family, map.clone(), Bytes::new()), data)
        })
        .collect();
    places.into_iter()
}

/// Another node, on which every proxy is the first.
struct Fresh {
    namespace: Namespace,
    connection: Connection,
    programmer: Programmer,
}

impl Fresh {
    fn new() -> Fresh {
        let namespace = Namespace::new("fresh").unwrap();
        let (connection, programmer) = namespace
            .run(|| (Connection::open(CodecKind::Native).unwrap(), Programmer::open(CodecKind::Native).unwrap()));
        Fresh { namespace, connection, programmer }
    }

    fn start(&mut self, config: &ProxyConfig, model: &Model) -> Seen {
        let mut tracker = Tracker::new(config.clone());
        tracker.replace(model.snapshot());
        tracker.take();
        let (node, ports) = tracker.whole().expect("a plan was taken");
        self.programmer.cleanup().unwrap();
        self.programmer.replace(node, ports).unwrap();
        Seen::read(&mut self.connection)
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Another one each time.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

netns_test! {
    fn a_history_leads_to_what_a_fresh_start_makes() {
        let seed = number("SVCMAP_SEED").unwrap_or_else(random_seed);
        let steps = number("SVCMAP_STEPS").map_or(STEPS, |steps| steps as usize);
        println!("SVCMAP_SEED={seed} SVCMAP_STEPS={steps}");
        let config = ProptestConfig {
            cases: steps.div_ceil(LONGEST / 2) as u32,
            failure_persistence: None,
            max_shrink_time: 120_000,
            ..ProptestConfig::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let lived = Namespace::new("lived").unwrap();
        let (fresh, counts) = (std::cell::RefCell::new(Fresh::new()), std::cell::Cell::new((0, 0)));
        let result = runner.run(&vec(step(), 1..LONGEST), |history| {
            let (mut node, mut fresh) = (Node::new(&lived), fresh.borrow_mut());
            for (number, step) in history.iter().enumerate() {
                let at = |error| match error {
                    TestCaseError::Fail(why) => TestCaseError::fail(format!("at step {}: {why}", number + 1)),
                    other => other,
                };
                let comparable = node.step(step).map_err(at)?;
                if comparable {
                    node.check(&mut fresh).map_err(at)?;
                }
                let (steps, compared) = counts.get();
                counts.set((steps + 1, compared + usize::from(comparable)));
            }
            node.finish(&mut fresh)
        });
        match result {
            Ok(()) => {}
            Err(TestError::Fail(why, history)) => panic!("SVCMAP_SEED={seed}: {why}\nafter {history:#?}"),
            Err(error) => panic!("SVCMAP_SEED={seed}: {error}"),
        }
        let (steps, compared) = counts.get();
        println!("{compared} states compared after {steps} steps");
        assert!(compared * 20 > steps, "only {compared} of {steps} steps were looked at");
    }
}

netns_test! {
    /// Clients are known by port and protocol. Those of the protocol of before stay until nobody needs the map, and
    /// nobody would take out of it who is sent to an endpoint that leaves meanwhile.
    fn a_port_with_another_protocol_forgets_its_clients() {
        let (lived, mut fresh) = (Namespace::new("lived").unwrap(), Fresh::new());
        let mut node = Node::new(&lived);
        let only = any::<Index>().new_tree(&mut TestRunner::deterministic()).unwrap().current();
        for protocol in ["TCP", "UDP", "TCP"] {
            let mut given = Given::new("now");
            given.add(&format!("service svc port=80/{protocol} affinity=60"));
            given.add("slice svc port=8080/TCP,8080/UDP R1");
            let objects = snapshot(&manifests(&NodeSettings::default(), &given, Stack::V4));
            node.step(&Step::Objects(Box::new(history::Step::Replace(objects)))).unwrap();
            node.step(&Step::Objects(Box::new(history::Step::Take))).unwrap();
            node.check(&mut fresh).unwrap_or_else(|error| panic!("{protocol}: {error}"));
            node.step(&Step::Learn(only, 1)).unwrap();
            assert_eq!(node.clients.len(), 1);
            node.check(&mut fresh).unwrap();
        }
    }
}
