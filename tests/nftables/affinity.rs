//! How many clients the maps of session affinity hold.

use svcmap::netlink::model::{Bytes, Data, Element, Op, SetRef};
use svcmap::netlink::{CodecKind, CommitError, Connection};
use svcmap::nftables::maps::AFFINITY_CLIENTS;
use svcmap::nftables::program::Programmer;
use svcmap::nftables::rule::nf_family;
use svcmap::objects::Family;
use svcmap::plan::{NodePlan, PlanChange, PortPlan};

use super::support::{Whole, apply, config, nft, plan, rich_cluster, sorted_listing};

fn whole(affinity_clients: Option<u32>) -> Whole {
    let (node, ports) = plan(rich_cluster(2), config());
    (NodePlan { affinity_clients, ..node }, ports)
}

/// The map of the clients of a Service port.
fn map(connection: &mut Connection) -> SetRef {
    let family = nf_family(Family::V4);
    let sets = connection.sets(family, "svcmap").unwrap();
    let found = sets.iter().find(|set| set.name.starts_with("affinity-")).expect("a Service has affinity");
    SetRef { family, table: "svcmap".into(), name: found.name.clone() }
}

/// Entries as rules learn them.
fn learn(connection: &mut Connection, map: &SetRef, clients: std::ops::Range<u32>) -> Result<(), CommitError> {
    let clients: Vec<u32> = clients.collect();
    for some in clients.chunks(4000) {
        let entry = |client: &u32| Element {
            key: Bytes::from_slice(&(0x0b00_0000 + client).to_be_bytes()),
            data: Data::Value(Bytes::from_slice(&0x7300_0001_u32.to_ne_bytes())),
            timeout_ms: Some(10_800_000),
            ..Element::default()
        };
        connection.commit(&[Op::AddElements { set: map.clone(), elements: some.iter().map(entry).collect() }])?;
    }
    Ok(())
}

/// What clients may remember leads nowhere when endpoints are back that were gone, also where nobody remembers which
/// number they had.
fn numbers() -> Vec<String> {
    let listing = nft(&["list", "ruleset", "ip"], "");
    let members = listing.split("map members-").skip(1).filter_map(|map| map.split_once("elements = {"));
    let elements =
        members.flat_map(|(_, text)| text.split('}').next().unwrap_or_default().split(',').collect::<Vec<_>>());
    elements.filter_map(|element| Some(element.split_once(" : ")?.0.trim().to_owned())).collect()
}

netns_test! {
    fn endpoints_that_return_after_a_restart_have_other_numbers() {
        let (node, ports) = whole(None);
        apply((node.clone(), ports.clone()));
        let before = numbers();
        assert!(!before.is_empty());
        let empty = ports.iter().cloned().map(|port| PortPlan { cluster: Vec::new(), local: Vec::new(), ..port }).collect();
        // its maps stay for a while, with the clients in them
        Programmer::open(CodecKind::Native).unwrap().replace(node.clone(), empty).unwrap();
        assert_eq!(numbers(), Vec::<String>::new());
        apply((node, ports));
        let after = numbers();
        assert_eq!(after.len(), before.len());
        assert!(after.iter().all(|number| !before.contains(number)), "{before:?} and then {after:?}");
    }
}

