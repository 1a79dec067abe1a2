//! `svcmap run` as a process of its own, on the node of a lab.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use svcmap::lab::Lab;
use tempfile::TempDir;

use super::cases::{LOCAL_NODE, Stack, document};

/// The daemon, which follows one file.
pub struct Daemon {
    child: Child,
    directory: TempDir,
}

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Daemon {
    /// Starts it with these objects.
    pub fn start(lab: &Lab, stack: Stack, objects: &[&str]) -> Result<Daemon> {
        Daemon::start_with(lab, &[], stack, objects)
    }

    /// The same with more arguments.
    pub fn start_with(lab: &Lab, arguments: &[&str], stack: Stack, objects: &[&str]) -> Result<Daemon> {
        Daemon::start_where(lab, &[], arguments, stack, objects)
    }

    /// The same in an environment with these variables.
    pub fn start_where(
        lab: &Lab,
        environment: &[(&str, &str)],
        arguments: &[&str],
        stack: Stack,
        objects: &[&str],
    ) -> Result<Daemon> {
        let directory = tempfile::tempdir()?;
        let log = File::create(directory.path().join("log"))?;
        write(&directory, stack, objects)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_svcmap"));
        command.args(["run", "--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.0.0.0/8,fd00:5c::a00:0/104"]);
        command
            .envs(environment.iter().copied())
            .args(arguments)
            .arg("-f")
            .arg(manifests(&directory))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = lab.node().run(|| command.spawn())?;
        Ok(Daemon { child, directory })
    }

    /// Makes these the objects that there are. The daemon sees it in its own time.
    pub fn tell(&self, stack: Stack, objects: &[&str]) -> Result<()> {
        write(&self.directory, stack, objects)
    }

    /// Waits until it has logged a text so many times.
    pub fn wait_for(&mut self, text: &str, times: usize) -> Result<()> {
        let started = Instant::now();
        loop {
            let log = std::fs::read_to_string(self.directory.path().join("log"))?;
            if log.matches(text).count() >= times {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("svcmap run ended with {status}:\n{log}");
            }
            ensure!(started.elapsed() < PATIENCE, "{text:?} was not logged {times} times:\n{log}");
            sleep(Duration::from_millis(10));
        }
    }

    /// Ends it as a service manager does.
    pub fn stop(mut self) -> Result<()> {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().context("kill")?;
        ensure!(status.success(), "kill: {status}");
        let status = self.child.wait()?;
        ensure!(status.success(), "svcmap run ended with {status}");
        Ok(())
    }
}

/// For tests that fail.
impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn manifests(directory: &TempDir) -> PathBuf {
    directory.path().join("objects.json")
}

/// Puts a new file in the place of the old one, so that none is ever seen that is only half written.
fn write(directory: &TempDir, stack: Stack, objects: &[&str]) -> Result<()> {
    let new = directory.path().join("objects.new");
    std::fs::write(&new, document(stack, objects))?;
    Ok(std::fs::rename(new, manifests(directory))?)
}
