//! One rule, expression by expression.
//!
//! Where it depends on something unknown whether the rule matches, the rule is gone on with in doubt: if it does not match
//! in the end, or does nothing to the packet, the doubt does not matter. What would do something to it is refused.

use std::cell::OnceCell;
use std::sync::Arc;

use super::describe::describe;
use super::flight::{Flight, Interface, Tracking};
use super::headers::{keeps_its_way, payload};
use super::loads::{Loaded, ct, fib, meta, meta_key};
use super::raw::{Raw, raw};
use super::refusal::{Place, Refusal, RuleNumber, Unknown};
use super::registers::{Key, Registers};
use super::ruleset::{ChainRules, TableRules};
use super::share::Share;
use super::walk::{MOST_WAYS, Walk, place};
use super::way::{Event, Reject, Source, Step};
use crate::netlink::model::{Bytes, Data, Expr, Register, Rule, Verdict};
use crate::netlink::uapi::comparison as cmp;

/// The most addresses of the node that are tried in the place of a sender's.
const MOST_ADDRESSES: usize = 16;

/// A rule that a packet comes to.
pub(super) struct RuleRun<'a> {
    pub walk: &'a Walk<'a>,
    pub table: &'a TableRules,
    pub chain: &'a ChainRules,
    /// Its position in the chain; the first is 1.
    pub position: usize,
    pub rule: &'a Rule,
    /// Made as soon as it is asked for: most rules do not match.
    pub place: OnceCell<Arc<Place>>,
}

/// How a rule ends for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleEnd {
    /// The next rule comes.
    Next,
    Verdict(Verdict),
    Rejected(Reject),
}

/// How an expression ends.
pub(super) enum Flow {
    /// The next expression comes.
    On,
    /// The rule does not match.
    Break,
    End(RuleEnd),
    /// A number from `offset` on is drawn, of so many.
    Draw {
        dreg: Register,
        offset: u32,
        of: u32,
    },
}

/// A packet within a rule.
#[derive(Clone)]
pub(super) struct Progress {
    pub flight: Flight,
    pub registers: Registers,
    /// Why it is not known whether the rule matches.
    pub doubt: Option<Unknown>,
    /// Steps that stay even if the rule does not match in the end, since they did something.
    kept: usize,
}

impl Progress {
    /// The expressions end here, and nothing more comes of what was not done yet.
    fn leave(mut self) -> (Flight, RuleEnd) {
        self.flight.steps.truncate(self.kept);
        (self.flight, RuleEnd::Next)
    }
}

