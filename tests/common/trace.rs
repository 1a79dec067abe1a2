//! The connections of the cases as packets of the tracer, and their outcomes as it says them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use svcmap::objects::Family;
use svcmap::trace::{Interface, Node, Origin, Outcome as Traced, Packet, Reject, Route, Share, Source};

use super::cases::{Flow, Home, NODE_IPS, OUTSIDE_INTERFACE, Outcome, POD_INTERFACE, address};

/// The node of the cases.
pub fn node() -> Node {
    let interface =
        |name: &str, addresses: Vec<IpAddr>| Interface { name: name.into(), addresses, ..Interface::default() };
    let own = Family::BOTH.iter().flat_map(|family| NODE_IPS.map(|ip| address(ip, *family)));
    let routes = ["0.0.0.0/0", "::/0"].map(|to| Route { to: to.parse().unwrap(), interface: OUTSIDE_INTERFACE.into() });
    Node {
        interfaces: vec![interface(POD_INTERFACE, Vec::new()), interface(OUTSIDE_INTERFACE, own.collect())],
        routes: routes.to_vec(),
    }
}

/// The first packet of a connection.
pub fn packet(flow: &Flow) -> Packet {
    Packet {
        protocol: flow.protocol,
        source: flow.from.ip,
        source_port: None,
        destination: flow.to,
        origin: match flow.from.home {
            Home::Node => Origin::Node,
            Home::Pod => Origin::Interface(POD_INTERFACE.into()),
            Home::Elsewhere | Home::Outside => Origin::Interface(OUTSIDE_INTERFACE.into()),
        },
    }
}

/// What the case expects, each endpoint as often as any other.
pub fn expected(flow: &Flow) -> BTreeMap<Traced, Share> {
    let one = |outcome| BTreeMap::from([(outcome, Share::ALL)]);
    match &flow.expect {
        Outcome::Untouched => one(Traced::Untouched),
        Outcome::Drop => one(Traced::Dropped),
        // ICMP and ICMPv6 port unreachable
        Outcome::Reject if flow.family() == Family::V4 => one(Traced::Rejected(Reject::Unreachable(3))),
        Outcome::Reject => one(Traced::Rejected(Reject::Unreachable(4))),
        Outcome::Endpoints(endpoints) => {
            let share = Share::new(1, endpoints.len() as u128);
            let delivered = |(to, masqueraded): (&_, &bool)| {
                let source = if *masqueraded { Source::Masqueraded } else { Source::Kept };
                (Traced::Delivered { to: *to, source }, share)
            };
            endpoints.iter().map(delivered).collect()
        }
    }
}
