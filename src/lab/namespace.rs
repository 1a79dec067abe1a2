//! A network namespace, and things done in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};

use crate::tool;

/// A network namespace. It goes away with the value, once nothing runs in it any more.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes an empty namespace, with the loopback interface down. The name is only for people.
    ///
    /// # Errors
    /// When the process may not make namespaces: it did not [`enter`](super::enter()) one before.
    pub fn new(name: &str) -> Result<Namespace> {
        let make = || -> io::Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let file = on_a_thread(make).with_context(|| format!("cannot make the network namespace {name}"))?;
        Ok(Namespace { name: name.to_owned(), file })
    }

    /// The name that it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path by which other programs of this process's user find the namespace while the value lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Runs `f` on a thread in the namespace and waits for it. Sockets that it makes, and programs that it starts,
    /// belong to the namespace.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        on_a_thread(|| {
            self.move_in();
            f()
        })
    }

    /// Starts `f` on a thread in the namespace.
    pub fn spawn<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> Result<JoinHandle<R>> {
        let file = self.file.try_clone()?;
        let inside = Namespace { name: self.name.clone(), file };
        let thread = thread::Builder::new().name(self.name.clone()).spawn(move || {
            inside.move_in();
            drop(inside);
            f()
        });
        Ok(thread?)
    }

    /// Runs a program in the namespace with this standard input and returns what it printed.
    ///
    /// # Errors
    /// When it is not there or exits with a failure; the message has its standard error.
    pub fn command(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        let output = self.run(|| tool::run(program, args, input));
        let output = output.with_context(|| format!("cannot run {program}; is it installed?"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {} in {} ({}): {}", args.join(" "), self.name, output.status, said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a script of `ip` commands, one a line.
    ///
    /// # Errors
    /// When one of them fails; those before it have happened.
    pub fn ip(&self, script: &str) -> Result<()> {
        match self.command("ip", &["-batch", "-"], script) {
            Ok(_) => Ok(()),
            Err(error) if error.is::<io::Error>() => Err(error),
            Err(error) => bail!("{error:#}\nThe script was:\n{script}"),
        }
    }

    /// Sets kernel parameters of the namespace, by their path below `/proc/sys/net`.
    ///
    /// # Errors
    /// When one is not there or does not take the value.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| {
            for (name, value) in settings {
                std::fs::write(format!("/proc/sys/net/{name}"), value)
                    .with_context(|| format!("cannot set net/{name} to {value} in {}", self.name))?;
            }
            Ok(())
        })
    }

    fn move_in(&self) {
        setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET).expect("the process made this namespace and may enter it");
    }
}

fn on_a_thread<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| match scope.spawn(f).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
