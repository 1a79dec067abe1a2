//! discovery.k8s.io/v1 EndpointSlice.

use std::collections::HashSet;

use crate::objects::{Conditions, Endpoint, EndpointSlice, Family, Hints, ServiceKey, SliceKey, SlicePort};

use super::field::Field;
use super::meta::{self, Meta};
use super::{Interner, Object, tight};

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
const LEFT_OUT: &str = "the endpoint is left out";
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Reads an EndpointSlice. One that belongs to no Service is nothing (row A4), and neither is one for somebody else (row
/// A3) or with names in place of addresses (row A5).
pub fn convert(root: &Field, meta: &Meta, interner: &mut Interner) -> Option<Object> {
    let service = meta::label(root, SERVICE_NAME_LABEL).filter(|name| !name.is_empty())?;
    let elsewhere = Object::SliceElsewhere(ServiceKey::new(&meta.namespace, service));
    if meta::has_label(root, HEADLESS_LABEL) || meta::has_label(root, meta::PROXY_NAME_LABEL) {
        return Some(elsewhere);
    }
    let address_type = root.get("addressType");
    let family = match address_type.peek_text() {
        Some("FQDN") => return Some(elsewhere),
        Some("IPv4") => Family::V4,
        Some("IPv6") => Family::V6,
        _ => {
            address_type.fatal("is not one of IPv4, IPv6, FQDN");
            return None;
        }
    };
    let endpoints = root.get("endpoints");
    let mut slice = EndpointSlice {
        key: SliceKey { namespace: meta.namespace.clone(), name: meta.name.clone() },
        service: service.into(),
        family,
        ports: tight(root.get("ports").mappings("the port is left out").filter_map(|port| slice_port(&port))),
        endpoints: tight(endpoints.mappings(LEFT_OUT).filter_map(|field| endpoint(&field, family, interner))),
    };
    drop_repeated(&endpoints, &mut slice.endpoints);
    Some(Object::Slice(slice))
}

/// A port without a name or a number is nothing (row A6). An API server gives a port its name, if only an empty one, so
/// that this is somebody's omission.
fn slice_port(field: &Field) -> Option<SlicePort> {
    let (name, number) = (field.get("name"), field.get("port"));
    if name.is_absent() {
        field.problem("has no name, which is \"\" where the Service port has none; the port is left out");
        return None;
    }
    if number.is_absent() || number.peek_number() == Some(0) {
        field.problem("has no port number; the port is left out");
        return None;
    }
    Some(SlicePort { name: name.port_name()?, protocol: field.get("protocol").protocol()?, port: number.port()? })
}

/// The first address counts (row A8); what is not said of the conditions has its default (row A7).
fn endpoint(field: &Field, family: Family, interner: &mut Interner) -> Option<Endpoint> {
    let addresses = field.get("addresses");
    let Some(first) = addresses.items().next() else {
        addresses.problem("has no entry; the endpoint is left out");
        return None;
    };
    let address = first.of_family(first.routable_address()?, family)?;
    Some(Endpoint {
        address,
        conditions: conditions(&field.get("conditions"))?,
        node: field.get("nodeName").text().filter(|name| !name.is_empty()).map(|name| interner.get(name)),
        hints: hints(&field.get("hints")),
    })
}

/// The conditions, with their defaults (row A7). What cannot be read says nothing of whether the endpoint serves.
fn conditions(field: &Field) -> Option<Conditions> {
    if !field.is_mapping(LEFT_OUT) {
        return None;
    }
    let condition = |name, default| field.get(name).boolean_or(default, LEFT_OUT);
    let (ready, serving) = (condition("ready", true), condition("serving", true));
    let terminating = condition("terminating", false);
    Some(Conditions { ready: ready?, serving: serving?, terminating: terminating? })
}

fn hints(field: &Field) -> Option<Box<Hints>> {
    let names = |list: &Field| {
        list.items().filter_map(|entry| entry.get("name").text().filter(|t| !t.is_empty()).map(Into::into)).collect()
    };
    let hints = Hints { zones: names(&field.get("forZones")), nodes: names(&field.get("forNodes")) };
    (hints != Hints::default()).then(|| Box::new(hints))
}

/// Drops endpoints that say word for word what another of the slice says. (Two endpoints may well share an address,
/// such as Pods of the host network; which of them counts is decided by row A9.)
fn drop_repeated(field: &Field, endpoints: &mut Vec<Endpoint>) {
    let mut seen = HashSet::with_capacity(endpoints.len());
    endpoints.retain(|endpoint| {
        let fresh = seen.insert((endpoint.address, endpoint.conditions, endpoint.node.clone()));
        if !fresh {
            field.problem(format_args!("{} is listed twice", endpoint.address));
        }
        fresh
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::convert::testing::convert_yaml;

    fn slice(yaml: &str) -> (EndpointSlice, Vec<String>) {
        let (object, problems) = convert_yaml(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}\n{yaml}"
        ));
        match object {
            Some(Object::Slice(slice)) => (slice, problems),
            other => panic!("{yaml}\ngave {other:?}, {problems:?}"),
        }
    }

    #[test]
    fn absent_conditions_have_their_defaults() {
        let (slice, problems) = slice("addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]");
        assert_eq!(slice.endpoints[0].conditions, Conditions { ready: true, serving: true, terminating: false });
        assert_eq!(slice.endpoints[0].node, None);
        assert_eq!(problems, [""; 0]);
    }

    /// Case C17.
    #[test]
    fn ports_without_a_name_or_a_number_are_left_out() {
        let (slice, problems) = slice(
            "addressType: IPv4\nports: [{port: 80}, {name: a}, {name: b, port: 0}, {name: '', port: 81}, \
             {name: c, port: 82, protocol: UDP}]",
        );
        let ports: Vec<_> = slice.ports.iter().map(|p| format!("{}/{}/{}", p.name, p.port, p.protocol)).collect();
        assert_eq!(ports, ["/81/tcp", "c/82/udp"]);
        assert_eq!(
            problems,
            [
                "EndpointSlice default/web-1: ports[0]: has no name, which is \"\" where the Service port has none; the port \
                 is left out",
                "EndpointSlice default/web-1: ports[1]: has no port number; the port is left out",
                "EndpointSlice default/web-1: ports[2]: has no port number; the port is left out",
            ]
        );
    }

    /// What cannot be read is not taken for a yes.
    #[test]
    fn an_endpoint_whose_conditions_cannot_be_read_is_left_out() {
        let (slice, problems) = slice(
            "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], conditions: {ready: 'yes'}}, 7, \
             {addresses: [10.0.0.2], conditions: {serving: 1, terminating: 'no'}}, {addresses: [10.0.0.3], conditions: [ready]}, \
             {addresses: [10.0.0.4], conditions: null}, {addresses: [10.0.0.5], conditions: {ready: null}}]",
        );
        let left: Vec<String> = slice.endpoints.iter().map(|e| e.address.to_string()).collect();
        assert_eq!(left, ["10.0.0.4", "10.0.0.5"]);
        let want = [
            "[0].conditions.ready: \"yes\" is not true or false",
            "[1]: 7 is not a mapping",
            "[2].conditions.serving: 1 is not true or false",
            "[2].conditions.terminating: \"no\" is not true or false",
            "[3].conditions: a list is not a mapping",
        ]
        .map(|problem| format!("EndpointSlice default/web-1: endpoints{problem}; the endpoint is left out"));
        assert_eq!(problems, want);
    }

    #[test]
    fn an_endpoint_of_the_wrong_family_is_left_out_and_reported() {
        let (slice, problems) =
            slice("addressType: IPv4\nendpoints: [{addresses: ['fd00::1']}, {addresses: [10.0.0.1]}]");
        assert_eq!(slice.endpoints.len(), 1);
        assert_eq!(
            problems,
            ["EndpointSlice default/web-1: endpoints[0].addresses[0]: fd00::1 is not an IPv4 address"]
        );
    }

    #[test]
    fn endpoints_that_are_listed_twice_count_once() {
        let (slice, problems) = slice(
            "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.1]}, \
             {addresses: [10.0.0.1], conditions: {ready: false}}]",
        );
        assert_eq!(slice.endpoints.len(), 2, "the third differs");
        assert_eq!(problems, ["EndpointSlice default/web-1: endpoints: 10.0.0.1 is listed twice"]);
    }

    #[test]
    fn hints_of_both_sorts_are_read() {
        let (slice, _) = slice(
            "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: a}], forNodes: [{name: n1}]}}]",
        );
        let want = Hints { zones: vec!["a".into()], nodes: vec!["n1".into()] };
        assert_eq!(slice.endpoints[0].hints.as_deref(), Some(&want));
    }

    /// Cases C15 and C16: the Service has slices, but none for this proxy.
    #[test]
    fn slices_for_somebody_else_are_not_taken() {
        for rest in [
            "labels: {kubernetes.io/service-name: web, service.kubernetes.io/headless: ''}}\naddressType: IPv4",
            "labels: {kubernetes.io/service-name: web, service.kubernetes.io/service-proxy-name: x}}\naddressType: IPv4",
            "labels: {kubernetes.io/service-name: web}}\naddressType: FQDN",
        ] {
            let yaml = format!("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, {rest}");
            let want = Object::SliceElsewhere(ServiceKey::new("default", "web"));
            assert_eq!(convert_yaml(&yaml), (Some(want), vec![]), "{rest}");
        }
    }
}
