//! Leftovers in nf_tables: the tables of kube-proxy's mode nftables, and its chains in the tables of iptables-nft.

use std::io;

use super::Report;
use super::chains::{Jump, Removal, TABLES, removal};
use crate::config::Mode;
use crate::netlink::model::{ChainRef, Data, Expr, Name, NfFamily, Op, Rule, Verdict};
use crate::netlink::{CodecKind, CommitError, Connection, ReadError};
use crate::{nftables, userspace};

/// kube-proxy's own tables.
const OWN: &str = "kube-proxy";
/// How often somebody else may change rules while they are looked at.
const ATTEMPTS: usize = 5;

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Commit(#[from] CommitError),
}

/// Removes them from the tables of both families.
pub fn remove(report: &mut Report) {
    remove_from(report, |table| table == OWN || TABLES.contains(&table));
}

/// The tables, as far as nf_tables has them, that serve Services in another mode than this one, whoever made them.
///
/// # Errors
/// nf_tables cannot be asked.
pub fn of_other_modes(mode: Mode) -> io::Result<Vec<String>> {
    let own = match mode {
        Mode::Nftables => &[nftables::names::TABLE][..],
        Mode::Userspace => &[userspace::table::TABLE],
        Mode::Iptables | Mode::Ipvs => &TABLES,
    };
    let all = |table: &str| {
        [nftables::names::TABLE, userspace::table::TABLE, OWN].contains(&table) || TABLES.contains(&table)
    };
    let (mut connection, tables) = tables(all)?;
    let mut found = Vec::new();
    for (family, table) in tables.into_iter().filter(|(_, table)| !own.contains(&&**table)) {
        let chains = connection.chains(family, &table).map_err(io::Error::other)?;
        if !TABLES.contains(&&*table) || chains.iter().any(|chain| chain.name == "KUBE-SERVICES") {
            found.push(format!("table {} {table}", family.name()));
        }
    }
    Ok(found)
}

/// Removes the tables of the mode nftables.
pub fn remove_own(report: &mut Report) {
    remove_from(report, |table| table == OWN);
}

fn remove_from(report: &mut Report, is_candidate: fn(&str) -> bool) {
    match tables(is_candidate) {
        Ok((mut connection, tables)) => {
            for (family, table) in tables {
                let outcome = from_table(&mut connection, family, &table);
                report.note(outcome.map_err(|trouble| format!("table {} {table}: {trouble}", family.name())));
            }
        }
        Err(error) => report.troubles.push(format!("nf_tables cannot be looked at: {error}")),
    }
}

fn tables(is_candidate: fn(&str) -> bool) -> Result<(Connection, Vec<(NfFamily, Name)>), io::Error> {
    let mut connection = Connection::open(CodecKind::default())?;
    let tables = connection.tables().map_err(io::Error::other)?;
    let is_ip = |family: NfFamily| matches!(family, NfFamily::IPV4 | NfFamily::IPV6);
    let tables = tables.into_iter().filter(|table| is_ip(table.family) && is_candidate(&table.name));
    let tables = tables.map(|table| (table.family, table.name)).collect();
    Ok((connection, tables))
}

/// What was removed from the table. Whoever changes rules meanwhile is waited for: a rule is known by its number only.
fn from_table(connection: &mut Connection, family: NfFamily, table: &Name) -> Result<Option<String>, Trouble> {
    let name = format!("{} {table}", family.name());
    let mut attempts = 0;
    loop {
        let generation = connection.generation()?;
        let (ops, removed) = if table == OWN {
            (vec![Op::DeleteTable { family, name: table.clone() }], format!("table {name}"))
        } else {
            let chains = connection.chains(family, table)?.into_iter().map(|chain| chain.name.into()).collect();
            let jumps = connection.rules(family, table)?.iter().flat_map(jumps).collect();
            let removal = removal(chains, jumps);
            if removal.is_empty() {
                return Ok(None);
            }
            (operations(family, table, &removal), removal.describe(&name))
        };
        match connection.commit_since(&ops, Some(generation)) {
            Ok(_) => return Ok(Some(removed)),
            Err(CommitError::Outdated) if attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Where a rule leads to.
fn jumps(rule: &Rule) -> impl Iterator<Item = Jump<u64>> + '_ {
    rule.exprs.iter().filter_map(|expr| match expr {
        Expr::Immediate { data: Data::Verdict(Verdict::Jump(to) | Verdict::Goto(to)), .. } => {
            Some(Jump { from: rule.chain.to_string(), to: to.to_string(), rule: rule.handle })
        }
        _ => None,
    })
}

/// Chains may lead to each other: all of them are emptied before the first is deleted.
fn operations(family: NfFamily, table: &Name, removal: &Removal<u64>) -> Vec<Op> {
    let place = |chain: &str| ChainRef { family, table: table.clone(), name: chain.into() };
    let cut = removal.jumps.iter().map(|jump| Op::DeleteRule { chain: place(&jump.from), handle: jump.rule });
    let empty = removal.chains.iter().map(|chain| Op::FlushChain(place(chain)));
    let delete = removal.chains.iter().map(|chain| Op::DeleteChain(place(chain)));
    cut.chain(empty).chain(delete).collect()
}
