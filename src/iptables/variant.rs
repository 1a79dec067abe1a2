//! The two makes of the programs, and where the kernel says that there is something for either: its own tables, which only
//! `iptables-legacy` reaches, and those in nf_tables.

use std::fs;

use crate::objects::Family;
use crate::tool::output_of;

/// A make of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// For the kernel's own tables.
    Legacy,
    /// For tables in nf_tables.
    Nft,
}

impl Variant {
    /// What lists the tables of a family, and what changes them; nothing where neither is installed.
    ///
    /// # Errors
    /// What a program said that is there and fails.
    pub fn programs(self, family: Family) -> Result<Option<(String, String)>, String> {
        let program = if family == Family::V4 { "iptables" } else { "ip6tables" };
        let named = |make: &str| (format!("{program}{make}-save"), format!("{program}{make}-restore"));
        let (save, restore) = named(if self == Variant::Legacy { "-legacy" } else { "-nft" });
        if output_of(&save, &["--version"], "")?.is_some() {
            return Ok(Some((save, restore)));
        }
        // which of the two it is it says itself, since 1.8; before that there was no other than legacy
        let (save, restore) = named("");
        let version = output_of(&save, &["--version"], "")?;
        let is_meant = |version: &String| version.contains("nf_tables") == (self == Variant::Nft);
        Ok(version.filter(is_meant).map(|_| (save, restore)))
    }
}

/// Whether the kernel has one of these tables of its own in a family. Where it has none, nothing should be run that would make them
/// come about.
pub fn has_legacy_tables(family: Family, wanted: &[&str]) -> bool {
    let path = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    fs::read_to_string(path).unwrap_or_default().lines().any(|table| wanted.contains(&table))
}
