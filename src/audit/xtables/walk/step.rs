//! One rule after the other, and from one of the kernel's chains to the next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::matches::{Match, Recent};
use super::super::rule::{Action, Rule, UNRESOLVED};
use super::answer::Answer;
use super::{Base, Fate, Next, Packet, Place, Segment, State, Walker};
use crate::explain::Client;
use crate::iptables::names::{POSTROUTING, SERVICES};
use crate::objects::Family;

/// As many chains may lead to one another; the kernel allows no loops.
const DEEPEST: usize = 64;

impl<'a> Walker<'a> {
    /// One rule further.
    pub(super) fn step(&self, packet: &Packet, state: &mut State<'a>, forks: &mut Vec<State<'a>>) -> Next {
        let Some(base) = self.segments[state.segment as usize].get(state.base).copied() else {
            return self.end_of_segment(packet, state, forks);
        };
        let table = self.tables[base.table as usize].1;
        let Some((chain, from)) = state.stack.last().copied() else {
            let is_done = match state.segment {
                Segment::Postrouting => state.way.masqueraded.is_some(),
                _ => state.way.translated.is_some(),
            };
            if base.is_nat && (!state.is_tracked || is_done) {
                return Next::Base;
            }
            state.stack.push((base.chain, 0));
            return Next::Rule;
        };
        let own = table.chain(chain);
        let to = state.way.destination;
        let Some(at) = own.next(from, to.ip(), to.port()) else { return self.back(base, state) };
        if let Some(top) = state.stack.last_mut() {
            top.1 = at + 1;
        }
        let rule = &own.rules[at as usize];
        let place = Place { table: base.table, chain, rule: Some(at) };
        match self.answer(rule, place, packet, state) {
            Answer::No => Next::Rule,
            Answer::Yes => self.act(rule, place, base, state),
            Answer::Unknown => {
                state.way.is_doubtful |= rule.action != Action::None;
                let ends = base.is_nat && self.comes_before_services(base, state);
                if self.can_harm(table, &rule.action, 0) || ends && self.can_end(table, &rule.action, state.stack.len())
                {
                    self.doubts.borrow_mut().insert(place);
                }
                Next::Rule
            }
            Answer::Share(share) => {
                if share < 1.0 {
                    let mut other = state.clone();
                    other.way.share *= 1.0 - share;
                    forks.push(other);
                }
                state.way.share *= share;
                self.act(rule, place, base, state)
            }
        }
    }

    /// Back to the chain that led here, or to the policy of the kernel's own chain.
    fn back(&self, base: Base, state: &mut State<'a>) -> Next {
        state.stack.pop();
        if !state.stack.is_empty() {
            return Next::Rule;
        }
        let own = self.tables[base.table as usize].1.chain(base.chain);
        let policy = Place { table: base.table, chain: base.chain, rule: None };
        if own.drops { Next::End(Fate::Dropped(policy)) } else { Next::Base }
    }

    fn act(&self, rule: &'a Rule, place: Place, base: Base, state: &mut State<'a>) -> Next {
        if let Some((name, Recent::Set)) = rule.recent() {
            state.way.noted = Some(name);
        }
        let way = &mut state.way;
        let after_route = state.segment == Segment::Postrouting;
        match rule.action {
            Action::None | Action::Chain(UNRESOLVED, _) => {}
            Action::Unknown => {
                way.is_doubtful = true;
                self.doubts.borrow_mut().insert(place);
            }
            Action::Chain(to, returns) => {
                if !returns {
                    state.stack.pop();
                }
                if state.stack.len() < DEEPEST {
                    state.stack.push((to, 0));
                }
                if base.is_nat {
                    let trail = &mut way.trail;
                    if after_route { trail.from.push(to) } else { trail.to.push(to) }
                }
            }
            Action::Accept | Action::Return => {
                if base.is_nat && !self.is_asking(place) {
                    way.trail.ended[usize::from(after_route)] = Some(place);
                }
                return if rule.action == Action::Accept { Next::Base } else { self.back(base, state) };
            }
            Action::Drop => return Next::End(Fate::Dropped(place)),
            Action::Reject => return Next::End(Fate::Rejected(Some(place))),
            Action::Divert => return Next::End(Fate::Diverted(place)),
            Action::Mark { value, mask } => way.mark = (way.mark & !mask) ^ value,
            Action::NoTrack => {
                state.is_tracked = false;
                way.trail.untracked = Some(place);
            }
            Action::Destination(..) | Action::Redirect(_) | Action::Source if !base.is_nat => {}
            Action::Destination(ip, port) => {
                let to = way.destination;
                way.destination = SocketAddr::new(ip.unwrap_or(to.ip()), port.unwrap_or(to.port()));
                way.translated = Some(Some(place));
                return Next::Base;
            }
            Action::Redirect(port) => {
                way.destination = SocketAddr::new(self.loopback(), port.unwrap_or(way.destination.port()));
                way.translated = Some(Some(place));
                return Next::Base;
            }
            Action::Source => {
                way.masqueraded = Some(place);
                return Next::Base;
            }
        }
        Next::Rule
    }

