//! One kind, listed and then watched, for good.

use std::cell::RefCell;
use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use futures_util::TryStreamExt;
use kube::api::WatchEvent;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::Message;
use super::api::Api;
use super::backoff::{Backoff, jitter};
use super::failure::Failure;
use super::reader::{Key, Reader, trigger_time, version_of};
use super::resource::{Kind, Resource};
use crate::source::Change;

/// How long the API server is asked to go on with a watch, at most; at least half of it.
const WATCH: Duration = Duration::from_secs(600);
/// A watch is made anew when nothing came for so long, in case the other end is gone without a word. API servers send a
/// bookmark every minute.
const IDLE: Duration = Duration::from_secs(150);
/// The same while a list is streamed: a server that sends no end of it, or not for so long, is asked for pages.
const SILENCE: Duration = Duration::from_secs(10);
/// A watch that ends sooner, and without an event, did not work.
const SHORT: Duration = Duration::from_secs(1);
/// How often is looked for a kind that the API server does not have.
const LOOK: Duration = Duration::from_secs(300);
/// The bookmark that follows the last of the objects that were there has this annotation.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Whom the reflectors tell.
pub struct Listener<T> {
    tell: RefCell<T>,
    started: SystemTime,
    /// The kinds that have been listed, or that there is nothing to wait for from.
    settled: RefCell<HashSet<Kind>>,
}

impl<T: FnMut(Message)> Listener<T> {
    /// Nothing has been told.
    pub fn new(tell: T) -> Listener<T> {
        Listener { tell: RefCell::new(tell), started: SystemTime::now(), settled: RefCell::default() }
    }

    fn tell(&self, change: Change, triggered: Option<SystemTime>) {
        (self.tell.borrow_mut())(Message::Change(change, triggered));
    }

    /// The first time that nothing is missing any more, that is told.
    fn settle(&self, kind: Kind) {
        let mut settled = self.settled.borrow_mut();
        if settled.insert(kind) && settled.len() == Resource::COUNT {
            (self.tell.borrow_mut())(Message::Listed);
        }
    }
}

/// Follows one kind.
pub struct Reflector<'a, T> {
    api: &'a Api,
    listener: &'a Listener<T>,
    resource: Resource,
    reader: Reader,
    /// What is known is of this version; none while it has to be listed.
    version: Option<String>,
    /// While it is listed: what has come so far.
    seen: Option<HashSet<Key>>,
    /// Whether the API server is asked to stream lists, which costs both ends less than pages.
    streaming: bool,
    /// What has been complained of and goes on.
    complaint: Option<String>,
    backoff: Backoff,
}

