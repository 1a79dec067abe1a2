//! An API server that holds objects, lists and watches, and misbehaves as it is told.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::query::{Query, matches};

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Whether lists can be streamed.
    pub streams: bool,
    /// Whether an expired watch is refused with HTTP status 410, or accepted and told in an event.
    pub refuses_expired: bool,
    /// The resources of which no list ends before it is taken from here.
    pub held_back: Vec<&'static str>,
    /// Whether streamed lists go on as watches without a word of their end.
    pub endless: bool,
    /// The answers, in the place of lists and watches, to requests for a resource.
    pub odd: BTreeMap<&'static str, Value>,
    /// The status with which requests for a resource are answered.
    pub refused: BTreeMap<&'static str, u16>,
    /// The bearer token that is wanted.
    pub token: Option<String>,
    /// Answers come in so many bytes at a time, with a pause after each.
    pub trickle: Option<usize>,
}

impl Default for Manner {
    fn default() -> Manner {
        Manner {
            streams: true,
            refuses_expired: true,
            held_back: Vec::new(),
            endless: false,
            odd: BTreeMap::new(),
            refused: BTreeMap::new(),
            token: None,
            trickle: None,
        }
    }
}

/// What happened to an object.
#[derive(Clone)]
struct Entry {
    version: u64,
    resource: String,
    old: Option<Value>,
    new: Option<Value>,
}

#[derive(Default)]
struct Inner {
    manner: Manner,
    version: u64,
    /// Watches from versions before this one have expired.
    oldest: u64,
    objects: BTreeMap<(String, String), Value>,
    entries: Vec<Entry>,
    requests: Vec<String>,
    /// What was created: where, and as what.
    created: Vec<(String, Value)>,
    connections: Vec<TcpStream>,
    bookmarks: u64,
    /// Whether the next event is cut in its middle.
    cuts_next: bool,
    stopped: bool,
}

/// The server; it ends when the value is dropped.
pub struct Fake {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

pub const SERVICES: &str = "/api/v1/services";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
pub const NODES: &str = "/api/v1/nodes";
pub const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

impl Fake {
    pub fn start(manner: Manner) -> Fake {
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner { manner, version: 100, ..Inner::default() }),
            changed: Condvar::new(),
        });
        let address = listen(shared.clone(), "127.0.0.1:0".parse().unwrap());
        Fake { shared, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn set(&self, change: impl FnOnce(&mut Manner)) {
        change(&mut self.lock().manner);
        self.shared.changed.notify_all();
    }

    /// Creates or replaces an object.
    pub fn put(&self, resource: &str, mut object: Value) {
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let old = inner.objects.insert((resource.into(), key(&object)), object.clone());
        inner.entries.push(Entry { version, resource: resource.into(), old, new: Some(object) });
        drop(inner);
        self.shared.changed.notify_all();
    }

    /// Deletes an object.
    pub fn delete(&self, resource: &str, key: &str) {
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        let old = inner.objects.remove(&(resource.into(), key.into()));
        assert!(old.is_some(), "there is no {key}");
        inner.entries.push(Entry { version, resource: resource.into(), old, new: None });
        drop(inner);
        self.shared.changed.notify_all();
    }

    /// Sends a bookmark to every watch.
    pub fn bookmark(&self) {
        let mut inner = self.lock();
        inner.bookmarks += 1;
        inner.version += 1; // something else happened, as in every cluster
        drop(inner);
        self.shared.changed.notify_all();
    }

    /// Forgets what happened so far: watches from before have expired.
    pub fn compact(&self) {
        let mut inner = self.lock();
        inner.version += 1;
        inner.oldest = inner.version;
        inner.entries.clear();
    }

    /// Closes all connections.
    pub fn disconnect(&self) {
        let connections = std::mem::take(&mut self.lock().connections);
        connections.iter().for_each(|connection| drop(connection.shutdown(Shutdown::Both)));
    }

    /// The next event breaks off in its middle.
    pub fn cut_next(&self) {
        self.lock().cuts_next = true;
    }

    /// Goes away.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.shared.changed.notify_all();
        while TcpStream::connect(self.address).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
        self.disconnect();
    }

    /// Comes back.
    pub fn resume(&self) {
        self.lock().stopped = false;
        listen(self.shared.clone(), self.address);
    }

    /// The requests so far: path and query of each.
    pub fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    /// What was created so far: path and object of each.
    pub fn created(&self) -> Vec<(String, Value)> {
        self.lock().created.clone()
    }

    /// The requests so far for one resource.
    pub fn requests_for(&self, resource: &str) -> Vec<Query> {
        self.requests().iter().map(|request| Query::parse(request)).filter(|query| query.path == resource).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.lock().stopped = true;
        self.shared.changed.notify_all();
        self.disconnect();
    }
}

