//! The tables of a text that `iptables-save` or `ip6tables-save` printed.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::super::findings::Kind;
use super::rule::{Action, Rule, UNRESOLVED};
use crate::objects::{Family, FamilyOf};

/// The tables of both families.
#[derive(Debug, Default)]
pub struct Tables {
    tables: BTreeMap<(Family, String), Table>,
    /// Whether lines of the text are known to who reads a message.
    pub has_lines: bool,
}

/// One table.
#[derive(Debug, Default)]
pub struct Table {
    chains: Vec<Chain>,
    by_name: HashMap<Arc<str>, u32>,
}

/// A chain.
#[derive(Debug)]
pub struct Chain {
    /// Its name.
    pub name: Arc<str>,
    /// Whether the kernel drops what comes to its end: the policy of one of the kernel's own chains.
    pub drops: bool,
    /// Its rules.
    pub rules: Vec<Rule>,
    index: Option<Index>,
}

/// The rules of a long chain, by what they ask for.
#[derive(Debug, Default)]
struct Index {
    addresses: Vec<(IpAddr, u32)>,
    ports: Vec<(u16, u32)>,
    others: Vec<u32>,
}

/// The kernel's own chains.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// As long as that, a chain is looked through rule by rule.
const SHORT: usize = 12;

/// Something about the text that cannot be right: its line, of which kind, and what.
pub type Note = (usize, Kind, String);

impl Tables {
    /// Reads all tables that a text has; `is_other` tells lines of other programs that may stand between them.
    pub fn read(text: &str, is_other: impl Fn(&str) -> bool) -> (Tables, Vec<Note>) {
        let mut reader = Reader { tables: Tables { has_lines: true, ..Tables::default() }, ..Reader::default() };
        let mut last = 0;
        for (at, line) in text.lines().enumerate() {
            let line = without_counters(line.trim());
            last = at + 1;
            if let Some(name) = line.strip_prefix('*') {
                // without a heading, the first address of the table tells
                reader.family = reader.family.or_else(|| first_address(text.lines().skip(at)));
                reader.begin(name, at + 1);
            } else if !is_other(line) {
                reader.line(line, at + 1);
            }
        }
        if let Some(table) = reader.current.take() {
            let what = format!("the text ends in the table {table}, before its COMMIT: rules may be missing");
            reader.notes.push((last, Kind::NotUnderstood, what));
        }
        let mut tables = reader.tables;
        for ((_, name), table) in &mut tables.tables {
            table.resolve(name, &mut reader.notes);
        }
        reader.notes.sort();
        (tables, reader.notes)
    }

    /// A table of a family.
    pub fn table(&self, family: Family, name: &str) -> Option<&Table> {
        // a tuple of borrowed parts is no key
        self.tables
            .range((family, name.to_owned())..)
            .next()
            .filter(|(key, _)| key.1 == name && key.0 == family)
            .map(|(_, table)| table)
    }

    /// All tables.
    pub fn all(&self) -> impl Iterator<Item = (Family, &str, &Table)> {
        self.tables.iter().map(|((family, name), table)| (*family, name.as_str(), table))
    }
}

#[derive(Default)]
struct Reader {
    tables: Tables,
    family: Option<Family>,
    current: Option<String>,
    targets: HashMap<Arc<str>, Arc<str>>,
    notes: Vec<Note>,
}

impl Reader {
    fn begin(&mut self, name: &str, line: usize) {
        if let Some(before) = self.current.replace(name.to_owned()) {
            let what = format!("another table begins before the COMMIT of the table {before}: rules may be missing");
            self.notes.push((line, Kind::NotUnderstood, what));
        }
    }

    fn place(&mut self) -> Option<&mut Table> {
        let key = (self.family.unwrap_or(Family::V4), self.current.clone()?);
        Some(self.tables.tables.entry(key).or_default())
    }

    fn line(&mut self, line: &str, at: usize) {
        if let Some(table) = unlisted_table(line) {
            let program = if self.family == Some(Family::V6) { "ip6tables" } else { "iptables" };
            self.notes.push((at, Kind::NotUnderstood, unlisted(program, table)));
        } else if let Some(comment) = line.strip_prefix('#') {
            self.family = told_family(comment).or(self.family);
        } else if line == "COMMIT" {
            self.current = None;
        } else if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split_whitespace();
            let chain = words.next().unwrap_or_default().to_owned();
            let policy = words.next();
            let is_whole = matches!(policy, Some("-" | "ACCEPT" | "DROP"));
            match self.place() {
                Some(table) if is_whole => table.declare(&chain).drops = policy == Some("DROP"),
                _ => self.notes.push(not_understood(at, line)),
            }
        } else if line.starts_with("-A") {
            self.rule(line, at);
        } else if !line.is_empty() && self.current.is_some() {
            self.notes.push(not_understood(at, line));
        }
    }

    fn rule(&mut self, line: &str, at: usize) {
        let parsed = Rule::parse(line, u32::try_from(at).unwrap_or(u32::MAX));
        let Some((chain, mut rule)) = parsed.filter(|_| self.current.is_some()) else {
            return self.notes.push(not_understood(at, line));
        };
        // one text for all rules that lead to a chain
        rule.target = rule.target.map(|target| self.targets.entry(target.clone()).or_insert(target).clone());
        if let Some(table) = self.place() {
            table.declare(&chain).rules.push(rule);
        }
    }
}

