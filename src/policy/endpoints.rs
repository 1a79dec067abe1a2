//! Which endpoints are used (behaviour section C, and rows A5, A6, A9, A10).

use std::net::IpAddr;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::{Context, selection};
use crate::objects::{Conditions, EndpointSlice, Family, FamilyOf, Hints, Protocol, Service, ServicePort, SlicePort};
use crate::plan::Endpoint;

/// The endpoints of a Service port in one family by what they can be used for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// Those that the policy Cluster may use (row C3), sorted by address and port.
    pub cluster: Vec<Endpoint>,
    /// Those that the policy Local may use (row C4), sorted by address and port.
    pub local: Vec<Endpoint>,
    /// Whether there is any endpoint that could serve, wherever it is (row C5).
    pub has_any: bool,
}

/// An endpoint of a Service port with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Address, port, and whether it is on this node.
    pub endpoint: Endpoint,
    /// Its conditions.
    pub conditions: Conditions,
    /// For which zones and nodes it is meant.
    pub hints: Option<&'a Hints>,
}

impl Candidate<'_> {
    fn is_usable_at_the_end(&self) -> bool {
        self.conditions.serving && self.conditions.terminating
    }

    /// Of two endpoints with one address and port, the one of the lower rank is used, in whichever slice and order
    /// they stand (row A9): an address belongs to the Pod that is not terminating, although the slice of an old Pod
    /// may still list it. The rest makes the choice certain.
    fn rank(&self) -> (bool, bool, bool, bool) {
        let Conditions { ready, serving, terminating } = self.conditions;
        (terminating, !ready, !serving, !self.endpoint.local)
    }
}

/// With so many ports, what slices have is looked up in a table.
const MANY_PORTS: usize = 8;

/// The slices of a Service in one family, and which of them lists a port.
#[derive(Debug)]
pub struct Slices<'a> {
    family: Family,
    slices: SmallVec<[&'a EndpointSlice; 4]>,
    /// By name and protocol: the slice and the number of each port.
    table: HashMap<(&'a str, Protocol), Vec<(&'a EndpointSlice, u16)>>,
}

