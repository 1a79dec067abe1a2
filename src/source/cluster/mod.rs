//! A cluster: what its API server says of Services, EndpointSlices, the own Node and the ServiceCIDRs.
//!
//! One thread lists and watches the four kinds side by side. Each object becomes a compact one as it arrives and is
//! handed on at once; of a list nothing is kept but the names that were in it, until its end says what is gone. What a
//! source knew before stays valid while the API server is away.

mod access;
mod api;
mod backoff;
mod failure;
mod once;
mod proxy;
mod reader;
mod reflect;
mod resource;
mod tell;

use std::thread::JoinHandle;
use std::time::SystemTime;

use futures_util::future::{join, join_all, select};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use super::Change;
use crate::events::Event;

use api::Api;
use reflect::{Listener, Reflector};
use resource::Resource;

pub use access::{Access, AccessError};
pub use api::Asked;
pub use once::{ReadError, read};

/// What a cluster tells.
#[allow(clippy::large_enum_variant)] // almost all are changes
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// An object changed. Of an EndpointSlice also the time at which that which changed it happened, as its annotation
    /// `endpoints.kubernetes.io/last-change-trigger-time` has it; not where a list brought it, since it may be old news
    /// then (behaviour row J16).
    Change(Change, Option<SystemTime>),
    /// Everything has been listed once: the Services and EndpointSlices to their ends (row A12), and the own Node and the
    /// ServiceCIDRs as far as the API server gives them away.
    Listed,
}

/// A cluster that is followed until the value is dropped.
#[derive(Debug)]
pub struct Cluster {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Follows a cluster as the node of this name. `tell` gets what happens, in the thread that watches, which also writes the
/// Events that come.
///
/// An API server that does not answer is no error: it is asked again until it does.
///
/// # Errors
/// The way to the API server is not known: see [`AccessError`].
pub fn follow(
    access: Access,
    node: &str,
    events: UnboundedReceiver<Event>,
    tell: impl FnMut(Message) + Send + 'static,
) -> Result<Cluster, AccessError> {
    follow_observed(access, node, events, tell, drop)
}

/// The same; `asked` is told of every request.
///
/// # Errors
/// As for [`follow`].
pub fn follow_observed(
    access: Access,
    node: &str,
    events: UnboundedReceiver<Event>,
    tell: impl FnMut(Message) + Send + 'static,
    asked: impl FnMut(Asked) + Send + 'static,
) -> Result<Cluster, AccessError> {
    let runtime = runtime()?;
    runtime.block_on(access.servers())?; // so that what is wrong with the files is said at once
    let (resources, node) = (Resource::all(node), node.to_owned());
    let (stop, stopped) = oneshot::channel();
    let watch = move || {
        runtime.block_on(async {
            let (api, listener) = (Api::new(access, Box::new(asked)), Listener::new(tell));
            let reflectors = resources.map(|resource| Box::pin(Reflector::new(&api, &listener, resource).run()));
            let told = Box::pin(tell::tell(&api, &node, events));
            select(join(join_all(reflectors), told), stopped).await;
        });
    };
    let thread = std::thread::Builder::new().name("cluster".into()).spawn(watch).map_err(AccessError::Thread)?;
    Ok(Cluster { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; a panic in it was printed.
            let _ = thread.join();
        }
    }
}

/// What runs the requests: within the calling thread, nothing else is needed.
fn runtime() -> Result<tokio::runtime::Runtime, AccessError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AccessError::Thread)
}
