//! Events become objects of the cluster (row J15): `events.k8s.io/v1`.
//!
//! Written with the client that watches, so that they go where that goes: to the server that answers, with the credentials of
//! the day. The recorder of `kube-runtime` would know nothing of either.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::api::Api;
use super::failure::Failure;
use crate::events::{Event, Severity, Subject};

/// Who reports.
const CONTROLLER: &str = "svcmap";
/// How often an Event is tried to be written while the API server is away, and the pause in between.
const ATTEMPTS: usize = 60;
const PAUSE: Duration = Duration::from_secs(2);
/// The longest note that the API server takes, in bytes.
const NOTE: usize = 1024;
/// The longest name of an instance.
const INSTANCE: usize = 128;

/// Writes Events until there can be no more. One that cannot be written is lost: it is a message to people, and the log has
/// it, too. That they are refused is said once.
pub async fn tell(api: &Api, node: &str, mut events: UnboundedReceiver<Event>) {
    let mut complained = false;
    while let Some(event) = events.recv().await {
        let (path, body) = object(&event, node, SystemTime::now());
        match write(api, &path, &body).await {
            Ok(()) => debug!(event.reason, "an Event was written"),
            Err(failure) if !complained => {
                complained = true;
                warn!("Events cannot be written: {failure}; what they say is in the log");
            }
            Err(failure) => debug!("an Event cannot be written: {failure}"),
        }
    }
}

async fn write(api: &Api, path: &str, body: &Value) -> Result<(), Failure> {
    let mut left = ATTEMPTS;
    loop {
        let turn = api.turn();
        match api.create(path, body).await {
            Err(Failure::Away(reason)) if left > 0 => {
                left -= 1;
                api.is_away(turn, &reason);
                sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Where an Event is created, and as what. Those about the Node, which is in no namespace, are in `default`, and have its name
/// in the place of its UID, as those of kubelets and kube-proxy: `kubectl describe node` looks for that.
fn object(event: &Event, node: &str, now: SystemTime) -> (String, Value) {
    let (regarding, namespace) = match &event.subject {
        Subject::Node => (json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}), "default"),
        Subject::Service(service) => {
            let (namespace, name) = (service.namespace.as_str(), service.name.as_str());
            (json!({"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name}), namespace)
        }
    };
    let severity = match event.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let time = Timestamp::try_from(now).unwrap_or_default();
    let name = regarding["name"].as_str().unwrap_or_default();
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.{:x}", time.as_nanosecond()), "namespace": namespace},
        "eventTime": time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "type": severity,
        "reason": event.reason,
        "action": event.action,
        "note": cut(&event.note, NOTE),
        "regarding": regarding,
        "reportingController": CONTROLLER,
        "reportingInstance": cut(&format!("{CONTROLLER}-{node}"), INSTANCE),
    });
    (format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), body)
}

/// The beginning of a text, of so many bytes at most.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ServiceKey;

    #[test]
    fn an_event_stands_beside_what_it_is_about() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_500_000);
        let (path, body) = object(&Event::starting(), "n1", now);
        assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
        assert_eq!(body["eventTime"], "1970-01-01T00:00:01.500000Z");
        assert_eq!(body["regarding"], json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}));
        assert_eq!(
            (&body["type"], &body["reason"], &body["action"]),
            (&json!("Normal"), &json!("Starting"), &json!("StartKubeProxy"))
        );

        let long = "ä".repeat(1000);
        let (path, body) = object(&Event::check_failed(&ServiceKey::new("a", "b"), long), "n1", now);
        assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/a/events");
        assert_eq!(body["note"].as_str().unwrap().len(), 1024);
        assert_eq!(body["metadata"]["name"], "b.59682f00");
    }
}
