//! A connection's ways through a ruleset, and those of other clients beside them.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::merge::{Merged, merged};
use super::surroundings::{Client, Surroundings};
use crate::objects::{FamilyOf, Protocol};
use crate::trace::{
    Assumption, Event, Origin, Outcome, Packet, Possibility, Refusal, Ruleset, Source, Step, Trace, Way, possibilities,
};
use crate::userspace::table::TABLE;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Who connects.
    pub from: IpAddr,
    /// To where.
    pub to: SocketAddr,
    /// Over what.
    pub protocol: Protocol,
    /// The interface that the packet comes in through, where it is not the one of the route back.
    pub interface: Option<String>,
}

/// All that is said of one connection.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Who connects.
    pub from: IpAddr,
    /// Where that is.
    pub client: Client,
    /// The interface that the packet comes in through; none where the node sends it, or where that is not known.
    pub interface: Option<String>,
    /// To where.
    pub to: SocketAddr,
    /// Over what.
    pub protocol: String,
    /// One, unless it is not known of some rule whether it matches.
    pub possibilities: Vec<Possible>,
    /// What would become of other clients.
    pub others: Vec<Other>,
}

/// What becomes of the connection under some assumptions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Possible {
    /// What is taken for granted of rules that are not understood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// Such rules of which it is no matter whether they match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub either: Vec<String>,
    /// The ways that it may take.
    pub ways: Vec<OneWay>,
    /// The outcomes, however they are reached.
    pub outcomes: Vec<Ending>,
    /// Why there is no more to be said, where a rule does something that is not understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// One way.
#[derive(Clone, Debug, Serialize)]
pub struct OneWay {
    /// How often it is taken, as a fraction.
    pub share: String,
    /// What happens on it.
    pub steps: Vec<Said>,
    /// Where it ends; none where the trace stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// One thing that a rule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Said {
    /// The hook.
    pub hook: String,
    /// The table, such as `ip svcmap`.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The position of the rule in the chain, from 1; none for the chain's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// What it does.
    pub what: String,
    /// The set or map, where an element matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The Service port that the element stands for, by its comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// What becomes of it, and how often.
#[derive(Clone, Debug, Serialize)]
pub struct Ending {
    /// How often, as a fraction.
    pub share: String,
    /// What becomes of it: `delivered`, `dropped`, `rejected` or `untouched`.
    pub verdict: &'static str,
    /// Where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// Whether the node's address replaces the sender's.
    pub masqueraded: bool,
    /// Whether where it goes is no endpoint, but svcmap's process that opens another connection to one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub carried: bool,
    /// The same in words.
    pub text: String,
}

/// Another kind of client.
#[derive(Clone, Debug, Serialize)]
pub struct Other {
    /// Which.
    pub client: Client,
    /// The address that stands for them; none where none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// What would become of them; nothing where that is the same.
    pub outcomes: Vec<String>,
    /// Whether the same becomes of them.
    pub same: bool,
    /// The first rule that does something else, for this client and for the other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// Where the ways of two clients part.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// What happens here.
    pub here: Option<Said>,
    /// What happens to the other client.
    pub there: Option<Said>,
}

/// Follows a connection through a ruleset.
pub fn explain(ruleset: &Ruleset, surroundings: &Surroundings, question: &Question) -> Explanation {
    let Question { from, to, protocol, ref interface } = *question;
    let packet = surroundings.packet(from, to, protocol, interface.as_deref());
    let found = possibilities(ruleset, &surroundings.node, &packet);
    let client = surroundings.client_through(from, question.interface.as_deref());
    let kinds = [Client::Pod, Client::Node, Client::Outside].into_iter().filter(|kind| *kind != client);
    Explanation {
        from,
        client,
        interface: interface_of(&packet),
        to,
        protocol: protocol.to_string(),
        others: kinds.map(|kind| other(ruleset, surroundings, question, &found, kind)).collect(),
        possibilities: merged(&found).iter().map(|merged| Possible::new(ruleset, merged)).collect(),
    }
}

fn interface_of(packet: &Packet) -> Option<String> {
    match &packet.origin {
        Origin::Interface(name) => Some(name.to_string()),
        Origin::Node | Origin::Somewhere => None,
    }
}

impl Possible {
    fn new(ruleset: &Ruleset, merged: &Merged) -> Possible {
        let assumed = merged.assumed.iter().map(|assumption| {
            let matches = if assumption.matches { "matches" } else { "does not match" };
            format!("{} {matches} ({})", assumption.place, assumption.why)
        });
        let either = merged.either.iter().map(|Assumption { place, why, .. }| format!("{place} matches ({why})"));
        let mut possible = Possible { assumed: assumed.collect(), either: either.collect(), ..Possible::default() };
        match &merged.possibility.trace {
            Ok(trace) => {
                possible.ways = trace.ways.iter().map(|way| OneWay::new(ruleset, way)).collect();
                possible.outcomes = endings(trace);
            }
            Err(refusal) => {
                let steps = refusal.steps.iter().map(|step| Said::new(ruleset, step)).collect();
                possible.ways = vec![OneWay { share: "?".into(), steps, outcome: None }];
                possible.stopped = Some(stop(ruleset, refusal));
            }
        }
        possible
    }
}

fn stop(ruleset: &Ruleset, refusal: &Refusal) -> String {
    let comment = refusal.place.as_ref().and_then(|place| ruleset.rule_comment(place));
    let comment = comment.map(|comment| format!(" (its comment: {comment:?})")).unwrap_or_default();
    format!("{refusal}{comment}")
}

fn endings(trace: &Trace) -> Vec<Ending> {
    let ending = |(outcome, share): (Outcome, crate::trace::Share)| {
        let (verdict, endpoint, masqueraded) = match outcome {
            Outcome::Untouched => ("untouched", None, false),
            Outcome::Delivered { to, source } => ("delivered", Some(to), source == Source::Masqueraded),
            Outcome::Dropped => ("dropped", None, false),
            Outcome::Rejected(_) => ("rejected", None, false),
        };
        let carried = endpoint.is_some() && is_carried(trace, &outcome);
        let further = if carried { ", where svcmap run --mode userspace opens another one to an endpoint" } else { "" };
        let text = format!("{outcome}{further}");
        Ending { share: share.to_string(), verdict, endpoint, masqueraded, carried, text }
    };
    trace.outcomes().into_iter().map(ending).collect()
}

/// Whether ways that end so lead to the process of the mode userspace. What it does then is in no rule.
fn is_carried(trace: &Trace, outcome: &Outcome) -> bool {
    let by_its_table = |step: &Step| step.place.table == TABLE && matches!(step.event, Event::Matched { .. });
    trace.ways.iter().any(|way| way.outcome == *outcome && way.steps.iter().any(by_its_table))
}

impl OneWay {
    fn new(ruleset: &Ruleset, way: &Way) -> OneWay {
        OneWay {
            share: way.share.to_string(),
            steps: way.steps.iter().map(|step| Said::new(ruleset, step)).collect(),
            outcome: Some(way.outcome.to_string()),
        }
    }
}

impl Said {
    fn new(ruleset: &Ruleset, step: &Step) -> Said {
        let place = &step.place;
        let (mut set, mut service) = (None, None);
        let what = match &step.event {
            Event::Matched { set: name, element } => {
                set = Some(name.to_string());
                service = element.comment.as_deref().map(str::to_owned);
                format!("{name} {{ {} }}", ruleset.element_text(place, name, element))
            }
            Event::Learned(learned) => {
                let verb = if learned.forgotten { "takes out of" } else { "puts into" };
                let name = &learned.set.name;
                format!("{verb} {name} {{ {} }}", ruleset.element_text(place, name, &learned.element))
            }
            event => event.to_string(),
        };
        Said {
            hook: step.hook.to_string(),
            table: format!("{} {}", place.family.name(), place.table),
            chain: place.chain.to_string(),
            rule: place.rule.map(|rule| rule.position),
            what,
            set,
            service,
        }
    }

