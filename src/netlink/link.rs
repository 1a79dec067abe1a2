//! Network interfaces over netlink: just deleting one.

use std::io;

use super::attr::Writer;
use super::message::{messages, reply};
use super::sys::Socket;
use super::uapi::{IFINFO, IFLA_IFNAME, NETLINK_HEADER, NLM_F_ACK, NLM_F_REQUEST, RTM_DELLINK};

/// Deletes the interface of this name in the current network namespace; whether there was one.
///
/// # Errors
/// The kernel does not let it go, or cannot be asked.
pub fn delete(name: &str) -> io::Result<bool> {
    let socket = Socket::open_route()?;
    let mut writer = Writer::default();
    writer.bytes.resize(NETLINK_HEADER + IFINFO, 0);
    writer.text(IFLA_IFNAME, name);
    let length = writer.bytes.len() as u32;
    writer.bytes[..4].copy_from_slice(&length.to_ne_bytes());
    writer.bytes[4..6].copy_from_slice(&RTM_DELLINK.to_ne_bytes());
    writer.bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    socket.send(&writer.bytes)?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.receive(&mut buffer, true)?;
        match messages(&buffer[..length]).find_map(|message| reply(&message)).map(|reply| reply.errno) {
            None => {}
            Some(0) => return Ok(true),
            Some(libc::ENODEV) => return Ok(false),
            Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}
