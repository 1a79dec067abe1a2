//! The daemon, the kernel, and packets.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::common::api_server::ApiServer;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many lines of the daemon's log are shown when it ends.
const LAST: usize = 8;
/// Changes are programmed as they come, and the kernel is not looked at in between.
pub const CONFIGURATION: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
    clusterCIDR: 10.244.0.0/16\nnftables: {minSyncPeriod: 10ms, syncPeriod: 1h}\nclientConnection: {qps: 100, burst: 100}\n";

/// `svcmap run` on a cluster.
pub struct Daemon {
    child: Child,
    directory: TempDir,
}

impl Daemon {
    pub fn start(server: &ApiServer) -> Result<Daemon> {
        Daemon::start_with(&server.kubeconfig(), CONFIGURATION)
    }

    /// One with this way to the API server, and this configuration.
    pub fn start_with(kubeconfig: &Path, configuration: &str) -> Result<Daemon> {
        let directory = tempfile::tempdir()?;
        let (config, log) = (directory.path().join("config"), File::create(directory.path().join("log"))?);
        std::fs::write(&config, configuration)?;
        let child = Command::new(env!("CARGO_BIN_EXE_svcmap"))
            .args(["run", "--hostname-override", "n1", "--config"])
            .arg(&config)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()?;
        let mut daemon = Daemon { child, directory };
        daemon.wait_for_log("synced")?;
        Ok(daemon)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    pub fn wait_for_log(&mut self, text: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            if let Some(status) = self.child.try_wait()? {
                bail!("svcmap run ended with {status}:\n{}", self.log());
            }
            ensure!(Instant::now() < end, "{text:?} was not logged:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Sends it a signal: `STOP`, `CONT`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status()?;
        ensure!(status.success(), "kill: {status}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        let from = log.lines().count().saturating_sub(LAST);
        log.lines().skip(from).for_each(|line| eprintln!("{line}"));
        let _ = Command::new("nft").args(["flush", "ruleset"]).status();
    }
}

/// What the kernel lists of svcmap's IPv4 table; nothing while there is none.
pub fn listing() -> Result<String> {
    let output = Command::new("nft").args(["list", "table", "ip", "svcmap"]).output().context("nft")?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits until the kernel's listing is so; how long that took.
pub fn wait_for(what: &str, is_so: impl Fn(&str) -> bool) -> Result<Duration> {
    let started = Instant::now();
    loop {
        let listing = listing()?;
        if is_so(&listing) {
            return Ok(started.elapsed());
        }
        ensure!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}:\n{listing}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// How many Service ports there are with this beginning of their name.
pub fn count(listing: &str, prefix: &str) -> usize {
    let services = listing.split("map services {").nth(1).and_then(|rest| rest.split("\n\t}").next()).unwrap_or("");
    services.matches(&format!("comment \"{prefix}")).count()
}

/// Answers every connection to an endpoint with its address.
pub fn serve(address: &'static str) -> Result<()> {
    let _ = Command::new("ip").args(["addr", "add", address, "dev", "lo"]).stderr(Stdio::null()).status();
    let listener = TcpListener::bind((address, 8080))?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(address.as_bytes()));
        }
    });
    Ok(())
}

/// Makes a connection to a Service; who answered.
pub fn ask(ip: &str) -> Result<String> {
    let address = format!("{ip}:80").parse()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).with_context(|| ip.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
