//! What nothing uses any more.

use std::collections::BTreeSet;

use super::chains;
use super::names::{Base, Chain, Map};
use super::state::{State, Tables};
use super::transaction::{Draft, Transaction};
use crate::objects::Family;

/// The elements of a map from which on its picking chains stay for good: the kernel walks over all of them when such a chain
/// is made (`nf_tables_bind_set` in `net/netfilter/nf_tables_api.c`), here for a millisecond.
const STAY: usize = 10_000;

impl State {
    /// The transaction that deletes the chains and maps that nothing uses any more (row J8).
    ///
    /// They stay for a while first: the next Service of the same shape finds them, and a kernel before 6.2 may count
    /// the references that the last transaction dropped until its clean-up has run.
    pub fn collect(&mut self) -> Transaction {
        let mut draft = Draft::default();
        let node = self.node.clone();
        for family in Family::BOTH {
            let tables = self.tables_mut(family);
            let unused = tables.unused_chains(chains::bases_of(family, &node));
            for chain in &unused {
                tables.chains.remove(chain);
            }
            draft.delete_chains(family, &unused);
            let kept: BTreeSet<Map> = tables.chains.keys().flat_map(|chain| chains::affinity_maps_of(*chain)).collect();
            for affinity in tables.affinity.values_mut() {
                affinity.maps.retain(|map| {
                    if !kept.contains(map) {
                        draft.delete_map(family, *map);
                    }
                    kept.contains(map)
                });
            }
            tables.affinity.retain(|_, affinity| !affinity.maps.is_empty());
        }
        draft.finish()
    }
}

impl Tables {
    /// Whether a chain stays where it is unused: it would cost too much to make it again.
    fn stays(&self, chain: Chain) -> bool {
        let Chain::Pick(side, ..) = chain else { return false };
        self.fill.get(side.endpoints()).is_some_and(|fill| fill.used >= STAY)
    }

    /// The chains that no element leads to, directly or through others, that are not among `bases`, and that do not stay.
    pub(super) fn unused_chains(&self, bases: &[Base]) -> Vec<Chain> {
        let mut used: BTreeSet<Chain> = BTreeSet::new();
        let mut open: Vec<Chain> =
            self.chains.iter().filter(|(_, users)| **users > 0).map(|(chain, _)| *chain).collect();
        open.extend(bases.iter().copied().map(Chain::Base));
        for (map, _) in self.fill.iter().filter(|(_, fill)| fill.used > 0) {
            open.extend(chains::bases_for(map).iter().copied().map(Chain::Base));
        }
        while let Some(chain) = open.pop() {
            if used.insert(chain) {
                open.extend(chains::references(chain));
            }
        }
        let goes = |chain: &&Chain| !chain.is_constant() && !used.contains(chain) && !self.stays(**chain);
        self.chains.keys().filter(goes).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProxyConfig;
    use crate::netlink::model::Op;
    use crate::nftables::fill::Fill;
    use crate::plan::PlanChange;
    use crate::source::generate::{self, Options};
    use crate::tracker::Tracker;

    /// The chains that are deleted after one Service of three endpoints lost two of them, of a map with so many elements.
    fn deleted(elements: usize) -> Vec<String> {
        let snapshot = generate::generate(&Options { services: 1, endpoints: 3, ..Options::default() }).unwrap();
        let mut tracker = Tracker::new(ProxyConfig { node_name: "n1".into(), ..ProxyConfig::default() });
        tracker.replace(snapshot);
        let mut state = State::default();
        let change = tracker.take().0;
        state.advance(change.clone());
        let changed = change.changed.into_iter().map(|mut port| {
            port.cluster.truncate(1);
            port
        });
        state.advance(PlanChange { changed: changed.collect(), ..PlanChange::default() });
        let fill = state.tables_mut(Family::V4).fill.get_mut(Map::Endpoints).unwrap();
        *fill = Fill { used: elements, ..*fill };
        let deleted = state.collect().ops.into_iter().filter_map(|op| match op {
            Op::DeleteChain(chain) => Some(chain.name.to_string()),
            _ => None,
        });
        let deleted = deleted.collect();
        assert!(state.collect().is_empty());
        deleted
    }

    #[test]
    fn picking_chains_of_large_maps_stay() {
        assert_eq!(deleted(STAY - 1), ["pick-3", "cluster-3"]);
        assert_eq!(deleted(STAY), ["cluster-3"]);
    }
}
