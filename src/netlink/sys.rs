//! The netlink socket: thin calls to the operating system, each without state of its own.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A netlink socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens and binds one for nf_tables and connection tracking; the kernel gives it a port number.
    pub fn open() -> io::Result<Socket> {
        Socket::of(libc::NETLINK_NETFILTER)
    }

    /// The same for addresses, interfaces and routes.
    pub fn open_route() -> io::Result<Socket> {
        Socket::of(libc::NETLINK_ROUTE)
    }

    /// The same for another part of the kernel, one of libc's `NETLINK_…`.
    pub fn of(protocol: i32) -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes numbers only.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })?;
        // SAFETY: `fd` was just opened and has no other owner.
        let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: a `sockaddr_nl` is plain numbers, for which zeros are valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` lives through the call and is `length` bytes long.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), length) })?;
        Ok(socket)
    }

    /// The port that the kernel gave it.
    pub fn port(&self) -> io::Result<u32> {
        // SAFETY: a `sockaddr_nl` is plain numbers, for which zeros are valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: both pointers are to locals that live through the call; `length` says how much room `address` has.
        check(unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut address).cast(), &raw mut length) })?;
        Ok(address.nl_pid)
    }

    /// `setsockopt` with a number.
    pub fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        let length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: `value` lives through the call and is `length` bytes long.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, (&raw const value).cast(), length) })?;
        Ok(())
    }

    /// Asks for so many bytes of room for what is received: beyond the system's limit only with privilege over the initial
    /// user namespace, up to it for everyone.
    pub fn set_receive_buffer(&self, bytes: i32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
    }

    /// `getsockopt` of a number.
    pub fn get(&self, level: i32, option: i32) -> io::Result<i32> {
        let mut value = 0i32;
        let mut length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: both pointers are to locals that live through the call; `length` says how much room `value` has.
        check(unsafe {
            libc::getsockopt(self.0.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
        })?;
        Ok(value)
    }

    /// Hands all of `bytes` to the kernel in one call, which returns when the kernel has worked on them.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = retry(|| {
            // SAFETY: the pointer and the length are those of `bytes`, which lives through the call.
            unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) }
        })?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives one datagram of messages; `WouldBlock` when there is none and `wait` is false. One that is longer than
    /// the buffer is an error.
    pub fn receive(&self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = libc::MSG_TRUNC | if wait { 0 } else { libc::MSG_DONTWAIT };
        let length = retry(|| {
            // SAFETY: the pointer and the length are those of `buffer`, which is ours alone during the call.
            unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) }
        })?;
        if length <= buffer.len() {
            Ok(length)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("a netlink datagram of {length} bytes")))
        }
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls again when a signal came in between.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(length) => return Ok(length),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