/// The table of which a comment of `iptables-save` says that it cannot list it: that ends well all the same.
pub fn unlisted_table(line: &str) -> Option<&str> {
    let (table, rest) = line.trim_start().strip_prefix("# Table `")?.split_once('\'')?;
    rest.contains("is incompatible").then_some(table)
}

/// What is said of such a table.
pub fn unlisted(program: &str, table: &str) -> String {
    format!(
        "{program}-save cannot list the table {table}, which has rules that nft alone can list: what is in it is not in the audit"
    )
}

fn not_understood(at: usize, line: &str) -> Note {
    (at, Kind::NotUnderstood, format!("\"{line}\" is not understood"))
}

impl Table {
    fn declare(&mut self, name: &str) -> &mut Chain {
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None => {
                let (name, at) = (Arc::<str>::from(name), self.chains.len() as u32);
                self.by_name.insert(name.clone(), at);
                self.chains.push(Chain { name, drops: false, rules: Vec::new(), index: None });
                at
            }
        };
        &mut self.chains[at as usize]
    }

    /// Finds the chains that rules lead to, and makes long chains fit for being asked often.
    fn resolve(&mut self, table: &str, notes: &mut Vec<Note>) {
        for chain in &mut self.chains {
            for rule in &mut chain.rules {
                let Action::Chain(to, _) = &mut rule.action else { continue };
                let target = rule.target.as_deref().unwrap_or_default();
                *to = self.by_name.get(target).copied().unwrap_or(UNRESOLVED);
                // kube-proxy's are looked at one by one
                if *to == UNRESOLVED && !target.starts_with("KUBE-") {
                    rule.action = Action::Unknown;
                }
            }
            if chain.rules.len() > SHORT {
                chain.index = Some(Index::of(&chain.rules));
            }
            if chain.name.starts_with("KUBE-") {
                notes.extend(chain.rules.iter().filter(|rule| !rule.is_understood()).map(|rule| {
                    let target = rule.target.as_deref().unwrap_or_default();
                    let (kind, what) = match rule.action {
                        Action::Chain(..) => (Kind::Missing, format!("there is no chain {target}")),
                        _ => (Kind::NotUnderstood, format!("a rule of {table} {} is not understood", chain.name)),
                    };
                    (rule.line as usize, kind, what)
                }));
            }
        }
    }

    /// The chain of a name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The rules of a chain, none where there is no such chain.
    pub fn rules(&self, name: &str) -> &[Rule] {
        self.find(name).map_or(&[], |at| &self.chain(at).rules)
    }

    /// A chain.
    pub fn chain(&self, at: u32) -> &Chain {
        &self.chains[at as usize]
    }

    /// All chains.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }
}

impl Chain {
    /// Whether the kernel itself leads packets here.
    pub fn is_hook(&self) -> bool {
        HOOKS.contains(&&*self.name)
    }

    /// The first rule from `from` on that may match a packet to this address and port.
    pub fn next(&self, from: u32, to: IpAddr, port: u16) -> Option<u32> {
        let Some(index) = &self.index else { return ((from as usize) < self.rules.len()).then_some(from) };
        let address = index.addresses.partition_point(|one| *one < (to, from));
        let address = index.addresses.get(address).filter(|one| one.0 == to).map(|one| one.1);
        let by_port = index.ports.partition_point(|one| *one < (port, from));
        let by_port = index.ports.get(by_port).filter(|one| one.0 == port).map(|one| one.1);
        let other = index.others.get(index.others.partition_point(|one| *one < from)).copied();
        [address, by_port, other].into_iter().flatten().min()
    }
}

impl Index {
    fn of(rules: &[Rule]) -> Index {
        let mut index = Index::default();
        for (at, rule) in rules.iter().enumerate() {
            let at = at as u32;
            match (rule.destination, rule.port) {
                (Some((net, false)), _) if net.prefix_len() == net.max_prefix_len() => {
                    index.addresses.push((net.addr(), at));
                }
                (None, Some(port)) => index.ports.push((port, at)),
                _ => index.others.push(at),
            }
        }
        index.addresses.sort_unstable();
        index.ports.sort_unstable();
        index
    }
}

/// A rule without the `[packets:bytes]` that `iptables-save -c` puts before it.
fn without_counters(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((_, rule)) => rule,
        None => line,
    }
}

fn told_family(comment: &str) -> Option<Family> {
    if comment.contains("ip6tables") || comment.trim_start().starts_with("IPv6") {
        Some(Family::V6)
    } else if comment.contains("iptables") {
        Some(Family::V4)
    } else {
        None
    }
}

fn first_address<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Family> {
    let mut words = lines.flat_map(str::split_whitespace);
    words.find_map(|word| {
        word.parse::<IpNet>().map(|net| net.family()).or_else(|_| word.parse().map(|ip: IpAddr| ip.family())).ok()
    })
}
