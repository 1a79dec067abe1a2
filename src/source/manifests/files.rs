//! Which files are meant, and opening them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
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
    #[error("{}: {}", path.display(), LoadError::NO_MANIFESTS)]
    NoManifests {
        /// The directory.
        path: PathBuf,
    },
}

impl LoadError {
    /// What is said of a directory without manifests.
    pub const NO_MANIFESTS: &str = "there is no *.yaml, *.yml or *.json file in this directory";
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
        let kind = if is_stdin(path) { None } else { Some(fs::metadata(path).map_err(unreadable)?.file_type()) };
        let found = match kind {
            Some(kind) if kind.is_dir() => manifests_in(path).map_err(unreadable)?,
            Some(kind) if kind.is_file() => {
                File::open(path).map_err(unreadable)?;
                vec![path.clone()]
            }
            // to open a pipe is to wait for its writer, and to take it away from whoever reads it later
            _ => vec![path.clone()],
        };
        if found.is_empty() {
            return Err(LoadError::NoManifests { path: path.clone() });
        }
        files.extend(found.into_iter().filter(|file| seen.insert(file.clone())));
    }
    Ok(files)
}

/// The manifests of a directory, not of its subdirectories. Names that begin with a dot are for the editors and
/// mounts that make them. What has the name of a manifest and is no file, such as a link that leads nowhere, is among them:
/// reading it tells what is wrong.
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

/// The most that is read of a file, in bytes: two hundred thousand Services take less. What goes on beyond is no
/// manifest but a stream without an end.
const LONGEST: u64 = 1 << 30;

/// Whether it can be read only once: a pipe, or standard input.
pub fn is_stream(path: &Path) -> bool {
    is_stdin(path) || fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Opens a file, or standard input. Reading beyond [`LONGEST`] bytes is an error. `given` is whether somebody asked for the
/// path itself, and not for the directory that it is in.
///
/// # Errors
/// Those of opening; a device is no file, and neither is a pipe that nobody asked for: its writer may never come.
pub fn open(path: &Path, given: bool) -> io::Result<Box<dyn BufRead>> {
    const BUFFER: usize = 64 << 10;
    Ok(if is_stdin(path) {
        Box::new(BufReader::with_capacity(BUFFER, Limited { reader: io::stdin().lock(), left: LONGEST }))
    } else {
        if !given && is_stream(path) {
            return Err(io::Error::other("this is a pipe, not a file"));
        }
        let file = File::open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_char_device() || kind.is_block_device() {
            return Err(io::Error::other("this is a device, not a file"));
        }
        Box::new(BufReader::with_capacity(BUFFER, Limited { reader: file, left: LONGEST }))
    })
}

/// A reader that is expected to end within so many bytes.
struct Limited<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, format!("goes on beyond {} MiB", LONGEST >> 20))
        })?;
        Ok(count)
    }
}

/// What a path of manifests is called in messages.
pub fn display(path: &Path) -> String {
    if is_stdin(path) { "standard input".into() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_without_an_end_are_given_up() {
        let read = |reader: &mut dyn Read| Limited { reader, left: 10 }.read_to_end(&mut Vec::new());
        assert_eq!(read(&mut &b"0123456789"[..]).unwrap(), 10);
        let error = read(&mut io::repeat(b'x')).unwrap_err();
        assert_eq!(error.to_string(), "goes on beyond 1024 MiB");
    }
}
