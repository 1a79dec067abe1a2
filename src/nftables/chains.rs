//! What each chain says.
//!
//! A chain's rules follow from its name, the family, the node's plan and, for chains of a Service port with session
//! affinity, from that port's protocol and timeout and the number of its endpoints; never from the endpoints. `rulesets/` holds them as people read
//! them, `docs/ruleset.md` explains them.

use super::names::{AffinityId, Base, Chain, Map, Side, Stickiness};
use super::rule::{Rule, RuleBuilder, Slots};
use super::shapes;
use crate::netlink::model::Hook;
use crate::objects::{Family, Protocol};
use crate::plan::{Detector, InterfaceMatch, NodePlan, PoolKind};

/// The first slot of a Service port's local endpoints; those of the whole cluster begin at 0. Both stand in the same
/// map, and a million endpoints fit between.
pub const LOCAL_SLOTS: u32 = 1_000_000;

/// The first slot of a pool.
pub fn first_slot(pool: PoolKind) -> u32 {
    match pool {
        PoolKind::Cluster => 0,
        PoolKind::Local => LOCAL_SLOTS,
    }
}

/// Draws of a random slot before slot 0 is taken, where a shape has more slots than there are endpoints. At most one
/// slot in sixteen is empty, so that one connection in some 4,000 gets there.
const DRAWS: u32 = 3;

/// How often a picking chain of this size draws a slot before it takes slot 0.
pub fn draws(size: u32) -> u32 {
    if shapes::is_exact(size) { 1 } else { DRAWS }
}

/// What a chain of a Service port with session affinity needs to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AffinityRules {
    /// nft wants the protocol in every rule that sets a port.
    pub protocol: Protocol,
    /// Seconds after which a client is forgotten.
    pub seconds: u32,
    /// How many endpoints the cluster's pool has.
    pub cluster: u32,
    /// How many endpoints this node's pool has.
    pub local: u32,
}

impl AffinityRules {
    fn count(self, pool: PoolKind) -> u32 {
        match pool {
            PoolKind::Cluster => self.cluster,
            PoolKind::Local => self.local,
        }
    }
}

/// Writes the rules of one family's chains.
#[derive(Clone, Copy, Debug)]
pub struct Chains<'a> {
    /// The family.
    pub family: Family,
    /// The node's plan.
    pub node: &'a NodePlan,
}