impl<'a, T: FnMut(Message)> Reflector<'a, T> {
    /// Nothing is known yet.
    pub fn new(api: &'a Api, listener: &'a Listener<T>, resource: Resource) -> Reflector<'a, T> {
        Reflector {
            api,
            listener,
            reader: Reader::new(&resource),
            resource,
            version: None,
            seen: None,
            streaming: true,
            complaint: None,
            backoff: Backoff::default(),
        }
    }

    /// Goes on for ever.
    pub async fn run(mut self) {
        loop {
            let turn = self.api.turn();
            let pause = match self.step().await {
                Ok(()) => Duration::ZERO,
                Err(failure) => self.failed(&failure, turn),
            };
            self.seen = None;
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    async fn step(&mut self) -> Result<(), Failure> {
        match &self.version {
            Some(version) => self.watch(Some(version.clone())).await,
            None if self.streaming => self.watch(None).await,
            None => self.list().await,
        }
    }

    /// What follows from a failure; how long to wait.
    fn failed(&mut self, failure: &Failure, turn: u64) -> Duration {
        let listing = self.seen.is_some() || self.version.is_none();
        let plural = self.resource.plural;
        if matches!(failure, Failure::Expired | Failure::Garbled(_)) && !listing {
            info!("{plural} are listed again: {failure}");
            self.version = None;
            return if matches!(failure, Failure::Expired) { Duration::ZERO } else { self.backoff.pause() };
        }
        match failure {
            Failure::Refused { code: 404, .. } if !self.resource.is_needed() => {
                debug!("the API server has no {plural}: {failure}");
                self.reader.absent().into_iter().for_each(|change| self.listener.tell(change, None));
                self.listener.settle(self.resource.kind);
                return jitter(LOOK);
            }
            _ if listing && self.streaming && failure.is_about_the_request() => {
                debug!("{plural} are listed in pages: {failure}");
                self.streaming = false;
                return Duration::ZERO;
            }
            Failure::Away(reason) => self.api.is_away(turn, reason),
            _ => {
                if failure.code() == Some(401) {
                    self.api.renew();
                }
                self.complain(failure);
            }
        }
        if !self.resource.is_needed() && failure.code().is_some() {
            self.listener.settle(self.resource.kind);
        }
        let asked = if let Failure::Refused { retry_after, .. } = failure { *retry_after } else { None };
        self.backoff.pause().max(asked.unwrap_or_default())
    }

    /// Says it once, for as long as it goes on.
    fn complain(&mut self, failure: &Failure) {
        let text = failure.to_string();
        if self.complaint.as_ref() != Some(&text) {
            warn!(
                "{}: {} cannot be read: {text}; what is known of them stays, and it is tried again",
                self.api.server(),
                self.resource.plural
            );
            self.complaint = Some(text);
        }
    }

    /// Something good came.
    fn is_well(&mut self) {
        self.backoff.reset();
        if self.complaint.take().is_some() {
            info!("{} can be read again", self.resource.plural);
        }
    }

    async fn list(&mut self) -> Result<(), Failure> {
        let mut seen = HashSet::new();
        let (reader, listener) = (&mut self.reader, self.listener);
        let version = self
            .api
            .list(&self.resource, |value| {
                if let Some((key, change)) = reader.read(value) {
                    seen.insert(key);
                    listener.tell(change, None);
                }
            })
            .await?;
        self.finish_list(seen, version);
        Ok(())
    }

    /// Without a version, the list comes first.
    async fn watch(&mut self, version: Option<String>) -> Result<(), Failure> {
        let (started, mut events) = (Instant::now(), 0);
        self.seen = version.is_none().then(HashSet::new);
        self.reader.prune();
        let stream = self.api.watch(&self.resource, version.as_deref(), jitter(WATCH)).await?;
        let mut stream = pin!(stream);
        // Silence is no failure yet: if the other end is gone, the next request will tell.
        loop {
            let patience = if self.seen.is_some() { SILENCE } else { IDLE };
            let Ok(next) = timeout(patience, stream.try_next()).await else { break };
            let Some(event) = next? else { break };
            self.take(event)?;
            events += 1;
        }
        let too_short = events == 0 && started.elapsed() < SHORT;
        if self.seen.is_some() || too_short { Err(Failure::Unfinished) } else { Ok(()) }
    }

    fn take(&mut self, event: WatchEvent<Value>) -> Result<(), Failure> {
        let (object, is_gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(bookmark) => {
                let metadata = bookmark.metadata;
                let is_end = metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
                match self.seen.take() {
                    Some(seen) if is_end => self.finish_list(seen, metadata.resource_version),
                    Some(seen) => self.seen = Some(seen),
                    None => self.version = Some(metadata.resource_version),
                }
                return Ok(());
            }
            WatchEvent::Error(status) => return Err((*status).into()),
        };
        let (version, triggered) = (version_of(&object), trigger_time(&object));
        let told = if is_gone { self.reader.gone(&object) } else { self.reader.read(object) };
        match (&mut self.seen, told) {
            (Some(seen), Some((key, change))) => {
                if is_gone {
                    seen.remove(&key)
                } else {
                    seen.insert(key)
                };
                self.listener.tell(change, None);
            }
            (None, Some((_, change))) => {
                let fresh = triggered.filter(|time| !is_gone && *time >= self.listener.started);
                self.listener.tell(change, fresh);
            }
            (_, None) => {}
        }
        if self.seen.is_none() {
            self.version = version.or(self.version.take());
            self.is_well();
        }
        Ok(())
    }

    fn finish_list(&mut self, seen: HashSet<Key>, version: String) {
        debug!(version, objects = seen.len(), "{} are listed", self.resource.plural);
        self.reader.only(seen).into_iter().for_each(|change| self.listener.tell(change, None));
        self.version = Some(version);
        self.is_well();
        self.listener.settle(self.resource.kind);
    }
}
