//! Where a connection's outcome is not what its frontend promises, and which rule has to do with it.

use std::net::SocketAddr;

use super::ports::Drawn;
use super::promise::{From, Promise};
use crate::netlink::model::Verdict;
use crate::nftables::names::Chain;
use crate::trace::{Event, Node, Outcome, Place, Source, Step, Trace, Way};

/// How far a share may be from the promised one: a tenth.
const TOLERANCE: f64 = 1.1;

/// In which way an outcome is not what is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deviation {
    /// No endpoint, but the packet goes on as it is.
    NotTranslated,
    /// No endpoint, but an end.
    Ended,
    /// Other endpoints.
    OtherEndpoints,
    /// The same endpoints at other rates.
    OtherShares,
    /// The client's address stays.
    NotMasqueraded,
    /// That of an endpoint which reaches itself stays: answers will not come back the way they have to.
    HairpinNotMasqueraded,
    /// The client's address is replaced.
    Masqueraded,
    /// Neither refused nor dropped.
    NotEnded,
    /// Dropped instead of refused, or the other way round.
    EndedOtherwise,
    /// Not led to the same endpoint again.
    NotRemembered,
}

impl Deviation {
    /// What becomes of connections, in words.
    pub fn text(self) -> &'static str {
        match self {
            Deviation::NotTranslated => "are led to no endpoint",
            Deviation::Ended => "end before they are led to an endpoint",
            Deviation::OtherEndpoints => "are led to other endpoints than were read",
            Deviation::OtherShares => "are led to endpoints at other rates than were read",
            Deviation::NotMasqueraded => "keep a source address that has to be replaced",
            Deviation::HairpinNotMasqueraded => "of an endpoint to itself keep their source address",
            Deviation::Masqueraded => "lose a source address that has to be kept",
            Deviation::NotEnded => "are neither refused nor dropped",
            Deviation::EndedOtherwise => "are dropped instead of refused, or refused instead of dropped",
            Deviation::NotRemembered => "of the same client are not led to the same endpoint again",
        }
    }
}

/// A deviation, and the rule that it is seen at.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// In which way.
    pub deviation: Deviation,
    /// The last step that had to do with it; none where no rule did anything.
    pub step: Option<&'a Step>,
}

impl Seen<'_> {
    /// The chain that deviations of the same cause have in common. Chains that each Service has of its own are one here.
    pub fn chain(&self) -> String {
        self.step.map(|step| common_chain(&step.place)).unwrap_or_default()
    }
}

fn common_chain(place: &Place) -> String {
    let chain = place.chain.as_str();
    let (family, table) = (place.family.name(), &place.table);
    if chain.contains('/') {
        let kind = chain.split('-').next().unwrap_or(chain);
        return format!("{family} {table} {kind}-*");
    }
    match chain.parse::<Chain>() {
        Ok(Chain::Sticky(..)) => format!("{family} {table} sticky-*"),
        _ => format!("{family} {table} {chain}"),
    }
}

/// Where an outcome is not what is promised, if it is not.
pub fn deviation<'a>(promise: &Promise, trace: &'a Trace, from: &From, node: &Node) -> Option<Seen<'a>> {
    match promise {
        Promise::Endpoints { pool, masquerade } => no_endpoint(trace)
            .or_else(|| other_endpoints(pool, trace))
            .or_else(|| trace.ways.iter().find_map(|way| other_source(*masquerade, way, from, node))),
        Promise::Dropped => trace.ways.iter().find_map(|way| not_ended(way, |outcome| outcome == Outcome::Dropped)),
        Promise::Rejected => {
            trace.ways.iter().find_map(|way| not_ended(way, |outcome| matches!(outcome, Outcome::Rejected(_))))
        }
        Promise::Untouched => trace.ways.iter().find_map(|way| match way.outcome {
            Outcome::Untouched => None,
            Outcome::Delivered { .. } => Some(Seen { deviation: Deviation::OtherEndpoints, step: translation(way) }),
            _ => Some(Seen { deviation: Deviation::Ended, step: way.steps.last() }),
        }),
    }
}

fn no_endpoint(trace: &Trace) -> Option<Seen<'_>> {
    trace.ways.iter().find_map(|way| match way.outcome {
        Outcome::Delivered { .. } => None,
        Outcome::Untouched => Some(Seen { deviation: Deviation::NotTranslated, step: way.steps.last() }),
        Outcome::Dropped | Outcome::Rejected(_) => Some(Seen { deviation: Deviation::Ended, step: way.steps.last() }),
    })
}

