//! The manifests under `deploy` are accepted by a real API server, and their configuration by svcmap.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use common::api_server::{ApiServer, Options, trial};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

fn main() -> ExitCode {
    let trials = vec![
        trial("manifests_are_accepted", Options::default(), |server| {
            let files =
                yaml_files("deploy/kubernetes")?.into_iter().filter(|file| !file.ends_with("kustomization.yaml"));
            let texts: Vec<String> = files.map(std::fs::read_to_string).collect::<Result<_, _>>()?;
            in_a_runtime(server, &texts)
        }),
        trial("the_chart_is_accepted", Options::default(), |server| {
            let values = ["apiServer=https://192.0.2.1:6443", "config.clusterCIDR=10.244.0.0/16"];
            in_a_runtime(server, &[chart(&values)?])
        })
        .with_ignored_flag(lacks_helm()),
        Trial::test("configuration_is_understood", || Ok(configuration_is_understood()?)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn in_a_runtime(server: &mut ApiServer, texts: &[String]) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(accepted(server, texts))
}

fn lacks_helm() -> bool {
    let lacks = Command::new("helm").arg("version").output().is_err();
    if lacks {
        eprintln!("cannot run here: the_chart_is_accepted: helm is not installed");
    }
    lacks
}

fn chart(values: &[&str]) -> Result<String> {
    let set = values.iter().flat_map(|value| ["--set", value]);
    let output = Command::new("helm")
        .args(["template", "svcmap", "deploy/helm/svcmap", "--namespace", "kube-system"])
        .args(set)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    ensure!(output.status.success(), "helm: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn yaml_files(directory: &str) -> Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    ensure!(!files.is_empty(), "no manifests in {}", directory.display());
    Ok(files)
}

/// Every object of the texts passes a server-side apply that changes nothing, unknown fields being errors.
async fn accepted(server: &ApiServer, texts: &[String]) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig())?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let mut kinds = Vec::new();
    for text in texts {
        for object in serde_saphyr::from_multiple::<Value>(text)?.into_iter().filter(|object| !object.is_null()) {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = match text("/metadata/namespace") {
                "" => Api::all_with(client.clone(), &resource),
                namespace => Api::namespaced_with(client.clone(), namespace, &resource),
            };
            let params = PatchParams { dry_run: true, ..PatchParams::apply("deploy") }.validation_strict();
            api.patch(name, &params, &Patch::Apply(&object)).await.with_context(|| format!("{kind} {name}"))?;
            kinds.push(kind.to_string());
        }
    }
    kinds.sort();
    ensure!(
        kinds == ["ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "ServiceAccount"],
        "the kinds are {kinds:?}"
    );
    Ok(())
}

/// The configuration within the ConfigMap is one that svcmap takes without a warning about a field.
fn configuration_is_understood() -> Result<()> {
    let manifest =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes/configmap.yaml"))?;
    let map: Value = serde_saphyr::from_str(&manifest)?;
    let text = map.pointer("/data/config.conf").and_then(Value::as_str).context("no config.conf")?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("config.conf");
    std::fs::write(&file, text)?;
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(["config", "--hostname-override", "n1", "--node-ip", "192.0.2.7", "--config"])
        .arg(&file)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{said}");
    Ok(())
}