    /// Whether a chain only asks where a packet comes from, and goes back without having decided anything.
    fn is_asking(&self, place: Place) -> bool {
        &*self.chain(place).name == crate::iptables::names::MARK_OFF_CLUSTER
    }

    fn loopback(&self) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        }
    }

    /// Whether what a rule leads to may end a connection or lead it elsewhere.
    fn can_harm(&self, table: &super::Table, action: &Action, depth: usize) -> bool {
        match action {
            Action::Chain(UNRESOLVED, _) => false,
            Action::Chain(to, _) => {
                let rules = &table.chain(*to).rules;
                depth < DEEPEST && rules.iter().any(|rule| self.can_harm(table, &rule.action, depth + 1))
            }
            Action::Drop | Action::Reject | Action::Divert | Action::NoTrack | Action::Unknown => true,
            Action::Destination(..) | Action::Redirect(_) => true,
            Action::None | Action::Accept | Action::Return | Action::Mark { .. } | Action::Source => false,
        }
    }

    /// Whether rules of the kernel's own chain that lead to the proxy's are still to come.
    fn comes_before_services(&self, base: Base, state: &State<'a>) -> bool {
        let rules = &self.tables[base.table as usize].1.chain(base.chain).rules;
        let next = state.stack.first().map_or(0, |(_, next)| *next as usize);
        let leads = |rule: &Rule| matches!(rule.target.as_deref(), Some(SERVICES | POSTROUTING));
        rules.iter().skip(next).any(leads)
    }

    /// Whether what a rule leads to may end the way through a table: from a chain that others lead to, only by accepting.
    fn can_end(&self, table: &super::Table, action: &Action, depth: usize) -> bool {
        match action {
            Action::Accept => true,
            Action::Return => depth <= 1,
            Action::Chain(to, returns) if *to != UNRESOLVED && depth < DEEPEST => {
                let inside = if *returns { depth + 1 } else { depth };
                table.chain(*to).rules.iter().any(|rule| self.can_end(table, &rule.action, inside))
            }
            _ => false,
        }
    }

    fn end_of_segment(&self, packet: &Packet, state: &mut State<'a>, forks: &mut Vec<State<'a>>) -> Next {
        let is_local = (self.ground.is_local)(state.way.destination.ip());
        let (balances, next) = match state.segment {
            Segment::Prerouting => (false, if is_local { Segment::Input } else { Segment::Forward }),
            Segment::Forward | Segment::OutputFilter => (false, Segment::Postrouting),
            Segment::Output => (true, Segment::OutputFilter),
            Segment::Input => (true, Segment::Input),
            Segment::Postrouting if packet.from == Client::Node && is_local => (false, Segment::Input),
            Segment::Postrouting => return Next::End(Fate::Delivered),
        };
        if balances && let Some(next) = self.balance(packet, state, forks) {
            return next;
        }
        if state.segment == next {
            return Next::End(Fate::Delivered);
        }
        (state.segment, state.base) = (next, 0);
        Next::Rule
    }

    /// IPVS takes what has a virtual server, and sends it to one of the real ones.
    fn balance(&self, packet: &Packet, state: &mut State<'a>, forks: &mut Vec<State<'a>>) -> Option<Next> {
        if state.is_balanced || !state.is_tracked && state.way.translated.is_some() {
            return None;
        }
        let real = self.world.servers.get(&(packet.protocol, state.way.destination))?;
        let total: u32 = real.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return Some(Next::End(Fate::Rejected(None)));
        }
        (state.segment, state.base, state.is_balanced) = (Segment::OutputFilter, 0, true);
        state.way.translated = Some(None);
        let mut ways = real.iter().filter(|(_, weight)| *weight > 0).map(|(to, weight)| {
            let mut one = state.clone();
            one.way.destination = *to;
            one.way.share *= f64::from(*weight) / f64::from(total);
            one
        });
        let first = ways.next()?;
        forks.extend(ways);
        *state = first;
        Some(Next::Rule)
    }

    /// Notes that a client is looked up in a list, which a new one is not in.
    pub(super) fn look_up(&self, one: &'a Match, place: Place) {
        if let Match::Recent(list, Recent::Check { seconds }, false) = one {
            let lookup = super::Lookup { list, seconds: *seconds, place };
            let mut lookups = self.lookups.borrow_mut();
            if lookups.last() != Some(&lookup) {
                lookups.push(lookup);
            }
        }
    }
}
