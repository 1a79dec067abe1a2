//! What is told to the people of a cluster as Event objects (behaviour row J15).

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::objects::ServiceKey;

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The own Node.
    Node,
    /// A Service.
    Service(ServiceKey),
}

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// All is as it should be.
    Normal,
    /// Somebody should look at it.
    Warning,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub subject: Subject,
    /// How it is to be taken.
    pub severity: Severity,
    /// One word, by which machines know it.
    pub reason: &'static str,
    /// What was being done.
    pub action: &'static str,
    /// For people.
    pub note: String,
}

/// What kube-proxy calls its start.
const START: &str = "StartKubeProxy";

impl Event {
    /// The daemon begins.
    pub fn starting() -> Event {
        Event {
            subject: Subject::Node,
            severity: Severity::Normal,
            reason: "Starting",
            action: START,
            note: concat!("svcmap ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    /// The server for health or for metrics cannot be had (row I12).
    pub fn server_failed(reason: &'static str, note: String) -> Event {
        Event { subject: Subject::Node, severity: Severity::Warning, reason, action: START, note }
    }

    /// A Service's health check port cannot be had (row I8).
    pub fn check_failed(service: &ServiceKey, note: String) -> Event {
        Event {
            subject: Subject::Service(service.clone()),
            severity: Severity::Warning,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            note,
        }
    }
}

/// Takes Events, for whoever writes them; without anybody they are dropped.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<UnboundedSender<Event>>);

impl Recorder {
    /// Has an Event written, soon. Nobody waits for that.
    pub fn record(&self, event: Event) {
        if let Some(sender) = &self.0 {
            // at the end of the process nobody writes any more
            let _ = sender.send(event);
        }
    }
}

/// A recorder, and what it was told.
pub fn recorder() -> (Recorder, UnboundedReceiver<Event>) {
    let (sender, receiver) = unbounded_channel();
    (Recorder(Some(sender)), receiver)
}