impl RuleRun<'_> {
    fn place(&self) -> &Arc<Place> {
        let number = || RuleNumber { position: self.position, handle: self.rule.handle };
        self.place.get_or_init(|| place(self.table, self.chain, Some(number())))
    }

    /// All that the rule may do to a packet.
    pub fn run(&self, flight: Flight) -> Result<Vec<(Flight, RuleEnd)>, Refusal> {
        if flight.source == Source::Masqueraded
            && let Some(ends) = self.run_alike(&flight)
        {
            return Ok(ends);
        }
        self.run_all(flight)
    }

    fn run_all(&self, flight: Flight) -> Result<Vec<(Flight, RuleEnd)>, Refusal> {
        let kept = flight.steps.len();
        self.run_from(0, Progress { flight, registers: Registers::new(), doubt: None, kept })
    }

    /// What the rule does to a packet whichever of the node's addresses took the place of the sender's; none where that is not
    /// known, or where it is not all the same.
    fn run_alike(&self, flight: &Flight) -> Option<Vec<(Flight, RuleEnd)>> {
        let outgoing = match &flight.outgoing {
            Interface::Named(name) => Some(name.as_str()),
            _ => None,
        };
        let addresses = self.walk.node.masquerades(flight.destination.ip(), outgoing);
        if addresses.len() > MOST_ADDRESSES {
            return None;
        }
        let mut all = None;
        for ip in addresses {
            let mut ends = self.run_all(Flight { chosen: Some(ip), ..flight.clone() }).ok()?;
            ends.iter_mut().for_each(|(flight, _)| flight.chosen = None);
            if *all.get_or_insert_with(|| ends.clone()) != ends {
                return None;
            }
        }
        all
    }

    fn run_from(&self, first: usize, mut progress: Progress) -> Result<Vec<(Flight, RuleEnd)>, Refusal> {
        for (index, expr) in self.rule.exprs.iter().enumerate().skip(first) {
            let flow = match self.expression(index, expr, &mut progress) {
                Err(_) if self.assumed() == Some(false) => return Ok(vec![progress.leave()]),
                flow => flow.map_err(|refusal| refusal.after(&progress.flight.steps))?,
            };
            match flow {
                Flow::On => {}
                Flow::Break => return Ok(vec![progress.leave()]),
                Flow::End(end) => return Ok(vec![(progress.flight, end)]),
                Flow::Draw { dreg, offset, of } => return self.draw(index, &progress, dreg, offset, of),
            }
        }
        Ok(vec![if progress.doubt.is_some() { progress.leave() } else { (progress.flight, RuleEnd::Next) }])
    }

    /// Goes on once for every number. Those that the rule does not match for become one way again.
    fn draw(
        &self,
        index: usize,
        progress: &Progress,
        dreg: Register,
        offset: u32,
        of: u32,
    ) -> Result<Vec<(Flight, RuleEnd)>, Refusal> {
        let too_many = || self.refusal(Unknown::Ways(MOST_WAYS));
        if of as usize > MOST_WAYS {
            return Err(too_many());
        }
        let share = Share::new(1, u128::from(of)).checked_mul(progress.flight.share).ok_or_else(too_many)?;
        let mut ends: Vec<(Flight, RuleEnd)> = Vec::new();
        // where the flights that go on to the next rule stand among them
        let mut going_on: Vec<usize> = Vec::new();
        for number in 0..of {
            let number = offset.wrapping_add(number);
            let mut next = progress.clone();
            next.flight.share = share;
            next.registers.store(dreg, &Key::exactly(&number.to_ne_bytes()), index);
            self.say(&mut next.flight, Event::Drawn { number, of });
            for (flight, end) in self.run_from(index + 1, next)? {
                let same = |there: &&usize| ends[**there].0.is_as(&flight);
                match (&end, going_on.iter().find(same).copied()) {
                    (RuleEnd::Next, Some(there)) => {
                        let sum = ends[there].0.share.checked_add(flight.share).ok_or_else(too_many)?;
                        ends[there].0.share = sum;
                        continue;
                    }
                    (RuleEnd::Next, None) => going_on.push(ends.len()),
                    _ => {}
                }
                ends.push((flight, end));
            }
        }
        Ok(ends)
    }

    fn expression(&self, index: usize, expr: &Expr, progress: &mut Progress) -> Result<Flow, Refusal> {
        let flight = &progress.flight;
        Ok(match *expr {
            Expr::Payload { dreg, base, offset, len } => {
                self.load(index, progress, dreg, payload(&progress.flight, base, offset, len))
            }
            Expr::MetaLoad { dreg, key } => self.load(index, progress, dreg, meta(flight, self.walk.node, key)),
            Expr::Ct { dreg, key, direction } => self.load(index, progress, dreg, ct(flight, key, direction)),
            Expr::Fib { dreg, result, flags } => {
                self.load(index, progress, dreg, fib(flight, self.walk.hook, self.walk.node, result, flags))
            }
            Expr::Cmp { sreg, op, ref data } => self.compare(progress, sreg, op, data),
            Expr::Bitwise { sreg, dreg, len, ref mask, ref xor } => {
                let value = bitwise(&progress.registers.load(sreg, len as usize), mask, xor);
                progress.registers.store(dreg, &value, index);
                Flow::On
            }
            Expr::Byteorder { sreg, dreg, len, size, .. } => {
                self.byteorder(index, progress, sreg, dreg, len as usize, size as usize);
                Flow::On
            }
            Expr::Lookup { sreg, ref set, dreg, invert } => self.lookup(index, progress, sreg, set, dreg, invert)?,
            Expr::Dynset { op, ref set, sreg_key, sreg_data, timeout_ms } => {
                self.dynset(progress, op, set, sreg_key, sreg_data, timeout_ms)?
            }
            Expr::Numgen { dreg, modulus, offset, .. } => Flow::Draw { dreg, offset, of: modulus },
            Expr::Immediate { dreg: 0, data: Data::Verdict(ref verdict) } => self.verdict(progress, verdict)?,
            Expr::Immediate { dreg, data: Data::Value(ref value) } => {
                progress.registers.store(dreg, &Key::exactly(value), index);
                Flow::On
            }
            Expr::MetaSet { sreg, key } => self.meta_set(progress, sreg, key, expr)?,
            Expr::Nat { .. } | Expr::Masq { .. } | Expr::Redir { .. } => self.translate(progress, expr)?,
            Expr::Reject { kind, code } => self.reject(progress, kind, code)?,
            Expr::Counter { .. } => Flow::On,
            Expr::Raw { ref name, ref data } => self.raw(progress, name, data, expr)?,
            Expr::Immediate { .. } => return Err(self.refusal(Unknown::Expression(describe(expr)))),
        })
    }

    fn load(&self, index: usize, progress: &mut Progress, dreg: Register, loaded: Loaded) -> Flow {
        match loaded {
            Loaded::Value(value) => progress.registers.store(dreg, &value, index),
            Loaded::Breaks => return Flow::Break,
            Loaded::MayBreak(length) => {
                progress.registers.store(dreg, &Key::unknown(length as usize), index);
                self.doubt(progress, index);
            }
        }
        Flow::On
    }

    /// `memcmp`, as the kernel does it.
    fn compare(&self, progress: &mut Progress, sreg: Register, op: u32, data: &Bytes) -> Flow {
        let value = progress.registers.load(sreg, data.len());
        let holds = match (value.known(), op) {
            (Some(value), cmp::EQ) => Some(value == *data),
            (Some(value), cmp::NEQ) => Some(value != *data),
            (Some(value), cmp::LT) => Some(value < *data),
            (Some(value), cmp::LTE) => Some(value <= *data),
            (Some(value), cmp::GT) => Some(value > *data),
            (Some(value), cmp::GTE) => Some(value >= *data),
            (None, cmp::EQ) if !value.may_be(data) => Some(false),
            (None, cmp::NEQ) if !value.may_be(data) => Some(true),
            _ => None,
        };
        match holds {
            Some(true) => Flow::On,
            Some(false) => Flow::Break,
            None => {
                let culprit = progress.registers.culprit(sreg, data.len());
                self.doubt(progress, culprit);
                Flow::On
            }
        }
    }

    /// Turns units of `size` bytes round, as many as there are whole ones (`nft_byteorder_eval`).
    fn byteorder(
        &self,
        index: usize,
        progress: &mut Progress,
        sreg: Register,
        dreg: Register,
        len: usize,
        size: usize,
    ) {
        let mut value = progress.registers.load(sreg, len);
        if cfg!(target_endian = "little") && size > 1 {
            value.bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            value.known.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        progress.registers.store(dreg, &value, index);
    }

    fn meta_set(&self, progress: &mut Progress, sreg: Register, key: u32, expr: &Expr) -> Result<Flow, Refusal> {
        match key {
            meta_key::MARK => {
                let mark = self.number(progress, sreg)?;
                self.sure(progress)?;
                progress.flight.mark = mark;
                self.act(progress, Event::Mark(mark));
            }
            // where a packet goes depends on it only where rules look at it
            meta_key::PRIORITY => {
                let sure = progress.doubt.is_none();
                progress.flight.priority = progress
                    .registers
                    .load(sreg, 4)
                    .known()
                    .filter(|_| sure)
                    .map(|bytes| u32::from_ne_bytes(bytes[..].try_into().expect("four bytes were asked for")));
            }
            // these say nothing about where a packet goes
            meta_key::NFTRACE | meta_key::SECMARK => {}
            _ => return Err(self.refusal(Unknown::Expression(describe(expr)))),
        }
        Ok(Flow::On)
    }

    fn reject(&self, progress: &mut Progress, kind: u32, code: u8) -> Result<Flow, Refusal> {
        self.sure(progress)?;
        // NFT_REJECT_*, and NFT_REJECT_ICMPX_* as the kernel turns it into a code of either family
        let v4 = progress.flight.family == crate::netlink::model::NfFamily::IPV4;
        let reject = match (kind, code, v4) {
            (0, code, _) => Reject::Unreachable(code),
            (1, ..) => Reject::Reset,
            (_, 0, true) => Reject::Unreachable(0),
            (_, 1, true) => Reject::Unreachable(3),
            (_, 2, true) => Reject::Unreachable(1),
            (_, _, true) => Reject::Unreachable(13),
            (_, 0, false) => Reject::Unreachable(0),
            (_, 1, false) => Reject::Unreachable(4),
            (_, 2, false) => Reject::Unreachable(3),
            (_, _, false) => Reject::Unreachable(1),
        };
        self.act(progress, Event::Rejected(reject));
        Ok(Flow::End(RuleEnd::Rejected(reject)))
    }

    fn raw(&self, progress: &mut Progress, name: &str, data: &[u8], expr: &Expr) -> Result<Flow, Refusal> {
        match raw(name, data) {
            Raw::Harmless => {}
            Raw::Condition { dreg } => {
                if let Some(dreg) = dreg {
                    progress.registers.store(dreg, &Key::unknown(16), 0);
                }
                progress.doubt.get_or_insert_with(|| Unknown::Expression(describe(expr)));
            }
            Raw::Range { sreg, invert, from, to } => {
                let Some(value) = progress.registers.load(sreg, from.len()).known() else {
                    let culprit = progress.registers.culprit(sreg, from.len());
                    self.doubt(progress, culprit);
                    return Ok(Flow::On);
                };
                if (from <= value && value <= to) == invert {
                    return Ok(Flow::Break);
                }
            }
            Raw::Untrack if progress.flight.tracking == Tracking::NotYet => {
                self.sure(progress)?;
                progress.flight.tracking = Tracking::Untracked;
                self.act(progress, Event::Untracked);
            }
            Raw::Untrack => {}
            Raw::ConnectionMark { sreg } if progress.flight.tracking == Tracking::New => {
                let mark = self.number(progress, sreg)?;
                self.sure(progress)?;
                progress.flight.connection_mark = mark;
                self.act(progress, Event::ConnectionMark(mark));
            }
            Raw::ConnectionMark { .. } => {}
            Raw::Write { sreg, base, offset, length } => {
                let value = progress.registers.load(sreg, length as usize);
                if !keeps_its_way(&progress.flight, base, offset, &value) {
                    self.sure(progress)?;
                    return Err(self.refusal(Unknown::Expression(describe(expr))));
                }
            }
            Raw::Unknown => {
                self.sure(progress)?;
                return Err(self.refusal(Unknown::Expression(describe(expr))));
            }
        }
        Ok(Flow::On)
    }

    /// A verdict, of the rule or of an element.
    pub fn verdict(&self, progress: &mut Progress, verdict: &Verdict) -> Result<Flow, Refusal> {
        match verdict {
            Verdict::Continue => return Ok(Flow::On),
            Verdict::Break => return Ok(Flow::Break),
            Verdict::Other(code) => {
                self.sure(progress)?;
                return Err(self.refusal(Unknown::Expression(format!("verdict {code}"))));
            }
            _ => {}
        }
        self.sure(progress)?;
        self.say(&mut progress.flight, Event::Verdict(verdict.clone()));
        Ok(Flow::End(RuleEnd::Verdict(verdict.clone())))
    }

    /// Notes that it is not known whether the rule goes on behind what an expression loaded.
    pub fn doubt(&self, progress: &mut Progress, culprit: usize) {
        progress.doubt.get_or_insert_with(|| Unknown::Expression(describe(&self.rule.exprs[culprit])));
    }

    /// Something is done to the packet here: refuses if it is not known whether the rule gets here.
    pub fn sure(&self, progress: &Progress) -> Result<(), Refusal> {
        match &progress.doubt {
            Some(doubt) if self.assumed() != Some(true) => Err(self.doubtful(doubt.clone())),
            _ => Ok(()),
        }
    }

    /// Whether the rule is taken to match where it is not known.
    fn assumed(&self) -> Option<bool> {
        self.walk.assumptions.of(self.place())
    }

    /// A refusal because it is not known whether the rule matches.
    pub fn doubtful(&self, what: Unknown) -> Refusal {
        Refusal { doubt: self.assumed() != Some(true), ..self.refusal(what) }
    }

    /// The bytes in a register, all of which have to be known.
    pub fn known(&self, progress: &Progress, sreg: Register, length: usize) -> Result<Bytes, Refusal> {
        progress.registers.load(sreg, length).known().ok_or_else(|| {
            let culprit = progress.registers.culprit(sreg, length);
            self.refusal(Unknown::Expression(describe(&self.rule.exprs[culprit])))
        })
    }

    fn number(&self, progress: &Progress, sreg: Register) -> Result<u32, Refusal> {
        let bytes = self.known(progress, sreg, 4)?;
        Ok(u32::from_ne_bytes(bytes[..].try_into().expect("four bytes were asked for")))
    }

    pub fn refusal(&self, what: Unknown) -> Refusal {
        Refusal::at(self.place(), what)
    }

    /// Notes a step.
    pub fn say(&self, flight: &mut Flight, event: Event) {
        flight.steps.push(Step { hook: self.walk.hook, place: self.place().clone(), event });
    }

    /// Notes a step that did something, so that it stays whatever becomes of the rule.
    pub fn act(&self, progress: &mut Progress, event: Event) {
        self.say(&mut progress.flight, event);
        progress.kept = progress.flight.steps.len();
    }
}

fn bitwise(value: &Key, mask: &Bytes, xor: &Bytes) -> Key {
    let zip = |at: usize| (value.bytes[at] & mask[at]) ^ xor[at];
    let length = value.bytes.len().min(mask.len()).min(xor.len());
    Key {
        bytes: (0..length).map(zip).collect(),
        // what is masked away is known
        known: (0..length).map(|at| value.known[at] | !mask[at]).collect(),
    }
}
