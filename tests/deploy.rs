//! What is under `deploy` is accepted by a real API server, the chart as Helm renders it, and its configuration and arguments by
//! svcmap.

#[path = "common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use common::api_server::{ApiServer, Options, ask, trial};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};

/// What an installation consists of.
const KINDS: [&str; 5] = ["ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "ServiceAccount"];
const SERVER: &str = "apiServer=https://192.0.2.1:6443";
const CHART: &str = "deploy/helm/svcmap";

fn main() -> ExitCode {
    let trials = vec![
        trial("manifests_are_accepted", Options::default(), |server| {
            let objects = manifests()?;
            ensure!(kinds(&objects) == KINDS, "the kinds are {:?}", kinds(&objects));
            in_a_runtime(accepted(server, &objects))
        }),
        trial("the_chart_is_accepted", Options::default(), the_chart_is_accepted),
        trial("the_way_there_and_back_is_as_the_page_says", Options::default(), |server| {
            in_a_runtime(there_and_back(server))
        }),
        Trial::test("the_chart_does_what_its_values_say", || Ok(the_chart_does_what_its_values_say()?)),
        Trial::test("the_chart_wants_to_know_the_server", || Ok(the_chart_wants_to_know_the_server()?)),
        Trial::test("what_svcmap_is_given_is_understood", || Ok(what_svcmap_is_given_is_understood()?)),
        Trial::test("the_kustomization_names_what_is_there", || Ok(the_kustomization_names_what_is_there()?)),
        Trial::test("what_the_image_is_made_of_is_there", || Ok(what_the_image_is_made_of_is_there()?)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn in_a_runtime(task: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(task)
}

fn the_chart_is_accepted(server: &mut ApiServer) -> Result<()> {
    let existing = [&KINDS[..2], &KINDS[3..]].concat();
    for (values, expected) in [
        (&[SERVER, "config.clusterCIDR=10.244.0.0/16"][..], &KINDS[..]),
        (&["existingConfigMap=kube-proxy"], &existing),
        (
            &[
                SERVER,
                "image.tag=v9",
                "config.nftables.syncPeriod=1m",
                "config.conntrack.maxPerCore=0",
                "config.featureGates.Any=true",
                "extraArgs={--counters,--metrics-services=7}",
                "tolerations[0].key=a",
                "tolerations[0].operator=Exists",
                "nodeSelector.pool=edge",
                "resources.limits.memory=256Mi",
                "priorityClassName=",
                "updateStrategy.type=OnDelete",
                "updateStrategy.rollingUpdate=null",
            ],
            &KINDS,
        ),
    ] {
        let Some(text) = chart("the_chart_is_accepted", values) else { return Ok(()) };
        let objects = objects_of(&text?)?;
        ensure!(kinds(&objects) == expected, "{values:?}: the kinds are {:?}", kinds(&objects));
        in_a_runtime(accepted(server, &objects)).with_context(|| format!("{values:?}"))?;
    }
    Ok(())
}

/// What Helm makes of the chart with these values, in the release `svcmap`.
fn chart(test: &str, values: &[&str]) -> Option<Result<String>> {
    let set = values.iter().flat_map(|value| ["--set", value]);
    let arguments: Vec<&str> = ["template"].into_iter().chain(set).chain([CHART]).collect();
    ask(test, &arguments)
}

fn the_chart_does_what_its_values_say() -> Result<()> {
    let values = [
        SERVER,
        "image.repository=registry.example.org/svcmap",
        "image.tag=v9",
        "extraArgs={--counters}",
        "config.nodePortAddresses={10.0.0.0/8}",
        "config.clientConnection.qps=50",
        "config.healthzBindAddress=0.0.0.0:10300",
        "nodeSelector.pool=edge",
    ];
    let Some(text) = chart("the_chart_does_what_its_values_say", &values) else { return Ok(()) };
    let objects = objects_of(&text?)?;
    let pod = of_kind(&objects, "DaemonSet")?.pointer("/spec/template/spec").context("a pod")?;
    ensure!(pod["containers"][0]["image"] == "registry.example.org/svcmap:v9", "{pod}");
    ensure!(pod["containers"][0]["args"].as_array().and_then(|all| all.last()) == Some(&"--counters".into()), "{pod}");
    for probe in ["livenessProbe", "readinessProbe"] {
        ensure!(pod["containers"][0][probe]["httpGet"]["port"] == 10300, "{probe}: {pod}");
    }
    ensure!(pod["nodeSelector"]["pool"] == "edge" && pod["serviceAccountName"] == "svcmap", "{pod}");
    let data = &of_kind(&objects, "ConfigMap")?["data"];
    let kubeconfig = data["kubeconfig.conf"].as_str().context("a kubeconfig")?;
    ensure!(kubeconfig.contains("server: https://192.0.2.1:6443\n"), "{kubeconfig}");
    let config: Value = serde_saphyr::from_str(data["config.conf"].as_str().context("a configuration")?)?;
    ensure!(config["nodePortAddresses"] == serde_json::json!(["10.0.0.0/8"]), "{config}");
    let connection = serde_json::json!({"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf", "qps": 50});
    ensure!(config["clientConnection"] == connection, "{config}");
    let binding = of_kind(&objects, "ClusterRoleBinding")?;
    ensure!(binding.pointer("/subjects/0/namespace") == Some(&"kube-system".into()), "{binding}");

    // another configuration makes other pods
    let checksum = |objects: &[Value]| {
        let found = of_kind(objects, "DaemonSet")?.pointer("/spec/template/metadata/annotations/checksum~1config");
        anyhow::Ok(found.cloned().context("a checksum")?)
    };
    let others = [SERVER, "config.clusterCIDR=10.244.0.0/16"];
    let other = objects_of(&chart("the same", &others).context("it was there just now")??)?;
    ensure!(checksum(&objects)? != checksum(&other)?);
    let others = ["apiServer=https://192.0.2.2:6443", "config.clusterCIDR=10.244.0.0/16"];
    let third = objects_of(&chart("the same", &others).context("it was there just now")??)?;
    ensure!(checksum(&other)? != checksum(&third)?, "another server is another configuration");
    Ok(())
}

fn the_chart_wants_to_know_the_server() -> Result<()> {
    let Some(answer) = chart("the_chart_wants_to_know_the_server", &[]) else { return Ok(()) };
    let error = answer.err().context("accepted")?.to_string();
    ensure!(error.contains("apiServer: a server's own address is needed, such as https://192.0.2.1:6443"), "{error}");
    Ok(())
}

fn manifests() -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in yaml_files("deploy/kubernetes")? {
        if !file.ends_with("kustomization.yaml") {
            objects.extend(objects_of(&std::fs::read_to_string(file)?)?);
        }
    }
    Ok(objects)
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

fn objects_of(text: &str) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple::<Value>(text)?.into_iter().filter(|object| !object.is_null()).collect())
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))
}