impl<'a> Slices<'a> {
    /// Those of `slices` that are the Service's, and of the family.
    pub fn new(service: &Service, family: Family, slices: &[&'a EndpointSlice]) -> Slices<'a> {
        let own = slices.iter().copied().filter(|slice| selection::belongs(slice, service, family));
        let mut slices = Slices { family, slices: own.collect(), table: HashMap::new() };
        if service.ports.len() > MANY_PORTS {
            for slice in &slices.slices {
                for port in &slice.ports {
                    slices.table.entry((&*port.name, port.protocol)).or_default().push((slice, port.port));
                }
            }
        }
        slices
    }

    /// Where a Service port leads (row A6): slices, and the number that each gives the port of the same name and protocol.
    fn of_port(&self, port: &ServicePort) -> SmallVec<[(&'a EndpointSlice, u16); 4]> {
        if !self.table.is_empty() {
            return self
                .table
                .get(&(&*port.name, port.protocol))
                .map(|found| found.iter().copied().collect())
                .unwrap_or_default();
        }
        let is_same = |p: &&SlicePort| p.name == port.name && p.protocol == port.protocol;
        let in_slice = |slice: &&'a EndpointSlice| {
            let slice = *slice;
            slice.ports.iter().filter(is_same).map(move |p| (slice, p.port))
        };
        self.slices.iter().flat_map(in_slice).collect()
    }
}

/// The endpoints that a Service port can use in one family.
pub fn pools(context: &Context, port: &ServicePort, slices: &Slices<'_>) -> Pools {
    categorise(context, &candidates(context, port, slices))
}

/// The endpoints of a Service port in one family, each address and port once, sorted by them.
///
/// A slice's port belongs to the Service port of the same name and protocol (row A6), and its number is where connections
/// go, which may be another one in each slice (row B6). An endpoint is local if it names this node (row A10).
pub fn candidates<'a>(context: &Context, port: &ServicePort, slices: &Slices<'a>) -> SmallVec<[Candidate<'a>; 4]> {
    let mut candidates = SmallVec::new();
    for (slice, number) in slices.of_port(port) {
        for endpoint in slice.endpoints.iter().filter(|e| e.address.family() == slices.family) {
            let local = endpoint.node.as_deref() == Some(&*context.node_name);
            candidates.push(Candidate {
                endpoint: Endpoint { ip: endpoint.address, port: number, local },
                conditions: endpoint.conditions,
                hints: endpoint.hints.as_deref(),
            });
        }
    }
    let place = |candidate: &Candidate<'_>| -> (IpAddr, u16) { (candidate.endpoint.ip, candidate.endpoint.port) };
    candidates.sort_by_key(|candidate: &Candidate<'_>| (place(candidate), candidate.rank()));
    candidates.dedup_by_key(|candidate| place(candidate));
    candidates
}

/// The endpoints that a flow which reached one of them before may stay with, sorted by address and port (row H4): all
/// that serve, terminating or not, wherever they are and whatever the policies and the hints say.
///
/// The pools of the plan will not do: an endpoint that the topology does not pick any more, or that terminates beside
/// ready ones, still serves the clients that it has. Pods that are published although they are not ready (row C7) are
/// ready but not serving; new connections go to them, so flows may stay with them as well.
pub fn serving(context: &Context, port: &ServicePort, slices: &Slices<'_>) -> Vec<Endpoint> {
    let candidates = candidates(context, port, slices);
    candidates.iter().filter(|c| c.conditions.serving || c.conditions.ready).map(|c| c.endpoint).collect()
}

/// Sorts candidates into the sets that the policies use.
///
/// Cluster: the ready ones that the hints leave; where none is ready, those that still serve while they terminate,
/// whatever their hints (row C3). Local: the same among the local ones, and hints do not count (rows C4, C11). Others
/// that are not ready are never used (row C6).
pub fn categorise(context: &Context, candidates: &[Candidate<'_>]) -> Pools {
    let topology = Topology::of(context, candidates);
    let ready = |c: &Candidate<'_>| c.conditions.ready;
    let here = |c: &Candidate<'_>| c.endpoint.local;
    let select = |wanted: &dyn Fn(&Candidate<'_>) -> bool| -> Vec<Endpoint> {
        let chosen = candidates.iter().filter(|c| wanted(c));
        let mut endpoints = Vec::with_capacity(chosen.clone().count()); // they are kept
        endpoints.extend(chosen.map(|c| c.endpoint));
        endpoints
    };
    let mut cluster = select(&|c| ready(c) && topology.admits(context, c));
    if cluster.is_empty() {
        cluster = select(&|c| c.is_usable_at_the_end());
    }
    let mut local = select(&|c| ready(c) && here(c));
    if local.is_empty() {
        local = select(&|c| c.is_usable_at_the_end() && here(c));
    }
    Pools { has_any: !cluster.is_empty(), cluster, local }
}

/// Which hints decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    /// None: every ready endpoint may be used.
    Anywhere,
    /// Those for nodes (row C9).
    Node,
    /// Those for zones (row C8).
    Zone,
}

impl Topology {
    /// Hints for nodes decide where every ready endpoint has one and one of them is this node; else hints for zones
    /// where the same holds for this node's zone; else none do. Endpoints that are not ready have no say, and neither have
    /// annotations or `trafficDistribution`: those are for whoever writes the hints (row C10).
    fn of(context: &Context, candidates: &[Candidate<'_>]) -> Topology {
        let decides = |kind: Topology| {
            let mut ready = candidates.iter().filter(|c| c.conditions.ready);
            ready.clone().all(|c| kind.is_hinted(c)) && ready.any(|c| kind.admits(context, c))
        };
        [Topology::Node, Topology::Zone].into_iter().find(|kind| decides(*kind)).unwrap_or(Topology::Anywhere)
    }

    fn is_hinted(self, candidate: &Candidate<'_>) -> bool {
        candidate.hints.is_some_and(|hints| match self {
            Topology::Anywhere => true,
            Topology::Node => !hints.nodes.is_empty(),
            Topology::Zone => !hints.zones.is_empty(),
        })
    }

    fn admits(self, context: &Context, candidate: &Candidate<'_>) -> bool {
        let hints = |of: fn(&Hints) -> &Vec<crate::objects::Name>| candidate.hints.map_or(&[][..], |h| of(h));
        match self {
            Topology::Anywhere => true,
            Topology::Node => hints(|h| &h.nodes).contains(&context.node_name),
            Topology::Zone => context.zone.as_ref().is_some_and(|zone| hints(|h| &h.zones).contains(zone)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Name;

    /// Reads endpoints such as `L1r:a@n1`: here or elsewhere (`L`, `R`), a number, the state (`r` ready, `t` terminating
    /// and serving, `d` terminating, `u` not ready, `s` not ready but serving), a hint for a zone, one for a node.
    fn parse(text: &str) -> Vec<(Endpoint, Conditions, Hints)> {
        let hint = |text: &str| if text.is_empty() { vec![] } else { vec![Name::from(text)] };
        let endpoint = |word: &str| {
            let (rest, node) = word.split_once('@').unwrap_or((word, ""));
            let (rest, zone) = rest.split_once(':').unwrap_or((rest, ""));
            let state = rest.as_bytes()[2];
            (
                Endpoint { ip: [10, 180, 0, rest.as_bytes()[1] - b'0'].into(), port: 80, local: rest.starts_with('L') },
                Conditions {
                    ready: state == b'r',
                    serving: b"rts".contains(&state),
                    terminating: b"td".contains(&state),
                },
                Hints { zones: hint(zone), nodes: hint(node) },
            )
        };
        text.split_whitespace().map(endpoint).collect()
    }

    fn numbers(endpoints: &[Endpoint]) -> String {
        let last = |endpoint: &Endpoint| endpoint.ip.to_string().rsplit('.').next().unwrap_or("").to_owned();
        endpoints.iter().map(last).collect::<Vec<_>>().join(" ")
    }

    /// The cases K (and T) of `tests/data/cases`, as sets: the node `n1` in a zone, its endpoints, the cluster's set,
    /// the local one, and whether there is any endpoint.
    #[test]
    fn endpoints_are_sorted_into_the_sets_of_the_policies() {
        for (id, zone, given, cluster, local, has_any) in [
            ("none", "a", "", "", "", false),
            ("K01", "a", "R1r:a R2r:b R3r:c R4r:a", "1 4", "", true),
            ("K02", "a", "R1r:a R2r:b R3r:c R4u:a", "1", "", true),
            ("K03", "a", "R1u:a R2r:b R3r:c R4u:a", "2 3", "", true),
            ("K04", "a", "R1r:a R2r:b R3r R4r:a", "1 2 3 4", "", true),
            ("K04b", "a", "R1r:a R2r:b R3u", "1", "", true),
            ("K05", "", "R1r:a R2r:b", "1 2", "", true),
            ("K06", "b", "R1r:a", "1", "", true),
            ("K08", "a", "L1r:a L2r:b R3r:c R4r:a", "1 4", "1 2", true),
            ("K10", "a", "L1r:a@n1 R2r:b@n2 R3r:c@n3 R4r:a@n4", "1", "1", true),
            ("K11", "a", "R2r:b@n2 R3r:c@n3 R4r:a@n4", "4", "", true),
            ("K12", "a", "L1r:a@n1 R2r", "1 2", "1", true),
            ("K16", "", "L1r R2r", "1 2", "1", true),
            ("K17", "", "L1u R2s", "", "", false),
            ("K18", "", "L1u R2r", "2", "", true),
            ("K19", "", "L1t R2t", "1 2", "1", true),
            ("K22", "", "R1r R2r", "1 2", "", true),
            ("K23", "", "R1t R2t", "1 2", "", true),
            ("K27", "a", "L1t:b R2t:c", "1 2", "1", true),
            ("T01", "", "L1r L2r L3t L4d R5r", "1 2 5", "1 2", true),
            ("T02", "", "L1t L2d R5r", "5", "1", true),
            ("T04", "", "L1d R2d", "", "", false),
        ] {
            let context = Context {
                node_name: "n1".into(),
                zone: Some(Name::from(zone)).filter(|zone| !zone.is_empty()),
                ..Context::default()
            };
            let given = parse(given);
            let candidates: Vec<Candidate<'_>> = given
                .iter()
                .map(|(endpoint, conditions, hints)| Candidate {
                    endpoint: *endpoint,
                    conditions: *conditions,
                    hints: Some(hints),
                })
                .collect();
            let pools = categorise(&context, &candidates);
            let seen = (numbers(&pools.cluster), numbers(&pools.local), pools.has_any);
            assert_eq!(seen, (cluster.to_owned(), local.to_owned(), has_any), "{id}: cluster, local, has any");
        }
    }
}