impl Chains<'_> {
    fn rule(&self) -> RuleBuilder {
        RuleBuilder::new(self.family)
    }

    fn marking(&self) -> RuleBuilder {
        self.rule().mark(self.node.masquerade_mark)
    }

    /// The rules of a chain. `affinity` is what [`Chain::Sticky`] needs.
    ///
    /// # Panics
    /// When it is missing for one of these.
    pub fn rules(&self, chain: Chain, affinity: Option<AffinityRules>) -> Vec<Rule> {
        let needed = || affinity.expect("the rules of an affinity chain follow from its Service port");
        let rules = match chain {
            Chain::Pick(side, pool, n) => self.pick(side, pool, n),
            Chain::Cluster(pool, n) => self.cluster(Chain::Pick(Side::Address, pool, n)),
            Chain::External(side, n) => vec![self.marking().goto(Chain::Pick(side, PoolKind::Cluster, n))],
            Chain::Local(side, n) => self.local(side, n),
            Chain::Sticky(id, stickiness) => self.sticky(id, stickiness, needed()),
            Chain::ShortCircuit(side) => self.short_circuit(side),
            Chain::Refuse => vec![self.rule().reject()],
            Chain::Dispatch => self.dispatch(),
            Chain::Verdicts => self.verdicts(),
            Chain::NodePortVerdicts => self.node_port_verdicts(),
            Chain::Base(base) => self.base(base),
        };
        rules.into_iter().map(RuleBuilder::build).collect()
    }

    /// A packet may read `services` before a commit and `endpoints` after it, and find its slot gone: the last rule
    /// takes slot 0, so that no connection is lost to the race.
    fn pick(&self, side: Side, pool: PoolKind, n: u32) -> Vec<RuleBuilder> {
        let (map, with_address, offset) = (side.endpoints(), side == Side::Address, first_slot(pool));
        let mut counts = vec![n; draws(n) as usize];
        counts.push(1);
        counts.into_iter().map(|count| self.rule().dnat_to_slot(map, with_address, Slots { count, offset })).collect()
    }

    /// Behaviour rows C13 and E6–E8.
    fn local(&self, side: Side, n: u32) -> Vec<RuleBuilder> {
        let mut rules = vec![self.rule().jump(Chain::ShortCircuit(side))];
        if n > 0 {
            rules.push(self.rule().goto(Chain::Pick(side, PoolKind::Local, n)));
        }
        rules
    }

    /// A rule for packets from pods, where they can be told from others.
    fn for_pods(&self) -> Option<RuleBuilder> {
        match self.node.detector(self.family) {
            Detector::None => None,
            Detector::Sources(_) => Some(self.rule().source_in(Map::PodCidrs, false)),
            Detector::Interface(InterfaceMatch::Exact(name)) => Some(self.rule().via_interface(name, false)),
            Detector::Interface(InterfaceMatch::Prefix(name)) => Some(self.rule().via_interface(name, true)),
        }
    }

    fn short_circuit(&self, side: Side) -> Vec<RuleBuilder> {
        let (map, with_address) = match side {
            Side::Address => (Map::ShortCircuit, true),
            Side::NodePort => (Map::NodePortShortCircuit, false),
        };
        let pods = self.for_pods().map(|rule| rule.vmap(map, with_address));
        let node = self.rule().source_local().mark(self.node.masquerade_mark).vmap(map, with_address);
        pods.into_iter().chain([node]).collect()
    }

    /// Goes on to a chain, marked for masquerading unless it comes from a pod. Behaviour rows E2–E4.
    fn cluster(&self, next: Chain) -> Vec<RuleBuilder> {
        let marked = self.marking().goto(next);
        if self.node.masquerade_all {
            return vec![marked];
        }
        match self.for_pods() {
            None => vec![self.rule().goto(next)],
            Some(rule) => vec![rule.goto(next), marked],
        }
    }

    /// Node ports answer on addresses that are local and not loopback (row F4).
    fn dispatch(&self) -> Vec<RuleBuilder> {
        let node_port = || {
            let on_node = self.rule().destination_in(Map::NodePortIps).destination_not_loopback();
            on_node.destination_local()
        };
        let mut rules = vec![self.rule().vmap(Map::Services, true), node_port().vmap(Map::NodePorts, false)];
        if self.node.counters {
            // rules of their own: a set that is still being filled must not keep anyone from an endpoint
            rules.insert(0, self.rule().frontend_in(Map::Connections, true));
            rules.insert(2, node_port().frontend_in(Map::NodePortConnections, false));
        }
        rules
    }

    fn sticky(&self, id: AffinityId, how: Stickiness, affinity: AffinityRules) -> Vec<RuleBuilder> {
        let pool = |pool| Chain::Sticky(id, Stickiness::Pool(pool));
        match how {
            Stickiness::Draw(pool) => match affinity.count(pool) {
                0 => Vec::new(),
                count => vec![self.rule().priority_of_slot(Map::Slots(id, pool), count)],
            },
            Stickiness::Pool(pool) => self.sticky_pick(id, pool, affinity),
            Stickiness::Cluster(of) => self.cluster(pool(of)),
            Stickiness::External => vec![self.marking().goto(pool(PoolKind::Cluster))],
            Stickiness::ShortCircuit => {
                let pods = self.for_pods().map(|rule| rule.goto(pool(PoolKind::Cluster)));
                let node = self.rule().source_local().goto(Chain::Sticky(id, Stickiness::External));
                pods.into_iter().chain([node, self.rule().goto(pool(PoolKind::Local))]).collect()
            }
        }
    }

    /// The endpoint that the client had, if the pool still has it; else a random one, which is noted. Behaviour rows D1,
    /// D3–D5: nat chains see the first packet of a connection only, so that what is noted is refreshed by new connections
    /// and not by each packet.
    ///
    /// A number that is noted is never replaced by another (`nft_dynset_eval`), so one that leads nowhere is deleted
    /// first. Of two first connections of a client at the same moment the second finds what the first one noted: that is
    /// why it is read once more. A full map ends the rule that notes (row D9), and nothing else. As in
    /// [`Chains::pick`], the last rules are for packets that a commit overtakes.
    fn sticky_pick(&self, id: AffinityId, pool: PoolKind, affinity: AffinityRules) -> Vec<RuleBuilder> {
        let (clients, slots, members) = (Map::Affinity(id), Map::Slots(id, pool), Map::Members(id, pool));
        let dnat = || self.rule().l4proto(affinity.protocol).dnat_to_member(members);
        let read = || self.rule().priority_of_client(clients);
        match affinity.count(pool) {
            0 => Vec::new(),
            _ => vec![
                self.rule().without_priority(),
                read(),
                self.rule().has_priority().note_client(clients, affinity.seconds),
                dnat(),
                self.rule().has_priority().forget_client(clients),
                self.rule().jump(Chain::Sticky(id, Stickiness::Draw(pool))),
                self.rule().note_client(clients, affinity.seconds),
                read(),
                dnat(),
                self.rule().priority_of_slot(slots, 1),
                dnat(),
            ],
        }
    }

    fn node_port_verdicts(&self) -> Vec<RuleBuilder> {
        let anywhere = self.node.serves_loopback(self.family);
        let to = if anywhere { self.rule() } else { self.rule().destination_not_loopback() };
        vec![
            to.destination_in(Map::NodePortIps).vmap(Map::NodePortNoEndpoints, false),
            self.rule().goto(Chain::Verdicts),
        ]
    }

    /// The node's own connections to node ports on its loopback addresses, which no other packet may have (row F6): so
    /// the rule stands in the output hook. Their source is the loopback address as well; all ways of a node port mark
    /// what comes from the node itself, and masquerading replaces it.
    fn loopback_node_ports(&self) -> Vec<RuleBuilder> {
        let to = || self.rule().destination_loopback().destination_in(Map::NodePortIps);
        let mut rules = Vec::new();
        if self.node.serves_loopback(self.family) {
            if self.node.counters {
                rules.push(to().frontend_in(Map::NodePortConnections, false));
            }
            rules.push(to().vmap(Map::NodePorts, false));
        }
        rules
    }

    /// Behaviour rows C12–C14, B8, B9, in this order.
    fn verdicts(&self) -> Vec<RuleBuilder> {
        vec![
            self.rule().vmap(Map::NoEndpoints, true),
            self.rule().destination_in(Map::ClusterIps).reject(),
            self.rule().destination_in(Map::ServiceCidrs).drop(),
        ]
    }

    /// Behaviour rows F7–F10.
    fn firewall(&self) -> RuleBuilder {
        let guarded = self.rule().new_connection().frontend_in(Map::Firewalled, true);
        guarded.frontend_and_source_not_in(Map::Allowed).drop()
    }

    /// Behaviour rows G1–G6. Filter chains let go of packets of established connections at once.
    fn base(&self, base: Base) -> Vec<RuleBuilder> {
        match base {
            Base::GuardPrerouting => {
                // route_localnet lets packets from outside in that are sent to loopback addresses. Answers to the node
                // do not have such a destination yet, where this chain stands.
                let loopback = || self.rule().destination_loopback().from_outside().drop();
                let guards = self.node.serves_loopback(self.family).then(loopback);
                guards.into_iter().chain([self.firewall()]).collect()
            }
            Base::GuardOutput => vec![self.firewall()],
            Base::NatPrerouting => vec![self.rule().jump(Chain::Dispatch)],
            Base::NatOutput => {
                let mut rules = self.loopback_node_ports();
                rules.push(self.rule().jump(Chain::Dispatch));
                rules
            }
            Base::FilterForward | Base::FilterOutput => {
                vec![self.rule().new_connection().not_translated().jump(Chain::Verdicts)]
            }
            Base::FilterInput => {
                vec![self.rule().new_connection().not_translated().jump(Chain::NodePortVerdicts)]
            }
            Base::AffinityPostrouting => vec![self.rule().translated().has_number().without_priority()],
            Base::NatPostrouting => vec![
                self.rule().take_mark(self.node.masquerade_mark).masquerade(),
                self.rule().translated().pair_in(Map::Hairpin).masquerade(),
            ],
        }
    }
}

