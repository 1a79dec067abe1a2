//! Which Services count (behaviour section A).

use crate::objects::{EndpointSlice, Family, Service, ServiceType};

/// Whether the Service is this proxy's work: no other proxy claims it by label (row A1), and it has an address of its
/// own, which headless Services and DNS aliases have not (row A2).
pub fn is_proxied(service: &Service) -> bool {
    !service.other_proxy && service.kind != ServiceType::ExternalName && !service.cluster_ips.is_empty()
}

/// Whether a slice holds endpoints of the Service (row A4) in this family (row A5).
pub fn belongs(slice: &EndpointSlice, service: &Service, family: Family) -> bool {
    slice.family == family && slice.service == service.key.name && slice.key.namespace == service.key.namespace
}
