//! The API server that other tests use: a real one, which can be killed, started again, and made to forget.

mod common;

use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use common::api_server::{ApiServer, Options, trial};
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use libtest_mimic::Arguments;
use serde_json::json;

/// How long what other programs do on a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A server has both cores of a small machine to do when it starts.
    arguments.test_threads.get_or_insert(2);
    let controllers = Options { controllers: true, ..Options::default() };
    let uncached = Options { flags: vec!["--watch-cache=false".into()], ..Options::default() };
    let trials = vec![
        trial("objects_survive_a_kill", Options::default(), in_a_runtime(objects_survive_a_kill)),
        trial("what_is_compacted_is_gone", uncached, in_a_runtime(what_is_compacted_is_gone)),
        trial("controllers_make_slices", controllers, in_a_runtime(controllers_make_slices)),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn in_a_runtime(
    test: impl AsyncFn(&mut ApiServer) -> Result<()> + Send + 'static,
) -> impl Fn(&mut ApiServer) -> Result<()> + Send + 'static {
    move |server| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test(server))
}

async fn client(server: &ApiServer) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig())?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

async fn make_service(services: &Api<Service>, name: &str) -> Result<Service> {
    let service = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "ipFamilyPolicy": "PreferDualStack",
            "selector": { "app": name },
            "ports": [{ "port": 80, "targetPort": 8080 }],
        },
    }))?;
    Ok(services.create(&PostParams::default(), &service).await?)
}

fn cluster_ips(service: &Service) -> Vec<String> {
    service.spec.iter().flat_map(|spec| spec.cluster_ips.clone().unwrap_or_default()).collect()
}

async fn objects_survive_a_kill(server: &mut ApiServer) -> Result<()> {
    let client = client(server).await?;
    let version = client.apiserver_version().await?;
    ensure!(version.major == "1", "the server's version is {version:?}");
    let services = Api::<Service>::default_namespaced(client);
    let ips = cluster_ips(&make_service(&services, "web").await?);
    ensure!(ips.len() == 2 && ips[0].starts_with("10.96.") && ips[1].starts_with("fd00:96::"), "it has {ips:?}");

    let url = server.url().to_string();
    server.kill();
    ensure!(services.get("web").await.is_err(), "a server that was killed answers");
    server.restart()?;
    ensure!(server.url() == url, "it was {url}, and is {} now", server.url());
    let after = cluster_ips(&services.get("web").await?);
    ensure!(after == ips, "it had {ips:?}, and has {after:?}");
    Ok(())
}

async fn what_is_compacted_is_gone(server: &mut ApiServer) -> Result<()> {
    let services = Api::<Service>::default_namespaced(client(server).await?);
    let before = services.list(&ListParams::default()).await?.metadata.resource_version.context("no version")?;
    make_service(&services, "web").await?;
    ensure!(watch_error(&services, &before).await?.is_none(), "history is gone before it is compacted");
    let revision = server.compact()?;
    ensure!(revision > before.parse()?, "compacted at {revision}, which is not after {before}");
    let code = watch_error(&services, &before).await?;
    ensure!(code == Some(410), "a watch from before the compaction ends with {code:?}");
    Ok(())
}

/// The code of the error that a watch from `version` begins with, if it does not begin with an event.
async fn watch_error(services: &Api<Service>, version: &str) -> Result<Option<u16>> {
    let parameters = WatchParams::default().timeout(30);
    let mut events = pin!(services.watch(&parameters, version).await?);
    match events.try_next().await {
        Ok(Some(WatchEvent::Error(status))) => Ok(Some(status.code)),
        Ok(Some(_)) => Ok(None),
        Ok(None) => bail!("the watch ends without an event"),
        Err(kube::Error::Api(status)) => Ok(Some(status.code)),
        Err(error) => Err(error.into()),
    }
}

async fn controllers_make_slices(server: &mut ApiServer) -> Result<()> {
    let client = client(server).await?;
    // Pods of nodes that are not there are no endpoints.
    let node = serde_json::from_value(json!({ "metadata": { "name": "n1" } }))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    make_service(&Api::default_namespaced(client.clone()), "web").await?;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let pod = serde_json::from_value(json!({
        "metadata": { "name": "web-0", "labels": { "app": "web" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "web", "image": "web" }] },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let status = json!({ "status": {
        "phase": "Running",
        "podIPs": [{ "ip": "10.244.1.2" }],
        "podIP": "10.244.1.2",
        "conditions": [{ "type": "Ready", "status": "True" }],
    }});
    pods.patch_status("web-0", &PatchParams::default(), &Patch::Merge(&status)).await?;

    let slices = Api::<EndpointSlice>::default_namespaced(client);
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    let since = Instant::now();
    loop {
        let slices = slices.list(&of_web).await?.items;
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        let addresses: Vec<&String> = endpoints.flat_map(|endpoint| &endpoint.addresses).collect();
        if addresses == ["10.244.1.2"] {
            return Ok(());
        }
        ensure!(since.elapsed() < PATIENCE, "the {} slices of the Service have {addresses:?}", slices.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
