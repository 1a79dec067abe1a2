//! A loop that runs in a thread, and what it logs and programs.

use std::io::{self, Write};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime};

use svcmap::config::ProxyConfig;
use svcmap::conntrack::Cleaner;
use svcmap::netlink::CodecKind;
use svcmap::nftables::program::Programmer;
use svcmap::source::cluster::Message;
use svcmap::source::generate::{self, Families, Options};
use svcmap::source::{Change, Snapshot};
use svcmap::sync::{Event, Periods, Runner, Stats};
use svcmap::tracker::Tracker;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The loop, told as by a cluster.
pub struct Loop {
    events: Sender<Event>,
    thread: JoinHandle<Stats>,
    log: Log,
}

impl Loop {
    pub fn start(periods: Periods) -> Loop {
        Loop::start_with(periods, false)
    }

    /// One that is told of other's changes.
    pub fn guarded() -> Loop {
        Loop::start_with(Periods { min: Duration::ZERO, full: Duration::from_secs(3600) }, true)
    }

    fn start_with(periods: Periods, guarded: bool) -> Loop {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        let config = ProxyConfig {
            node_name: "n1".into(),
            node_ips: vec!["192.0.2.1".parse().unwrap()],
            cluster_cidrs: generate::pod_cidrs().to_vec(),
            ..ProxyConfig::default()
        };
        let programmer = Programmer::open(CodecKind::Native).unwrap();
        let (events, receiver) = channel();
        let runner = Runner::new(Tracker::new(config), programmer, Cleaner::start().unwrap(), periods);
        let mut runner = if guarded { runner.guarded_by(events.clone()) } else { runner };
        let run = move || {
            runner.run(&receiver);
            runner.stats()
        };
        Loop { events, thread: thread::spawn(run), log }
    }

    pub fn send(&self, event: Event) {
        self.events.send(event).unwrap();
    }

    pub fn tell(&self, message: Message) {
        self.send(Event::Cluster(message));
    }

    pub fn change(&self, change: Change) {
        self.tell(Message::Change(change, None));
    }

    pub fn change_of(&self, change: Change, time: SystemTime) {
        self.tell(Message::Change(change, Some(time)));
    }

    /// All of a cluster's objects.
    pub fn objects(&self, cluster: &Snapshot) {
        cluster.services.iter().for_each(|service| self.change(Change::Service(service.clone())));
        cluster.slices.iter().for_each(|slice| self.change(Change::Slice(slice.clone())));
    }

    pub fn logged(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.log.0.lock().unwrap()).matches(text).count()
    }

    pub fn wait_for_log(&self, text: &str, times: usize) {
        wait_for(text, || self.logged(text) >= times);
    }

    pub fn stop(self) -> Stats {
        self.events.send(Event::Stop).unwrap();
        self.thread.join().unwrap()
    }
}

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}\n{}", listing());
        sleep(Duration::from_millis(10));
    }
}

/// So many Services with two endpoints each.
pub fn cluster(services: usize) -> Snapshot {
    generate::generate(&Options { services, endpoints: 2, ..Options::default() }).unwrap()
}

/// The same in both families.
pub fn dual_stack_cluster(services: usize) -> Snapshot {
    let options = Options { services, endpoints: 2, family: Families::Dual, ..Options::default() };
    generate::generate(&options).unwrap()
}

pub fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output().expect("nft is needed (package nftables)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn listing() -> String {
    nft(&["list", "ruleset"])
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(bytes)?;
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
