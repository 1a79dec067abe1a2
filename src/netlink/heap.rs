//! Memory that is free, for others.

#![allow(unsafe_code)]

/// Gives memory that is not used any more back to the kernel. glibc keeps what was freed between things that stay, as much as it
/// once was; other allocators do not wait to be told.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, may be called by any thread at any time, and leaves alone what is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