/// The base chains that are there because of the node's plan, not of an element.
pub fn bases_of(family: Family, node: &NodePlan) -> &'static [Base] {
    if node.serves_loopback(family) { &[Base::GuardPrerouting] } else { &[] }
}

/// Whether it is a base chain whose rules lead packets to verdicts.
pub fn leads_to_verdicts(chain: Chain) -> bool {
    match chain {
        Chain::Base(base) => match base {
            Base::NatPrerouting | Base::NatOutput | Base::FilterInput | Base::FilterForward | Base::FilterOutput => {
                true
            }
            Base::GuardPrerouting | Base::GuardOutput | Base::NatPostrouting | Base::AffinityPostrouting => false,
        },
        _ => false,
    }
}

/// Where a base chain is hooked in.
pub fn hook(base: Base) -> Hook {
    let (kind, number, priority) = match base {
        Base::GuardPrerouting => ("filter", 0, -110),
        Base::GuardOutput => ("filter", 3, -110),
        Base::NatPrerouting => ("nat", 0, -100),
        Base::NatOutput => ("nat", 3, -100),
        Base::FilterInput => ("filter", 1, 0),
        Base::FilterForward => ("filter", 2, 0),
        Base::FilterOutput => ("filter", 3, 0),
        Base::NatPostrouting => ("nat", 4, 100),
        Base::AffinityPostrouting => ("nat", 4, 99),
    };
    Hook { kind: kind.into(), number, priority, policy: 1 }
}

