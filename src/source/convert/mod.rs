//! From the JSON form of Kubernetes objects to the compact types of [`crate::objects`].
//!
//! A conversion gives what can be used and reports the rest: a field that cannot be read is left out where the
//! object makes sense without it, as the API server's defaults would have it.

mod endpoints;
mod field;
mod meta;
mod node;
mod pod;
mod service;
mod slice;

use std::collections::HashSet;
use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::Value;

use crate::objects::{EndpointSlice, Name, Node, Service, ServiceKey};
use crate::shown::Clipped;
use crate::source::Problem;

pub use endpoints::Endpoints;
pub use field::{Field, Report, Shown, is_dns_subdomain};
pub use pod::{Pod, PodKey};

/// An object of one of the kinds that Services are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// v1 Service.
    Service(Service),
    /// discovery.k8s.io/v1 EndpointSlice.
    Slice(EndpointSlice),
    /// An EndpointSlice of this Service that is not for us (behaviour rows A3, A5): the Service has slices, though.
    SliceElsewhere(ServiceKey),
    /// v1 Endpoints.
    Endpoints(Endpoints),
    /// v1 Node.
    Node(Node),
    /// v1 Pod.
    Pod(Pod),
    /// networking.k8s.io ServiceCIDR: its name and `spec.cidrs`.
    ServiceCidr(Name, Vec<IpNet>),
}

impl Object {
    /// What tells an object from others: its kind, namespace and name.
    pub fn identity(&self) -> (Discriminant<Object>, &str, &str) {
        let (namespace, name) = match self {
            Object::Service(service) => (&service.key.namespace, &service.key.name),
            Object::Slice(slice) => (&slice.key.namespace, &slice.key.name),
            Object::SliceElsewhere(key) => (&key.namespace, &key.name),
            Object::Endpoints(object) => (&object.key.namespace, &object.key.name),
            Object::Pod(pod) => (&pod.key.namespace, &pod.key.name),
            Object::Node(Node { name, .. }) | Object::ServiceCidr(name, _) => return (discriminant(self), "", name),
        };
        (discriminant(self), namespace, name)
    }
}

/// Node names, each stored once: a node has many endpoints.
#[derive(Debug, Default)]
pub struct Interner(HashSet<Arc<str>>);

impl Interner {
    /// The one shared copy of this text.
    pub fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        new
    }

    /// Forgets the names that nobody else holds.
    pub fn prune(&mut self) {
        self.0.retain(|name| Arc::strong_count(name) > 1);
    }
}

/// A list without room to grow: there are many, and they stay.
fn tight<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list: Vec<T> = items.collect();
    list.shrink_to_fit();
    list
}

/// A kind that is read, and the versions of it.
struct Kind {
    kind: &'static str,
    group: &'static str,
    versions: &'static [&'static str],
    namespaced: bool,
    convert: fn(&Field, &meta::Meta, &mut Interner) -> Option<Object>,
}

impl Kind {
    /// What `apiVersion` may say.
    fn api_versions(&self) -> Vec<String> {
        let group = if self.group.is_empty() { String::new() } else { format!("{}/", self.group) };
        self.versions.iter().map(|version| format!("{group}{version}")).collect()
    }
}

const KINDS: [Kind; 6] = [
    Kind { kind: "Service", group: "", versions: &["v1"], namespaced: true, convert: service::convert },
    Kind {
        kind: "EndpointSlice",
        group: "discovery.k8s.io",
        versions: &["v1"],
        namespaced: true,
        convert: slice::convert,
    },
    Kind { kind: "Endpoints", group: "", versions: &["v1"], namespaced: true, convert: endpoints::convert },
    Kind { kind: "Node", group: "", versions: &["v1"], namespaced: false, convert: node::convert },
    Kind { kind: "Pod", group: "", versions: &["v1"], namespaced: true, convert: pod::convert },
    Kind {
        kind: "ServiceCIDR",
        group: "networking.k8s.io",
        versions: &["v1", "v1beta1"],
        namespaced: false,
        convert: node::convert_service_cidr,
    },
];

/// What an object is called in messages: `Service default/web`, `Node n1`; or its place, if it has no name.
pub fn title(kind: &str, value: &Value, place: &dyn fmt::Display) -> String {
    meta::title(kind, KINDS.iter().find(|known| known.kind == kind).is_none_or(|known| known.namespaced), value, place)
}

/// Converts one object. Objects of other kinds are passed over quietly. `place` says where the object stands, for
/// the case that it has no name.
pub fn convert(
    value: &Value,
    place: &dyn fmt::Display,
    interner: &mut Interner,
    problems: &mut Vec<Problem>,
) -> Option<Object> {
    let text = |key| value.get(key).and_then(Value::as_str).unwrap_or("");
    let (kind_name, api_version) = (text("kind"), text("apiVersion"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // without a version it is nobody else's kind either
    let kind = KINDS.iter().find(|k| k.kind == kind_name && (k.group == group || api_version.is_empty()))?;

    let report = Report::new(meta::title(kind.kind, kind.namespaced, value, place));
    let root = Field::root(value, &report);
    let object = if kind.versions.contains(&version) {
        meta::Meta::read(&root, kind.namespaced).and_then(|meta| (kind.convert)(&root, &meta, interner))
    } else {
        let field = root.get("apiVersion");
        let versions = kind.api_versions().join(" and ");
        match field.value() {
            Value::String(other) if !other.is_empty() => {
                field.fatal(format_args!("{} is not read, only {versions}", Clipped(other)));
            }
            Value::String(_) | Value::Null => field.fatal(format_args!("is missing; {versions} is read")),
            other => field.fatal(format_args!("{} is not a string; {versions} is read", Shown(other))),
        }
        None
    };
    problems.extend(report.into_problems());
    object
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the tests of the conversions share.

    use super::*;

    /// Converts a YAML document; the object, and the problems as they are printed.
    pub fn convert_yaml(yaml: &str) -> (Option<Object>, Vec<String>) {
        let value: Value = serde_saphyr::from_str(yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        let mut problems = Vec::new();
        let object = convert(&value, &"test", &mut Interner::default(), &mut problems);
        (object, problems.iter().map(ToString::to_string).collect())
    }
}
