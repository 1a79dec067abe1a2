//! The cases in the kernel, each in both families: flows are put in, objects change, and what is left is listed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use svcmap::config::ProxyConfig;
use svcmap::conntrack;
use svcmap::netlink::CodecKind;
use svcmap::netlink::conntrack::{Conntrack, Selection};
use svcmap::netlink::model::NfFamily;
use svcmap::nftables::program::Programmer;
use svcmap::objects::{Family, Protocol};
use svcmap::source::Snapshot;
use svcmap::tracker::Tracker;

use crate::common::cases::{Stack, Step, Tracked, TrackedFlow, address};
use crate::table::{clear, give_addresses, insert, listed};

/// A node's proxy, as `svcmap apply` is one.
struct Proxy {
    tracker: Tracker,
    programmer: Programmer,
}

impl Proxy {
    fn start(config: ProxyConfig) -> Proxy {
        Proxy { tracker: Tracker::new(config), programmer: Programmer::open(CodecKind::Native).unwrap() }
    }

    /// Programs the objects and deletes the flows that are stale then; how many.
    fn sync(&mut self, snapshot: Snapshot) -> usize {
        self.tracker.replace(snapshot);
        let (change, _) = self.tracker.take();
        if self.programmer.is_in_step() {
            self.programmer.change(change).unwrap();
        } else {
            let (node, ports) = self.tracker.whole().unwrap();
            self.programmer.replace(node, ports).unwrap();
        }
        let criteria = conntrack::due(&mut self.tracker, self.programmer.take_found()).unwrap();
        conntrack::clean(&criteria).unwrap().deleted
    }
}

/// What is wrong with a case in a stack. The flow in each family has a port of its own, by which it is listed.
fn failures(case: &Tracked, stack: Stack) -> Vec<String> {
    let flows: BTreeMap<u16, TrackedFlow> = (1000..).zip(case.flows(stack)).collect();
    let mut proxy = Proxy::start(case.config(stack));
    proxy.programmer.cleanup().unwrap();
    clear();
    let mut deleted = 0;
    for (number, step) in case.steps.iter().enumerate() {
        if number == case.begins_before() {
            flows.iter().for_each(|(port, flow)| insert(*port, flow, None));
            assert_eq!(listed().len(), flows.len(), "{}: what was put in is not there", case.id);
            deleted = 0;
        }
        match step {
            Step::Sync(given) => deleted += proxy.sync(case.snapshot(given, stack)),
            Step::Restart => proxy = Proxy::start(case.config(stack)),
            Step::Failure(_) => panic!("{}: nothing fails here", case.id),
        }
    }
    let left = listed();
    assert_eq!(left.len() + deleted, flows.len(), "{}: {deleted} are said to be deleted, left are {left:?}", case.id);
    let wrong = flows.iter().filter(|(port, _)| left.contains(port) != case.stays);
    wrong.map(|(port, flow)| format!("{flow:?} {}", if left.contains(port) { "stays" } else { "ends" })).collect()
}

netns_test! {
    fn every_case_holds() {
        give_addresses();
        let (mut rows, mut wrong) = (0, String::new());
        for case in Tracked::all() {
            if let Some(why) = case.excluded_from("kernel") {
                eprintln!("{} cannot run in the kernel: {why}", case.id);
                continue;
            }
            rows += 1;
            let stacks = if case.flows(Stack::Dual).is_empty() { &[Stack::V4, Stack::V6][..] } else { &[Stack::Dual] };
            for stack in stacks {
                let failures = failures(&case, *stack);
                if !failures.is_empty() {
                    wrong += &case.complaint(*stack, &failures);
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(rows > 60, "only {rows} cases were found");
    }
}

fn udp(family: Family, destination: &str, port: u16) -> TrackedFlow {
    TrackedFlow {
        protocol: Protocol::Udp,
        client: address("10.0.0.2", family),
        destination: (address(destination, family), port).into(),
        answerer: (address("10.240.0.2", family), 8080).into(),
    }
}

netns_test! {
    /// What is tracked in a zone is somebody else's view of the connection.
    fn zones_are_left_alone() {
        for (family, nf_family) in [(Family::V4, NfFamily::IPV4), (Family::V6, NfFamily::IPV6)] {
            clear();
            let flow = udp(family, "172.30.1.1", 80);
            insert(1000, &flow, None);
            insert(1001, &flow, Some(7));
            insert(1000, &flow, Some(7));
            let selection = Selection { family: nf_family, port: None, address: None };
            let swept = Conntrack::open().unwrap().delete_udp(selection, &mut |_| true).unwrap();
            assert_eq!((swept.seen, swept.deleted, swept.refused), (1, 1, None), "{family}");
            assert_eq!(listed(), [1000, 1001], "{family}: those of the zone are left");
        }
    }
}

netns_test! {
    /// By family, protocol, port and address: it does not have to show what nobody asked for.
    fn the_kernel_selects() {
        clear();
        let tcp = |flow: TrackedFlow| TrackedFlow { protocol: Protocol::Tcp, ..flow };
        let mut number = 1000;
        for family in Family::BOTH {
            let flows = [udp(family, "172.30.1.1", 80), udp(family, "172.30.1.1", 81), udp(family, "172.30.1.2", 80)];
            for flow in flows.into_iter().chain([tcp(flows[0]), tcp(flows[1])]) {
                insert(number, &flow, None);
                number += 1;
            }
        }
        let mut conntrack = Conntrack::open().unwrap();
        for (family, nf_family) in [(Family::V4, NfFamily::IPV4), (Family::V6, NfFamily::IPV6)] {
            let ip = Ipv4Addr::new(172, 30, 1, 1);
            let both = [(None, None, 3), (Some(80), None, 2), (Some(82), None, 0)];
            let v4 = [(Some(80), Some(ip), 1), (None, Some(ip), 2)];
            for (port, address, seen) in both.iter().chain(v4.iter().filter(|_| family == Family::V4)).copied() {
                let selection = Selection { family: nf_family, port, address };
                let swept = conntrack.delete_udp(selection, &mut |_| false).unwrap();
                assert_eq!((swept.seen, swept.deleted), (seen, 0), "{selection:?}");
            }
        }
        assert_eq!(listed().len(), 10);
    }
}
