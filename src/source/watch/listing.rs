//! The files behind one path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::source::Problem;
use crate::source::manifests::{LoadError, is_stdin, manifests_in};

/// The files behind a path, as they were when they could last be listed.
///
/// A directory without manifests means that there are no objects only where manifests were in it before. Else it may be the
/// place of a volume that is not mounted, and is waited for.
#[derive(Debug, Default)]
pub struct Listing {
    files: Vec<PathBuf>,
    /// The directory that the files are in, or nothing where it has been gone since.
    directory: Option<Directory>,
    waiting: bool,
}

/// What tells a directory from another one at the same path. The number of an inode is used again at once.
#[derive(Debug, PartialEq, Eq)]
struct Directory {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl Directory {
    fn of(metadata: &fs::Metadata) -> Directory {
        Directory { device: metadata.dev(), inode: metadata.ino(), created: metadata.created().ok() }
    }
}

impl Listing {
    /// The files.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Whether it is an empty directory whose files have yet to come.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// What is to be said of a directory that is waited for.
    pub fn problem(&self, path: &Path) -> Option<Problem> {
        self.waiting.then(|| Problem {
            object: path.display().to_string(),
            field: String::new(),
            message: format!("{}; it is waited for", LoadError::NO_MANIFESTS),
            skipped: true,
        })
    }

    /// Lists the files again. Says whether anything is different.
    pub fn look(&mut self, path: &Path) -> bool {
        let metadata = fs::metadata(path);
        let was_waiting = std::mem::take(&mut self.waiting);
        let files = match &metadata {
            Ok(metadata) if metadata.is_dir() => self.look_into(path, Directory::of(metadata)),
            // What cannot be listed now keeps its files, and these their objects.
            Err(_) if !is_stdin(path) => {
                self.directory = None;
                self.waiting = self.files.is_empty();
                None
            }
            _ => Some(vec![path.to_path_buf()]),
        };
        let is_new = files.as_ref().is_some_and(|files| *files != self.files);
        if let Some(files) = files {
            self.files = files;
        }
        is_new || self.waiting != was_waiting
    }

    fn look_into(&mut self, path: &Path, directory: Directory) -> Option<Vec<PathBuf>> {
        let Ok(files) = manifests_in(path) else {
            self.directory = None;
            return None;
        };
        let is_another = self.directory.as_ref() != Some(&directory);
        if files.is_empty() && is_another {
            self.waiting = true;
            return None;
        }
        self.directory = Some(directory);
        Some(files)
    }
}
