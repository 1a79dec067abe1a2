//! The rights that `deploy/kubernetes` gives, and the credentials of a service account.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::common::api_server::ApiServer;
use crate::daemon::{CONFIGURATION, Daemon, ask, serve, wait_for};
use crate::objects::Objects;

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kubernetes/rbac.yaml");

/// With the rights of the manifests and no others everything can be read, and Events be written. When the token is not accepted any
/// more the rules stay, and the next one is found where the former was.
pub fn suffice_and_tokens_are_replaced(server: &mut ApiServer) -> Result<()> {
    serve("10.244.1.5")?;
    let objects = Objects::of(server)?;
    for object in serde_saphyr::from_multiple::<Value>(&fs::read_to_string(ROLES)?)? {
        let path = match object["kind"].as_str() {
            Some("ServiceAccount") => ACCOUNTS.to_owned(),
            Some("ClusterRole") => format!("{RBAC}/clusterroles"),
            _ => format!("{RBAC}/clusterrolebindings"),
        };
        objects.create_object(&path, object)?;
    }
    let directory = tempfile::tempdir()?;
    let token = directory.path().join("token");
    fs::write(&token, new_token(&objects)?)?;
    let mut daemon = Daemon::start_with(&kubeconfig(server, directory.path(), &token)?, CONFIGURATION)?;
    let ip = objects.create_service("before")?;
    objects.create_slice("before", &["10.244.1.5"])?;
    wait_for("the Service", |text| text.contains("10.244.1.5 . 8080"))?;
    let log = daemon.log();
    ensure!(!log.contains("cannot be read") && !log.contains("cannot be written"), "its rights do not suffice:\n{log}");

    // of another account with the same name; open watches would outlive the token
    objects.delete_object(ACCOUNTS, "svcmap")?;
    objects.create_object(ACCOUNTS, account())?;
    server.restart()?;
    let objects = Objects::of(server)?;
    daemon.wait_for_log("(401)")?;
    objects.create_service("after")?;
    ensure!(ask(&ip)? == "10.244.1.5", "the rules stay");
    fs::write(&token, new_token(&objects)?)?;
    wait_for("what happened meanwhile", |text| text.contains("default/after"))?;
    ensure!(ask(&ip)? == "10.244.1.5");
    let seen = objects.events()?;
    ensure!(seen.iter().any(|event| event == "Node/n1 Starting"), "the Events are {seen:?}");
    Ok(())
}

fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "svcmap"}})
}

fn new_token(objects: &Objects) -> Result<String> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = objects.create_object(&format!("{ACCOUNTS}/svcmap/token"), request)?;
    made.pointer("/status/token").and_then(Value::as_str).map(Into::into).context("no token was made")
}

/// The administrator's, with the account's token in the place of its credentials.
fn kubeconfig(server: &ApiServer, directory: &Path, token: &Path) -> Result<PathBuf> {
    let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(server.kubeconfig())?)?;
    config["users"][0]["user"] = json!({"tokenFile": token});
    let path = directory.join("kubeconfig");
    fs::write(&path, serde_json::to_string(&config)?)?;
    Ok(path)
}