netns_test! {
    /// The chains of a Service without endpoints may say anything, but they do not keep what has to go.
    fn unused_chains_hold_nothing_foreign() {
        let (node, ports) = whole(None);
        let intact = { apply((node.clone(), ports.clone())); sorted_listing() };
        let empty = ports.iter().cloned().map(|port| PortPlan { cluster: Vec::new(), local: Vec::new(), ..port }).collect::<Vec<_>>();
        Programmer::open(CodecKind::Native).unwrap().replace(node.clone(), empty.clone()).unwrap();
        let listing = nft(&["list", "table", "ip", "svcmap"], "");
        let chain = listing.lines().find_map(|line| line.trim().strip_prefix("chain sticky-")).expect("it stays for a while");
        let chain = chain.trim_end_matches(" {");
        nft(&["-f", "-"], &format!(
            "add set ip svcmap foreign {{ type ipv4_addr; }}\nadd rule ip svcmap sticky-{chain} ip saddr @foreign drop\n\
             add chain ip svcmap other\nadd rule ip svcmap sticky-{chain} jump other\n"
        ));
        Programmer::open(CodecKind::Native).unwrap().replace(node.clone(), empty).unwrap();
        assert!(!nft(&["list", "table", "ip", "svcmap"], "").contains("foreign"));
        apply((node, ports));
        assert_eq!(sorted_listing().matches("sticky-").count(), intact.matches("sticky-").count());
        assert!(!sorted_listing().contains("other"));
    }
}

netns_test! {
    /// Row D8 after a restart: the former timeout is known where there are endpoints. Where there are none, what clients
    /// remember leads nowhere, and they are not looked for.
    fn another_timeout_after_a_restart_is_one_of_clients_that_lead_somewhere() {
        let (node, ports) = whole(None);
        apply((node.clone(), ports.clone()));
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let of = map(&mut connection);
        learn(&mut connection, &of, 0..10).unwrap();
        let with = |seconds: u32, empty: bool| {
            let edit = |mut port: PortPlan| {
                port.affinity = port.affinity.map(|_| seconds);
                if empty {
                    port.cluster.clear();
                    port.local.clear();
                }
                port
            };
            ports.iter().cloned().map(edit).collect::<Vec<_>>()
        };
        let mut timeouts = || {
            let found = connection.elements(&of).unwrap();
            found.iter().filter_map(|entry| entry.timeout_ms).collect::<Vec<_>>()
        };
        let restart = || Programmer::open(CodecKind::Native).unwrap();
        restart().replace(node.clone(), with(600, false)).unwrap();
        assert_eq!(timeouts(), [600_000; 10]);
        restart().replace(node.clone(), with(600, true)).unwrap();
        let mut programmer = restart();
        programmer.replace(node.clone(), with(900, true)).unwrap();
        let applied = programmer.replace(node, with(900, false)).unwrap();
        assert_eq!(timeouts(), [600_000; 10], "{applied:?}");
    }
}

netns_test! {
    fn maps_hold_as_many_clients_as_asked() {
        apply(whole(None));
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let of = map(&mut connection);
        let refused = learn(&mut connection, &of, 0..70_000).unwrap_err();
        assert!(matches!(refused, CommitError::Refused { errno: libc::ENFILE, .. }), "{refused}");

        // the option makes room in the same maps, and nobody is forgotten
        let before = connection.elements(&of).unwrap().len();
        assert!((60_000..=65_535).contains(&before), "{before} clients without the option");
        let mut programmer = Programmer::open(CodecKind::Native).unwrap();
        let (node, ports) = whole(Some(100_000));
        programmer.replace(node.clone(), ports.clone()).unwrap();
        let entries = connection.elements(&of).unwrap();
        assert_eq!(entries.len(), before, "carried over");
        let lives = |e: &Element| e.timeout_ms == Some(10_800_000) && e.expiration_ms.is_some_and(|left| left > 10_000_000);
        assert!(entries.iter().all(lives), "{:?}", entries.iter().find(|e| !lives(e)));
        learn(&mut connection, &of, 0..99_000).unwrap();
        assert_eq!(connection.elements(&of).unwrap().len(), 99_000);

        // what is as it should be is left alone, by the programmer and by one that comes after it
        for programmer in [&mut programmer, &mut Programmer::open(CodecKind::Native).unwrap()] {
            assert_eq!(programmer.replace(node.clone(), ports.clone()).unwrap().bytes, 0);
        }
        let sizes: Vec<_> = connection.sets(of.family, "svcmap").unwrap().into_iter()
            .filter(|set| set.name.starts_with("affinity-")).map(|set| set.size).collect();
        assert!(!sizes.is_empty() && sizes.iter().all(|size| *size == Some(100_000)), "{sizes:?}");

        // a smaller map takes as many as it can
        let (node, ports) = whole(Some(1000));
        programmer.replace(node.clone(), ports.clone()).unwrap();
        assert_eq!(connection.elements(&of).unwrap().len(), 1000);

        // and so it is where nothing has to be read first
        let node = NodePlan { affinity_clients: None, masquerade_mark: 8, masquerade_all: true, ..node };
        programmer.change(PlanChange { node: Some(node.clone()), ..PlanChange::default() }).unwrap();
        assert_eq!(connection.elements(&of).unwrap().len(), 1000);
        assert_eq!(programmer.replace(node, ports).unwrap().bytes, 0);
    }
}

