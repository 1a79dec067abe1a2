//! Waiting for a change of files.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags as Flags, InotifyEvent, WatchDescriptor};

use super::places::Watcher;

/// Changes that come closer together than this are one change.
const QUIET: Duration = Duration::from_millis(100);
/// Changes that go on for longer than this are read nevertheless.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often is looked for what cannot be watched, such as a directory that does not exist.
const LOOK: Duration = Duration::from_secs(1);

/// Waits, until the other end of a socket is closed.
pub struct Waiter {
    stopped: UnixStream,
}

/// What ended a wait.
enum Woken {
    Changed,
    TimedOut,
    Stopped,
}

impl Waiter {
    /// One that waits until the other end of this is closed.
    pub fn new(stopped: UnixStream) -> Waiter {
        Waiter { stopped }
    }

    /// Waits for a change, and then until it is over; where there is something that nobody tells of, not for long. Says whether
    /// it is time to stop.
    pub fn wait(&self, watcher: &Watcher, untold: bool) -> io::Result<bool> {
        let mut writing = HashSet::new();
        let look = (untold || !watcher.is_complete()).then_some(LOOK);
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
            let mut matter = events.iter().filter(|event| watcher.matters(event)).peekable();
            let changed = matter.peek().is_some();
            matter.for_each(|event| note_writing(event, writing));
            if changed {
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
