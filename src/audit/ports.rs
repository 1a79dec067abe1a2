//! What a ruleset does for one Service port, apart from how it is laid out.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::objects::Protocol;
use crate::plan::{
    Claim, Detector, Endpoint, FrontendAddress, Masquerade, NodePlan, PoolKind, PortId, PortPlan, Verdict,
};

/// What a ruleset does for one Service port in one family.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Which.
    pub id: PortId,
    /// The transport protocol.
    pub protocol: Protocol,
    /// Where clients send to, in order of the addresses.
    pub frontends: Vec<Frontend>,
    /// The endpoints of the whole cluster, in order of the addresses; empty where no frontend uses them.
    pub cluster: Vec<Drawn>,
    /// Those of this node.
    pub local: Vec<Drawn>,
    /// For how many seconds a client is kept at its endpoint.
    pub affinity: Option<u32>,
}

/// An address and port of a Service, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Where clients send to.
    pub address: FrontendAddress,
    /// Which endpoints ordinary clients reach.
    pub pool: PoolKind,
    /// Whether pods and the node itself use the cluster's endpoints all the same.
    pub short_circuit: bool,
    /// Whose source address is replaced.
    pub masquerade: Who,
    /// What ordinary clients get where there is no endpoint for them.
    pub no_endpoints: Option<Verdict>,
    /// Where present, only these sources may come.
    pub sources: Option<Vec<IpNet>>,
}

/// An endpoint, and how often it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its share of new connections, from 0 to 1.
    pub share: f64,
}

/// Whose source address is replaced by the node's, beside that of endpoints that reach themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody's; but the node's own, where it is sent to other nodes against the policy.
    Nobody,
    /// That of all but pods.
    OffCluster,
    /// Everybody's.
    Everybody,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Nobody => "no",
            Who::OffCluster => "off-cluster",
            Who::Everybody => "yes",
        })
    }
}

impl Drawn {
    /// Its address and port.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }
}

impl Frontend {
    /// A frontend of an ordinary Service, which the reader then says more of.
    pub fn new(address: FrontendAddress) -> Frontend {
        Frontend {
            address,
            pool: PoolKind::Cluster,
            short_circuit: false,
            masquerade: Who::Nobody,
            no_endpoints: None,
            sources: None,
        }
    }

    /// Where nobody gets an endpoint, only the verdict means anything: the rest is what follows from it. One that lets
    /// connections through may all the same lead pods and the node to endpoints, if the cluster has any.
    fn normalize(&mut self, has_endpoints: bool) {
        let is_external = !matches!(self.address, FrontendAddress::Cluster(..));
        let (pool, short_circuit) = match self.no_endpoints {
            None => return,
            Some(Verdict::Drop) => (PoolKind::Local, is_external),
            Some(Verdict::Pass) if self.short_circuit && has_endpoints => (PoolKind::Local, true),
            Some(Verdict::Reject | Verdict::Pass) => (PoolKind::Cluster, false),
        };
        (self.pool, self.short_circuit, self.masquerade) = (pool, short_circuit, Who::Nobody);
    }
}

impl Port {
    /// A Service port of which nothing is known yet.
    pub fn new(id: PortId, protocol: Protocol) -> Port {
        Port { id, protocol, frontends: Vec::new(), cluster: Vec::new(), local: Vec::new(), affinity: None }
    }

    /// What a plan means for a Service port, with what the node's plan says of masquerading.
    pub fn of_plan(node: &NodePlan, plan: &PortPlan) -> Port {
        let off_cluster = match node.detector(plan.id.family) {
            _ if node.masquerade_all => Who::Everybody,
            Detector::None => Who::Nobody,
            _ => Who::OffCluster,
        };
        Port::of_masqueraded(off_cluster, plan)
    }

    /// The same, where it is known what becomes of sources off the cluster.
    pub fn of_masqueraded(off_cluster: Who, plan: &PortPlan) -> Port {
        let mut port = Port::new(plan.id.clone(), plan.protocol);
        port.frontends = plan
            .frontends
            .iter()
            .map(|frontend| Frontend {
                address: frontend.address,
                pool: frontend.pool,
                short_circuit: frontend.short_circuit,
                masquerade: match frontend.masquerade {
                    Masquerade::OffCluster => off_cluster,
                    Masquerade::Always => Who::Everybody,
                    Masquerade::Never => Who::Nobody,
                },
                no_endpoints: frontend.no_endpoints,
                sources: frontend.sources.as_ref().map(|sources| sources.to_vec()),
            })
            .collect();
        let evenly = |endpoints: &[Endpoint]| {
            let share = 1.0 / endpoints.len() as f64;
            endpoints.iter().map(|endpoint| Drawn { ip: endpoint.ip, port: endpoint.port, share }).collect()
        };
        (port.cluster, port.local) = (evenly(&plan.cluster), evenly(&plan.local));
        port.affinity = plan.affinity;
        port.normal()
    }

    /// The same in a form that depends on its meaning alone.
    pub fn normal(mut self) -> Port {
        let has_endpoints = !self.cluster.is_empty();
        self.frontends.iter_mut().for_each(|frontend| frontend.normalize(has_endpoints));
        self.frontends.sort_by_key(|frontend| frontend.address);
        for frontend in &mut self.frontends {
            if let Some(sources) = &mut frontend.sources {
                *sources = IpNet::aggregate(sources);
                sources.sort_unstable();
            }
        }
        for pool in [&mut self.cluster, &mut self.local] {
            pool.sort_by_key(Drawn::socket);
        }
        let uses = |pool: PoolKind, frontend: &Frontend| {
            frontend.pool == pool || (pool == PoolKind::Cluster && frontend.short_circuit)
        };
        if !self.frontends.iter().any(|frontend| uses(PoolKind::Cluster, frontend)) {
            self.cluster.clear();
        }
        if !self.frontends.iter().any(|frontend| uses(PoolKind::Local, frontend)) {
            self.local.clear();
        }
        self.affinity = self.affinity.filter(|_| !(self.cluster.is_empty() && self.local.is_empty()));
        self
    }

    /// The endpoints of one pool.
    pub fn pool(&self, pool: PoolKind) -> &[Drawn] {
        match pool {
            PoolKind::Cluster => &self.cluster,
            PoolKind::Local => &self.local,
        }
    }

    /// What a frontend occupies.
    pub fn claim(&self, frontend: &Frontend) -> Claim {
        Claim::new(self.id.family, self.protocol, frontend.address)
    }

    /// Whether both mean the same. How often endpoints are drawn is a matter of its own.
    pub fn means_the_same(&self, other: &Port) -> bool {
        let sockets = |pool: &[Drawn]| pool.iter().map(Drawn::socket).collect::<Vec<_>>();
        self.protocol == other.protocol
            && self.frontends == other.frontends
            && self.affinity == other.affinity
            && sockets(&self.cluster) == sockets(&other.cluster)
            && sockets(&self.local) == sockets(&other.local)
    }
}
