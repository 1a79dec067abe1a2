//! Requests to the API servers, the first of which that answers is asked.

use crate::amounts::counted;
use std::cell::RefCell;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, core::Request};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::access::{Access, AccessError};
use super::backoff::Throttle;
use super::failure::{Failure, chain};
use super::resource::Resource;

/// Objects in a page of a list: a page of full EndpointSlices has some megabytes.
const PAGE: u32 = 200;
/// How long the beginning of an answer may take, and a page of a list.
const ANSWER: Duration = Duration::from_secs(60);
/// A sort of request whose answer has no end.
const WATCH: &str = "WATCH";

/// A request that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The server: its host, and the port where its URL has one.
    pub host: String,
    /// The status of the answer; none where none came.
    pub code: Option<u16>,
    /// How long it took; none for a watch, which takes as long as it is wanted.
    pub took: Option<Duration>,
}

/// Who is told of requests.
pub type Audience = Box<dyn FnMut(Asked)>;

/// The API servers.
pub struct Api {
    access: Access,
    audience: RefCell<Audience>,
    throttle: RefCell<Throttle>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// The servers with their URLs; empty where the files have to be read again.
    servers: Vec<(String, Client)>,
    /// Which of them is asked.
    current: usize,
    /// How often that changed.
    turn: u64,
    /// Since when none answers.
    away: Option<Instant>,
}

/// A page of a list. The objects stay text until each is looked at.
#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(rename = "continue")]
    more: Option<String>,
}

impl Api {
    /// Nothing is asked yet. `audience` is told of every request.
    pub fn new(access: Access, audience: Audience) -> Api {
        let throttle = Throttle::new(access.qps, access.burst, Instant::now());
        Api { access, audience: RefCell::new(audience), throttle: RefCell::new(throttle), state: RefCell::default() }
    }

    /// Lists a resource page by page, and gives each object away before the next is parsed. Returns the version of the
    /// list.
    pub async fn list(&self, resource: &Resource, mut each: impl FnMut(Value)) -> Result<String, Failure> {
        let mut parameters = ListParams {
            label_selector: resource.labels.map(Into::into),
            field_selector: resource.fields.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        loop {
            let request = Request::new(resource.path).list(&parameters).map_err(unbuildable)?;
            let client = self.client().await?;
            let text = self.ask("GET", client.request_text(request)).await?;
            let page: Page = serde_json::from_str(&text).map_err(|error| Failure::Garbled(error.to_string()))?;
            for item in page.items.unwrap_or_default() {
                each(serde_json::from_str(item.get()).map_err(|error| Failure::Garbled(error.to_string()))?);
            }
            match page.metadata.more.filter(|more| !more.is_empty()) {
                Some(more) => parameters.continue_token = Some(more),
                None => return Ok(page.metadata.resource_version),
            }
        }
    }

    /// Watches a resource from a version on; from none, what is there comes first, and then a bookmark.
    pub async fn watch(
        &self,
        resource: &Resource,
        version: Option<&str>,
        duration: Duration,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>, Failure>> + use<>, Failure> {
        let parameters = WatchParams {
            label_selector: resource.labels.map(Into::into),
            field_selector: resource.fields.clone(),
            timeout: Some(duration.as_secs() as u32),
            bookmarks: true,
            send_initial_events: version.is_none(),
        };
        let request = Request::new(resource.path).watch(&parameters, version.unwrap_or("")).map_err(unbuildable)?;
        let client = self.client().await?;
        let events = self.ask(WATCH, client.request_events(request)).await?;
        Ok(events.map(|next: Result<_, kube::Error>| next.map_err(Failure::from)))
    }

    /// Creates an object: `path` is that of its kind's list.
    pub async fn create(&self, path: &str, body: &Value) -> Result<(), Failure> {
        let body = serde_json::to_vec(body).expect("a value is plain data");
        let request = Request::new(path).create(&PostParams::default(), body).map_err(unbuildable)?;
        let client = self.client().await?;
        self.ask("POST", client.request::<IgnoredAny>(request)).await.map(drop)
    }

    /// Waits for the answer to a request, or the beginning of one that is streamed.
    async fn ask<T>(&self, kind: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        let (host, started) = (self.host(), Instant::now());
        let result = timeout(ANSWER, request).await;
        let method = if kind == "POST" { "POST" } else { "GET" };
        let code = match &result {
            Ok(Ok(_)) => Some(if method == "POST" { 201 } else { 200 }),
            Ok(Err(kube::Error::Api(status))) => Some(status.code),
            _ => None,
        };
        let took = (kind != WATCH).then(|| started.elapsed());
        (self.audience.borrow_mut())(Asked { method, host, code, took });
        let answer = result.map_err(|_| no_answer())??;
        self.answered();
        Ok(answer)
    }

    /// The present server without the rest of its URL.
    fn host(&self) -> String {
        let server = self.server();
        let (_, rest) = server.split_once("://").unwrap_or(("", &server));
        rest.split('/').next().unwrap_or_default().to_owned()
    }

    /// The client of the server that is asked at present, when it may be asked.
    async fn client(&self) -> Result<Client, Failure> {
        let wait = self.throttle.borrow_mut().wait(Instant::now());
        sleep(wait).await;
        if self.state.borrow().servers.is_empty() {
            let servers = self.connect().await.map_err(|error| Failure::Away(error.to_string()))?;
            self.state.borrow_mut().servers = servers;
        }
        let mut state = self.state.borrow_mut();
        state.current %= state.servers.len();
        Ok(state.servers[state.current].1.clone())
    }

    async fn connect(&self) -> Result<Vec<(String, Client)>, AccessError> {
        let mut servers = Vec::new();
        for config in self.access.servers().await? {
            let server = config.cluster_url.to_string();
            let client = Client::try_from(config)
                .map_err(|error| AccessError::Credentials { server: server.clone(), message: chain(&error) })?;
            servers.push((server, client));
        }
        Ok(servers)
    }

    /// The name of the server that is asked at present.
    pub fn server(&self) -> String {
        let state = self.state.borrow();
        state.servers.get(state.current).map_or_else(|| "the API server".into(), |(server, _)| server.clone())
    }

    /// Whose turn it is; see [`Api::is_away`].
    pub fn turn(&self) -> u64 {
        self.state.borrow().turn
    }

    /// Takes note that the server whose turn it was does not answer. The next one is asked from now on, with the
    /// credentials that the files hold then. It is said once, however many requests fail, until one is answered.
    pub fn is_away(&self, turn: u64, reason: &str) {
        if turn != self.turn() {
            return;
        }
        let server = self.server();
        let mut state = self.state.borrow_mut();
        if state.away.is_none() {
            state.away = Some(Instant::now());
            warn!("{server} does not answer: {reason}; what is programmed stays, and it is asked again until it does");
        }
        state.turn += 1;
        state.current += 1;
        state.servers.clear();
    }

    /// Has the credentials read again.
    pub fn renew(&self) {
        self.state.borrow_mut().servers.clear();
    }

    fn answered(&self) {
        let away = self.state.borrow_mut().away.take();
        if let Some(since) = away {
            let seconds = since.elapsed().as_secs() as usize;
            info!("{} answers, after {}", self.server(), counted(seconds, "second"));
        }
    }
}

fn no_answer() -> Failure {
    Failure::Away(format!("nothing came for {} seconds", ANSWER.as_secs()))
}

fn unbuildable(error: impl std::error::Error) -> Failure {
    Failure::Garbled(chain(&error))
}
