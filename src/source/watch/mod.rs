//! Manifests that are followed: whenever a file changes, it is read again.
//!
//! A file that cannot be read to its end, because somebody is writing it or made a mistake, keeps those of the objects that it
//! held before which cannot be read now, while the others go on. Files that leave a directory take their objects along; a
//! directory that never held any is waited for.

mod contents;
mod listing;
mod places;
mod stamp;
mod wait;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::manifests::{LoadError, Loaded, expand};
use crate::amounts::counted;
use contents::{Contents, Look};
use places::Watcher;
use wait::Waiter;

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
/// A directory without manifests is waited for.
pub fn watch(paths: Vec<PathBuf>) -> Result<Watch, LoadError> {
    match expand(&paths) {
        Ok(_) | Err(LoadError::NoManifests { .. }) => {}
        Err(error) => return Err(error),
    }
    let system = |source| LoadError::Unreadable { path: "the files' watcher".into(), source };
    let (sender, updates) = sync_channel(1);
    let (stop, stopped) = UnixStream::pair().map_err(system)?;
    let follower = Follower { contents: Contents::new(paths), waiter: Waiter::new(stopped) };
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
    waiter: Waiter,
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
            let Look { changed, read } = self.contents.look();
            tracing::debug!("{} read, {}", counted(read, "file"), if changed { "news" } else { "nothing new" });
            if (changed || !told) && updates.send(self.contents.assemble()).is_err() {
                return Ok(());
            }
            told = true;
            if self.waiter.wait(&watcher, self.contents.is_waiting())? {
                return Ok(());
            }
        }
    }
}

/// Calls `changed` whenever a file may hold something else, in a thread of its own that lives as long as the process, and
/// once at the beginning: what was read before that may be old already.
///
/// # Errors
/// There is no thread, or nothing can be watched.
pub fn on_change(file: PathBuf, mut changed: impl FnMut() + Send + 'static) -> io::Result<()> {
    let (stop, stopped) = UnixStream::pair()?;
    let (paths, waiter) = (vec![file], Waiter::new(stopped));
    let mut watcher = Watcher::new(&paths)?;
    let mut follow = move || -> io::Result<()> {
        loop {
            changed();
            waiter.wait(&watcher, false)?;
            // begins before the file is read, so that no change falls between
            watcher = Watcher::new(&paths)?;
        }
    };
    std::thread::Builder::new().name("file".into()).spawn(move || {
        let _stop = stop;
        if let Err(error) = follow() {
            tracing::error!("changes of files are not seen any more: {error}");
        }
    })?;
    Ok(())
}
