//! Whose turn it is among a Service port's endpoints.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::plan::{Endpoint, PoolKind, PortPlan};

/// The clients that are remembered where nothing else is said: as many as in the kernel's maps (behaviour row D9).
pub const MOST_CLIENTS: usize = 65_535;

/// The endpoints of one Service port, for all its doors.
#[derive(Debug, Default)]
pub struct Balancer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cluster: Turn,
    local: Turn,
    affinity: Option<Duration>,
    /// How many clients are remembered.
    most: usize,
    /// The endpoint of each client, and when it last opened a connection.
    clients: HashMap<IpAddr, (Endpoint, Instant)>,
}

/// A set of endpoints, and the number of the one whose turn it is.
#[derive(Debug, Default)]
struct Turn {
    endpoints: Vec<Endpoint>,
    next: usize,
}

impl Balancer {
    /// Takes over what the plan says of the port. Clients of endpoints that it does not have any more are forgotten (row
    /// D4), and all of them where there is no session affinity (row D7).
    pub fn follow(&self, port: &PortPlan, most_clients: usize) {
        let mut state = self.state();
        let state = &mut *state;
        for (turn, endpoints) in [(&mut state.cluster, &port.cluster), (&mut state.local, &port.local)] {
            turn.endpoints.clone_from(endpoints);
            turn.endpoints.sort_unstable();
        }
        state.affinity = port.affinity.map(|seconds| Duration::from_secs(seconds.into()));
        state.most = most_clients;
        let (cluster, local) = (&state.cluster, &state.local);
        let stays = |endpoint: &Endpoint| cluster.has(endpoint) || local.has(endpoint);
        let has_affinity = state.affinity.is_some();
        state.clients.retain(|_, (endpoint, _)| has_affinity && stays(endpoint));
    }

    /// The endpoint for a new connection of a client, none of those that were tried in vain: the one that the client has, if
    /// the Service port has session affinity (rows D1, D3, D5), else the next in turn.
    pub fn pick(&self, pool: PoolKind, client: IpAddr, tried: &[Endpoint], now: Instant) -> Option<Endpoint> {
        let mut state = self.state();
        let picked = state.known(pool, client, tried, now).or_else(|| state.turn(pool).take(tried))?;
        state.remember(client, picked, now);
        Some(picked)
    }

    /// Whether an endpoint is still one of a set.
    pub fn uses(&self, pool: PoolKind, endpoint: &Endpoint) -> bool {
        self.state().turn(pool).has(endpoint)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // nothing panics with it; if something did, each of its parts would still be whole
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn turn(&mut self, pool: PoolKind) -> &mut Turn {
        match pool {
            PoolKind::Cluster => &mut self.cluster,
            PoolKind::Local => &mut self.local,
        }
    }

    fn known(&mut self, pool: PoolKind, client: IpAddr, tried: &[Endpoint], now: Instant) -> Option<Endpoint> {
        let (endpoint, since) = *self.clients.get(&client)?;
        let holds = now.saturating_duration_since(since) < self.affinity?;
        (holds && self.turn(pool).has(&endpoint) && !tried.contains(&endpoint)).then_some(endpoint)
    }

    fn remember(&mut self, client: IpAddr, endpoint: Endpoint, now: Instant) {
        let Some(affinity) = self.affinity else { return };
        if self.clients.len() >= self.most && !self.clients.contains_key(&client) {
            self.clients.retain(|_, (_, since)| now.saturating_duration_since(*since) < affinity);
            if self.clients.len() >= self.most {
                return;
            }
        }
        self.clients.insert(client, (endpoint, now));
    }
}

impl Turn {
    fn has(&self, endpoint: &Endpoint) -> bool {
        self.endpoints.binary_search(endpoint).is_ok()
    }