async fn client(server: &ApiServer) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig())?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

/// The patch of `docs/migration.md` makes a kube-proxy of kubeadm's an svcmap, and the saved file is taken again as the page says:
/// without the version that it had.
async fn there_and_back(server: &ApiServer) -> Result<()> {
    let page = std::fs::read_to_string("docs/migration.md")?;
    let patch = page.split_once("--type json -p '").and_then(|(_, rest)| rest.split_once('\'')).context("no patch")?.0;
    let client = client(server).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "DaemonSet"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "kube-system", &resource);
    let labels = json!({"k8s-app": "kube-proxy"});
    let container = json!({"name": "kube-proxy", "image": "registry.k8s.io/kube-proxy:v1.36.1", "command":
        ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"]});
    let object = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-proxy"}, "spec":
        {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    let before = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let request = hyper::Request::patch("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy")
        .header("content-type", "application/json-patch+json")
        .body(patch.into())?;
    let changed: DynamicObject = client.request(request).await?;
    let found = &changed.data["spec"]["template"]["spec"]["containers"][0];
    let is_svcmap = found["command"].to_string().contains("svcmap") && found["image"].to_string().contains("svcmap");
    ensure!(is_svcmap, "{found}");
    let stale = api.replace("kube-proxy", &PostParams::default(), &before).await;
    ensure!(
        matches!(&stale, Err(kube::Error::Api(status)) if status.code == 409),
        "the page need not say so: {stale:?}"
    );
    ensure!(page.contains("sed '/resourceVersion:/d' kube-proxy.before.yaml"), "the page does not say so");
    let mut saved = before.clone();
    saved.metadata.resource_version = None;
    let back = api.replace("kube-proxy", &PostParams::default(), &saved).await?;
    ensure!(back.data["spec"] == before.data["spec"], "{:?}", back.data);
    Ok(())
}

/// Every object passes a server-side apply that changes nothing, unknown fields being errors.
async fn accepted(server: &ApiServer, objects: &[Value]) -> Result<()> {
    let client = client(server).await?;
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match text("/metadata/namespace") {
            "" => Api::all_with(client.clone(), &resource),
            namespace => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        let params = PatchParams { dry_run: true, ..PatchParams::apply("deploy") }.validation_strict();
        api.patch(name, &params, &Patch::Apply(object)).await.with_context(|| format!("{kind} {name}"))?;
    }
    Ok(())
}

/// The arguments of the DaemonSet's container are flags of svcmap, and the configuration within the ConfigMap is one that svcmap
/// takes without a warning, that of the chart as well.
fn what_svcmap_is_given_is_understood() -> Result<()> {
    understood(&manifests()?)?;
    let Some(text) = chart("what_svcmap_is_given_is_understood", &[SERVER]) else { return Ok(()) };
    understood(&objects_of(&text?)?).context("the chart")
}

fn understood(objects: &[Value]) -> Result<()> {
    let text = of_kind(objects, "ConfigMap")?["data"]["config.conf"].as_str().context("no config.conf")?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("config.conf");
    std::fs::write(&file, text)?;
    let arguments = of_kind(objects, "DaemonSet")?.pointer("/spec/template/spec/containers/0/args");
    let arguments = arguments.and_then(Value::as_array).context("no arguments")?.iter().filter_map(Value::as_str);
    let here = |text: &str| {
        let config = file.to_string_lossy();
        text.replace("/var/lib/kube-proxy/config.conf", &config).replace("$(NODE_NAME)", "n1")
    };
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(arguments.map(here))
        .args(["--node-ip=192.0.2.7", "--write-config-to=/dev/null"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{said}");
    Ok(())
}

/// Its files are all there are, and its image is the one of the DaemonSet.
fn the_kustomization_names_what_is_there() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes/kustomization.yaml");
    let kustomization: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let listed = kustomization["resources"].as_array().context("resources")?;
    let mut listed: Vec<&str> = listed.iter().filter_map(Value::as_str).chain(["kustomization.yaml"]).collect();
    listed.sort_unstable();
    let files = yaml_files("deploy/kubernetes")?;
    let found: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    ensure!(listed == found, "{listed:?} are listed, and {found:?} are there");
    let objects = manifests()?;
    let image = of_kind(&objects, "DaemonSet")?.pointer("/spec/template/spec/containers/0/image");
    ensure!(image == Some(&kustomization["images"][0]["name"]), "{image:?}");
    Ok(())
}

/// No daemon builds images here: what the Dockerfile copies has to be there, and not left out by `.dockerignore`; the program that
/// it starts is the one that it builds.
fn what_the_image_is_made_of_is_there() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dockerfile = std::fs::read_to_string(root.join("deploy/Dockerfile"))?;
    let ignored = std::fs::read_to_string(root.join(".dockerignore"))?;
    for needed in ["Cargo.toml", "Cargo.lock", "src/main.rs", "src/lib.rs"] {
        ensure!(root.join(needed).exists(), "{needed}");
        ensure!(!ignored.lines().any(|line| needed.starts_with(line.trim_end_matches('/'))), "{needed} is left out");
    }
    // targets of Cargo.toml are looked for when anything is built
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    for path in manifest.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"')) {
        ensure!(root.join(path).exists(), "{path}");
        ensure!(!ignored.lines().any(|line| path.starts_with(line.trim_end_matches('/'))), "{path} is left out");
    }
    let copied = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY --from=build /src/"));
    let copied: Vec<&str> = copied.filter_map(|line| line.split(' ').next()).collect();
    ensure!(!copied.is_empty() && copied.iter().all(|path| *path == "target/release/svcmap"), "{copied:?}");
    ensure!(dockerfile.contains("cargo build --release --locked --bin svcmap"), "{dockerfile}");
    Ok(())
}
