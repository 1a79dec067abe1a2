//! The daemon's loop: flows end after the sync, also after one that had to be tried again, and live ones outlast it.

use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use svcmap::conntrack::Cleaner;
use svcmap::netlink::CodecKind;
use svcmap::nftables::program::Programmer;
use svcmap::objects::{Family, Protocol};
use svcmap::source::Loaded;
use svcmap::sync::{Event, Periods, Runner};
use svcmap::tracker::Tracker;

use crate::common::cases::{Given, NodeSettings, Stack, TrackedFlow, address, manifests, snapshot};
use crate::common::usurper::usurp;
use crate::table::{give_addresses, insert, listed};

const PATIENCE: Duration = Duration::from_secs(30);
const SERVICE: &str = "service svc ip=172.30.1.1 port=80/UDP@30080";

/// A daemon in the current network namespace.
struct Daemon {
    events: Sender<Event>,
    thread: JoinHandle<()>,
}

impl Daemon {
    fn start() -> Daemon {
        let tracker = Tracker::new(NodeSettings::default().config(Stack::Dual));
        let programmer = Programmer::open(CodecKind::Native).unwrap();
        let mut runner = Runner::new(tracker, programmer, Cleaner::start().unwrap(), Periods::default());
        let (events, receiver) = channel();
        Daemon { events, thread: thread::spawn(move || runner.run(&receiver)) }
    }

    fn tell(&self, objects: &[&str]) {
        let mut given = Given::new("now");
        objects.iter().for_each(|line| given.add(line));
        let snapshot = snapshot(&manifests(&NodeSettings::default(), &given, Stack::Dual));
        self.events.send(Event::Manifests(Loaded { snapshot, ..Loaded::default() })).unwrap();
    }

    fn stop(self) {
        self.events.send(Event::Stop).unwrap();
        self.thread.join().unwrap();
    }
}

/// Puts in a flow to the Service, in each family, with this port of the client and this endpoint.
fn begin(port: u16, endpoint: &str) {
    for (number, family) in Family::BOTH.into_iter().enumerate() {
        let flow = TrackedFlow {
            protocol: Protocol::Udp,
            client: address("10.0.0.2", family),
            destination: (address("172.30.1.1", family), 80).into(),
            answerer: (address(endpoint, family), 8080).into(),
        };
        insert(port + number as u16, &flow, None);
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}; listed are {:?}", listed());
        sleep(Duration::from_millis(20));
    }
}

fn wait_for_flows(what: &str, ports: &[u16]) {
    wait_for(what, || listed() == ports);
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> Log {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        log
    }

    fn has(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().unwrap()).contains(text)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stderr().write_all(bytes)?;
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

netns_test! {
    fn x16_flows_end_after_the_sync_that_succeeds() {
        give_addresses();
        let log = Log::start();
        begin(1000, "10.180.0.1");
        begin(1010, "10.180.0.9");
        let daemon = Daemon::start();
        daemon.tell(&[SERVICE, "slice svc port=8080/UDP R1 R2"]);
        wait_for_flows("the first sync", &[1000, 1001]);
        begin(1020, "10.180.0.2");

        let usurper = usurp();
        daemon.tell(&[SERVICE, "slice svc port=8080/UDP R2"]);
        wait_for("a sync that fails", || log.has("trying again in"));
        sleep(Duration::from_millis(100));
        assert_eq!(listed(), [1000, 1001, 1020, 1021], "nothing ends when the sync fails");

        drop(usurper);
        wait_for_flows("the next sync that succeeds", &[1020, 1021]);
        daemon.stop();
    }
}

netns_test! {
    fn x17_a_restart_ends_what_went_stale_meanwhile_and_nothing_else() {
        give_addresses();
        let daemon = Daemon::start();
        begin(1000, "10.180.0.9");
        daemon.tell(&[SERVICE, "slice svc port=8080/UDP R1 R2"]);
        wait_for_flows("the first sync", &[]);
        begin(1010, "10.180.0.1");
        begin(1020, "10.180.0.2");
        daemon.stop();

        // to have something that shows that the sync is over
        begin(1030, "10.180.0.9");
        let daemon = Daemon::start();
        daemon.tell(&[SERVICE, "slice svc port=8080/UDP R1 R2"]);
        wait_for_flows("a restart", &[1010, 1011, 1020, 1021]);
        daemon.stop();

        let daemon = Daemon::start();
        daemon.tell(&[SERVICE, "slice svc port=8080/UDP R2"]);
        wait_for_flows("a restart with an endpoint less", &[1020, 1021]);
        daemon.stop();

        let daemon = Daemon::start();
        daemon.tell(&["service other ip=172.30.1.2"]);
        wait_for_flows("a restart without the Service", &[]);
        daemon.stop();
    }
}

netns_test! {
    /// An endpoint that no rule leads to stops serving: nothing is programmed, but its flows end.
    fn flows_end_without_any_change_of_the_rules() {
        give_addresses();
        let log = Log::start();
        let daemon = Daemon::start();
        daemon.tell(&[SERVICE, "slice svc port=8080/UDP R1 s@R2"]);
        wait_for("the first sync", || log.has("synced"));
        begin(1000, "10.180.0.1");
        begin(1010, "10.180.0.2");
        let changes = || String::from_utf8_lossy(&log.0.lock().unwrap()).matches(" synced").count();
        let before = changes();
        daemon.tell(&[SERVICE, "slice svc port=8080/UDP R1 u@R2"]);
        wait_for_flows("the second sync", &[1000, 1001]);
        assert_eq!(changes(), before, "rules were changed");
        daemon.stop();
    }
}
