//! Into a user namespace, where anybody may make network namespaces.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

/// Why this process cannot have namespaces.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// A user namespace can only be entered by a process with one thread.
    #[error("namespaces can only be entered before the process starts threads")]
    Threads,
    /// The kernel, or who watches over it, does not let this user have namespaces.
    #[error("this system does not let us make namespaces ({what}: {errno}); {hint}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// What the kernel answered.
        errno: Errno,
        /// What a person can do.
        hint: &'static str,
    },
    /// The user namespace was made, but who we are in it could not be said.
    #[error(
        "cannot write {path}: {error}; where AppArmor restricts user namespaces, run this as root or set kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    Map {
        /// The file.
        path: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// Moves this process into user and network namespaces of its own, in which it is root.
///
/// Where user namespaces are off but the process is root, a network namespace alone has to do.
///
/// # Errors
/// When the process has threads already, or the system does not allow it; the message says what to do about it.
pub fn enter() -> Result<(), EnterError> {
    let (uid, gid) = (geteuid(), getegid());
    match unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
        Ok(()) => {
            map("/proc/self/setgroups", "deny")?;
            map("/proc/self/uid_map", &format!("0 {uid} 1"))?;
            map("/proc/self/gid_map", &format!("0 {gid} 1"))
        }
        Err(Errno::EINVAL) => Err(EnterError::Threads),
        Err(_) if uid.is_root() => unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| EnterError::Refused {
            what: "unshare of the network",
            errno,
            hint: "in a container, give it the capability SYS_ADMIN, or a seccomp profile that allows unshare",
        }),
        Err(errno) => Err(EnterError::Refused {
            what: "unshare of user and network",
            errno,
            hint: "run this as root, or allow user namespaces \
                   (user.max_user_namespaces > 0, kernel.unprivileged_userns_clone=1)",
        }),
    }
}

/// Moves this process into a network namespace of its own: as root without a user namespace, since a socket's send buffer
/// can then be as large as a daemon's on a node; otherwise as [`enter`] does.
///
/// # Errors
/// Those of [`enter`].
pub fn enter_network() -> Result<(), EnterError> {
    if geteuid().is_root() && unshare(CloneFlags::CLONE_NEWNET).is_ok() { Ok(()) } else { enter() }
}

fn map(path: &'static str, text: &str) -> Result<(), EnterError> {
    fs::write(path, text).map_err(|error| EnterError::Map { path, error })
}
