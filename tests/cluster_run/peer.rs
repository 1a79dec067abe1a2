//! The real kube-proxy on the same cluster and kernel: what it has programmed is read back as what svcmap would program.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::common::api_server::{ApiServer, program};
use crate::objects::Objects;

/// How long it may take to start and to program its rules on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rulesets/cluster.yaml");
const NODE: [&str; 4] = ["--hostname-override", "n1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"];
/// The namespace's limits of connection tracking are not its own to set.
const UNLIMITED: [&str; 6] = [
    "--conntrack-max-per-core",
    "0",
    "--conntrack-tcp-timeout-established",
    "0",
    "--conntrack-tcp-timeout-close-wait",
    "0",
];

/// Where the listings go that are samples for other tests, if anywhere.
const KEEP: &str = "SVCMAP_TEST_LISTINGS";

/// kube-proxy, whose rules go when it is dropped.
struct KubeProxy {
    child: Child,
    directory: TempDir,
}

impl KubeProxy {
    fn start(server: &ApiServer, mode: &str) -> Result<KubeProxy> {
        let directory = tempfile::tempdir()?;
        let log = File::create(directory.path().join("log"))?;
        let child = Command::new(program()?)
            .args(["run-kube-proxy", "--proxy-mode", mode, "--kubeconfig"])
            .arg(server.kubeconfig())
            .args(NODE.into_iter().chain(UNLIMITED))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(KubeProxy { child, directory })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for KubeProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("nft").args(["flush", "ruleset"]).status();
    }
}

/// In each mode that this kernel can run: Services with all policies, both families, affinity, source ranges, terminating
/// endpoints, and none.
pub fn kube_proxy_programs_the_same(server: &mut ApiServer) -> Result<()> {
    Objects::of(server)?.create_all(&std::fs::read_to_string(CLUSTER)?)?;
    for (mode, layout) in [("nftables", "kube-proxy (nftables)"), ("iptables", "kube-proxy (iptables)")] {
        let mut proxy = KubeProxy::start(server, mode)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let (is_clean, said) = audit(server)?;
            if is_clean {
                ensure!(said.starts_with(&format!("{layout}: 17 Service ports\n")), "{mode}: {said}");
                if let Some(directory) = std::env::var_os(KEEP) {
                    keep_listings(mode, Path::new(&directory))?;
                }
                break;
            }
            let has_ended = proxy.child.try_wait()?.is_some();
            let log = || proxy.log().lines().filter(|line| !line.contains("FLAG")).collect::<Vec<_>>().join("\n");
            ensure!(Instant::now() < end, "{mode}: {said}\nlog of kube-proxy:\n{}", log());
            ensure!(!has_ended, "{mode}: kube-proxy has ended:\n{}", log());
            thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

/// Writes what the programs list of a mode's rules.
fn keep_listings(mode: &str, directory: &Path) -> Result<()> {
    let listed = |program: &str, args: &[&str]| Command::new(program).args(args).output().map(|output| output.stdout);
    if mode == "nftables" {
        std::fs::write(directory.join("kube-proxy-real.nft"), listed("nft", &["list", "ruleset"])?)?;
        std::fs::write(directory.join("kube-proxy-real.json"), listed("nft", &["-j", "list", "ruleset"])?)?;
    } else {
        let both = [listed("iptables-save", &[])?, listed("ip6tables-save", &[])?].concat();
        std::fs::write(directory.join("kube-proxy-real.save"), both)?;
    }
    Ok(())
}

/// Whether the kernel's rules are those that svcmap would make, and nothing is wrong with them; and what is said.
fn audit(server: &ApiServer) -> Result<(bool, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .arg("audit")
        .args(NODE)
        .arg("--kubeconfig")
        .arg(server.kubeconfig())
        .output()
        .context("svcmap audit")?;
    ensure!(output.status.code() != Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), String::from_utf8(output.stdout)?))
}
