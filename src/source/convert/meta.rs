//! `metadata`.

use serde_json::Value;

use crate::objects::Name;

use super::field::{Field, Shown, is_dns_label, is_dns_subdomain};
use super::tight;
use crate::shown::Clipped;

/// The label that hands a Service and its slices to another proxy (rows A1, A3).
pub const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// The parts of `metadata` that matter to every kind.
pub struct Meta {
    /// `metadata.namespace`; `default` where it is absent; empty for kinds without namespaces.
    pub namespace: Name,
    /// `metadata.name`.
    pub name: Name,
}

impl Meta {
    /// Reads and checks the names: they are shown in rulesets, so what the API server would refuse is refused.
    pub fn read(root: &Field, namespaced: bool) -> Option<Meta> {
        let metadata = root.get("metadata");
        let name_field = metadata.get("name");
        let name = match name_field.value() {
            Value::String(name) if is_dns_subdomain(name) => name,
            Value::String(name) if !name.is_empty() => {
                name_field.fatal("is not a valid name (a-z, 0-9, - and dots)");
                return None;
            }
            Value::String(_) | Value::Null => {
                name_field.fatal("is missing");
                return None;
            }
            other => {
                name_field.fatal(format_args!("{} is not a string", Shown(other)));
                return None;
            }
        };
        let namespace_field = metadata.get("namespace");
        let namespace = match namespace_field.value() {
            _ if !namespaced => "",
            Value::Null => "default",
            Value::String(namespace) if namespace.is_empty() => "default",
            Value::String(namespace) if is_dns_label(namespace) => namespace,
            Value::String(_) => {
                namespace_field.fatal("is not a valid namespace (at most 63 of a-z, 0-9 and -)");
                return None;
            }
            other => {
                namespace_field.fatal(format_args!("{} is not a string", Shown(other)));
                return None;
            }
        };
        Some(Meta { namespace: namespace.into(), name: name.into() })
    }
}

/// What the object is called in messages: `Service default/web`, `Node n1`; or its place, if it has no name.
pub fn title(kind: &str, namespaced: bool, value: &Value, place: &dyn std::fmt::Display) -> String {
    let text = |key: &str| value.pointer(key).and_then(Value::as_str).filter(|t| !t.is_empty());
    match (text("/metadata/name"), text("/metadata/namespace").unwrap_or("default")) {
        (None, _) => format!("{kind} without a name ({place})"),
        (Some(name), namespace) if namespaced => format!("{kind} {}/{}", Clipped(namespace), Clipped(name)),
        (Some(name), _) => format!("{kind} {}", Clipped(name)),
    }
}

/// The value of a label; none where it is absent, or reported not to be text.
pub fn label<'f>(root: &'f Field<'f>, key: &'f str) -> Option<&'f str> {
    lookup(root, "labels", key)
}

/// Whether there is such a label, whatever its value.
pub fn has_label(root: &Field, key: &str) -> bool {
    root.value().pointer("/metadata/labels").is_some_and(|labels| labels.get(key).is_some())
}

/// The value of an annotation; none where it is absent, or reported not to be text.
pub fn annotation<'f>(root: &'f Field<'f>, key: &'f str) -> Option<&'f str> {
    lookup(root, "annotations", key)
}

fn lookup<'f>(root: &'f Field<'f>, map: &'f str, key: &'f str) -> Option<&'f str> {
    let value = root.value().get("metadata")?.get(map)?.get(key)?;
    if !value.is_string() && !value.is_null() {
        let metadata = root.get("metadata");
        metadata.get(map).entry(key).wrong_type("text");
    }
    value.as_str()
}

/// `metadata.labels` with all text values, sorted by key.
pub fn labels(root: &Field) -> Vec<(Name, Name)> {
    let metadata = root.get("metadata");
    let labels = metadata.get("labels");
    tight(labels.entries().filter_map(|(key, value)| Some((key.into(), value.text()?.into()))))
}