fn key(object: &Value) -> String {
    let text = |field| object["metadata"][field].as_str();
    match text("namespace") {
        Some(namespace) => format!("{namespace}/{}", text("name").unwrap()),
        None => text("name").unwrap().into(),
    }
}

fn listen(shared: Arc<Shared>, address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while !shared.inner.lock().unwrap().stopped {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    stream.set_nodelay(true).unwrap();
                    shared.inner.lock().unwrap().connections.push(stream.try_clone().unwrap());
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let _ = serve(&shared, &stream);
                        let _ = stream.shutdown(Shutdown::Both); // others hold it, too
                    });
                }
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    });
    address
}

fn serve(shared: &Shared, stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut request, mut authorization, mut length) = (String::new(), String::new(), 0);
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("authorization") => authorization = value.into(),
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let target = request.split(' ').nth(1).unwrap_or_default().to_string();
        let mut inner = shared.inner.lock().unwrap();
        inner.requests.push(target.clone());
        let manner = inner.manner.clone();
        drop(inner);
        let mut answer = Answer { stream: stream.try_clone()?, trickle: manner.trickle };
        let query = Query::parse(&target);
        if manner.token.is_some_and(|token| authorization != format!("Bearer {token}")) {
            answer.refuse(401, "Unauthorized", "who are you?")?;
        } else if let Some(code) = manner.refused.get(query.path.as_str()) {
            answer.refuse(*code, "Refused", "not for you")?;
        } else if let Some(odd) = manner.odd.get(query.path.as_str()) {
            answer.whole(200, odd)?;
        } else if request.starts_with("POST ") {
            let object: Value = serde_json::from_slice(&body)?;
            shared.inner.lock().unwrap().created.push((query.path.clone(), object.clone()));
            answer.whole(201, &object)?;
        } else if query.get("watch") == Some("true") {
            return watch(shared, &query, answer); // a watch ends with its connection
        } else {
            list(shared, &query, answer)?;
        }
    }
}

/// The response under way.
struct Answer {
    stream: TcpStream,
    trickle: Option<usize>,
}

impl Answer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(step) = self.trickle else { return self.stream.write_all(bytes) };
        for part in bytes.chunks(step) {
            self.stream.write_all(part)?;
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn whole(&mut self, code: u16, body: &Value) -> io::Result<()> {
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        self.send((head + &body).as_bytes())
    }

    fn refuse(&mut self, code: u16, reason: &str, message: &str) -> io::Result<()> {
        self.whole(code, &status(code, reason, message))
    }

    fn begin_stream(&mut self) -> io::Result<()> {
        self.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    fn event(&mut self, kind: &str, object: &Value) -> io::Result<()> {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        self.send(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())
    }

    /// A chunk that does not come to its end.
    fn half_event(&mut self, kind: &str, object: &Value) -> io::Result<()> {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        self.send(format!("{:x}\r\n{}", line.len(), &line[..line.len() / 2]).as_bytes())?;
        self.stream.shutdown(Shutdown::Both)
    }
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": message})
}

fn list(shared: &Shared, query: &Query, mut answer: Answer) -> io::Result<()> {
    let mut inner = shared.inner.lock().unwrap();
    while inner.manner.held_back.contains(&query.path.as_str()) && !inner.stopped {
        inner = shared.changed.wait(inner).unwrap();
    }
    let after = query.get("continue").unwrap_or_default().to_string();
    let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
    let of_kind = inner.objects.iter().filter(|((resource, key), _)| *resource == query.path && *key > after);
    let wanted: Vec<_> = of_kind.filter(|(_, object)| matches(object, query)).take(limit.saturating_add(1)).collect();
    let more = if wanted.len() > limit { wanted[limit - 1].0.1.as_str() } else { "" };
    // the objects of a list do not say of which kind they are
    let items: Vec<_> = wanted.iter().take(limit).map(|(_, object)| untyped(object)).collect();
    let metadata = json!({"resourceVersion": inner.version.to_string(), "continue": more});
    let body = json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items});
    drop(inner);
    answer.whole(200, &body)
}

