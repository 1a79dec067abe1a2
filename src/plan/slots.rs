//! Which endpoint stands in which slot.

use std::collections::HashMap;

use super::Endpoint;

/// Gives the wanted endpoints slots 0..N-1 so that as few as possible of those in `before` move: who stays keeps its
/// slot, new ones take the slots of those that left, and where more left than came, the last ones move into the gaps.
///
/// Duplicates in `wanted` count once.
pub fn assign(before: &[Endpoint], wanted: impl IntoIterator<Item = Endpoint>) -> Vec<Endpoint> {
    let mut fresh: HashMap<(std::net::IpAddr, u16), Endpoint> = HashMap::new();
    let mut order = Vec::new();
    for endpoint in wanted {
        if fresh.insert((endpoint.ip, endpoint.port), endpoint).is_none() {
            order.push((endpoint.ip, endpoint.port));
        }
    }
    let mut slots: Vec<Option<Endpoint>> = before.iter().map(|e| fresh.remove(&(e.ip, e.port))).collect();
    let mut newcomers = order.into_iter().filter_map(|key| fresh.remove(&key));
    for slot in &mut slots {
        if slot.is_none() {
            *slot = newcomers.next();
        }
    }
    slots.extend(newcomers.map(Some));
    let mut gap = 0;
    loop {
        while slots.last().is_some_and(Option::is_none) {
            slots.pop();
        }
        while slots.get(gap).is_some_and(Option::is_some) {
            gap += 1;
        }
        if gap >= slots.len() {
            return slots.into_iter().flatten().collect();
        }
        let last = slots.len() - 1;
        slots.swap(gap, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(last: &[u8]) -> Vec<Endpoint> {
        last.iter().map(|n| Endpoint { ip: [10, 0, 0, *n].into(), port: 80, local: false }).collect()
    }

    #[test]
    fn as_few_endpoints_move_as_can_be() {
        for (before, wanted, slots) in [
            (&[][..], &[3, 1, 2][..], &[3, 1, 2][..]),
            (&[1, 2, 3], &[3, 2, 1], &[1, 2, 3]),
            (&[1, 2, 3], &[1, 3, 9], &[1, 9, 3]),
            (&[1, 2, 3], &[2, 3], &[3, 2]),
            (&[1, 2, 3], &[1, 2], &[1, 2]),
            (&[1, 2, 3, 4, 5], &[2, 4], &[4, 2]),
            (&[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 4]),
            (&[1, 2], &[8, 9, 8], &[8, 9]),
            (&[1, 2], &[], &[]),
        ] {
            assert_eq!(assign(&endpoints(before), endpoints(wanted)), endpoints(slots), "{before:?} -> {wanted:?}");
        }
    }
}
