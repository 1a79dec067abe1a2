//! Manifests that are followed: whenever a file changes, everything is read again.
//!
//! A file that cannot be read to its end, because somebody is writing it or made a mistake, keeps the objects that it
//! held before, while the others go on. Files that leave a directory take their objects along.

mod contents;
mod places;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags as Flags, InotifyEvent, WatchDescriptor};

use super::manifests::{LoadError, Loaded, expand};
use contents::Contents;
use places::Watcher;

/// Changes that come closer together than this are one change.
const QUIET: Duration = Duration::from_millis(100);
/// Changes that go on for longer than this are read nevertheless.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often is looked for what cannot be watched, such as a directory that does not exist.
const LOOK: Duration = Duration::from_secs(1);

/// Manifests that are followed until the value is dropped.
#[derive(Debug)]
pub struct Watch {
    updates: Option<Receiver<Loaded>>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Follows manifests. The paths mean what they mean to [`load`](super::load); standard input is read once.
///
/// # Errors
/// A path that was asked for does not exist or cannot be opened now. (One that goes away later keeps its objects.)
/// A directory without manifests is fine.
pub fn watch(paths: Vec<PathBuf>) -> Result<Watch, LoadError> {
    match expand(&paths) {
        Ok(_) | Err(LoadError::NoManifests { .. }) => {}
        Err(error) => return Err(error),
    }
    let system = |source| LoadError::Unreadable { path: "the files' watcher".into(), source };
    let (sender, updates) = sync_channel(1);
    let (stop, stopped) = UnixStream::pair().map_err(system)?;
    let follower = Follower { contents: Contents::new(paths), stopped };
    let thread = std::thread::Builder::new().name("manifests".into()).spawn(move || follower.follow(&sender));
    Ok(Watch { updates: Some(updates), stop: Some(stop), thread: Some(thread.map_err(system)?) })
}

impl Watch {
    /// What the manifests say: first what they say at the beginning, then after each change. The receiver ends when
    /// the files cannot be followed any more, which the log tells the reason of.
    pub fn updates(&self) -> &Receiver<Loaded> {
        self.updates.as_ref().expect("it is only taken when the value is dropped")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The thread may wait for a change, or for room in the channel.
        drop((self.stop.take(), self.updates.take()));
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; a panic in it was printed.
            let _ = thread.join();
        }
    }
}

struct Follower {
    contents: Contents,
    stopped: UnixStream,
}

/// What ended a wait.
enum Woken {
    Changed,
    TimedOut,
    Stopped,
}

impl Follower {
    fn follow(mut self, updates: &SyncSender<Loaded>) {
        if let Err(error) = self.try_follow(updates) {
            tracing::error!("the manifests cannot be followed any more: {error}");
        }
    }

    fn try_follow(&mut self, updates: &SyncSender<Loaded>) -> io::Result<()> {
        let mut told = false;
        loop {
            // Watching begins before reading, so that no change falls between.
            let watcher = Watcher::new(self.contents.paths())?;
            let changed = self.contents.read();
            if (changed || !told) && updates.send(self.contents.assemble()).is_err() {
                return Ok(());
            }
            told = true;
            if self.wait(&watcher)? {
                return Ok(());
            }
        }
    }

    /// Waits for a change, and then until it is over. Says whether it is time to stop.
    fn wait(&self, watcher: &Watcher) -> io::Result<bool> {
        let mut writing = HashSet::new();
        let look = (!watcher.is_complete()).then_some(LOOK);
        match self.wait_for_event(watcher, look, &mut writing)? {
            Woken::Stopped => return Ok(true),
            Woken::TimedOut => return Ok(false),
            Woken::Changed => {}
        }
        let end = Instant::now() + PATIENCE;
        loop {
            match self.wait_for_event(watcher, Some(QUIET), &mut writing)? {
                Woken::Stopped => return Ok(true),
                Woken::TimedOut if writing.is_empty() => return Ok(false),
                _ if Instant::now() >= end => return Ok(false),
                _ => {}
            }
        }
    }

    /// Waits for events that matter, and notes which files are being written.
    fn wait_for_event(
        &self,
        watcher: &Watcher,
        timeout: Option<Duration>,
        writing: &mut HashSet<(WatchDescriptor, OsString)>,
    ) -> io::Result<Woken> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let timeout = match left {
                None => PollTimeout::NONE,
                // Rounded up, so that the last millisecond is not waited for in a loop.
                Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
            };
            let mut files =
                [PollFd::new(watcher.as_fd(), PollFlags::POLLIN), PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN)];
            match poll(&mut files, timeout) {
                Ok(0) => return Ok(Woken::TimedOut),
                Err(nix::errno::Errno::EINTR) => continue,
                result => result?,
            };
            if files[1].any() == Some(true) {
                return Ok(Woken::Stopped);
            }
            let events = watcher.events()?;
            events.iter().for_each(|event| note_writing(event, writing));
            if events.iter().any(|event| watcher.matters(event)) {
                return Ok(Woken::Changed);
            }
        }
    }
}

/// A file that was modified is being written until it is closed, or gone.
fn note_writing(event: &InotifyEvent, writing: &mut HashSet<(WatchDescriptor, OsString)>) {
    let Some(name) = &event.name else { return };
    if event.mask.contains(Flags::IN_MODIFY) {
        writing.insert((event.wd, name.clone()));
    } else if event.mask.intersects(Flags::IN_CLOSE_WRITE | Flags::IN_DELETE | Flags::IN_MOVED_FROM) {
        writing.remove(&(event.wd, name.clone()));
    }
}
