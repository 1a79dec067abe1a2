//! The first packet of a connection on its way through the tables, as the kernel leads it.
//!
//! Where a number is drawn the way forks. A rule of which it cannot be told whether it matches is noted, and passed by as if it
//! did not.

mod answer;
mod step;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::World;
use super::rule::Rule;
use super::tables::{Chain, Table};
use crate::explain::Client;
use crate::objects::{Family, Protocol};

/// The first packet of a connection.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The protocol.
    pub protocol: Protocol,
    /// Who sends it.
    pub source: IpAddr,
    /// Where to.
    pub destination: SocketAddr,
    /// Where the sender is.
    pub from: Client,
    /// The interface that it comes in through, where it is known.
    pub interface: Option<Box<str>>,
    /// One that it does not come in through: that of pods, for who is none.
    pub other_interface: Option<Box<str>>,
    /// Whether it is an answer instead.
    pub is_answer: bool,
}

/// What is known of the node.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Whether an address is one of its own.
    pub is_local: &'a dyn Fn(IpAddr) -> bool,
    /// The interface that packets to an address leave through, where it is known.
    pub route: &'a dyn Fn(IpAddr) -> Option<Box<str>>,
}

/// A list of clients that was looked up on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup<'a> {
    /// Its name.
    pub list: &'a str,
    /// For how long clients stay in it.
    pub seconds: Option<u32>,
    /// The rule that asks.
    pub place: Place,
}

/// A rule, or the policy of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    table: u32,
    chain: u32,
    /// None for the policy.
    rule: Option<u32>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It went on to where it was to go then.
    Delivered,
    /// It was dropped here.
    Dropped(Place),
    /// It was refused here, or by IPVS for want of a server.
    Rejected(Option<Place>),
    /// Somebody on the node got it.
    Diverted(Place),
}

/// One way that a packet may go.
#[derive(Clone, Debug)]
pub struct Way<'a> {
    /// Its probability.
    pub share: f64,
    /// How it ends.
    pub fate: Fate,
    /// The destination then.
    pub destination: SocketAddr,
    /// The rule that replaced the destination; `Some(None)` for IPVS.
    pub translated: Option<Option<Place>>,
    /// The rule that replaced the source.
    pub masqueraded: Option<Place>,
    /// The mark at the end.
    pub mark: u32,
    /// The list that the client was noted in.
    pub noted: Option<&'a str>,
    /// Whether there was a rule on the way of which it cannot be told whether it matches.
    pub is_doubtful: bool,
    /// Where it came through.
    pub trail: Trail,
}

/// What is remembered of the way.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// Chains that were entered, by number, of the table `nat` before the route was looked up.
    pub to: Vec<u32>,
    /// The same after it.
    pub from: Vec<u32>,
    /// The rule that ended the one and the other without having done it.
    pub ended: [Option<Place>; 2],
    /// The rule that ended tracking.
    pub untracked: Option<Place>,
}

/// Where in the kernel a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Prerouting,
    Input,
    Forward,
    /// Of what the node sends: before IPVS looks at it.
    Output,
    /// After.
    OutputFilter,
    Postrouting,
}

/// A chain that the kernel leads to, of one table.
#[derive(Clone, Copy, Debug)]
struct Base {
    table: u32,
    chain: u32,
    is_nat: bool,
}

/// The tables of one family, ready to be walked through.
pub struct Walker<'a> {
    world: &'a World,
    family: Family,
    tables: Vec<(&'a str, &'a Table, bool)>,
    segments: [Vec<Base>; 6],
    ground: Ground<'a>,
    doubts: RefCell<BTreeSet<Place>>,
    lookups: RefCell<Vec<Lookup<'a>>>,
}

#[derive(Clone)]
struct State<'a> {
    way: Way<'a>,
    segment: Segment,
    base: usize,
    stack: Vec<(u32, u32)>,
    is_tracked: bool,
    is_balanced: bool,
}

enum Next {
    Rule,
    Base,
    End(Fate),
}

