//! `svcmap run` as a process, in the current network namespace.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{Answer, get};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where health and metrics are told by default.
pub const HEALTHZ: &str = "127.0.0.1:10256";
pub const METRICS: &str = "127.0.0.1:10249";

/// The daemon, which follows one file.
pub struct Daemon {
    child: Child,
    directory: TempDir,
}

/// Brings the loopback interface up, and gives it the node's addresses.
pub fn give_addresses() {
    ip(&["link", "set", "lo", "up"]);
    ip(&["address", "add", "192.168.0.2/32", "dev", "lo"]);
    ip(&["address", "add", "2001:db8::2/128", "dev", "lo", "nodad"]);
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .expect("ip is needed (package iproute2)");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A directory to run a daemon in that follows these manifests.
fn directory(manifests: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("objects.yaml"), manifests).unwrap();
    directory
}

fn command(directory: &TempDir, arguments: &[&str]) -> Command {
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svcmap"));
    command.args(["run", "--hostname-override", "n1", "--node-ip", "192.168.0.2", "--node-ip", "2001:db8::2"]);
    if !arguments.contains(&"--config") {
        command.args(["--cluster-cidr", "10.0.0.0/8"]);
    }
    command.args(arguments);
    command.arg("-f").arg(directory.path().join("objects.yaml"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command
}

impl Daemon {
    /// Starts it with these manifests and flags.
    pub fn start(manifests: &str, arguments: &[&str]) -> Daemon {
        let directory = directory(manifests);
        let child = command(&directory, arguments).spawn().unwrap();
        Daemon { child, directory }
    }

    /// Starts it by way of another program, which takes its command line as its own arguments.
    pub fn start_by(way: &[&str], manifests: &str) -> Daemon {
        let directory = directory(manifests);
        let plain = command(&directory, &[]);
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new(way[0])
            .args(&way[1..])
            .arg(plain.get_program())
            .args(plain.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{} is needed: {error}", way[0]));
        Daemon { child, directory }
    }

    /// Starts it with these manifests and these fields of a configuration.
    pub fn start_configured(manifests: &str, fields: &str) -> Daemon {
        let directory = directory(manifests);
        let config = directory.path().join("config.yaml");
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        std::fs::write(&config, format!("{head}clusterCIDR: 10.0.0.0/8\n{fields}")).unwrap();
        let arguments = ["--config", config.to_str().expect("a path that is text")];
        let child = command(&directory, &arguments).spawn().unwrap();
        Daemon { child, directory }
    }

    /// Starts one that has to end by itself with this status; what it logged.
    pub fn run_to_the_end(manifests: &str, arguments: &[&str], wanted: i32) -> String {
        let directory = directory(manifests);
        let status = command(&directory, arguments).status().unwrap();
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert_eq!(status.code(), Some(wanted), "{log}");
        log
    }

    /// Makes these the manifests. The daemon sees it in its own time.
    pub fn tell(&self, manifests: &str) {
        let new = self.path("objects.new");
        std::fs::write(&new, manifests).unwrap();
        std::fs::rename(new, self.path("objects.yaml")).unwrap();
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    /// Waits until something is so.
    pub fn wait(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let started = Instant::now();
        while !is_so() {
            let log = self.log();
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{what}: svcmap run ended with {ended:?}:\n{log}");
            assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}:\n{log}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a text in the log.
    pub fn wait_for_log(&mut self, text: &str) {
        let log = self.path("log");
        self.wait(text, || std::fs::read_to_string(&log).unwrap().contains(text));
    }

    /// Waits for an answer that is as it has to be.
    pub fn wait_for(&mut self, address: &str, path: &str, is_right: impl Fn(&Answer) -> bool) -> Answer {
        let (mut answer, mut last) = (None, String::new());
        self.wait(&format!("{address}{path}"), || {
            let new = get(address, path);
            last = format!("{new:?}");
            answer = new.ok().filter(&is_right);
            answer.is_some()
        });
        answer.unwrap_or_else(|| panic!("{last}"))
    }

    /// Ends it as a service manager does.
    pub fn stop(self) {
        self.stop_by("TERM");
    }

    /// Ends it by this signal; what it logged.
    pub fn stop_by(mut self, signal: &str) -> String {
        self.signal(signal);
        let sent = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(sent.elapsed() < PATIENCE, "{signal} did not end it:\n{}", self.log()),
            }
            sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "svcmap run ended with {status}:\n{}", self.log());
        self.log()
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status().unwrap();
        assert!(status.success(), "kill -{name}");
    }
}

/// For tests that fail.
impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
