//! Connections that break, versions that expire, API servers that are away.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fake::{Fake, Manner, NODES, SERVICES, SLICES};
use crate::model::{Followed, access, service, slice};

/// The ways a server can be in which everything here has to work.
fn manners() -> [Manner; 3] {
    [
        Manner::default(),
        Manner { streams: false, ..Manner::default() },
        Manner { refuses_expired: false, ..Manner::default() },
    ]
}

fn with_services(server: &Fake, count: u32) -> Followed {
    for n in 0..count {
        server.put(SERVICES, service(&format!("s{n}"), n));
        server.put(SLICES, slice(&format!("s{n}-a"), &format!("s{n}"), 1));
    }
    let mut followed = Followed::new(server);
    followed.wait_until_listed();
    assert_eq!(followed.services.len(), count as usize);
    followed
}

fn lists(server: &Fake, resource: &str) -> usize {
    let is_list =
        |query: &&crate::query::Query| query.get("watch").is_none() || query.get("sendInitialEvents").is_some();
    server.requests_for(resource).iter().filter(is_list).count()
}

#[test]
fn what_happened_while_the_version_expired_is_made_up_for_without_a_gap() {
    for manner in manners() {
        let server = Fake::start(manner);
        let mut followed = with_services(&server, 10);
        server.stop();
        server.delete(SERVICES, "default/s3");
        server.delete(SLICES, "default/s4-a");
        server.put(SERVICES, service("s5", 500));
        server.put(SERVICES, service("new", 501));
        server.compact();
        server.resume();
        followed.wait_for("the new list", |f| {
            f.services.contains_key("default/new")
                && !f.services.contains_key("default/s3")
                && !f.slices.contains_key("default/s4-a")
        });
        followed.wait_for_silence();
        assert_eq!(followed.went, ["default/s3"], "no other Service was gone in between");
        assert_eq!((followed.services.len(), followed.slices.len(), followed.listed), (10, 9, 1));
        server.put(SERVICES, service("s6", 502));
        let address: std::net::IpAddr = "10.96.1.246".parse().unwrap();
        followed.wait_for("changes after it", |f| f.services["default/s6"].cluster_ips == [address]);
    }
}

#[test]
fn bookmarks_keep_the_version_from_expiring() {
    for manner in manners() {
        let server = Fake::start(manner);
        let mut followed = with_services(&server, 3);
        followed.wait_for_silence(); // the watch begins
        let before = lists(&server, SERVICES);
        server.compact();
        server.bookmark();
        followed.wait_for_silence(); // the bookmark arrives
        server.disconnect();
        server.put(SERVICES, service("new", 9));
        followed.wait_for("the change", |f| f.services.contains_key("default/new"));
        assert_eq!(lists(&server, SERVICES), before, "there was no need to list anything");
    }
}

#[test]
fn an_event_that_is_cut_in_its_middle_comes_again() {
    for manner in manners() {
        let server = Fake::start(manner);
        let mut followed = with_services(&server, 3);
        let before = lists(&server, SERVICES);
        server.cut_next();
        server.put(SERVICES, service("new", 9));
        followed.wait_for("the change", |f| f.services.contains_key("default/new"));
        server.put(SERVICES, service("newer", 10));
        followed.wait_for("one more", |f| f.services.contains_key("default/newer"));
        assert_eq!(lists(&server, SERVICES), before);
        assert_eq!(followed.went, [""; 0]);
    }
}

#[test]
fn a_streamed_list_that_breaks_off_is_begun_again() {
    let server = Fake::start(Manner { held_back: vec![SERVICES], ..Manner::default() });
    (0..5).for_each(|n| server.put(SERVICES, service(&format!("s{n}"), n)));
    let mut followed = Followed::new(&server);
    followed.wait_for("the objects", |f| f.services.len() == 5);
    server.delete(SERVICES, "default/s0");
    server.disconnect();
    server.set(|manner| manner.held_back.clear());
    followed.wait_until_listed();
    assert_eq!(followed.names(), ["default/s1", "default/s2", "default/s3", "default/s4"]);
}

#[test]
fn a_slow_server_is_waited_for() {
    for manner in manners() {
        let server = Fake::start(Manner { trickle: Some(64), ..manner });
        let mut followed = with_services(&server, 10);
        server.put(SERVICES, service("new", 9));
        followed.wait_for("a change", |f| f.services.contains_key("default/new"));
    }
}

