//! What should become of a packet, by what the reading says of the frontend.

use std::net::IpAddr;

use super::super::ports::{Drawn, Frontend, Port, Who};
use crate::explain::Client;
use crate::plan::{FrontendAddress, PoolKind, Verdict};

/// What should become of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected<'a> {
    /// One of these endpoints gets it, and its source is replaced or not.
    Endpoints(&'a [Drawn], Option<bool>),
    /// Nobody gets it.
    Verdict(Verdict),
    /// Sources that are not allowed are dropped.
    NotAllowed,
    /// The layout does not say.
    Open,
}

/// Who sends a packet.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Where that is.
    pub client: Client,
    /// From which address.
    pub source: IpAddr,
    /// Whether rules take it for a pod, which they do with the node as well where its address is among those of pods.
    pub is_pod: bool,
}

/// Where the layouts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Of kube-proxy's mode iptables.
    Iptables,
    /// Of its mode ipvs, where policies hold for pods and the node as well.
    Ipvs,
}

/// What should become of what a client sends to a frontend.
pub fn expected<'a>(
    mode: Mode,
    port: &'a Port,
    frontend: &'a Frontend,
    from: Sender,
    off_cluster: Who,
) -> Expected<'a> {
    let Sender { client, source, is_pod } = from;
    let is_cluster = matches!(frontend.address, FrontendAddress::Cluster(..));
    if let Some(sources) = &frontend.sources {
        // the node's packets may come from any of its addresses, and do not pass all of the firewall's chains
        match client {
            Client::Node => return Expected::Open,
            _ if !sources.iter().any(|net| net.contains(&source)) => return Expected::NotAllowed,
            _ => {}
        }
    }
    let is_inside = client != Client::Outside;
    match frontend.no_endpoints {
        // the node itself is refused at ClusterIPs alone (row C14)
        Some(_) if client == Client::Node && !is_cluster && mode == Mode::Iptables && port.cluster.is_empty() => {
            return Expected::Open;
        }
        Some(Verdict::Pass) => return Expected::Open,
        Some(Verdict::Drop) if !is_cluster && is_inside && !port.cluster.is_empty() => {
            let replaced = (mode == Mode::Iptables).then_some(!is_pod);
            return Expected::Endpoints(&port.cluster, replaced);
        }
        Some(verdict) => return Expected::Verdict(verdict),
        None => {}
    }
    if is_cluster {
        let replaced = match off_cluster {
            Who::Everybody => true,
            Who::OffCluster => !is_pod,
            Who::Nobody => false,
        };
        return Expected::Endpoints(port.pool(frontend.pool), Some(replaced));
    }
    match (frontend.pool, mode) {
        (PoolKind::Cluster, _) => Expected::Endpoints(&port.cluster, Some(true)),
        (PoolKind::Local, Mode::Iptables) if is_inside => Expected::Endpoints(&port.cluster, Some(!is_pod)),
        // what the node itself sends is masqueraded by svcmap and not by kube-proxy
        (PoolKind::Local, _) => Expected::Endpoints(&port.local, (client != Client::Node).then_some(false)),
    }
}
