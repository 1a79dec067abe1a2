//! Sets in the kernel, by the program `ipset`: whole, or what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::names::Set;
use super::state::State;
use super::text::{declaration, room};
use crate::nftables::program::SyncError;
use crate::objects::Family;
use crate::tool;

/// What a set is filled under before it takes the place of the one that there is.
const NEXT: &str = "SVCMAP-NEXT";

/// The sets as they were loaded.
#[derive(Debug, Default)]
pub struct Sets {
    /// The entries, and for how many the set was declared.
    loaded: BTreeMap<(Family, Set), (BTreeSet<String>, usize)>,
}

/// What a change takes.
#[derive(Debug, Default)]
pub struct Change {
    /// For `ipset restore`.
    pub text: String,
    /// Entries more.
    pub added: usize,
    /// Entries less.
    pub deleted: usize,
}

impl Sets {
    /// Makes the sets of a family what they should be. Those that are not known yet, or are too small, are made anew.
    ///
    /// # Errors
    /// `ipset` is missing, or the kernel has no sets.
    pub fn bring(&mut self, state: &State) -> Result<Change, SyncError> {
        let (family, mut change) = (state.family, Change::default());
        let known = state.sets.keys().all(|set| self.loaded.contains_key(&(family, *set)));
        let there = if known { BTreeSet::new() } else { names()? };
        for (set, wanted) in &state.sets {
            let name = set.name(family);
            match self.loaded.get(&(family, *set)) {
                Some((before, room)) if wanted.len() <= *room => change.difference(&name, before, wanted),
                before => {
                    let exists = before.is_some() || there.contains(&name);
                    change.whole(*set, family, wanted, exists);
                }
            }
        }
        if change.text.is_empty() {
            return Ok(change);
        }
        let before = std::mem::take(&mut self.loaded);
        run(&["restore", "-exist"], &change.text)?;
        self.loaded = before;
        for (set, wanted) in &state.sets {
            let entry = self.loaded.entry((family, *set)).or_default();
            entry.1 = if wanted.len() <= entry.1 { entry.1 } else { room(wanted.len()) };
            entry.0.clone_from(wanted);
        }
        Ok(change)
    }

    /// Forgets what was loaded: all is made anew next time.
    pub fn forget(&mut self) {
        self.loaded.clear();
    }
}

impl Change {
    fn difference(&mut self, name: &str, before: &BTreeSet<String>, wanted: &BTreeSet<String>) {
        for entry in before.difference(wanted) {
            let _ = writeln!(self.text, "del {name} {entry}");
            self.deleted += 1;
        }
        for entry in wanted.difference(before) {
            let _ = writeln!(self.text, "add {name} {entry}");
            self.added += 1;
        }
    }

    /// A set that rules look up cannot be deleted, only changed for another.
    fn whole(&mut self, set: Set, family: Family, wanted: &BTreeSet<String>, exists: bool) {
        let name = set.name(family);
        let filled = if exists { NEXT } else { &name };
        let _ = writeln!(self.text, "{}", declaration(set, filled, family, room(wanted.len())));
        for entry in wanted {
            let _ = writeln!(self.text, "add {filled} {entry}");
        }
        self.added += wanted.len();
        if exists {
            let _ = writeln!(self.text, "swap {NEXT} {name}\ndestroy {NEXT}");
        }
    }
}

/// The names of all sets that there are.
///
/// # Errors
/// As before.
pub fn names() -> Result<BTreeSet<String>, SyncError> {
    Ok(run(&["list", "-name"], "")?.lines().map(str::to_owned).collect())
}

/// The sets that there are by their names, each with its entries.
///
/// # Errors
/// As before.
pub fn all() -> Result<BTreeMap<String, Vec<String>>, SyncError> {
    let text = run(&["save"], "")?;
    let mut sets = BTreeMap::<String, Vec<String>>::new();
    for line in text.lines() {
        match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["create", name, _] => drop(sets.entry(name.to_owned()).or_default()),
            ["add", name, entry] => sets.entry(name.to_owned()).or_default().push(entry.to_owned()),
            _ => {}
        }
    }
    Ok(sets)
}

fn run(args: &[&str], input: &str) -> Result<String, SyncError> {
    tool::needed("ipset", args, input).map_err(SyncError::Refused)
}
