//! A real API server for one test: etcd and kube-apiserver in a process of their own, which the Go program in
//! `tests/cluster` is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow, bail};
use libtest_mimic::Trial;
use tempfile::TempDir;

use super::unsteady::tried_twice;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether EndpointSlices are made from Pods, and mirrored from Endpoints.
    pub controllers: bool,
    /// Further flags of kube-apiserver, such as `--watch-cache=false`.
    pub flags: Vec<String>,
}

/// A running server, on a port of 127.0.0.1 that was free. Dropping it ends it and removes what it kept.
pub struct ApiServer {
    options: Options,
    url: String,
    process: Option<Process>,
    // Removed last: the process writes into it.
    dir: TempDir,
}

impl ApiServer {
    /// Starts a server, without any objects but those that it makes itself, and waits until it is ready.
    pub fn start(options: Options) -> Result<Self> {
        let dir = TempDir::with_prefix_in("api-server-", env!("CARGO_TARGET_TMPDIR"))?;
        let (process, url) = Process::start(dir.path(), &options, 0)?;
        Ok(Self { options, url, process: Some(process), dir })
    }

    /// Where it serves: `https://127.0.0.1:PORT`, the same after a restart.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The file with which anybody reaches it as its administrator, a member of `system:masters`.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Ends it without any warning, as when its machine loses power: connections break, and new ones are refused.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again on the same port and with the same objects, killing it before where it runs. It has forgotten
    /// what happened before, so it answers 410 to whoever asks for changes since then.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let port = self.url.rsplit(':').next().expect("a URL with a port").parse()?;
        self.process = Some(Process::start(self.dir.path(), &self.options, port)?.0);
        Ok(())
    }

    /// Makes etcd forget the history before the present revision, which is returned. The server may still know it, from
    /// its watch cache; without that (`--watch-cache=false`) it answers 410 to whoever asks for older changes.
    pub fn compact(&mut self) -> Result<i64> {
        let process = self.process.as_mut().context("the API server does not run")?;
        let input = process.child.stdin.as_mut().expect("a pipe");
        input.write_all(b"compact\n")?;
        Ok(process.answer("compacted ")?.parse()?)
    }
}

/// The program, which ends when its standard input closes: so also when the test is killed.
struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it and returns its URL when it is ready.
    fn start(dir: &Path, options: &Options, port: u16) -> Result<(Self, String)> {
        let program = PROGRAM.as_ref().map_err(|why| anyhow!("{why}"))?;
        let log = dir.join("log");
        let mut child = Command::new(program)
            .arg("--dir")
            .arg(dir)
            .arg(format!("--port={port}"))
            .arg(format!("--controllers={}", options.controllers))
            .arg("--")
            .args(&options.flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(&log)?)
            .spawn()?;
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut process = Self { child, output };
        match process.answer("ready ") {
            Ok(url) => Ok((process, url)),
            Err(error) => {
                let log = fs::read_to_string(&log)?;
                let end: Vec<&str> = log.lines().rev().take(10).collect();
                let end: Vec<&str> = end.into_iter().rev().collect();
                Err(error.context(format!("the API server does not start; it says at last:\n{}", end.join("\n"))))
            }
        }
    }

    /// What follows `wanted` in the next line that it prints.
    fn answer(&mut self, wanted: &str) -> Result<String> {
        let Some(line) = self.output.next().transpose()? else { bail!("it has ended") };
        let answer = line.strip_prefix(wanted).with_context(|| format!("it says {line:?}"))?;
        Ok(answer.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A test that gets a server of its own. Where there can be none, the test is ignored, and that is said loudly. The first
/// call in a test program builds the server, which takes minutes if nothing of it is in Go's build cache.
pub fn trial(name: &str, options: Options, test: impl Fn(&mut ApiServer) -> Result<()> + Send + 'static) -> Trial {
    if let Err(why) = PROGRAM.as_ref() {
        eprintln!("cannot run here: {name}: {why}");
    }
    let owned = name.to_owned();
    let run = move || tried_twice(&owned, || test(&mut ApiServer::start(options.clone())?));
    Trial::test(name, run).with_ignored_flag(PROGRAM.is_err())
}

/// What the program prints when it is asked for something that needs no server: `template`, or `kube-proxy`. An error where it
/// refuses; nothing where it cannot be built, which is said loudly in the name of the test.
pub fn ask(test: &str, arguments: &[&str]) -> Option<Result<String>> {
    let program = PROGRAM.as_ref().inspect_err(|why| eprintln!("cannot run here: {test}: {why}")).ok()?;
    let answer = || {
        let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    Some(answer())
}

/// The program of the cluster, which is kube-proxy, too.
///
/// # Errors
/// It is not built, and why.
#[allow(dead_code)] // not every test program runs kube-proxy
pub fn program() -> Result<&'static Path> {
    PROGRAM.as_deref().map_err(|why| anyhow!("{why}"))
}

static PROGRAM: LazyLock<Result<PathBuf, String>> = LazyLock::new(build);

/// Builds the program, or finds that it is built already: that is for Go to tell.
fn build() -> Result<PathBuf, String> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("test-cluster");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/build");
    let output = Command::new(script).arg(&program).output().map_err(|error| format!("{script}: {error}"))?;
    if output.status.success() {
        return Ok(program);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or("nothing is said why");
    Err(format!("the API server of tests/cluster is not built: {last}"))
}