#[test]
fn an_api_server_that_is_away_is_reported_once() {
    log();
    let server = Fake::start(Manner::default());
    let mut followed = with_services(&server, 3);
    server.stop();
    std::thread::sleep(Duration::from_secs(4));
    followed.wait_for_silence();
    assert_eq!((followed.services.len(), &followed.went[..]), (3, &[][..]), "what is known stays");
    server.put(SERVICES, service("new", 9));
    server.resume();
    followed.wait_for("what changed meanwhile", |f| f.services.contains_key("default/new"));
    let of_this_server = |word: &str| {
        let log = log().lock().unwrap();
        let text = String::from_utf8_lossy(&log).into_owned();
        text.lines().filter(|line| line.contains(&server.url()) && line.contains(word)).count()
    };
    assert_eq!(of_this_server("does not answer"), 1);
    assert_eq!(of_this_server(" answers, after"), 1);
}

#[test]
fn what_is_refused_is_reported_once_and_asked_for_again() {
    log();
    let server = Fake::start(Manner { refused: [(NODES, 403)].into(), ..Manner::default() });
    let mut followed = with_services(&server, 2); // rules are made nevertheless
    server.put(NODES, crate::model::node("n1", "192.0.2.1"));
    std::thread::sleep(Duration::from_secs(3));
    server.set(|manner| manner.refused.clear());
    followed.wait_for("the Node", |f| f.node.is_some());
    assert!(server.requests_for(NODES).len() >= 3);
    let log = log().lock().unwrap();
    let text = String::from_utf8_lossy(&log).into_owned();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(&server.url())).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("Nodes cannot be read: not for you (403)"), "{lines:?}");
}

/// JSON that is neither an event nor a Status, nor a list.
#[test]
fn answers_to_something_else_are_named_and_asked_for_again() {
    log();
    for (odd, word) in [
        (json!({}), "Services cannot be read: the answer cannot be understood: "),
        (json!({"kind": "Service"}), "Services cannot be read: the answer cannot be understood: "),
    ] {
        let server = Fake::start(Manner { odd: [(SERVICES, odd)].into(), ..Manner::default() });
        server.put(SERVICES, service("s", 1));
        let mut followed = Followed::new(&server);
        followed.wait_for_silence();
        assert_eq!((followed.services.len(), followed.listed), (0, 0));
        server.set(|manner| manner.odd.clear());
        followed.wait_until_listed();
        assert_eq!(followed.names(), ["default/s"]);
        let text = String::from_utf8_lossy(&log().lock().unwrap()).into_owned();
        let of_this_server: Vec<&str> = text.lines().filter(|line| line.contains(&server.url())).collect();
        assert_eq!(of_this_server.iter().filter(|line| line.contains(word)).count(), 1, "{of_this_server:?}");
    }
}

#[test]
fn services_that_are_refused_are_never_taken_for_none() {
    for code in [401, 403, 404, 429, 500, 503] {
        let server = Fake::start(Manner { refused: [(SERVICES, code)].into(), ..Manner::default() });
        server.put(SERVICES, service("s", 1));
        let mut followed = Followed::new(&server);
        followed.wait_for_silence();
        assert_eq!((followed.services.len(), followed.listed), (0, 0), "{code}");
        server.set(|manner| manner.refused.clear());
        followed.wait_until_listed();
        assert_eq!(followed.names(), ["default/s"], "{code}");
    }
}

#[test]
fn where_one_server_does_not_answer_the_next_is_asked() {
    let (first, second) = (Fake::start(Manner::default()), Fake::start(Manner::default()));
    second.put(SERVICES, service("s", 1));
    first.put(SERVICES, service("s", 1));
    let mut followed = Followed::by(access(&[&first, &second]));
    followed.wait_until_listed();
    assert!(second.requests().is_empty());
    let started = Instant::now();
    first.stop();
    second.put(SERVICES, service("new", 2));
    followed.wait_for("the other server's word", |f| f.services.contains_key("default/new"));
    println!("the other server's word came after {:?}", started.elapsed());
    assert_eq!(followed.went, [""; 0]);
}

/// What is logged by all tests of this program.
fn log() -> &'static Mutex<Vec<u8>> {
    static LOG: OnceLock<&'static Mutex<Vec<u8>>> = OnceLock::new();
    LOG.get_or_init(|| {
        let log: &'static Mutex<Vec<u8>> = Box::leak(Box::default());
        tracing_subscriber::fmt()
            .with_env_filter("kube_client=off,info")
            .with_writer(move || Log(log))
            .with_ansi(false)
            .init();
        log
    })
}

struct Log(&'static Mutex<Vec<u8>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
