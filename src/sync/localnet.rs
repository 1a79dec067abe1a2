//! The kernel parameter without which node ports do not answer on 127.0.0.1 (row F6).

use std::io;

/// Where it is; that of the thread's network namespace.
const ROUTE_LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// Why node ports do not answer on loopback addresses.
#[derive(Debug, thiserror::Error)]
#[error(
    "net.ipv4.conf.all.route_localnet cannot be set to 1 ({0}): node ports do not answer on 127.0.0.1 until somebody \
     sets it"
)]
pub struct NotRouted(#[from] io::Error);

/// Has the kernel route packets from loopback addresses to other hosts and pods, and their answers back. It then takes
/// packets from outside to such addresses, too: the rules that drop them have to be there before this is called.
///
/// # Errors
/// The parameter is not set, and cannot be.
pub fn route_loopback() -> Result<(), NotRouted> {
    if std::fs::read_to_string(ROUTE_LOCALNET).is_ok_and(|value| value.trim() == "1") {
        return Ok(());
    }
    Ok(std::fs::write(ROUTE_LOCALNET, "1")?)
}
