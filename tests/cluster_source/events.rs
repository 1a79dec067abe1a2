//! Events are written where the cluster is watched.

use std::time::{Duration, Instant};

use serde_json::Value;
use svcmap::events::Event;
use svcmap::objects::ServiceKey;

use crate::fake::{Fake, Manner};
use crate::model::Followed;

const OF_DEFAULT: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const OF_SHOP: &str = "/apis/events.k8s.io/v1/namespaces/shop/events";

/// Waits until so many have been written.
fn written(server: &Fake, count: usize) -> Vec<(String, Value)> {
    let end = Instant::now() + Duration::from_secs(60);
    while server.created().len() < count {
        assert!(Instant::now() < end, "{:?} is all that was created", server.created());
        std::thread::sleep(Duration::from_millis(10));
    }
    server.created()
}

fn reasons(created: &[(String, Value)]) -> Vec<(&str, &str, &str)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned().leak() as &str;
    created.iter().map(|(path, object)| (path.as_str(), text(&object["reason"]), text(&object["note"]))).collect()
}

fn check_failed(note: &str) -> Event {
    Event::check_failed(&ServiceKey::new("shop", "web"), note.into())
}

#[test]
fn events_are_created_in_their_namespaces() {
    let server = Fake::start(Manner::default());
    let followed = Followed::new(&server);
    followed.recorder.record(Event::starting());
    followed.recorder.record(check_failed("a"));
    let created = written(&server, 2);
    let version = concat!("svcmap ", env!("CARGO_PKG_VERSION"));
    let wanted = [(OF_DEFAULT, "Starting", version), (OF_SHOP, "FailedToStartServiceHealthcheck", "a")];
    assert_eq!(reasons(&created), wanted);
    assert_eq!(created[1].1["regarding"]["name"], "web");
    assert_eq!(created[1].1["reportingInstance"], "svcmap-n1");
}

#[test]
fn events_wait_while_the_api_server_is_away() {
    let server = Fake::start(Manner::default());
    let mut followed = Followed::new(&server);
    followed.wait_until_listed();
    server.stop();
    followed.recorder.record(check_failed("meanwhile"));
    followed.wait_for_silence();
    server.resume();
    assert_eq!(reasons(&written(&server, 1))[0].2, "meanwhile");
}

/// They are messages to people, and nothing else hangs on them.
#[test]
fn events_that_are_refused_stop_nothing() {
    let server = Fake::start(Manner::default());
    server.set(|manner| {
        manner.refused.insert(OF_SHOP, 403);
    });
    let mut followed = Followed::new(&server);
    followed.recorder.record(check_failed("forbidden"));
    followed.recorder.record(Event::starting());
    assert_eq!(reasons(&written(&server, 1))[0].1, "Starting");
    followed.wait_until_listed();
}