    fn take(&mut self, tried: &[Endpoint]) -> Option<Endpoint> {
        let count = self.endpoints.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count);
        let at = in_turn.into_iter().find(|at| !tried.contains(&self.endpoints[*at]))?;
        self.next = (at + 1) % count;
        Some(self.endpoints[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Family, ServiceKey};
    use crate::plan::{PortId, PortName};

    fn endpoint(number: u8) -> Endpoint {
        Endpoint { ip: [10, 0, 0, number].into(), port: 80, local: false }
    }

    fn plan(cluster: &[u8], local: &[u8], affinity: Option<u32>) -> PortPlan {
        let id = PortId { name: PortName::new(&ServiceKey::new("ns", "svc"), ""), family: Family::V4 };
        let endpoints = |numbers: &[u8]| numbers.iter().map(|number| endpoint(*number)).collect();
        PortPlan { cluster: endpoints(cluster), local: endpoints(local), affinity, ..PortPlan::bare(id) }
    }

    fn balancer(plan: &PortPlan) -> Balancer {
        let balancer = Balancer::default();
        balancer.follow(plan, MOST_CLIENTS);
        balancer
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 1));

    fn picks(balancer: &Balancer, count: usize) -> Vec<Endpoint> {
        (0..count).filter_map(|_| balancer.pick(PoolKind::Cluster, CLIENT, &[], Instant::now())).collect()
    }

    #[test]
    fn each_has_its_turn_also_after_a_change() {
        let balancer = balancer(&plan(&[3, 1, 2], &[], None));
        assert_eq!(picks(&balancer, 4), [1, 2, 3, 1].map(endpoint));
        balancer.follow(&plan(&[1, 2], &[], None), MOST_CLIENTS);
        assert_eq!(picks(&balancer, 3), [2, 1, 2].map(endpoint));
        balancer.follow(&plan(&[], &[], None), MOST_CLIENTS);
        assert_eq!(picks(&balancer, 1), []);
    }

    #[test]
    fn those_that_refused_are_passed_over() {
        let balancer = balancer(&plan(&[1, 2, 3], &[], Some(60)));
        let pick = |tried: &[u8]| {
            let tried: Vec<_> = tried.iter().map(|number| endpoint(*number)).collect();
            balancer.pick(PoolKind::Cluster, CLIENT, &tried, Instant::now())
        };
        assert_eq!(pick(&[]), Some(endpoint(1)));
        assert_eq!(pick(&[1]), Some(endpoint(2)), "the client's own has refused");
        assert_eq!(pick(&[]), Some(endpoint(2)), "and is not the client's any more");
        assert_eq!(pick(&[1, 2, 3]), None);
    }

    #[test]
    fn a_client_keeps_its_endpoint_for_as_long_as_it_may() {
        let balancer = balancer(&plan(&[1, 2], &[1], Some(60)));
        let start = Instant::now();
        let pick = |pool, after| balancer.pick(pool, CLIENT, &[], start + Duration::from_secs(after));
        assert_eq!(pick(PoolKind::Cluster, 0), Some(endpoint(1)));
        assert_eq!(pick(PoolKind::Cluster, 59), Some(endpoint(1)));
        assert_eq!(pick(PoolKind::Local, 118), Some(endpoint(1)), "each connection counts, in either set");
        assert_eq!(pick(PoolKind::Cluster, 178), Some(endpoint(2)), "60 seconds later it is anybody's");
        balancer.follow(&plan(&[1], &[1], Some(60)), MOST_CLIENTS);
        assert_eq!(pick(PoolKind::Cluster, 179), Some(endpoint(1)), "its endpoint is gone");
        assert!(balancer.uses(PoolKind::Cluster, &endpoint(1)) && !balancer.uses(PoolKind::Cluster, &endpoint(2)));
    }

    #[test]
    fn no_more_clients_are_remembered_than_may_be() {
        let balancer = Balancer::default();
        balancer.follow(&plan(&[1, 2, 3], &[], Some(60)), 1);
        let start = Instant::now();
        let pick = |client: u8, after| {
            let client = [10, 1, 0, client].into();
            balancer.pick(PoolKind::Cluster, client, &[], start + Duration::from_secs(after))
        };
        assert_eq!([pick(1, 0), pick(2, 0), pick(2, 0)], [1, 2, 3].map(|number| Some(endpoint(number))));
        assert_eq!(pick(1, 1), Some(endpoint(1)));
        assert_eq!([pick(2, 61), pick(2, 61)], [Some(endpoint(1)); 2], "there is room again");
    }
}
