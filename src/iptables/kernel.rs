//! The programs that load rules and print them.

use super::ruleset::Ruleset;
use super::saved::Saved;
use crate::nftables::program::SyncError;
use crate::objects::Family;
use crate::tool;

/// The tables that we have rules in, in the order of a [`Ruleset`].
const TABLES: [&str; 2] = ["nat", "filter"];

/// Prints what there is of ours in a family: the tables nat and filter.
///
/// # Errors
/// The program is missing, or the kernel has no such tables.
pub fn save(family: Family) -> Result<[Saved; 2], SyncError> {
    let read = |table| tool::needed(&program(family, "save"), &["-t", table], "").map(|text| Saved::read(&text));
    let [nat, filter] = TABLES.map(read);
    Ok([nat.map_err(SyncError::Refused)?, filter.map_err(SyncError::Refused)?])
}

/// Loads a text beside what there is. Somebody else who loads rules is waited for.
///
/// # Errors
/// As before; with the rule that was refused.
pub fn restore(family: Family, text: &str) -> Result<(), SyncError> {
    tool::needed(&program(family, "restore"), &["-w", "5", "--noflush"], text).map_err(SyncError::Refused)?;
    Ok(())
}

/// Loads a ruleset in the place of whatever there is of ours, next to what others have; how many bytes that took.
///
/// # Errors
/// As before.
pub fn load(family: Family, rules: &Ruleset) -> Result<usize, SyncError> {
    let text = rules.onto(&save(family)?);
    restore(family, &text)?;
    Ok(text.len())
}

/// Whether as many rules are there as were loaded.
///
/// # Errors
/// As before.
pub fn holds(family: Family, rules: &Ruleset) -> Result<bool, SyncError> {
    let found: usize = save(family)?.iter().map(|table| table.rules + table.jumps.len()).sum();
    Ok(found == rules.rules())
}

fn program(family: Family, what: &str) -> String {
    match family {
        Family::V4 => format!("iptables-{what}"),
        Family::V6 => format!("ip6tables-{what}"),
    }
}