impl<'a> Walker<'a> {
    /// For one family.
    pub fn new(world: &'a World, family: Family, ground: Ground<'a>) -> Walker<'a> {
        let mut tables = Vec::new();
        let mut numbers: BTreeMap<(usize, &str), u32> = BTreeMap::new();
        for (layer, of_layer) in world.layers.iter().enumerate() {
            for (_, name, table) in of_layer.all().filter(|(of, ..)| *of == family) {
                numbers.insert((layer, name), tables.len() as u32);
                tables.push((name, table, of_layer.has_lines));
            }
        }
        let segment = |hook: &str, names: &[&str]| {
            let mut bases = Vec::new();
            for name in names {
                for layer in 0..world.layers.len() {
                    let Some(number) = numbers.get(&(layer, *name)) else { continue };
                    let Some(chain) = tables[*number as usize].1.find(hook) else { continue };
                    bases.push(Base { table: *number, chain, is_nat: *name == "nat" });
                }
            }
            bases
        };
        let segments = [
            segment("PREROUTING", &["raw", "mangle", "nat"]),
            segment("INPUT", &["mangle", "filter", "security"]),
            segment("FORWARD", &["mangle", "filter", "security"]),
            segment("OUTPUT", &["raw", "mangle", "nat"]),
            segment("OUTPUT", &["filter", "security"]),
            segment("POSTROUTING", &["mangle", "nat"]),
        ];
        let (doubts, lookups) = Default::default();
        Walker { world, family, tables, segments, ground, doubts, lookups }
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// All ways of a packet.
    pub fn ways(&self, packet: &Packet) -> Vec<Way<'a>> {
        let segment = if packet.from == Client::Node { Segment::Output } else { Segment::Prerouting };
        self.run(packet, self.start(packet, segment))
    }

    /// All ways of a packet that is in a chain of `nat` already, before its destination is replaced.
    pub fn ways_from(&self, packet: &Packet, table: u32, chain: u32) -> Vec<Way<'a>> {
        let mut start = self.start(packet, Segment::Prerouting);
        let bases = &self.segments[Segment::Prerouting as usize];
        let Some(base) = bases.iter().position(|base| base.table == table) else { return Vec::new() };
        start.base = base;
        start.stack = vec![(chain, 0)];
        self.run(packet, start)
    }

    /// All ways of an answer of an endpoint that the node forwards. What is replaced in it needs no rules.
    pub fn answers(&self, packet: &Packet) -> Vec<Way<'a>> {
        let mut start = self.start(packet, Segment::Forward);
        start.way.translated = Some(None);
        self.run(packet, start)
    }

    /// All ways of a packet that has its destination already, from where its source would be replaced.
    pub fn leaving(&self, packet: &Packet) -> Vec<Way<'a>> {
        let mut start = self.start(packet, Segment::Postrouting);
        start.way.translated = Some(None);
        self.run(packet, start)
    }

    /// Whether a chain of the table `filter` lets a marked packet through by itself.
    pub fn accepts(&self, packet: &Packet, table: u32, chain: u32, mark: u32) -> bool {
        let mut start = self.start(packet, Segment::Forward);
        start.way.mark = mark;
        let bases = &self.segments[Segment::Forward as usize];
        let Some(base) = bases.iter().position(|base| base.table == table) else { return true };
        start.base = base;
        // where it comes back to, if it does
        start.stack = vec![(chain, u32::MAX), (chain, 0)];
        let mut forks = Vec::new();
        loop {
            match self.step(packet, &mut start, &mut forks) {
                Next::Rule if start.stack.len() < 2 => return false,
                Next::Rule => {}
                Next::Base => return true,
                Next::End(_) => return false,
            }
        }
    }

    /// The tables of a name, by number.
    pub fn tables(&self, name: &str) -> impl Iterator<Item = (u32, &'a Table)> {
        let is_meant = move |one: &(usize, &(&str, &'a Table, bool))| one.1.0 == name;
        let all: Vec<_> = self.tables.iter().enumerate().filter(is_meant).collect();
        all.into_iter().map(|(at, one)| (at as u32, one.1))
    }

    /// The rules that were reached and of which it cannot be told whether they match.
    pub fn doubts(&self) -> Vec<Place> {
        self.doubts.borrow().iter().copied().collect()
    }

    /// Forgets all of these but some.
    pub fn forget_doubts_but(&self, these: Vec<Place>) {
        *self.doubts.borrow_mut() = these.into_iter().collect();
    }

    /// A chain of the table `nat` that has the Services, by number.
    pub fn nat_chain(&self, chain: u32) -> Option<&'a Chain> {
        let (_, nat) = self.tables("nat").find(|(_, nat)| nat.find("KUBE-SERVICES").is_some())?;
        ((chain as usize) < nat.chains().len()).then(|| nat.chain(chain))
    }

    /// The lists that the last packet was looked up in.
    pub fn lookups(&self) -> Vec<Lookup<'a>> {
        self.lookups.borrow().clone()
    }

    /// The chain of a place.
    pub fn chain(&self, place: Place) -> &'a Chain {
        self.tables[place.table as usize].1.chain(place.chain)
    }

    /// The table of a place.
    pub fn table_name(&self, place: Place) -> &'a str {
        self.tables[place.table as usize].0
    }

    /// The rule of a place, unless it is a policy.
    pub fn rule(&self, place: Place) -> Option<&'a Rule> {
        place.rule.map(|at| &self.chain(place).rules[at as usize])
    }

    /// A place in words: `ip filter INPUT, rule 3 (line 17): DROP`.
    pub fn words(&self, place: Place) -> String {
        let (table, _, has_lines) = self.tables[place.table as usize];
        let family = if self.family == Family::V4 { "ip" } else { "ip6" };
        let chain = &self.chain(place).name;
        let Some(rule) = self.rule(place) else { return format!("{family} {table} {chain}, policy DROP") };
        let number = place.rule.map_or(0, |at| at + 1);
        let line = if has_lines { format!(" (line {})", rule.line) } else { String::new() };
        format!("{family} {table} {chain}, rule {number}{line}: {}", rule.target.as_deref().unwrap_or("nothing"))
    }

    fn start(&self, packet: &Packet, segment: Segment) -> State<'a> {
        let way = Way {
            share: 1.0,
            fate: Fate::Delivered,
            destination: packet.destination,
            translated: None,
            masqueraded: None,
            mark: 0,
            noted: None,
            is_doubtful: false,
            trail: Trail::default(),
        };
        State { way, segment, base: 0, stack: Vec::new(), is_tracked: true, is_balanced: false }
    }

    fn run(&self, packet: &Packet, start: State<'a>) -> Vec<Way<'a>> {
        self.lookups.borrow_mut().clear();
        let (mut ways, mut forks) = (Vec::new(), vec![start]);
        while let Some(mut state) = forks.pop() {
            loop {
                match self.step(packet, &mut state, &mut forks) {
                    Next::Rule => {}
                    Next::Base => {
                        state.stack.clear();
                        state.base += 1;
                    }
                    Next::End(fate) => {
                        state.way.fate = fate;
                        ways.push(state.way);
                        break;
                    }
                }
            }
        }
        ways
    }
}
