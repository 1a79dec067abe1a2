//! Where UDP flows that exist may stay (behaviour rows H3–H5).

use std::net::IpAddr;
use std::sync::Arc;

use super::endpoints::Slices;
use super::{Context, endpoints, frontends, selection};
use crate::objects::{EndpointSlice, Family, Protocol, Service};
use crate::plan::Claim;

/// The addresses and ports that flows may be answered from, sorted. Without any, no flow may stay (row H5).
pub type Serving = Arc<[(IpAddr, u16)]>;

/// The UDP frontends of a Service, of those that `wins` says it has (row A11), and where flows to each may stay: at
/// the serving endpoints of its port, see [`endpoints::serving`]. The policies of the frontends make no difference.
pub fn udp(
    context: &Context,
    service: &Service,
    slices: &[&EndpointSlice],
    wins: impl Fn(&Claim) -> bool,
) -> Vec<(Claim, Serving)> {
    let mut flows = Vec::new();
    if !is_concerned(service) {
        return flows;
    }
    for family in Family::BOTH {
        let slices = Slices::new(service, family, slices);
        for served in frontends::served(service, family).filter(|served| served.port.protocol == Protocol::Udp) {
            let endpoints = endpoints::serving(context, served.port, &slices);
            let serving: Serving = endpoints.iter().map(|endpoint| (endpoint.ip, endpoint.port)).collect();
            let claims = served.addresses.iter().map(|(address, _)| Claim::new(family, Protocol::Udp, *address));
            flows.extend(claims.filter(&wins).map(|claim| (claim, serving.clone())));
        }
    }
    flows
}

/// Whether the Service has UDP frontends at all.
pub fn is_concerned(service: &Service) -> bool {
    selection::is_proxied(service) && service.ports.iter().any(|port| port.protocol == Protocol::Udp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Conditions, Endpoint, ServiceKey, ServicePort, SliceKey, SlicePort, Target};
    use crate::policy::frontends::tests::service;

    const CONDITIONS: [(bool, bool, bool); 8] = [
        (true, true, false),
        (true, false, false), // published although it is not ready
        (true, true, true),
        (true, false, true),
        (false, true, false),
        (false, true, true),
        (false, false, false),
        (false, false, true),
    ];

    /// Row H4: whatever new connections may use, and whatever serves.
    #[test]
    fn flows_may_stay_where_something_serves() {
        let mut service = service(&["172.30.0.1"]);
        service.key = ServiceKey::new("ns", "svc");
        service.ports = [("dns", Protocol::Udp, 53), ("web", Protocol::Tcp, 80)]
            .map(|(name, protocol, port)| ServicePort {
                name: name.into(),
                protocol,
                port,
                node_port: 30000 + port,
                target: Target::Number(0),
            })
            .into();
        let endpoint = |(number, (ready, serving, terminating)): (u8, (bool, bool, bool))| Endpoint {
            address: [10, 0, 0, number].into(),
            conditions: Conditions { ready, serving, terminating },
            node: None,
            hints: None,
        };
        let slice = EndpointSlice {
            key: SliceKey { namespace: "ns".into(), name: "svc-1".into() },
            service: "svc".into(),
            family: Family::V4,
            ports: vec![SlicePort { name: "dns".into(), protocol: Protocol::Udp, port: 5353 }],
            endpoints: (1..).zip(CONDITIONS).map(endpoint).collect(),
        };
        let udp = |wins: &dyn Fn(&Claim) -> bool| super::udp(&Context::default(), &service, &[&slice], wins);
        let all = udp(&|_| true);
        let claims: Vec<String> = all.iter().map(|(claim, _)| claim.to_string()).collect();
        assert_eq!(claims, ["172.30.0.1:53/udp", "IPv4 node port 30053/udp"]);
        let expected: Serving = [1, 2, 3, 4, 5, 6].map(|number| (IpAddr::from([10, 0, 0, number]), 5353)).into();
        all.iter().for_each(|(claim, serving)| assert_eq!(*serving, expected, "{claim}"));
        let won = udp(&|claim| claim.ip().is_none());
        assert_eq!(won.iter().map(|(claim, _)| claim.port()).collect::<Vec<_>>(), [30053]);
    }
}
