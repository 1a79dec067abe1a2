//! Rules that look sets and maps up, and rules that put elements into them.

use super::elements::Match;
use super::refusal::{Refusal, Unknown};
use super::registers::Key;
use super::rule::{Flow, Progress, RuleRun};
use super::ruleset::SetElements;
use super::way::{Event, Learned, element_text};
use crate::netlink::model::{Data, Element, Expr, Register, SetRef};

/// `NFT_DYNSET_OP_DELETE`; the others add, and update what is there.
const DELETE: u32 = 2;

impl RuleRun<'_> {
    fn set(&self, name: &str) -> Result<&SetElements, Refusal> {
        self.table.sets.get(name).ok_or_else(|| self.refusal(Unknown::Set(name.into())))
    }

    /// Looks a set up (`nft_lookup_eval`).
    pub fn lookup(
        &self,
        index: usize,
        progress: &mut Progress,
        sreg: Register,
        name: &str,
        dreg: Option<Register>,
        invert: bool,
    ) -> Result<Flow, Refusal> {
        let set = self.set(name)?;
        let key = progress.registers.load(sreg, set.set.key_len as usize);
        let found = self.find(progress, set, &key);
        match found {
            None => {
                self.doubt(progress, progress.registers.culprit(sreg, set.set.key_len as usize));
                match dreg {
                    // which element it would be is not known either
                    Some(0) => {
                        let doubt = progress.doubt.clone().expect("it was just noted");
                        return Err(self.doubtful(doubt));
                    }
                    Some(dreg) => progress.registers.store(dreg, &Key::unknown(set.set.data_len as usize), index),
                    None => {}
                }
                Ok(Flow::On)
            }
            Some(None) if invert => {
                self.say(&mut progress.flight, Event::Missed { set: set.set.name.clone() });
                Ok(Flow::On)
            }
            Some(None) => Ok(Flow::Break),
            Some(Some(_)) if invert => Ok(Flow::Break),
            Some(Some(element)) => self.matched(index, progress, set, element, dreg),
        }
    }

    /// The element for a key, also among those that rules on the way put there. None where it is not known.
    fn find(&self, progress: &Progress, set: &SetElements, key: &Key) -> Option<Option<Element>> {
        let of_set = |learned: &&Learned| learned.is_of(self.rule.family, &self.rule.table, &set.set.name);
        let mut learned = progress.flight.learned.iter().rev().filter(of_set).peekable();
        if learned.peek().is_some() {
            let key = key.known()?;
            if let Some(last) = learned.find(|learned| learned.element.key == key) {
                return Some((!last.forgotten).then(|| last.element.clone()));
            }
        }
        match set.find(key) {
            Match::Element(element) => Some(Some(element.clone())),
            Match::None => Some(None),
            Match::Unsure => None,
        }
    }

    fn matched(
        &self,
        index: usize,
        progress: &mut Progress,
        set: &SetElements,
        element: Element,
        dreg: Option<Register>,
    ) -> Result<Flow, Refusal> {
        let name = &set.set.name;
        if element.unread {
            let what = Unknown::Element { set: name.clone(), element: element_text(&element) };
            progress.doubt.get_or_insert(what);
        }
        if set.set.exprs.iter().any(|expr| !matches!(expr, Expr::Counter { .. })) {
            progress.doubt.get_or_insert_with(|| Unknown::Set(name.clone()));
        }
        let data = element.data.clone();
        self.say(&mut progress.flight, Event::Matched { set: name.clone(), element });
        match (dreg, data) {
            (None, _) => {}
            (Some(0), Data::Verdict(verdict)) => return self.verdict(progress, &verdict),
            (Some(dreg), Data::Value(value)) if dreg != 0 => {
                progress.registers.store(dreg, &Key::exactly(&value), index);
            }
            _ => return Err(self.refusal(Unknown::Set(name.clone()))),
        }
        Ok(Flow::On)
    }

    /// Puts an element into a set or takes one out (`nft_dynset_eval`). One that is there keeps its value, and lives on.
    pub fn dynset(
        &self,
        progress: &mut Progress,
        op: u32,
        name: &str,
        sreg_key: Register,
        sreg_data: Option<Register>,
        timeout_ms: Option<u64>,
    ) -> Result<Flow, Refusal> {
        let set = self.set(name)?;
        let key = self.known(progress, sreg_key, set.set.key_len as usize)?;
        let data = match sreg_data {
            Some(sreg) => Data::Value(self.known(progress, sreg, set.set.data_len as usize)?),
            None => Data::None,
        };
        self.sure(progress)?;
        let there = self.find(progress, set, &Key::exactly(&key)).flatten();
        if there.is_none() && op != DELETE && set.is_full() {
            return Ok(Flow::Break);
        }
        let timeout_ms = timeout_ms.or(set.set.timeout_ms);
        let element = there.unwrap_or(Element { key, data, timeout_ms, ..Element::default() });
        let place = SetRef { family: self.rule.family, table: self.rule.table.clone(), name: name.into() };
        let learned = Learned { set: place, element, forgotten: op == DELETE };
        progress.flight.learned.push(learned.clone());
        self.act(progress, Event::Learned(learned));
        if set.set.exprs.iter().any(|expr| !matches!(expr, Expr::Counter { .. })) {
            progress.doubt.get_or_insert_with(|| Unknown::Set(set.set.name.clone()));
        }
        Ok(Flow::On)
    }
}
