//! Why a packet fared otherwise than it should have.

use super::super::findings::Kind;
use super::expected::Mode;
use super::jumps::missing;
use super::walk::{Fate, Place, Walker, Way};
use crate::explain::Client;
use crate::iptables::names;
use crate::plan::{FrontendAddress, Verdict};

/// Of which kind a fault is, and what it is.
pub type Cause = (Kind, String);

/// Names causes.
pub struct Causes<'w, 'a> {
    /// The tables.
    pub walker: &'w Walker<'a>,
    /// Whose.
    pub mode: Mode,
}

impl Causes<'_, '_> {
    /// A rule that ends what it should not, or leads it elsewhere: damage of the proxy's own chains, or a rule of others.
    pub fn by_rule(&self, place: Place, what: &str, is_doubtful: bool) -> Cause {
        let is_own = self.walker.chain(place).name.starts_with("KUBE-");
        let perhaps = if is_doubtful { " (perhaps)" } else { "" };
        let kind = if is_own { Kind::Damaged } else { Kind::Diverted };
        (kind, format!("{}{what}{perhaps}", self.walker.words(place)))
    }

    /// Why a packet that an endpoint should have got was ended, if it was.
    pub fn of_end(&self, way: &Way) -> Option<Cause> {
        match way.fate {
            Fate::Delivered => None,
            Fate::Dropped(place) | Fate::Rejected(Some(place)) | Fate::Diverted(place) => {
                Some(self.by_rule(place, "", way.is_doubtful))
            }
            Fate::Rejected(None) => Some((Kind::Dead, "IPVS has no real server to send to".into())),
        }
    }

    /// Why a packet was not translated.
    pub fn of_no_translation(&self, way: &Way, from: Client, address: FrontendAddress) -> Cause {
        if let Some(place) = way.trail.untracked {
            return self.untracked(place, way);
        }
        let came_through = |name: &str| self.came_through(&way.trail.to, name);
        let hook = if from == Client::Node { "OUTPUT" } else { "PREROUTING" };
        if let Some(place) = way.trail.ended[0] {
            return self.by_rule(place, " ends the way before any endpoint", way.is_doubtful);
        }
        let family = self.walker.family();
        if !came_through(names::SERVICES) {
            return (Kind::Missing, missing(family, ("nat", hook, names::SERVICES)));
        }
        if self.mode == Mode::Ipvs {
            return (Kind::Missing, "there is no virtual server".into());
        }
        if matches!(address, FrontendAddress::NodePort(_)) && !came_through(names::NODE_PORTS) {
            return (Kind::Missing, missing(family, ("nat", names::SERVICES, names::NODE_PORTS)));
        }
        let last = way.trail.to.iter().rev().map(|at| self.name(*at)).find(|name| !name.starts_with("KUBE-MARK"));
        let last = last.unwrap_or(names::SERVICES);
        (Kind::Damaged, format!("nat {last} comes to its end without an endpoint"))
    }

    fn untracked(&self, place: Place, way: &Way) -> Cause {
        self.by_rule(place, ", so that connections are neither new nor translated", way.is_doubtful)
    }

    /// Whether a packet was ended by a rule of the proxy's that is for packets without an endpoint.
    pub fn is_for_want_of_translation(&self, way: &Way) -> bool {
        let (Fate::Dropped(place) | Fate::Rejected(Some(place))) = way.fate else { return false };
        let is_own = self.walker.chain(place).name.starts_with("KUBE-");
        self.mode == Mode::Iptables && way.translated.is_none() && is_own && self.walker.table_name(place) == "filter"
    }

    /// Why a packet's source was not replaced.
    pub fn of_no_masquerade(&self, way: &Way) -> Cause {
        let trail = &way.trail;
        if !self.came_through(&trail.to, names::MARK_MASQUERADE) {
            let own = |name: &&str| !name.starts_with("KUBE-SEP-") && !name.starts_with("KUBE-MARK");
            let last = trail.to.iter().rev().map(|at| self.name(*at));
            let is_external = |name: &&str| name.starts_with("KUBE-EXT-");
            let chain = last.clone().find(is_external).or_else(|| last.clone().find(own)).unwrap_or(names::SERVICES);
            let what = format!("nat {chain} does not have {} mark what has to be masqueraded", names::MARK_MASQUERADE);
            return (Kind::Damaged, what);
        }
        if !self.came_through(&trail.from, names::POSTROUTING) {
            return match trail.ended[1] {
                Some(place) => self.by_rule(place, " ends the way before masquerading", way.is_doubtful),
                None => (Kind::Missing, missing(self.walker.family(), ("nat", "POSTROUTING", names::POSTROUTING))),
            };
        }
        match trail.ended[1] {
            Some(place) => {
                let what = format!(" in spite of {}, whose mark is {:#x}", names::MARK_MASQUERADE, way.mark);
                self.by_rule(place, &what, way.is_doubtful)
            }
            None => (Kind::Damaged, format!("nat {} does not masquerade", names::POSTROUTING)),
        }
    }

    /// Why a source was replaced that should have stayed.
    pub fn of_masquerade(&self, way: &Way, place: Place) -> Cause {
        if self.came_through(&way.trail.to, names::MARK_MASQUERADE) {
            let mut all = way.trail.to.iter().map(|at| self.name(*at));
            let chain = all
                .rfind(|name| !name.starts_with("KUBE-SEP-") && !name.starts_with("KUBE-MARK"))
                .unwrap_or(names::SERVICES);
            (Kind::Damaged, format!("nat {chain} marks for masquerading what keeps its source otherwise"))
        } else {
            self.by_rule(place, " of what is not marked for it", way.is_doubtful)
        }
    }

    /// Why what should have been ended was not.
    pub fn of_no_verdict(&self, way: &Way, verdict: Verdict) -> Cause {
        let wanted = if verdict == Verdict::Drop { "dropped" } else { "refused" };
        if let Some(place) = way.trail.untracked {
            return self.untracked(place, way);
        }
        match (way.fate, way.translated) {
            (Fate::Delivered, Some(Some(place))) => {
                self.by_rule(place, &format!(", of what should be {wanted} for want of an endpoint"), way.is_doubtful)
            }
            (Fate::Delivered, _) => (Kind::Damaged, format!("what finds no endpoint is not {wanted}")),
            (Fate::Dropped(place) | Fate::Rejected(Some(place)) | Fate::Diverted(place), _) => {
                self.by_rule(place, &format!(", of what should be {wanted}"), way.is_doubtful)
            }
            (Fate::Rejected(None), _) => (Kind::Damaged, format!("IPVS refuses what should be {wanted}")),
        }
    }

    /// Whether a chain of the table `nat` is among those of a trail.
    fn came_through(&self, trail: &[u32], name: &str) -> bool {
        trail.iter().any(|at| self.name(*at) == name)
    }

    fn name(&self, chain: u32) -> &str {
        self.walker.nat_chain(chain).map_or("", |chain| &chain.name)
    }
}
