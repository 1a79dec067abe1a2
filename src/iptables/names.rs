//! What chains are called. Names have room for 28 characters, so that a hash stands for the Service port.

use sha2::{Digest, Sha256};

use crate::plan::{Endpoint, PoolKind, PortPlan};

/// Every new connection, in both tables.
pub const SERVICES: &str = "KUBE-SERVICES";
/// Connections to addresses from outside that find no endpoint.
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// Node ports.
pub const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// Sets the bit that asks for masquerading.
pub const MARK_MASQUERADE: &str = "KUBE-MARK-MASQ";
/// The same for all but pods, where several prefixes tell them.
pub const MARK_OFF_CLUSTER: &str = "KUBE-MARK-OFF-CLUSTER";
/// Masquerades.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Lets Service traffic through a host that forwards nothing by itself.
pub const FORWARD: &str = "KUBE-FORWARD";
/// Drops what source ranges do not allow.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// Drops packets from outside to loopback addresses.
pub const FIREWALL: &str = "KUBE-FIREWALL";

/// The chains that every change writes anew: all but those of a Service port.
pub const SHARED: [&str; 9] = [
    SERVICES,
    EXTERNAL_SERVICES,
    NODE_PORTS,
    MARK_MASQUERADE,
    MARK_OFF_CLUSTER,
    POSTROUTING,
    FORWARD,
    PROXY_FIREWALL,
    FIREWALL,
];

/// How the names of a Service port's chains begin.
const OF_PORTS: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"];

/// Whether a chain is one that this layout has, or the ipvs mode's. The kubelet has chains of similar names.
pub fn is_ours(chain: &str) -> bool {
    SHARED.contains(&chain)
        || crate::ipvs::names::CHAINS.contains(&chain)
        || OF_PORTS.iter().any(|start| chain.starts_with(start))
}

/// The names of one Service port's chains.
#[derive(Clone, Debug)]
pub struct PortChains {
    /// What the hashes are made of: `namespace/name:port` and the protocol.
    text: String,
    hash: String,
}

impl PortChains {
    /// The names for a Service port.
    pub fn new(port: &PortPlan) -> PortChains {
        PortChains::of(port.id.name.as_str(), &port.protocol.to_string())
    }

    fn of(name: &str, protocol: &str) -> PortChains {
        let text = format!("{name}{protocol}");
        let hash = hash(&text);
        PortChains { text, hash }
    }

    /// Where a pool's endpoints are drawn from.
    pub fn pool(&self, kind: PoolKind) -> String {
        let prefix = match kind {
            PoolKind::Cluster => "SVC",
            PoolKind::Local => "SVL",
        };
        format!("KUBE-{prefix}-{}", self.hash)
    }

    /// What external addresses and node ports lead to.
    pub fn external(&self) -> String {
        format!("KUBE-EXT-{}", self.hash)
    }

    /// Where source ranges are asked for.
    pub fn firewall(&self) -> String {
        format!("KUBE-FW-{}", self.hash)
    }

    /// Where the destination becomes this endpoint's.
    pub fn endpoint(&self, endpoint: &Endpoint) -> String {
        format!("KUBE-SEP-{}", hash(&format!("{}{endpoint}", self.text)))
    }
}

/// The first 80 bits of a SHA-256 in base32 (RFC 4648), 16 characters.
fn hash(text: &str) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits = Sha256::digest(text.as_bytes()).iter().take(10).fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..16).rev().map(|at| char::from(DIGITS[(bits >> (5 * at)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that kube-proxy gives.
    #[test]
    fn hashes_are_those_of_kube_proxy() {
        for (name, expected) in [
            ("ns1/svc1:p80", "XPGD46QRK7WJZT7O"),
            ("ns2/svc2:p80", "GNZBNJ2PO5MGZ6GT"),
            ("ns3/svc3:p80", "X27LE4BHSL4DOUIK"),
            ("ns1/svc1", "AQI2S6QIMU7PVVRP"),
        ] {
            let chains = PortChains::of(name, "tcp");
            assert_eq!(chains.pool(PoolKind::Cluster), format!("KUBE-SVC-{expected}"));
            assert_eq!(chains.pool(PoolKind::Local), format!("KUBE-SVL-{expected}"));
            assert_eq!(chains.external(), format!("KUBE-EXT-{expected}"));
            assert_eq!(chains.firewall(), format!("KUBE-FW-{expected}"));
        }
        let endpoint = Endpoint { ip: [10, 180, 0, 1].into(), port: 80, local: false };
        assert_eq!(PortChains::of("ns1/svc1:p80", "tcp").endpoint(&endpoint), "KUBE-SEP-SXIVWICOYRO3J4NJ");
    }
}