netns_test! {
    /// Rows D4 and D8. `SVCMAP_CLIENTS` is how many, a million without it.
    fn a_million_clients_are_forgotten_with_one_element() {
        let clients: u32 = std::env::var("SVCMAP_CLIENTS").map_or(1_000_000, |text| text.parse().unwrap());
        let (node, ports) = whole(Some(clients));
        let mut programmer = apply((node.clone(), ports.clone()));
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let of = map(&mut connection);
        learn(&mut connection, &of, 0..clients).unwrap();
        let refused = learn(&mut connection, &of, clients..clients + 1).unwrap_err();
        assert!(matches!(refused, CommitError::Refused { errno: libc::ENFILE, .. }), "{refused}");

        // the endpoint of all of them leaves, and comes back
        let sticky = ports.iter().find(|port| port.affinity.is_some() && port.id.family == Family::V4).unwrap();
        let without = |at: usize| {
            let mut port = sticky.clone();
            for pool in [&mut port.cluster, &mut port.local] {
                pool.retain(|endpoint| endpoint.ip != sticky.cluster[at].ip);
            }
            PlanChange { changed: vec![port], ..PlanChange::default() }
        };
        let applied = programmer.change(without(0)).unwrap();
        assert!(applied.deleted < 20 && applied.bytes < 20_000, "what a few endpoints take: {applied:?}");
        let back = PlanChange { changed: vec![sticky.clone()], ..PlanChange::default() };
        let applied = programmer.change(back).unwrap();
        assert!(applied.added < 20 && applied.bytes < 20_000, "{applied:?}");
        let members = nft(&["list", "map", "ip", "svcmap", &of.name.replace("affinity-", "members-cluster-")], "");
        assert!(!members.contains("7300:1 :"), "the number that clients have leads somewhere: {members}");

        // another timeout is one of new connections, and nobody is looked for either
        let edited = PortPlan { affinity: Some(600), ..sticky.clone() };
        let change = PlanChange { changed: vec![edited.clone()], ..PlanChange::default() };
        let began = std::time::Instant::now();
        let applied = programmer.change(change).unwrap();
        println!("a timeout edited with {clients} clients took {:?}: {applied:?}", began.elapsed());
        if clients > AFFINITY_CLIENTS {
            let few = applied.added + applied.deleted == 0 && applied.bytes < 20_000;
            assert!(few && applied.transactions == 1, "what a few rules take: {applied:?}");
        }
        let rules = nft(&["list", "chain", "ip", "svcmap", &of.name.replace("affinity-", "sticky-pick-")], "");
        assert!(rules.contains("timeout 10m") && !rules.contains("timeout 3h"), "{rules}");

        // whoever comes after it does not have to read them
        let ports = ports.into_iter().map(|port| if port.id == edited.id { edited.clone() } else { port }).collect();
        let mut restarted = Programmer::open(CodecKind::Native).unwrap();
        assert_eq!(restarted.replace(node, ports).unwrap().bytes, 0);
    }
}
