//! How many clients the maps of session affinity hold.

use svcmap::netlink::model::{Bytes, Data, Element, Op, SetRef};
use svcmap::netlink::{CodecKind, CommitError, Connection};
use svcmap::nftables::program::Programmer;
use svcmap::nftables::rule::nf_family;
use svcmap::objects::Family;
use svcmap::plan::{NodePlan, PlanChange};

use super::support::{Whole, apply, config, plan, rich_cluster};

fn whole(affinity_clients: Option<u32>) -> Whole {
    let (node, ports) = plan(rich_cluster(2), config());
    (NodePlan { affinity_clients, ..node }, ports)
}

/// The map with the addresses of the endpoints, and the one with their ports, of one Service port.
fn maps(connection: &mut Connection) -> [SetRef; 2] {
    let family = nf_family(Family::V4);
    let sets = connection.sets(family, "svcmap").unwrap();
    let named = |prefix: &str| {
        let found = sets.iter().find(|set| set.name.strip_prefix(prefix).is_some_and(|id| id.len() == 16));
        SetRef { family, table: "svcmap".into(), name: found.unwrap_or_else(|| panic!("no {prefix}")).name.clone() }
    };
    [named("affinity-cluster-"), named("affinity-cluster-port-")]
}

/// Entries as rules learn them.
fn learn(
    connection: &mut Connection,
    [addresses, ports]: &[SetRef; 2],
    clients: std::ops::Range<u32>,
) -> Result<(), CommitError> {
    let clients: Vec<u32> = clients.collect();
    for some in clients.chunks(2000) {
        let entries = |data: &[u8]| {
            let entry = |client: &u32| Element {
                key: Bytes::from_slice(&(0x0b00_0000 + client).to_be_bytes()),
                data: Data::Value(Bytes::from_slice(data)),
                timeout_ms: Some(10_800_000),
                ..Element::default()
            };
            some.iter().map(entry).collect()
        };
        connection.commit(&[
            Op::AddElements { set: addresses.clone(), elements: entries(&[10, 128, 0, 1]) },
            Op::AddElements { set: ports.clone(), elements: entries(&8080u16.to_be_bytes()) },
        ])?;
    }
    Ok(())
}

netns_test! {
    fn maps_hold_as_many_clients_as_asked() {
        apply(whole(None));
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let of = maps(&mut connection);
        let refused = learn(&mut connection, &of, 0..70_000).unwrap_err();
        assert!(matches!(refused, CommitError::Refused { errno: libc::ENFILE, .. }), "{refused}");

        // the option makes room in the same maps, and nobody is forgotten
        let before = connection.elements(&of[0]).unwrap().len();
        assert!((60_000..=65_535).contains(&before), "{before} clients without the option");
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        let (node, ports) = whole(Some(100_000));
        programmer.replace(node.clone(), ports.clone()).unwrap();
        for set in &of {
            let entries = connection.elements(set).unwrap();
            assert_eq!(entries.len(), before, "{} carried over", set.name);
            let lives = |e: &Element| e.timeout_ms == Some(10_800_000) && e.expiration_ms.is_some_and(|left| left > 10_000_000);
            assert!(entries.iter().all(lives), "{}: {:?}", set.name, entries.iter().find(|e| !lives(e)));
        }
        learn(&mut connection, &of, 0..99_000).unwrap();
        assert_eq!(connection.elements(&of[0]).unwrap().len(), 99_000);

        // what is as it should be is left alone, by the programmer and by one that comes after it
        for programmer in [&mut programmer, &mut Programmer::open(CodecKind::Native).unwrap()] {
            assert_eq!(programmer.replace(node.clone(), ports.clone()).unwrap().bytes, 0);
        }
        let sizes: Vec<_> = connection.sets(of[0].family, "svcmap").unwrap().into_iter()
            .filter(|set| set.name.starts_with("affinity-")).map(|set| set.size).collect();
        assert!(!sizes.is_empty() && sizes.iter().all(|size| *size == Some(100_000)), "{sizes:?}");

        // a smaller map takes as many as it can
        let (node, ports) = whole(Some(1000));
        programmer.replace(node.clone(), ports.clone()).unwrap();
        assert_eq!(connection.elements(&of[0]).unwrap().len(), 1000);

        // and so it is where nothing has to be read first
        let node = NodePlan { affinity_clients: None, masquerade_mark: 8, masquerade_all: true, ..node };
        programmer.change(PlanChange { node: Some(node.clone()), ..PlanChange::default() }).unwrap();
        assert_eq!(connection.elements(&of[0]).unwrap().len(), 1000);
        assert_eq!(programmer.replace(node, ports).unwrap().bytes, 0);
    }
}
