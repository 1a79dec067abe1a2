//! The slots of a pool as they were found: how many are drawn from, what stands in them, and how often that is drawn.
//!
//! How many it is the rules say, and not the slots that are there: what stands behind is drawn by nobody, and where one is
//! empty a packet draws again ([`Chains::pick`](super::chains::Chains)).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{chains, shapes};

/// An endpoint.
type Socket = (IpAddr, u16);

/// How often endpoints are drawn, from 0 to 1.
pub type Shares = BTreeMap<Socket, f64>;

/// Up to so many slots, any number of them may have been lost; of more, no more than half.
const FEW: u32 = 64;

/// The slots of one pool, as each of a Service port's frontends has them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    views: Vec<View>,
}

#[derive(Debug)]
struct View {
    /// How many are drawn from.
    drawn: u32,
    /// How often is drawn before slot 0 is taken.
    draws: u32,
    slots: BTreeMap<u32, Socket>,
}

impl View {
    fn gaps(&self, slots: u32) -> usize {
        slots as usize - self.slots.range(..slots).count()
    }

    fn shares(&self) -> Shares {
        let there = self.slots.range(..self.drawn);
        let empty = 1.0 - there.clone().count() as f64 / f64::from(self.drawn);
        let power = |times: u32| empty.powi(times as i32);
        let each = (0..self.draws).map(power).sum::<f64>() / f64::from(self.drawn);
        let mut shares = Shares::new();
        for (slot, endpoint) in there {
            *shares.entry(*endpoint).or_default() += each + if *slot == 0 { power(self.draws) } else { 0.0 };
        }
        shares
    }
}

impl Slots {
    /// Whether nothing was found so far.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// What a frontend finds that draws one of so many slots.
    pub fn of_frontend(&mut self, drawn: u32, slots: BTreeMap<u32, Socket>) {
        self.views.push(View { drawn, draws: chains::draws(drawn), slots });
    }

    /// What clients without an endpoint find, where a Service port has session affinity: one draw, and then slot 0.
    pub fn of_affinity(&mut self, drawn: u32, slots: BTreeMap<u32, Socket>) {
        self.views.push(View { drawn, draws: 1, slots });
    }

    /// What most frontends draw from.
    fn drawn(&self) -> u32 {
        let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
        self.views.iter().for_each(|view| *votes.entry(view.drawn).or_default() += 1);
        votes.into_iter().max_by_key(|(drawn, votes)| (*votes, *drawn)).map_or(0, |(drawn, _)| drawn)
    }

    /// The endpoints by slot, and how often each is drawn where that does not follow from their number. What one frontend has
    /// lost another may still have. A slot that all have lost is that of the first endpoint as well, for which it counts.
    pub fn endpoints(&self) -> (Vec<Socket>, Option<Shares>) {
        let drawn = self.drawn();
        let (of_most, of_others): (Vec<&View>, Vec<&View>) = self.views.iter().partition(|view| view.drawn == drawn);
        let mut slots: BTreeMap<u32, Socket> = BTreeMap::new();
        for view in of_most.iter().chain(&of_others) {
            for (slot, endpoint) in view.slots.range(..drawn) {
                slots.entry(*slot).or_insert(*endpoint);
            }
        }
        let count = needed(drawn, &slots);
        let worst = of_most.iter().rev().max_by_key(|view| view.gaps(count));
        let shares = worst.filter(|view| view.gaps(count) > 0).map(|view| view.shares());
        let Some(first) = slots.values().next() else { return (Vec::new(), None) };
        let endpoints = if count > FEW && count as usize > 2 * slots.len() {
            slots.values().copied().collect()
        } else {
            (0..count).map(|slot| *slots.get(&slot).unwrap_or(first)).collect()
        };
        (endpoints, shares)
    }
}

/// How many slots have to have an endpoint where one of so many is drawn. Of many slots, the last ones may be empty.
fn needed(drawn: u32, slots: &BTreeMap<u32, Socket>) -> u32 {
    if shapes::is_exact(drawn) || drawn > chains::LOCAL_SLOTS || shapes::size(drawn) != drawn {
        return drawn;
    }
    let used = slots.last_key_value().map_or(0, |(slot, _)| slot + 1);
    (used..drawn).find(|count| shapes::size(*count) == drawn).unwrap_or(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u32) -> Socket {
        (IpAddr::from([10, 0, (last >> 8) as u8, last as u8]), 80)
    }

    fn view(slots: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Socket> {
        slots.into_iter().map(|slot| (slot, endpoint(slot))).collect()
    }

    fn of(views: impl IntoIterator<Item = (u32, BTreeMap<u32, Socket>)>) -> (Vec<Socket>, Option<Shares>) {
        let mut slots = Slots::default();
        views.into_iter().for_each(|(drawn, there)| slots.of_frontend(drawn, there));
        slots.endpoints()
    }

    #[test]
    fn the_rules_say_how_many_are_drawn_from() {
        let all = |count: u32| (0..count).map(endpoint).collect::<Vec<_>>();
        assert_eq!(of([]), (Vec::new(), None));
        assert_eq!(of([(3, view(0..3))]), (all(3), None));
        assert_eq!(of([(3, view([0, 1, 2, 3, 77]))]), (all(3), None), "strays are drawn by nobody");
        assert_eq!(of([(0, view(0..3))]), (Vec::new(), None));
        assert_eq!(of([(3, view([]))]), (Vec::new(), None));
        assert_eq!(of([(2, view(0..3)), (3, view(0..3)), (3, view(0..3))]), (all(3), None), "most frontends say so");
        // a shape of 68 is that of 65 to 68 endpoints
        assert_eq!(of([(68, view(0..66))]), (all(66), None));
        assert_eq!(of([(68, view(0..64))]).0.len(), 65, "the last one was lost");
        assert_eq!(of([(4_000_000_000, view([0, 7]))]).0, [endpoint(0), endpoint(7)]);
    }

    /// One draw, and where that finds nothing, slot 0.
    #[test]
    fn what_is_lost_is_drawn_as_the_first_one() {
        let (endpoints, shares) = of([(3, view([0, 2]))]);
        assert_eq!(endpoints, [endpoint(0), endpoint(0), endpoint(2)]);
        let shares = shares.unwrap();
        assert!((shares[&endpoint(0)] - 2.0 / 3.0).abs() < 1e-9 && (shares[&endpoint(2)] - 1.0 / 3.0).abs() < 1e-9);
        let shares = of([(3, view([1, 2]))]).1.unwrap();
        assert!((shares.values().sum::<f64>() - 2.0 / 3.0).abs() < 1e-9, "a third of the connections gets nowhere");
        // three draws: an endpoint of 68 slots, 16 of them empty
        let shares = of([(68, view((0..66).filter(|slot| slot % 4 != 3)))]).1.unwrap();
        assert!((shares.values().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(shares[&endpoint(0)] > shares[&endpoint(1)] && shares[&endpoint(1)] > 1.0 / 68.0);
    }

    #[test]
    fn what_one_frontend_lost_another_has() {
        let (endpoints, shares) = of([(3, view(0..3)), (3, view([0, 2]))]);
        assert_eq!(endpoints, (0..3).map(endpoint).collect::<Vec<_>>());
        assert_eq!(shares.unwrap().len(), 2, "of the frontends, the worst one");
    }
}
