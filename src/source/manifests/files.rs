//! Which files are meant, and opening them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A path that cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It does not exist or cannot be opened.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The path as it was given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory without manifests.
    #[error("{}: there is no *.yaml, *.yml or *.json file in this directory", path.display())]
    NoManifests {
        /// The directory.
        path: PathBuf,
    },
}

/// Whether the path stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The files behind the paths: a directory stands for its manifests, sorted by name. Each file once, in the order of
/// its first mention.
pub fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, LoadError> {
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    for path in paths {
        let unreadable = |source| LoadError::Unreadable { path: path.clone(), source };
        let found = if is_stdin(path) {
            vec![path.clone()]
        } else if fs::metadata(path).map_err(unreadable)?.is_dir() {
            manifests_in(path).map_err(unreadable)?
        } else {
            File::open(path).map_err(unreadable)?;
            vec![path.clone()]
        };
        if found.is_empty() {
            return Err(LoadError::NoManifests { path: path.clone() });
        }
        files.extend(found.into_iter().filter(|file| seen.insert(file.clone())));
    }
    Ok(files)
}

/// The manifests of a directory, not of its subdirectories. Names that begin with a dot are for the editors and
/// mounts that make them.
pub fn manifests_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if is_manifest(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file of this name in a directory is a manifest.
pub fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|e| e.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Opens a file, or standard input.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    const BUFFER: usize = 64 << 10;
    Ok(if is_stdin(path) {
        Box::new(BufReader::with_capacity(BUFFER, io::stdin().lock()))
    } else {
        Box::new(BufReader::with_capacity(BUFFER, File::open(path)?))
    })
}

/// What a file is called in messages.
pub fn display(path: &Path) -> String {
    if is_stdin(path) { "standard input".into() } else { path.display().to_string() }
}