    /// The rule, in words.
    pub fn place(&self) -> String {
        match self.rule {
            Some(rule) => format!("{} {} rule {rule}", self.table, self.chain),
            None => format!("{} {} policy", self.table, self.chain),
        }
    }
}

fn other(
    ruleset: &Ruleset,
    surroundings: &Surroundings,
    question: &Question,
    found: &[Possibility],
    client: Client,
) -> Other {
    let mut other = Other { client, from: None, outcomes: Vec::new(), same: false, difference: None };
    let Some(from) = surroundings.example(client, question.to.ip().family()) else { return other };
    other.from = Some(from);
    let packet = surroundings.packet(from, question.to, question.protocol, None);
    let there = possibilities(ruleset, &surroundings.node, &packet);
    let outcomes = |found: &[Possibility]| -> Vec<String> {
        let mut all = Vec::new();
        for said in found.iter().map(|possibility| summary(&possibility.trace)) {
            if !all.contains(&said) {
                all.push(said);
            }
        }
        all
    };
    other.outcomes = outcomes(&there);
    other.same = other.outcomes == outcomes(found);
    if !other.same
        && let ([here, ..], [there, ..]) = (found, there.as_slice())
    {
        other.difference = difference(ruleset, first_way(&here.trace), first_way(&there.trace));
    }
    other
}

/// The outcomes in a few words.
pub fn summary(trace: &Result<Trace, Refusal>) -> String {
    match trace {
        Ok(trace) => trace.summary(),
        Err(refusal) => format!("not known: {refusal}"),
    }
}

fn first_way(trace: &Result<Trace, Refusal>) -> &[Step] {
    match trace {
        Ok(trace) => trace.ways.first().map_or(&[], |way| &way.steps),
        Err(refusal) => &refusal.steps,
    }
}

/// The first step that one of them takes and the other one does not. That the node's own packets come through other
/// hooks is no difference yet.
fn difference(ruleset: &Ruleset, here: &[Step], there: &[Step]) -> Option<Difference> {
    let at = here.iter().zip(there).take_while(|(here, there)| here.event == there.event).count();
    let said = |steps: &[Step]| steps.get(at).map(|step| Said::new(ruleset, step));
    let difference = Difference { here: said(here), there: said(there) };
    (difference.here.is_some() || difference.there.is_some()).then_some(difference)
}