fn untyped(object: &Value) -> Value {
    let mut object = object.clone();
    let fields = object.as_object_mut().unwrap();
    fields.remove("kind");
    fields.remove("apiVersion");
    object
}

fn watch(shared: &Shared, query: &Query, mut answer: Answer) -> io::Result<()> {
    let mut inner = shared.inner.lock().unwrap();
    let streams = query.get("sendInitialEvents") == Some("true");
    let mut version = query.get("resourceVersion").unwrap_or_default().parse().unwrap_or(0);
    if streams && !inner.manner.streams {
        return answer.refuse(422, "Invalid", "sendInitialEvents is forbidden for watch");
    }
    if !streams && version < inner.oldest {
        let gone = status(410, "Expired", "too old resource version");
        if inner.manner.refuses_expired {
            return answer.whole(410, &gone);
        }
        answer.begin_stream()?;
        return answer.event("ERROR", &gone);
    }
    answer.begin_stream()?;
    if streams {
        let of_kind = inner.objects.iter().filter(|((resource, _), _)| *resource == query.path);
        let objects: Vec<_> = of_kind.map(|(_, object)| object.clone()).filter(|o| matches(o, query)).collect();
        version = inner.version;
        drop(inner);
        objects.iter().try_for_each(|object| answer.event("ADDED", object))?;
        inner = shared.inner.lock().unwrap();
        while inner.manner.held_back.contains(&query.path.as_str()) && !inner.stopped {
            inner = shared.changed.wait(inner).unwrap();
        }
        if !inner.manner.endless {
            answer.event("BOOKMARK", &bookmark(version, true))?;
        }
    }
    let mut bookmarks = inner.bookmarks;
    loop {
        let next = inner.entries.iter().find(|entry| entry.version > version && entry.resource == query.path).cloned();
        if let Some(entry) = next {
            version = entry.version;
            let Some((kind, object)) = event(&entry, query) else { continue };
            if std::mem::take(&mut inner.cuts_next) {
                return answer.half_event(kind, &object);
            }
            answer.event(kind, &object)?;
        } else if inner.bookmarks > bookmarks {
            bookmarks = inner.bookmarks;
            version = inner.version;
            answer.event("BOOKMARK", &bookmark(version, false))?;
        } else if inner.stopped {
            return Ok(());
        } else {
            inner = shared.changed.wait(inner).unwrap();
        }
    }
}

/// What a watch with these selectors sees of it.
fn event(entry: &Entry, query: &Query) -> Option<(&'static str, Value)> {
    let was = entry.old.as_ref().is_some_and(|object| matches(object, query));
    match (&entry.new, &entry.old) {
        (Some(new), _) if matches(new, query) => Some((if was { "MODIFIED" } else { "ADDED" }, new.clone())),
        (new, Some(old)) if was => {
            let mut last = new.as_ref().unwrap_or(old).clone();
            last["metadata"]["resourceVersion"] = json!(entry.version.to_string());
            Some(("DELETED", last))
        }
        _ => None,
    }
}

fn bookmark(version: u64, is_end: bool) -> Value {
    let annotations = if is_end { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    json!({"kind": "Any", "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string(), "annotations": annotations}})
}