/// The line that hooks a base chain in, as nft 1.0.6 lists it.
pub fn hook_text(base: Base) -> &'static str {
    match base {
        Base::GuardPrerouting => "type filter hook prerouting priority dstnat - 10; policy accept;",
        Base::GuardOutput => "type filter hook output priority -110; policy accept;",
        Base::NatPrerouting => "type nat hook prerouting priority dstnat; policy accept;",
        Base::NatOutput => "type nat hook output priority -100; policy accept;",
        Base::FilterInput => "type filter hook input priority filter; policy accept;",
        Base::FilterForward => "type filter hook forward priority filter; policy accept;",
        Base::FilterOutput => "type filter hook output priority filter; policy accept;",
        Base::AffinityPostrouting => "type nat hook postrouting priority srcnat - 1; policy accept;",
        Base::NatPostrouting => "type nat hook postrouting priority srcnat; policy accept;",
    }
}

/// The chains that a chain needs: those that it sends packets to, which have to be there before it, and the one that
/// gives packets back their priority.
pub fn references(chain: Chain) -> Vec<Chain> {
    let sticky = |id, pool| Chain::Sticky(id, Stickiness::Pool(pool));
    match chain {
        Chain::Cluster(pool, n) => vec![Chain::Pick(Side::Address, pool, n)],
        Chain::External(side, n) => vec![Chain::Pick(side, PoolKind::Cluster, n)],
        Chain::Local(side, n) if n > 0 => vec![Chain::Pick(side, PoolKind::Local, n)],
        Chain::Sticky(id, Stickiness::Pool(pool)) => {
            vec![Chain::Base(Base::AffinityPostrouting), Chain::Sticky(id, Stickiness::Draw(pool))]
        }
        Chain::Sticky(id, Stickiness::Cluster(pool)) => vec![sticky(id, pool)],
        Chain::Sticky(id, Stickiness::External) => vec![sticky(id, PoolKind::Cluster)],
        Chain::Sticky(id, Stickiness::ShortCircuit) => {
            vec![Chain::Sticky(id, Stickiness::External), sticky(id, PoolKind::Local), sticky(id, PoolKind::Cluster)]
        }
        _ => Vec::new(),
    }
}

/// The base chains that are there only where a map has elements.
pub fn bases_for(map: Map) -> &'static [Base] {
    match map {
        Map::Firewalled => &Base::GUARDS,
        _ => &[],
    }
}

/// The maps of one Service port that a chain's rules use, which have to be there before it.
pub fn affinity_maps_of(chain: Chain) -> Vec<Map> {
    match chain {
        Chain::Sticky(id, Stickiness::Draw(pool)) => vec![Map::Slots(id, pool)],
        Chain::Sticky(id, Stickiness::Pool(pool)) => {
            vec![Map::Affinity(id), Map::Slots(id, pool), Map::Members(id, pool)]
        }
        _ => Vec::new(),
    }
}
