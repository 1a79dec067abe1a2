//! What a cluster told, put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use serde_json::{Value, json};
use svcmap::events::{Recorder, recorder};
use svcmap::objects::{EndpointSlice, Node, Service};
use svcmap::source::Change;
use svcmap::source::cluster::{Access, Cluster, Message, follow};

use crate::fake::Fake;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nothing has to come for it to count as silence.
const SILENCE: Duration = Duration::from_millis(400);

/// A cluster that is followed, and what is known of it.
pub struct Followed {
    _cluster: Cluster,
    messages: Receiver<Message>,
    pub services: BTreeMap<String, Service>,
    pub recorder: Recorder,
    pub slices: BTreeMap<String, EndpointSlice>,
    pub node: Option<Node>,
    pub cidrs: Vec<IpNet>,
    pub listed: usize,
    pub triggered: Vec<SystemTime>,
    /// The names of Services that were there and are not any more, as often as they went.
    pub went: Vec<String>,
}

pub fn access(servers: &[&Fake]) -> Access {
    Access { kubeconfig: None, masters: servers.iter().map(|server| server.url()).collect(), qps: -1.0, burst: 10 }
}

impl Followed {
    pub fn new(server: &Fake) -> Followed {
        Followed::by(access(&[server]))
    }

    pub fn by(access: Access) -> Followed {
        let (sender, messages) = channel();
        let (recorder, events) = recorder();
        let cluster = follow(access, "n1", events, move |message| drop(sender.send(message))).unwrap();
        Followed {
            _cluster: cluster,
            recorder,
            messages,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            node: None,
            cidrs: Vec::new(),
            listed: 0,
            triggered: Vec::new(),
            went: Vec::new(),
        }
    }

    /// Takes in messages until it is so.
    pub fn wait_for(&mut self, what: &str, is_so: impl Fn(&Followed) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            match self.messages.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) => self.take(message),
                Err(error) => {
                    let (services, slices) = (self.services.keys(), self.slices.keys());
                    panic!("{what}: {error}; {services:?} {slices:?} listed {}", self.listed)
                }
            }
        }
    }

    pub fn wait_until_listed(&mut self) {
        self.wait_for("a list", |followed| followed.listed > 0);
    }

    /// Takes in messages until none comes any more.
    pub fn wait_for_silence(&mut self) {
        loop {
            match self.messages.recv_timeout(SILENCE) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn take(&mut self, message: Message) {
        let change = match message {
            Message::Listed => {
                self.listed += 1;
                return;
            }
            Message::Change(change, triggered) => {
                self.triggered.extend(triggered);
                change
            }
        };
        match change {
            Change::Service(service) => drop(self.services.insert(service.key.to_string(), service)),
            Change::ServiceGone(key) => self.lose(&key.to_string()),
            Change::OnlyServices(keys) => {
                let keys: BTreeSet<String> = keys.iter().map(ToString::to_string).collect();
                let gone: Vec<_> = self.services.keys().filter(|key| !keys.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.lose(key));
            }
            Change::Slice(slice) => drop(self.slices.insert(slice.key.to_string(), slice)),
            Change::SliceGone(key) => drop(self.slices.remove(&key.to_string())),
            Change::OnlySlices(keys) => {
                let keys: BTreeSet<String> = keys.iter().map(ToString::to_string).collect();
                self.slices.retain(|key, _| keys.contains(key));
            }
            Change::Node(node) => self.node = Some(node),
            Change::ServiceCidrs(cidrs) => self.cidrs = cidrs,
        }
    }

    fn lose(&mut self, key: &str) {
        if self.services.remove(key).is_some() {
            self.went.push(key.into());
        }
    }

    pub fn names(&self) -> Vec<&str> {
        self.services.keys().map(String::as_str).collect()
    }
}

pub fn service(name: &str, number: u32) -> Value {
    json!({"kind": "Service", "apiVersion": "v1", "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": format!("10.96.{}.{}", number / 256, number % 256), "type": "ClusterIP",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

pub fn labelled(mut object: Value, label: &str, value: &str) -> Value {
    object["metadata"]["labels"][label] = json!(value);
    object
}

pub fn slice(name: &str, service: &str, endpoints: u32) -> Value {
    let endpoint = |n: u32| {
        json!({"addresses": [format!("10.{}.{}.{}", 128 + n / 65536, n / 256 % 256, n % 256)], "nodeName": format!("n{}", n % 50),
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": format!("{service}-6f9d5c7b9d-{n:05}"),
                "uid": format!("01234567-89ab-cdef-0123-{n:012}")}})
    };
    let object = json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"namespace": "default", "name": name}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": (1..=endpoints).map(endpoint).collect::<Vec<_>>()});
    labelled(object, "kubernetes.io/service-name", service)
}

pub fn node(name: &str, address: &str) -> Value {
    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

pub fn cidr(name: &str, network: &str) -> Value {
    json!({"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": name},
        "spec": {"cidrs": [network]}})
}
