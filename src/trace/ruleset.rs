//! All tables of a network namespace, to trace packets through.

use std::collections::BTreeMap;

use super::elements::Elements;
use super::refusal::Place;
use super::way::{Learned, Way};
use crate::netlink::model::{Chain, ChainRef, Name, NfFamily, Op, Rule, Set, SetRef, Table, set_flags, table_flags};
use crate::netlink::{Connection, ReadError};

/// How often reading is started over when somebody changes the rules meanwhile.
const ATTEMPTS: usize = 32;

/// All tables of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    /// In the order in which they were made.
    pub(super) tables: Vec<TableRules>,
    /// How many chains were hooked in so far.
    hooked: u64,
    /// Whether they were read from the kernel, which does not say in which order chains of different tables were
    /// hooked in.
    pub(super) read: bool,
}

/// A table with all that it holds.
#[derive(Clone, Debug)]
pub struct TableRules {
    /// The table itself.
    pub table: Table,
    /// Its chains by name.
    pub chains: BTreeMap<Name, ChainRules>,
    /// Its sets and maps by name.
    pub sets: BTreeMap<Name, SetElements>,
}

/// A chain with its rules.
#[derive(Clone, Debug)]
pub struct ChainRules {
    /// The chain itself.
    pub chain: Chain,
    /// Later ones have higher numbers.
    pub hooked: u64,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// A set or map with its elements.
#[derive(Clone, Debug)]
pub struct SetElements {
    /// Its declaration.
    pub set: Set,
    /// Its elements.
    pub elements: Elements,
}

/// Why the kernel would refuse an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It is about something that is not there.
    #[error("there is no {0}")]
    Missing(String),
    /// An element is there with another value.
    #[error("an element of the set {0} is there with another value")]
    Exists(Name),
}

impl Ruleset {
    /// Reads the kernel's tables, all of one generation.
    ///
    /// # Errors
    /// When the kernel refuses, or when others change its rules faster than they can be read.
    pub fn read(connection: &mut Connection) -> Result<Ruleset, ReadError> {
        for _ in 0..ATTEMPTS {
            let generation = connection.generation()?;
            match Ruleset::attempt(connection) {
                Err(ReadError::NotFound(_)) => {}
                Ok(ruleset) if connection.generation()? != generation => drop(ruleset),
                other => return other,
            }
        }
        Err(ReadError::Unsteady("ruleset".into()))
    }

    fn attempt(connection: &mut Connection) -> Result<Ruleset, ReadError> {
        let mut ruleset = Ruleset { read: true, ..Ruleset::default() };
        for table in connection.tables()? {
            let (family, name) = (table.family, table.name.clone());
            let there = ruleset.add_table(table);
            for set in connection.sets(family, &name)? {
                let elements = connection.elements(&SetRef { family, table: name.clone(), name: set.name.clone() })?;
                there.sets.insert(set.name.clone(), SetElements { set, elements: elements.into_iter().collect() });
            }
            for chain in connection.chains(family, &name)? {
                ruleset.add_chain(chain).expect("its table was just added");
            }
            for rule in connection.rules(family, &name)? {
                let place = ChainRef { family, table: name.clone(), name: rule.chain.clone() };
                // a rule of a chain that came meanwhile: the generation tells, and all is read again
                if let Ok(chain) = ruleset.chain_mut(&place) {
                    chain.rules.push(rule);
                }
            }
        }
        Ok(ruleset)
    }

    /// Does to the tables what a transaction of these operations does to the kernel's.
    ///
    /// # Errors
    /// Where the kernel would refuse the transaction. The tables are of no use then.
    pub fn apply(&mut self, ops: &[Op]) -> Result<(), ApplyError> {
        ops.iter().try_for_each(|op| self.apply_one(op.clone()))
    }

    /// Does to the tables what one operation does to the kernel's.
    ///
    /// # Errors
    /// Where the kernel would refuse it.
    pub fn apply_one(&mut self, op: Op) -> Result<(), ApplyError> {
        match op {
            Op::AddTable(table) => {
                self.add_table(table);
            }
            Op::DeleteTable { family, name } => {
                self.table_mut(family, &name)?;
                self.tables.retain(|table| !table.is(family, &name));
            }
            Op::AddChain(chain) => self.add_chain(chain)?,
            Op::DeleteChain(place) => {
                self.chain_mut(&place)?;
                self.table_mut(place.family, &place.table)?.chains.remove(&place.name);
            }
            Op::AddRule(rule) => {
                let place = ChainRef { family: rule.family, table: rule.table.clone(), name: rule.chain.clone() };
                self.chain_mut(&place)?.rules.push(rule);
            }
            Op::DeleteRule { chain, handle } => {
                let rules = &mut self.chain_mut(&chain)?.rules;
                let missing = || ApplyError::Missing(format!("rule {handle} in the chain {}", chain.name));
                let place = rules.iter().position(|rule| rule.handle == handle).ok_or_else(missing)?;
                rules.remove(place);
            }
            Op::FlushChain(place) => self.chain_mut(&place)?.rules.clear(),
            Op::AddSet(set) => {
                let sets = &mut self.table_mut(set.family, &set.table)?.sets;
                let name = set.name.clone();
                sets.entry(name).or_insert_with(|| SetElements { set, elements: Elements::default() });
            }
            Op::DeleteSet(place) => {
                self.set_mut(&place)?;
                self.table_mut(place.family, &place.table)?.sets.remove(&place.name);
            }
            Op::AddElements { set: place, elements } => {
                let set = self.set_mut(&place)?;
                for element in elements {
                    if set.elements.same_key(&element).is_some_and(|there| there.data != element.data) {
                        return Err(ApplyError::Exists(place.name));
                    }
                    set.elements.insert(element);
                }
            }
            Op::DeleteElements { set: place, elements } => {
                let set = self.set_mut(&place)?;
                for element in &elements {
                    let missing = || ApplyError::Missing(format!("such element in the set {}", place.name));
                    set.elements.remove(element).ok_or_else(missing)?;
                }
            }
            Op::FlushSet(place) => self.set_mut(&place)?.elements = Elements::default(),
        }
        Ok(())
    }

