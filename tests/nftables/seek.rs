//! Endpoints that are found by their keys, in the place of listing all of them.

use super::support::{Whole, apply, assert_same, config, nft, plan, rich_cluster, sorted_listing};
use svcmap::netlink::model::Element;
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::names::{Map, Side};
use svcmap::nftables::program::Programmer;
use svcmap::nftables::read::typed_element;
use svcmap::nftables::seek::{self, LARGE, Slots};
use svcmap::nftables::transaction::set_ref;
use svcmap::objects::Family;
use svcmap::source::generate::{self, Options};

const SIDES: [Side; 2] = [Side::Address, Side::NodePort];

fn sorted(mut elements: Vec<Element>) -> Vec<Element> {
    elements.sort_by(|a, b| a.key.cmp(&b.key));
    elements
}

/// The elements of one side's map as they are found, if they are, and as they are listed.
fn both_ways(family: Family, side: Side) -> (Option<Vec<Element>>, Vec<Element>) {
    let mut connection = Connection::open(CodecKind::Native).unwrap();
    let mut verdicts = Vec::new();
    for map in [Map::Services, Map::ShortCircuit, Map::NodePorts, Map::NodePortShortCircuit] {
        let elements = connection.elements(&set_ref(family, map)).unwrap();
        verdicts.extend(elements.iter().filter_map(|element| typed_element(map, family, element)));
    }
    let mut found = Vec::new();
    let slots = Slots::of(side, &verdicts);
    let is_whole = seek::endpoints(&mut connection, (family, side), &slots, &mut found).unwrap();
    assert!(is_whole || found.is_empty());
    let listed = connection.elements(&set_ref(family, side.endpoints())).unwrap();
    (is_whole.then(|| sorted(found)), sorted(listed))
}

/// Endpoints in numbers that have shapes of their own, and of one that has not.
fn with_many_endpoints() -> Whole {
    let (node, mut ports) = plan(rich_cluster(300), config());
    let mut cluster = generate::generate(&Options { services: 1, endpoints: 70, ..Options::default() }).unwrap();
    cluster.services[0].key.name = "many".into();
    cluster.services[0].cluster_ips = vec!["10.97.255.1".parse().unwrap()];
    cluster.slices.iter_mut().for_each(|slice| slice.service = "many".into());
    ports.extend(plan(cluster, config()).1);
    (node, ports)
}

netns_test! {
    fn what_is_found_is_what_is_listed() {
        apply(with_many_endpoints());
        let count = Connection::open(CodecKind::Native).unwrap().element_count(&set_ref(Family::V4, Map::Endpoints)).unwrap();
        if count.is_none() {
            eprintln!("cannot run here: seek: this kernel does not tell how many elements a set has (NFTA_SET_COUNT)");
            return;
        }
        for (family, side) in Family::BOTH.into_iter().flat_map(|family| SIDES.map(|side| (family, side))) {
            let (found, listed) = both_ways(family, side);
            assert!(listed.len() > 50, "{family:?} {side:?}: {}", listed.len());
            assert_eq!(found.as_ref(), Some(&listed), "{family:?} {side:?}");
        }
        // one that is too much, one that is missing, and one in the place of another
        let all = sorted_listing();
        for damage in [
            "add element ip svcmap endpoints { 10.96.0.1 . tcp . 80 . 4000 : 10.0.0.1 . 80 }",
            "delete element ip svcmap endpoints { KEY }",
            "delete element ip svcmap endpoints { KEY }; add element ip svcmap endpoints { 10.96.0.1 . tcp . 80 . 4000 : 10.0.0.1 . 80 }",
        ] {
            let line = all.lines().find(|line| line.contains(" . tcp . 80 . 1 : ")).unwrap();
            let key = line.split(" : ").next().unwrap().trim().trim_start_matches("elements = { ");
            nft(&["-f", "-"], &damage.replace("KEY", key).replace("; ", "\n"));
            assert_eq!(both_ways(Family::V4, Side::Address).0, None, "{damage}");
            let whole = with_many_endpoints();
            Programmer::open(CodecKind::Native).unwrap().replace(whole.0, whole.1).unwrap();
            assert_same(&all, &sorted_listing(), damage);
        }
    }
}

netns_test! {
    /// So many endpoints are found by a restart; what is wrong with them it puts right all the same.
    fn a_restart_adopts_a_large_map() {
        let options = Options { services: 2_200, endpoints: 50, ..Options::default() };
        let whole = plan(generate::generate(&options).unwrap(), config());
        let restart = || Programmer::open(CodecKind::Native).unwrap().replace(whole.0.clone(), whole.1.clone()).unwrap();
        assert!(restart().added > LARGE as usize);
        assert_eq!(restart().bytes, 0);
        nft(&["-f", "-"], "add element ip svcmap endpoints { 10.96.0.1 . tcp . 80 . 4000 : 10.0.0.1 . 80 }");
        let repaired = restart();
        assert_eq!((repaired.added, repaired.deleted), (0, 1));
        assert_eq!(restart().bytes, 0);
    }
}
