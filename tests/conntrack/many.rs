//! Case X15: many flows, few of them stale.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use svcmap::conntrack::{Cleaner, Criteria};
use svcmap::netlink::CodecKind;
use svcmap::netlink::attr::Writer;
use svcmap::netlink::conntrack::{Conntrack, Selection};
use svcmap::netlink::model::NfFamily;
use svcmap::netlink::sys::Socket;
use svcmap::nftables::program::Programmer;
use svcmap::objects::Protocol;
use svcmap::plan::Claim;
use svcmap::policy::flows::Serving;
use svcmap::tracker::Tracker;

use crate::common::cases::{Given, NodeSettings, Stack, manifests, snapshot};

/// As many as a busy node may have. Kernels take 262,144 by default, and namespaces cannot ask for more.
const MANY: u32 = 1_000_000;
/// Fewer show nothing.
const FEWEST: u32 = 200_000;
/// One in so many is stale.
const STALE: u32 = 500;
/// What looking at them may take of memory, in KiB.
const MEMORY: usize = 4 << 10;

const ENDPOINT: Ipv4Addr = Ipv4Addr::new(10, 240, 0, 2);
const GONE: Ipv4Addr = Ipv4Addr::new(10, 240, 0, 9);

/// The Services' addresses: each has as many flows as any other.
fn service(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xac1e_0000 + number % 100)
}

fn tuple(writer: &mut Writer, kind: u16, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) {
    writer.nest(kind, |w| {
        w.nest(1, |w| {
            w.put(1, &from.0.octets());
            w.put(2, &to.0.octets());
        });
        w.nest(2, |w| {
            w.u8(1, 17);
            w.u16(2, from.1);
            w.u16(3, to.1);
        });
    });
}

/// Puts flows into the table, many with one call: `IPCTNL_MSG_CT_NEW` with both tuples, and an hour to live.
fn insert(count: u32) {
    let socket = Socket::open().unwrap();
    let mut numbers = (0..count).peekable();
    while numbers.peek().is_some() {
        let mut batch = Writer::default();
        for number in numbers.by_ref().take(500) {
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(&[0; 20]);
            batch.bytes[start + 4..start + 6].copy_from_slice(&0x100u16.to_ne_bytes());
            batch.bytes[start + 6..start + 8].copy_from_slice(&0x601u16.to_ne_bytes());
            batch.bytes[start + 16] = 2;
            let client = (Ipv4Addr::from(0x0a00_0000 + number / 50_000), (number % 50_000) as u16 + 1000);
            let endpoint = if number % STALE == 0 { GONE } else { ENDPOINT };
            tuple(&mut batch, 1, client, (service(number), 80));
            tuple(&mut batch, 2, (endpoint, 8080), client);
            batch.u32(7, 3600);
            let length = (batch.bytes.len() - start) as u32;
            batch.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        }
        socket.send(&batch.bytes).unwrap();
    }
}

fn sysctl(name: &str) -> u32 {
    let path = format!("/proc/sys/net/netfilter/{name}");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().parse().unwrap()
}

fn count() -> u32 {
    sysctl("nf_conntrack_count")
}

/// A line of `/proc/self/status`, in KiB.
fn memory(line: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|text| text.strip_prefix(line)).expect("the line");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Fills the table; with how many flows.
fn put_in() -> u32 {
    let many = MANY.min(sysctl("nf_conntrack_max") / 10 * 9);
    assert!(many >= FEWEST, "X15 cannot run here: the kernel takes {many} flows, and {FEWEST} are needed");
    if many < MANY {
        eprintln!("X15 runs with {many} flows, since the kernel takes no more");
    }
    insert(many);
    assert_eq!(count(), many, "what was put in is not there");
    many
}

fn claim(number: u32) -> Claim {
    Claim::address(service(number).into(), Protocol::Udp, 80)
}

/// By which those to the endpoint that is gone are stale.
fn criteria() -> Criteria {
    let serving: Serving = [(IpAddr::V4(ENDPOINT), 8080)].into();
    Criteria::new((0..100).map(|n| (claim(n), serving.clone())).collect::<HashMap<_, _>>(), [])
}

netns_test! {
    /// As the daemon does it: a change is programmed while the flows of the one before are still being looked at.
    fn x15_a_commit_does_not_wait_for_the_flows() {
        let many = put_in();
        let (mut tracker, mut programmer) =
            (Tracker::new(NodeSettings::default().config(Stack::V4)), Programmer::open(CodecKind::Native).unwrap());
        let mut commit = |round: usize, cleaner: &Cleaner| {
            let mut given = Given::new("now");
            given.add("service svc ip=172.31.0.1 port=80/UDP");
            given.add(["slice svc port=8080/UDP R1", "slice svc port=8080/UDP R2"][round % 2]);
            tracker.replace(snapshot(&manifests(&NodeSettings::default(), &given, Stack::V4)));
            let change = tracker.take().0;
            cleaner.exempt(tracker.unsettled());
            let applied = if programmer.is_in_step() {
                programmer.change(change)
            } else {
                let (node, ports) = tracker.whole().unwrap();
                programmer.replace(node, ports)
            };
            assert!(applied.unwrap().added > 0, "nothing was committed");
            tracker.settle(&[]);
        };
        let cleaner = Cleaner::start().unwrap();
        commit(0, &cleaner);
        cleaner.check(criteria());
        let (mut rounds, mut amid) = (0, 0);
        while !cleaner.wait(Duration::ZERO) {
            let under_way = count() < many;
            rounds += 1;
            commit(rounds, &cleaner);
            amid += usize::from(under_way && !cleaner.wait(Duration::ZERO));
        }
        println!("X15: {amid} commits began and ended while {many} flows were looked at, {rounds} in all");
        assert!(amid > 0, "of {rounds} commits, none began and ended while flows were deleted");
        assert_eq!((cleaner.deleted(), count()), (many.div_ceil(STALE) as usize, many - many.div_ceil(STALE)));
    }
}

netns_test! {
    fn x15_few_of_many_are_stale_in_flat_memory() {
        let many = put_in();
        let stale = many.div_ceil(STALE);
        let cleaner = Cleaner::start().unwrap();
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = memory("VmHWM:");
        let started = Instant::now();
        cleaner.check(criteria());
        assert!(cleaner.wait(Duration::from_secs(120)), "not done after two minutes");
        let (took, taken) = (started.elapsed(), memory("VmHWM:") - before);
        println!("X15: {stale} of {many} flows deleted in {took:?}, with {taken} KiB more memory");
        assert_eq!((cleaner.deleted(), count()), (stale as usize, many - stale));
        assert!(taken < MEMORY, "looking at {many} flows took {taken} KiB of memory");

        let started = Instant::now();
        let one = Selection { family: NfFamily::IPV4, port: Some(80), address: Some(service(7)) };
        let swept = Conntrack::open().unwrap().delete_udp(one, &mut |_| false).unwrap();
        println!("X15: the flows of one Service were looked at in {:?}", started.elapsed());
        let expected = (7..many).step_by(100).count();
        assert_eq!(swept.seen, expected, "the flows of one Service of a hundred");
    }
}
