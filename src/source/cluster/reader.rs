//! From the objects of one kind to changes.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use serde_json::{Value, json};
use tracing::warn;

use super::resource::{Kind, Resource};
use crate::objects::{Name, ServiceKey, SliceKey};
use crate::source::convert::{Interner, Object, convert};
use crate::source::{Change, Problem};

const TRIGGER_TIME: &str = "/metadata/annotations/endpoints.kubernetes.io~1last-change-trigger-time";

/// Namespace (where the kind has them) and name.
pub type Key = (Name, Name);

/// Makes changes of objects.
pub struct Reader {
    kind: Kind,
    api_version: &'static str,
    name: &'static str,
    interner: Interner,
    /// ServiceCIDRs are told all together.
    cidrs: BTreeMap<Name, Vec<IpNet>>,
}

impl Reader {
    /// For the objects of this resource.
    pub fn new(resource: &Resource) -> Reader {
        Reader {
            kind: resource.kind,
            api_version: resource.api_version,
            name: resource.name,
            interner: Interner::default(),
            cidrs: BTreeMap::new(),
        }
    }

    /// The object as it is converted. Those of a list do not say of which kind they are.
    pub fn convert(&mut self, mut object: Value, problems: &mut Vec<Problem>) -> Option<Object> {
        let fields = object.as_object_mut()?;
        fields.insert("apiVersion".into(), json!(self.api_version));
        fields.insert("kind".into(), json!(self.name));
        convert(&object, &"from the API server", &mut self.interner, problems)
    }

    /// What an object that is there changes, and its key. What cannot be used is as good as gone.
    pub fn read(&mut self, object: Value) -> Option<(Key, Change)> {
        let key = key_of(&object)?;
        let mut problems = Vec::new();
        let object = self.convert(object, &mut problems);
        problems.iter().for_each(|problem| warn!("{problem}"));
        let change = match (self.kind, object) {
            (Kind::Service, Some(Object::Service(service))) => Change::Service(service),
            (Kind::Slice, Some(Object::Slice(slice))) => Change::Slice(slice),
            (Kind::Node, Some(Object::Node(node))) => Change::Node(node),
            (Kind::ServiceCidr, Some(Object::ServiceCidr(name, networks))) => {
                self.cidrs.insert(name, networks);
                self.service_cidrs()
            }
            _ => self.without(&key)?,
        };
        Some((key, change))
    }

    /// What an object that is not there any more changes, and its key.
    pub fn gone(&mut self, object: &Value) -> Option<(Key, Change)> {
        let key = key_of(object)?;
        let change = self.without(&key)?;
        Some((key, change))
    }

    /// What follows when these are all there are. The Node is kept: without it the rules would be made for other addresses,
    /// and kubelets that register again delete theirs.
    pub fn only(&mut self, keys: HashSet<Key>) -> Option<Change> {
        match self.kind {
            Kind::Service => Some(Change::OnlyServices(
                keys.into_iter().map(|(namespace, name)| ServiceKey { namespace, name }).collect(),
            )),
            Kind::Slice => Some(Change::OnlySlices(
                keys.into_iter().map(|(namespace, name)| SliceKey { namespace, name }).collect(),
            )),
            Kind::Node => {
                if keys.is_empty() {
                    warn!("there is no Node of this node's name; what is known of it stays");
                }
                None
            }
            Kind::ServiceCidr => {
                self.cidrs.retain(|name, _| keys.contains(&(Name::default(), name.clone())));
                Some(self.service_cidrs())
            }
        }
    }

    /// What follows when the API server does not have the kind.
    pub fn absent(&mut self) -> Option<Change> {
        (!self.cidrs.is_empty()).then(|| {
            self.cidrs.clear();
            self.service_cidrs()
        })
    }

    /// Forgets the names that nobody holds any more.
    pub fn prune(&mut self) {
        self.interner.prune();
    }

    fn without(&mut self, (namespace, name): &Key) -> Option<Change> {
        let (namespace, name) = (namespace.clone(), name.clone());
        match self.kind {
            Kind::Service => Some(Change::ServiceGone(ServiceKey { namespace, name })),
            Kind::Slice => Some(Change::SliceGone(SliceKey { namespace, name })),
            Kind::Node => None,
            Kind::ServiceCidr => {
                self.cidrs.remove(&name);
                Some(self.service_cidrs())
            }
        }
    }

    fn service_cidrs(&self) -> Change {
        let mut networks: Vec<IpNet> = self.cidrs.values().flatten().copied().collect();
        networks.sort();
        networks.dedup();
        Change::ServiceCidrs(networks)
    }
}

fn key_of(object: &Value) -> Option<Key> {
    let metadata = object.get("metadata")?;
    let text = |key| metadata.get(key).and_then(Value::as_str);
    Some((text("namespace").unwrap_or_default().into(), text("name")?.into()))
}

/// `metadata.resourceVersion`.
pub fn version_of(object: &Value) -> Option<String> {
    object.pointer("/metadata/resourceVersion")?.as_str().map(Into::into)
}

/// When that which changed the endpoints happened, where the object says that (row J16).
pub fn trigger_time(object: &Value) -> Option<SystemTime> {
    let time: jiff::Timestamp = object.pointer(TRIGGER_TIME)?.as_str()?.parse().ok()?;
    let since_epoch = u64::try_from(time.as_nanosecond()).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(since_epoch))
}
