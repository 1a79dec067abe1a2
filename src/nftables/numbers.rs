//! The numbers of a Service port's endpoints, by which session affinity remembers them.
//!
//! What a client has is a number, not an address: the number of an endpoint that left leads nowhere, so that a whole
//! Service port's clients are forgotten with a single element (behaviour row D4), and one that comes back has another
//! number and none of its old clients. Rules carry a number from one map to the next in the packet's priority, the only
//! field that nothing else looks at before it is written again; [`PREFIX`] says which priorities are ours.

use std::fmt;
use std::net::IpAddr;

use hashbrown::{HashMap, HashSet};

use crate::plan::PortPlan;

/// What numbers of endpoints begin with, as the priority of a packet: `7300:` to `73ff:`.
pub const PREFIX: u32 = 0x7300_0000;
/// The bits of [`PREFIX`].
pub const PREFIX_MASK: u32 = 0xff00_0000;

/// The number of an endpoint within its Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(u32);

impl Number {
    /// The number that a priority says; none if it says something else.
    pub fn from_priority(priority: u32) -> Option<Number> {
        (priority & PREFIX_MASK == PREFIX).then_some(Number(priority))
    }

    /// The priority that says it.
    pub fn priority(self) -> u32 {
        self.0
    }
}

/// As `nft` lists priorities.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// The numbers of one Service port's endpoints, the same in both pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    given: HashMap<(IpAddr, u16), Number>,
    last: u32,
}

impl Numbers {
    /// None yet. New ones come after `last`: clients may remember any of those before, also of endpoints that are gone.
    pub fn after(last: u32) -> Numbers {
        Numbers { last, ..Numbers::default() }
    }

    /// A number as it was found. Of several for one endpoint, the first holds.
    pub fn found(&mut self, ip: IpAddr, port: u16, number: Number) {
        self.given.entry((ip, port)).or_insert(number);
    }

    /// The number of an endpoint.
    pub fn of(&self, ip: IpAddr, port: u16) -> Option<Number> {
        self.given.get(&(ip, port)).copied()
    }

    /// Gives every endpoint of the Service port a number. Those that it does not have any more lose theirs.
    pub fn follow(&mut self, port: &PortPlan) {
        let mut before = std::mem::take(&mut self.given);
        let endpoints = || port.cluster.iter().chain(&port.local).map(|endpoint| (endpoint.ip, endpoint.port));
        self.given = endpoints().filter_map(|place| Some((place, before.remove(&place)?))).collect();
        let mut taken: HashSet<Number> = self.given.values().copied().collect();
        for place in endpoints() {
            let last = &mut self.last;
            self.given.entry(place).or_insert_with(|| next(last, &mut taken));
        }
    }
}

/// The next number that no endpoint has. Numbers begin again behind the last one, which takes 16 million endpoints.
fn next(last: &mut u32, taken: &mut HashSet<Number>) -> Number {
    loop {
        *last = last.wrapping_add(1) & !PREFIX_MASK;
        let number = Number(PREFIX | *last);
        if *last != 0 && taken.insert(number) {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Family, Protocol, ServiceKey};
    use crate::plan::{Endpoint, PortId, PortName};

    fn port(cluster: &[u8], local: &[u8]) -> PortPlan {
        let endpoints = |last: &[u8]| {
            last.iter().map(|n| Endpoint { ip: [10, 0, 0, *n].into(), port: 80, local: false }).collect::<Vec<_>>()
        };
        PortPlan {
            id: PortId { name: PortName::new(&ServiceKey::new("default", "web"), ""), family: Family::V4 },
            protocol: Protocol::Tcp,
            frontends: Vec::new(),
            cluster: endpoints(cluster),
            local: endpoints(local),
            affinity: Some(60),
            counted: false,
        }
    }

    fn numbers(numbers: &Numbers, last: &[u8]) -> Vec<Option<u32>> {
        last.iter().map(|n| numbers.of([10, 0, 0, *n].into(), 80).map(|number| number.0 - PREFIX)).collect()
    }

    #[test]
    fn who_stays_keeps_its_number_and_who_comes_back_does_not() {
        let mut given = Numbers::default();
        given.follow(&port(&[1, 2, 3], &[2, 4]));
        assert_eq!(numbers(&given, &[1, 2, 3, 4]), [Some(1), Some(2), Some(3), Some(4)]);
        given.follow(&port(&[3, 1], &[1]));
        assert_eq!(numbers(&given, &[1, 2, 3, 4]), [Some(1), None, Some(3), None]);
        given.follow(&port(&[2, 3, 1], &[]));
        assert_eq!(numbers(&given, &[1, 2, 3, 4]), [Some(1), Some(5), Some(3), None]);
    }

    #[test]
    fn numbers_begin_again_without_being_given_twice() {
        let mut given = Numbers::after(0x00ff_ffff);
        given.found([10, 0, 0, 1].into(), 80, Number(PREFIX | 1));
        given.follow(&port(&[1, 2], &[]));
        assert_eq!(numbers(&given, &[1, 2]), [Some(1), Some(2)]);
        for number in given.given.values() {
            assert_eq!(Number::from_priority(number.priority()), Some(*number));
        }
        assert_eq!(Number(PREFIX | 0x1_0002).to_string(), "7301:2");
        assert_eq!(Number::from_priority(6), None);
    }
}
