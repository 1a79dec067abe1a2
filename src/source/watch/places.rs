//! Which directories have to be watched so that no change of the manifests is missed.
//!
//! Files are replaced more often than they are written: editors and mounted ConfigMaps rename files and swap symbolic
//! links. So it is always the directory of a file that is watched, and every directory on the way to it, links followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::source::manifests::{is_manifest, is_stdin, manifests_in};

/// As many links as the kernel follows.
const LINKS: usize = 40;

/// The names in a directory that matter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Interest {
    names: HashSet<OsString>,
    /// Whether all names of manifests do.
    manifests: bool,
}

/// The directories, and what matters in them.
#[derive(Debug, Default)]
struct Places(BTreeMap<PathBuf, Interest>);

impl Places {
    fn of(paths: &[PathBuf]) -> io::Result<Places> {
        let mut places = Places::default();
        for path in paths.iter().filter(|path| !is_stdin(path)) {
            let target = places.trace(std::path::absolute(path)?);
            if !target.is_dir() {
                continue;
            }
            for file in manifests_in(&target).unwrap_or_default().into_iter().filter(|file| file.is_symlink()) {
                places.trace(file);
            }
            places.0.entry(target).or_default().manifests = true;
        }
        Ok(places)
    }

    /// Takes note of every link on the way of the path, and of where it ends.
    fn trace(&mut self, mut path: PathBuf) -> PathBuf {
        for _ in 0..LINKS {
            let Some((link, target)) = first_link(&path) else { break };
            self.note(&link);
            path = target;
        }
        self.note(&path);
        path
    }

    /// Takes note of a path, and of all directories above it, since each of them can be renamed.
    fn note(&mut self, path: &Path) {
        for path in path.ancestors() {
            if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
                self.0.entry(directory.into()).or_default().names.insert(name.into());
            }
        }
    }
}

/// The first symbolic link on the way of an absolute path, and the path with the link followed.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut components = path.components();
    let mut way = PathBuf::new();
    while let Some(component) = components.next() {
        way.push(component);
        if let Ok(target) = way.read_link() {
            let followed = way.parent()?.join(target).join(components.as_path());
            return Some((way, followed));
        }
    }
    None
}

/// Watches directories.
pub struct Watcher {
    inotify: Inotify,
    interests: HashMap<WatchDescriptor, Vec<Interest>>,
    complete: bool,
}

impl Watcher {
    /// Watches what matters to these paths.
    pub fn new(paths: &[PathBuf]) -> io::Result<Watcher> {
        let mut watcher = Watcher {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            interests: HashMap::new(),
            complete: true,
        };
        let flags = Flags::IN_ONLYDIR
            | Flags::IN_CREATE
            | Flags::IN_MODIFY
            | Flags::IN_CLOSE_WRITE
            | Flags::IN_ATTRIB
            | Flags::IN_MOVE
            | Flags::IN_DELETE
            | Flags::IN_DELETE_SELF
            | Flags::IN_MOVE_SELF;
        for (directory, interest) in Places::of(paths)?.0 {
            match watcher.inotify.add_watch(&directory, flags) {
                // The same directory may be known by two paths.
                Ok(descriptor) => watcher.interests.entry(descriptor).or_default().push(interest),
                Err(error) => {
                    tracing::debug!("{} cannot be watched: {error}", directory.display());
                    watcher.complete = false;
                }
            }
        }
        Ok(watcher)
    }

    /// Whether everything that matters is watched.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The events that are there.
    pub fn events(&self) -> io::Result<Vec<InotifyEvent>> {
        match self.inotify.read_events() {
            Err(Errno::EAGAIN) => Ok(Vec::new()),
            result => Ok(result?),
        }
    }

    /// Whether the manifests may be others after this event.
    pub fn matters(&self, event: &InotifyEvent) -> bool {
        let Some(name) = &event.name else {
            // Something about a directory itself, or events were lost.
            return true;
        };
        self.interests.get(&event.wd).is_some_and(|interests| interests.iter().any(|interest| interest.has(name)))
    }
}

impl Interest {
    fn has(&self, name: &OsStr) -> bool {
        self.names.contains(name) || (self.manifests && is_manifest(Path::new(name)))
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_noted() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().canonicalize().unwrap().join(path);
        std::fs::create_dir_all(at("mount/..1")).unwrap();
        std::fs::write(at("mount/..1/web.yaml"), "").unwrap();
        symlink("..1", at("mount/..data")).unwrap();
        symlink("..data/web.yaml", at("mount/web.yaml")).unwrap();
        symlink("mount", at("current")).unwrap();

        let names = |places: &Places, directory: &str| {
            let mut names: Vec<_> = places.0[&at(directory)].names.iter().cloned().collect();
            names.sort();
            names
        };
        for path in ["current", "current/web.yaml"] {
            let places = Places::of(&[at(path)]).unwrap();
            assert!(names(&places, "").contains(&"current".into()), "{path}: {places:?}");
            let mounted = names(&places, "mount");
            assert!(mounted.contains(&"..data".into()) && mounted.contains(&"web.yaml".into()), "{path}: {places:?}");
            assert_eq!(names(&places, "mount/..1"), ["web.yaml"], "{path}");
        }
        symlink("loop", at("loop")).unwrap();
        Places::of(&[at("loop")]).unwrap();
    }
}
