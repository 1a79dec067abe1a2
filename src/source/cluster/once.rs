//! A cluster, read once.

use tracing::debug;

use super::access::{Access, AccessError};
use super::api::Api;
use super::failure::Failure;
use super::reader::Reader;
use super::resource::Resource;
use super::runtime;
use crate::source::convert::Object;
use crate::source::{Loaded, Problem, Snapshot};

/// Why a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The way to the API server is not known.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No API server gave the objects away.
    #[error("{server}: {plural} cannot be read: {failure}")]
    Failed {
        /// The API server's URL.
        server: String,
        /// Which objects.
        plural: &'static str,
        /// What it said, or what became of the connection.
        failure: String,
    },
}

/// Reads a cluster once, as the node of this name sees it. Each API server is asked once.
///
/// # Errors
/// No API server can be reached, or the Services or EndpointSlices are not given away. Without the Node and the
/// ServiceCIDRs it goes on; that they cannot be read is one of the problems.
pub fn read(access: &Access, node: &str) -> Result<Loaded, ReadError> {
    runtime()?.block_on(read_all(access, node))
}

async fn read_all(access: &Access, node: &str) -> Result<Loaded, ReadError> {
    let mut loaded = Loaded::default();
    let api = Api::new(access.clone(), Box::new(drop));
    access.servers().await?;
    for resource in Resource::all(node) {
        match read_kind(&api, access, &resource, &mut loaded).await {
            Ok(()) => {}
            Err(failure) if !resource.is_needed() && failure.code() == Some(404) => {
                debug!("the API server has no {}: {failure}", resource.plural);
            }
            Err(failure) if !resource.is_needed() && failure.code().is_some() => loaded.problems.push(Problem {
                object: api.server(),
                field: String::new(),
                message: format!("{} cannot be read: {failure}", resource.plural),
                skipped: false,
            }),
            Err(failure) => {
                let (server, plural) = (api.server(), resource.plural);
                return Err(ReadError::Failed { server, plural, failure: failure.to_string() });
            }
        }
    }
    loaded.snapshot.service_cidrs.sort();
    loaded.snapshot.service_cidrs.dedup();
    Ok(loaded)
}

/// Reads one kind from the first server that answers.
async fn read_kind(api: &Api, access: &Access, resource: &Resource, loaded: &mut Loaded) -> Result<(), Failure> {
    let mut others = access.masters.len().saturating_sub(1);
    loop {
        let mut reader = Reader::new(resource);
        let (mut found, mut problems) = (Snapshot::default(), Vec::new());
        let listed = api
            .list(resource, |value| {
                if let Some(object) = reader.convert(value, &mut problems) {
                    add(&mut found, object);
                }
            })
            .await;
        match listed {
            Ok(_) => {
                loaded.problems.append(&mut problems);
                let all = &mut loaded.snapshot;
                all.services.append(&mut found.services);
                all.slices.append(&mut found.slices);
                all.nodes.append(&mut found.nodes);
                all.service_cidrs.append(&mut found.service_cidrs);
                return Ok(());
            }
            Err(Failure::Away(reason)) if others > 0 => {
                others -= 1;
                api.is_away(api.turn(), &reason);
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn add(snapshot: &mut Snapshot, object: Object) {
    match object {
        Object::Service(service) => snapshot.services.push(service),
        Object::Slice(slice) => snapshot.slices.push(slice),
        Object::Node(node) => snapshot.nodes.push(node),
        Object::ServiceCidr(_, networks) => snapshot.service_cidrs.extend(networks),
        Object::SliceElsewhere(_) | Object::Endpoints(_) | Object::Pod(_) => {}
    }
}
