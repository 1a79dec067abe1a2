//! Whether a file is still the one that was read, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What happens within this time may have one and the same time in a file system: the kernel's clock goes in steps.
pub const SETTLED: Duration = Duration::from_millis(50);
/// The same where times are told in seconds.
const COARSE: Duration = Duration::from_secs(3);

/// What tells a file, and a state of it, from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// The same of the last change of anything, which nobody can set.
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of the file at a path, links followed. Nothing where it is no file, and where it was changed so recently that
    /// another change might not be seen.
    pub fn of(path: &Path) -> Option<Stamp> {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let stamp = Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let changed = Duration::new(stamp.changed.0.try_into().ok()?, stamp.changed.1.try_into().ok()?);
        let settled = if stamp.changed.1 == 0 { COARSE } else { SETTLED };
        now.checked_sub(changed).is_some_and(|age| age >= settled).then_some(stamp)
    }
}
