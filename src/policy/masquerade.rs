//! Whose source address is replaced, and who may leave the node (behaviour section E).

use crate::objects::TrafficPolicy;
use crate::plan::{Masquerade, PoolKind};

/// What a traffic policy means for a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// Which endpoints ordinary clients reach.
    pub pool: PoolKind,
    /// Whether pods and the node itself reach the cluster's endpoints all the same.
    pub short_circuit: bool,
    /// Whose source address is replaced.
    pub masquerade: Masquerade,
}

/// The frontend is the Service's own address: only clients outside the pod network are masqueraded, as far as they can
/// be told (rows E2–E4). A Local policy holds for everyone (row C12).
pub fn internal(policy: TrafficPolicy) -> Routing {
    let pool = match policy {
        TrafficPolicy::Cluster => PoolKind::Cluster,
        TrafficPolicy::Local => PoolKind::Local,
    };
    Routing { pool, short_circuit: false, masquerade: Masquerade::OffCluster }
}

/// The frontend is an external address or a node port: everyone is masqueraded, since the endpoint may be on any node
/// (row E5); under a Local policy clients keep their address (row E6), and pods and the node itself use the cluster's
/// endpoints (rows C13, E7, E8).
pub fn external(policy: TrafficPolicy) -> Routing {
    match policy {
        TrafficPolicy::Cluster => {
            Routing { pool: PoolKind::Cluster, short_circuit: false, masquerade: Masquerade::Always }
        }
        TrafficPolicy::Local => Routing { pool: PoolKind::Local, short_circuit: true, masquerade: Masquerade::Never },
    }
}