fn not_ended(way: &Way, is_meant: impl Fn(Outcome) -> bool) -> Option<Seen<'_>> {
    match way.outcome {
        outcome if is_meant(outcome) => None,
        Outcome::Dropped | Outcome::Rejected(_) => {
            Some(Seen { deviation: Deviation::EndedOtherwise, step: way.steps.last() })
        }
        Outcome::Delivered { .. } => Some(Seen { deviation: Deviation::NotEnded, step: translation(way) }),
        Outcome::Untouched => Some(Seen { deviation: Deviation::NotEnded, step: way.steps.last() }),
    }
}

fn destination(way: &Way) -> Option<SocketAddr> {
    match way.outcome {
        Outcome::Delivered { to, .. } => Some(to),
        _ => None,
    }
}

/// A client that rules remember gets its endpoint alone.
fn is_remembered(trace: &Trace) -> bool {
    let was_known = |way: &Way| {
        let of_clients = |event: &Event| matches!(event, Event::Matched { set, .. } if set.starts_with("affinity-"));
        let first = way
            .steps
            .iter()
            .map(|step| &step.event)
            .find(|event| of_clients(event) || matches!(event, Event::Learned(_)));
        first.is_some_and(of_clients)
    };
    trace.ways.iter().all(was_known)
}

fn other_endpoints<'a>(pool: &[Drawn], trace: &'a Trace) -> Option<Seen<'a>> {
    let seen = |way: &'a Way, deviation| Some(Seen { deviation, step: translation(way) });
    let is_there = |way: &&Way| pool.iter().any(|one| Some(one.socket()) == destination(way));
    if let Some(way) = trace.ways.iter().find(|way| !is_there(way)) {
        return seen(way, Deviation::OtherEndpoints);
    }
    if is_remembered(trace) {
        return None;
    }
    let outcomes = trace.outcomes();
    let share = |one: &Drawn| -> f64 {
        let to_it = outcomes
            .iter()
            .filter(|(outcome, _)| matches!(outcome, Outcome::Delivered { to, .. } if *to == one.socket()));
        to_it.map(|(_, share)| share.as_f64()).sum()
    };
    for one in pool {
        let share = share(one);
        let first = trace.ways.first()?;
        if share == 0.0 {
            return seen(first, Deviation::OtherEndpoints);
        }
        if share > one.share * TOLERANCE || one.share > share * TOLERANCE {
            return seen(first, Deviation::OtherShares);
        }
    }
    None
}

fn other_source<'a>(masquerade: bool, way: &'a Way, from: &From, node: &Node) -> Option<Seen<'a>> {
    let Outcome::Delivered { to, source } = way.outcome else { return None };
    let hairpin = to.ip() == from.ip;
    if hairpin && !from.is_own_endpoint {
        return None; // it only happens to have the address
    }
    let is_replaced = source != Source::Kept;
    // what comes in for the node itself does not come to where sources are replaced
    let stays = node.is_local(to.ip()) && !node.is_local(from.ip);
    if is_replaced == (masquerade || hairpin) || (stays && !is_replaced) {
        return None;
    }
    let marked = || way.steps.iter().rev().find(|step| matches!(step.event, Event::Mark(mark) if mark != 0));
    if is_replaced {
        let replaced = || way.steps.iter().rev().find(|step| matches!(step.event, Event::Source(_)));
        return Some(Seen { deviation: Deviation::Masqueraded, step: marked().or_else(replaced) });
    }
    let deviation = if masquerade { Deviation::NotMasqueraded } else { Deviation::HairpinNotMasqueraded };
    // where the packet is marked, what is wrong is behind all that differs between Services
    let step = if marked().is_some() { way.steps.first() } else { led(way).or_else(|| translation(way)) };
    Some(Seen { deviation, step })
}

/// The rule that changes the destination.
fn translation(way: &Way) -> Option<&Step> {
    way.steps.iter().rev().find(|step| matches!(step.event, Event::Destination(_))).or(way.steps.last())
}

/// The rule that leads to the chain in which the destination is changed.
fn led(way: &Way) -> Option<&Step> {
    let at = way.steps.iter().position(|step| matches!(step.event, Event::Destination(_)))?;
    let leads = |step: &&Step| matches!(step.event, Event::Verdict(Verdict::Goto(_) | Verdict::Jump(_)));
    way.steps[..at].iter().rev().find(leads)
}
