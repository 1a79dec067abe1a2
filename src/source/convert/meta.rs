//! `metadata`.

use serde_json::Value;

use crate::objects::Name;

use super::field::{Clipped, Field, is_dns_label, is_dns_subdomain};
use super::tight;

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
        let Some(name) = name_field.peek_text().filter(|n| is_dns_subdomain(n)) else {
            name_field.fatal(match name_field.peek_text() {
                None | Some("") => "is missing",
                Some(_) => "is not a valid name (a-z, 0-9, - and dots)",
            });
            return None;
        };
        let namespace_field = metadata.get("namespace");
        let namespace = match namespace_field.peek_text() {
            _ if !namespaced => "",
            None | Some("") if namespace_field.is_absent() || namespace_field.peek_text().is_some() => "default",
            Some(namespace) if is_dns_label(namespace) => namespace,
            _ => {
                namespace_field.fatal("is not a valid namespace (at most 63 of a-z, 0-9 and -)");
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

/// The value of a label; none where it is absent or no text.
pub fn label<'f>(root: &'f Field<'f>, key: &'f str) -> Option<&'f str> {
    lookup(root, "labels", key)
}

/// Whether there is such a label, whatever its value.
pub fn has_label(root: &Field, key: &str) -> bool {
    root.value().pointer("/metadata/labels").is_some_and(|labels| labels.get(key).is_some())
}

/// The value of an annotation; none where it is absent or no text.
pub fn annotation<'f>(root: &'f Field<'f>, key: &'f str) -> Option<&'f str> {
    lookup(root, "annotations", key)
}

fn lookup<'f>(root: &'f Field<'f>, map: &'f str, key: &'f str) -> Option<&'f str> {
    root.value().get("metadata")?.get(map)?.get(key)?.as_str()
}

/// `metadata.labels` with all text values, sorted by key.
pub fn labels(root: &Field) -> Vec<(Name, Name)> {
    let metadata = root.get("metadata");
    let labels = metadata.get("labels");
    tight(labels.entries().filter_map(|(key, value)| Some((key.into(), value.text()?.into()))))
}
