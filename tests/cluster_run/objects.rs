//! Objects in the API server.

use std::future::Future;

use anyhow::{Context, Result};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use serde_json::{Value, json};

use crate::common::api_server::ApiServer;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// Requests under way at once.
const AT_ONCE: usize = 32;

/// A client, and what runs it.
pub struct Objects {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Objects {
    pub fn of(server: &ApiServer) -> Result<Objects> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(server.kubeconfig())?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Objects { runtime, client })
    }

    /// Creates a Service; its address.
    pub fn create_service(&self, name: &str) -> Result<String> {
        let made = self.runtime.block_on(self.create(SERVICES, service(name)))?;
        made["spec"]["clusterIP"].as_str().map(Into::into).context("it has no address")
    }

    /// Creates a Service for a load balancer, with a health check port.
    pub fn create_checked_service(&self, name: &str, health_check_port: u16) -> Result<()> {
        let mut object = service(name);
        object["spec"]["type"] = "LoadBalancer".into();
        object["spec"]["externalTrafficPolicy"] = "Local".into();
        object["spec"]["healthCheckNodePort"] = health_check_port.into();
        self.runtime.block_on(self.create(SERVICES, object)).map(drop)
    }

    /// The Events of the namespace, as `Kind/name reason`.
    pub fn events(&self) -> Result<Vec<String>> {
        let request = Request::new(EVENTS).list(&ListParams::default())?;
        let list: Value = self.runtime.block_on(self.client.request(request))?;
        let items = list["items"].as_array().context("a list has items")?;
        let text =
            |event: &Value, pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let line = |event: &Value| {
            let (kind, name) = (text(event, "/regarding/kind"), text(event, "/regarding/name"));
            format!("{kind}/{name} {}", text(event, "/reason"))
        };
        Ok(items.iter().map(line).collect())
    }

    /// Creates any object in the list of this path; what the API server makes of it.
    pub fn create_object(&self, path: &str, object: Value) -> Result<Value> {
        self.runtime.block_on(self.create(path, object)).with_context(|| path.to_owned())
    }

    /// Changes an object of that list.
    pub fn change_object(&self, path: &str, name: &str, change: Value) -> Result<()> {
        self.patch(name, path, change)
    }

    /// Deletes one of them.
    pub fn delete_object(&self, path: &str, name: &str) -> Result<()> {
        let request = Request::new(path).delete(name, &DeleteParams::default())?;
        Ok(self.runtime.block_on(self.client.request::<Value>(request)).map(drop)?)
    }

    pub fn create_slice(&self, service: &str, endpoints: &[&str]) -> Result<()> {
        self.runtime.block_on(self.create(SLICES, slice(service, endpoints))).map(drop)
    }

    /// Gives a slice other endpoints.
    pub fn change_slice(&self, service: &str, endpoints: &[&str]) -> Result<()> {
        self.patch(&format!("{service}-a"), SLICES, slice(service, endpoints))
    }

    /// Sets a label of a Service, or takes it away.
    pub fn label_service(&self, name: &str, label: &str, value: Option<&str>) -> Result<()> {
        self.patch(name, SERVICES, json!({"metadata": {"labels": {label: value}}}))
    }

    pub fn delete_service(&self, name: &str) -> Result<()> {
        self.delete_object(SERVICES, name)
    }

    /// Creates Services and a slice for each, many at a time.
    pub fn create_many(&self, names: &[String]) -> Result<()> {
        let create = async |name: &String| {
            self.create(SERVICES, service(name)).await?;
            self.create(SLICES, slice(name, &["10.244.1.1", "10.244.1.2"])).await
        };
        let all = stream::iter(names).map(create).buffer_unordered(AT_ONCE);
        self.runtime.block_on(all.try_for_each(|_| async { Ok(()) }))
    }

    /// Creates Nodes, Services and EndpointSlices of a YAML text, with their status.
    pub fn create_all(&self, text: &str) -> Result<()> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
        for object in objects {
            let Some(kind) = object["kind"].as_str() else { continue };
            let name = object["metadata"]["name"].as_str().context("an object has a name")?.to_owned();
            let path = match kind {
                "Node" => "/api/v1/nodes",
                "Service" => SERVICES,
                _ => SLICES,
            };
            let status = object.get("status").cloned();
            self.runtime.block_on(self.create(path, object)).with_context(|| name.clone())?;
            if let Some(status) = status {
                let request = Request::new(path);
                let change = Patch::Merge(json!({"status": status}));
                let request = request.patch_subresource("status", &name, &PatchParams::default(), &change)?;
                self.runtime.block_on(self.client.request::<Value>(request)).with_context(|| name)?;
            }
        }
        Ok(())
    }

    fn create(&self, path: &str, object: Value) -> impl Future<Output = Result<Value>> {
        let (client, request) = (self.client.clone(), Request::new(path));
        async move {
            let request = request.create(&PostParams::default(), serde_json::to_vec(&object)?)?;
            Ok(client.request(request).await?)
        }
    }

    fn patch(&self, name: &str, path: &str, change: Value) -> Result<()> {
        let request = Request::new(path).patch(name, &PatchParams::default(), &Patch::Merge(change))?;
        Ok(self.runtime.block_on(self.client.request::<Value>(request)).map(drop)?)
    }
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80}]}})
}

/// With the time of now, as the controller notes when that happened which it reacts to.
fn slice(service: &str, endpoints: &[&str]) -> Value {
    let now = jiff::Timestamp::now().to_string();
    let endpoints: Vec<_> =
        endpoints.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{service}-a"), "labels": {"kubernetes.io/service-name": service},
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": now}},
        "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints})
}