    /// Does to the sets what the rules on a way did, so that the next packet meets it.
    ///
    /// # Errors
    /// When the way is one of another ruleset.
    pub fn learn(&mut self, way: &Way) -> Result<(), ApplyError> {
        for Learned { set, element, forgotten } in &way.learned {
            let elements = &mut self.set_mut(set)?.elements;
            if *forgotten {
                elements.remove(element);
            } else {
                elements.insert(element.clone());
            }
        }
        Ok(())
    }

    /// No tables; those of a listing are added, which does not say in which order chains of different tables were hooked in.
    pub fn of_listing() -> Ruleset {
        Ruleset { read: true, ..Ruleset::default() }
    }

    /// All tables, in the order in which they were made.
    pub fn tables(&self) -> impl Iterator<Item = &TableRules> {
        self.tables.iter()
    }

    /// The declaration of a set or map, if there is one.
    pub fn set(&self, family: NfFamily, table: &str, name: &str) -> Option<&Set> {
        let table = self.tables.iter().find(|there| there.is(family, table))?;
        table.sets.get(name).map(|set| &set.set)
    }

    /// The comment of a rule, if it has one.
    pub fn rule_comment(&self, place: &Place) -> Option<&str> {
        let table = self.tables.iter().find(|table| table.is(place.family, &place.table))?;
        let position = place.rule?.position;
        table.chains.get(&place.chain)?.rules.get(position.checked_sub(1)?)?.comment.as_deref()
    }

    fn add_table(&mut self, table: Table) -> &mut TableRules {
        let place = self.tables.iter().position(|there| there.is(table.family, &table.name));
        let place = place.unwrap_or_else(|| {
            self.tables.push(TableRules { table, chains: BTreeMap::new(), sets: BTreeMap::new() });
            self.tables.len() - 1
        });
        &mut self.tables[place]
    }

    fn add_chain(&mut self, chain: Chain) -> Result<(), ApplyError> {
        self.hooked += 1;
        let hooked = self.hooked;
        let chains = &mut self.table_mut(chain.family, &chain.table)?.chains;
        chains.entry(chain.name.clone()).or_insert(ChainRules { chain, hooked, rules: Vec::new() });
        Ok(())
    }

    fn table_mut(&mut self, family: NfFamily, name: &str) -> Result<&mut TableRules, ApplyError> {
        let missing = || ApplyError::Missing(format!("table {} {name}", family.name()));
        self.tables.iter_mut().find(|table| table.is(family, name)).ok_or_else(missing)
    }

    fn chain_mut(&mut self, place: &ChainRef) -> Result<&mut ChainRules, ApplyError> {
        let missing = || ApplyError::Missing(format!("chain {} {} {}", place.family.name(), place.table, place.name));
        self.table_mut(place.family, &place.table)?.chains.get_mut(&place.name).ok_or_else(missing)
    }

    fn set_mut(&mut self, place: &SetRef) -> Result<&mut SetElements, ApplyError> {
        let missing = || ApplyError::Missing(format!("set {} {} {}", place.family.name(), place.table, place.name));
        self.table_mut(place.family, &place.table)?.sets.get_mut(&place.name).ok_or_else(missing)
    }
}

impl TableRules {
    pub(super) fn is(&self, family: NfFamily, name: &str) -> bool {
        self.table.family == family && self.table.name == name
    }

    /// Whether its chains are not hooked in.
    pub fn is_dormant(&self) -> bool {
        self.table.flags & table_flags::DORMANT != 0
    }
}

impl SetElements {
    /// Whether its elements are ranges.
    pub fn is_interval(&self) -> bool {
        self.set.flags & set_flags::INTERVAL != 0
    }

    /// Whether rules cannot add another element. A set without a size that rules add to holds 65,535
    /// (`nft_dynset_init` of `net/netfilter/nft_dynset.c`).
    pub fn is_full(&self) -> bool {
        self.elements.len() >= self.set.size.unwrap_or(u32::from(u16::MAX)) as usize
    }
}
