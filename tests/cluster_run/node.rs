//! The own Node, which changes while the daemon runs.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::common::api_server::ApiServer;
use crate::daemon::{Daemon, wait_for};
use crate::objects::Objects;

const NODES: &str = "/api/v1/nodes";
const STATUS: &str = "n1/status";
const CONFIGURATION: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
    detectLocalMode: NodeCIDR\nnftables: {minSyncPeriod: 10ms, syncPeriod: 1h}\nclientConnection: {qps: 100, burst: 100}\n";

fn addresses(ip: &str) -> Value {
    json!({"status": {"addresses": [{"type": "InternalIP", "address": ip}]}})
}

/// Behaviour rows E12, F5 and J10: where kube-proxy waits or ends, rules follow, and the process goes on.
pub fn rules_follow(server: &mut ApiServer) -> Result<()> {
    let (objects, daemon) = (Objects::of(server)?, Daemon::start_with(&server.kubeconfig(), CONFIGURATION)?);
    objects.create_service("web")?;
    wait_for("the Service, before there is a Node", |text| text.contains("default/web"))?;

    objects.create_object(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))?;
    objects.change_object(NODES, STATUS, addresses("192.0.2.1"))?;
    wait_for("the Node's address", |text| set(text, "nodeport-ips").contains("192.0.2.1"))?;
    objects.change_object(NODES, "n1", json!({"spec": {"podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"]}}))?;
    wait_for("the prefix of its pods", |text| text.contains("10.244.7.0/24"))?;
    objects.change_object(NODES, STATUS, addresses("192.0.2.9"))?;
    wait_for("its next address", |text| {
        let addresses = set(text, "nodeport-ips");
        addresses.contains("192.0.2.9") && !addresses.contains("192.0.2.1")
    })?;

    objects.delete_object(NODES, "n1")?;
    objects.create_service("later")?;
    wait_for("what comes after the Node", |text| text.contains("default/later"))?;
    let listing = crate::daemon::listing()?;
    ensure!(listing.contains("10.244.7.0/24"), "its last form counts:\n{listing}");
    ensure!(daemon.log().matches("serving metrics on").count() == 1, "it has ended:\n{}", daemon.log());
    Ok(())
}

/// A set of the listing.
fn set<'a>(listing: &'a str, name: &str) -> &'a str {
    listing.split(&format!("set {name} {{")).nth(1).and_then(|rest| rest.split("\n\t}").next()).unwrap_or_default()
}
