//! The sets that `ipset save` printed, to be looked up in.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::matches::{Side, net};
use crate::objects::Protocol;

/// All sets, by name.
#[derive(Debug, Default)]
pub struct Sets {
    sets: HashMap<String, Set>,
}

/// One set.
#[derive(Debug, Default)]
struct Set {
    kind: Kind,
    entries: HashSet<Entry>,
    prefixes: HashMap<Option<Entry>, Vec<IpNet>>,
    /// Whether something is in it that is not known.
    is_strange: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Port,
    Address,
    Prefix,
    AddressAndPort,
    AddressPortAddress,
    AddressPortPrefix,
    #[default]
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Port(u16),
    Address(IpAddr),
    Two(Protocol, IpAddr, u16),
    Three(Protocol, IpAddr, u16, IpAddr),
}

/// A packet, as far as sets ask for it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its protocol.
    pub protocol: Protocol,
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: SocketAddr,
}

impl Asked {
    fn address(&self, side: Side) -> IpAddr {
        if side == Side::Source { self.source } else { self.destination.ip() }
    }

    /// None for the source's, which is not known.
    fn port(&self, side: Side) -> Option<u16> {
        (side == Side::Destination).then(|| self.destination.port())
    }
}

impl Sets {
    /// Reads one line, `create NAME TYPE …` or `add NAME ENTRY`; whether it was one and had all of it.
    pub fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        match words.next()? {
            "create" => {
                let (name, kind) = (words.next()?, words.next()?);
                self.sets.entry(name.to_owned()).or_default().kind = match kind {
                    "bitmap:port" => Kind::Port,
                    "hash:ip" => Kind::Address,
                    "hash:net" => Kind::Prefix,
                    "hash:ip,port" => Kind::AddressAndPort,
                    "hash:ip,port,ip" => Kind::AddressPortAddress,
                    "hash:ip,port,net" => Kind::AddressPortPrefix,
                    _ => Kind::Other,
                };
            }
            "add" => {
                let (name, entry) = (words.next()?, words.next()?);
                let set = self.sets.entry(name.to_owned()).or_default();
                let is_known = set.add(entry).is_some();
                set.is_strange |= !is_known || words.any(|word| word == "nomatch");
            }
            _ => return None,
        }
        Some(())
    }

    /// Adds all of others.
    pub fn merge(&mut self, other: Sets) {
        self.sets.extend(other.sets);
    }

    /// Whether there is a set of this name.
    pub fn has(&self, name: &str) -> bool {
        self.sets.contains_key(name)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Whether a packet is in a set; none where that cannot be told.
    pub fn holds(&self, name: &str, sides: &[Side], asked: &Asked) -> Option<bool> {
        let set = self.sets.get(name).filter(|set| !set.is_strange)?;
        if set.entries.is_empty() && set.prefixes.is_empty() {
            return Some(false);
        }
        let side = |at: usize| sides.get(at).copied();
        let two = || Some(Entry::Two(asked.protocol, asked.address(side(0)?), asked.port(side(1)?)?));
        let has = |prefixes: Option<&Vec<IpNet>>, ip: IpAddr| {
            prefixes.is_some_and(|prefixes| prefixes.iter().any(|prefix| prefix.contains(&ip)))
        };
        Some(match set.kind {
            Kind::Port => set.entries.contains(&Entry::Port(asked.port(side(0)?)?)),
            Kind::Address => set.entries.contains(&Entry::Address(asked.address(side(0)?))),
            Kind::Prefix => has(set.prefixes.get(&None), asked.address(side(0)?)),
            Kind::AddressAndPort => set.entries.contains(&two()?),
            Kind::AddressPortAddress => {
                let Entry::Two(protocol, ip, port) = two()? else { return None };
                set.entries.contains(&Entry::Three(protocol, ip, port, asked.address(side(2)?)))
            }
            Kind::AddressPortPrefix => has(set.prefixes.get(&Some(two()?)), asked.address(side(2)?)),
            Kind::Other => return None,
        })
    }

    /// Entries of a set of endpoints that reach themselves, as they would.
    pub fn triples<'a>(&'a self, name: &str) -> impl Iterator<Item = Asked> + use<'a> {
        self.sets.get(name).into_iter().flat_map(|set| &set.entries).filter_map(|entry| match *entry {
            Entry::Three(protocol, ip, port, source) => {
                Some(Asked { protocol, source, destination: SocketAddr::new(ip, port) })
            }
            _ => None,
        })
    }

    /// Whether an address and port are in a set of such.
    pub fn has_address(&self, name: &str, protocol: Protocol, to: SocketAddr) -> bool {
        self.has_entry(name, Entry::Two(protocol, to.ip(), to.port()))
    }

    /// Whether a port is in a set of such.
    pub fn has_port(&self, name: &str, port: u16) -> bool {
        self.has_entry(name, Entry::Port(port))
    }

    /// The addresses and ports of a set, those with further parts among them.
    pub fn addresses<'a>(&'a self, name: &str) -> impl Iterator<Item = (Protocol, SocketAddr)> + use<'a> {
        let entries = |set: &'a Set| set.entries.iter().chain(set.prefixes.keys().flatten());
        self.sets.get(name).into_iter().flat_map(entries).filter_map(|entry| match *entry {
            Entry::Two(protocol, ip, port) | Entry::Three(protocol, ip, port, _) => {
                Some((protocol, SocketAddr::new(ip, port)))
            }
            _ => None,
        })
    }

    /// Whether an address is in a set of such.
    pub fn has_ip(&self, name: &str, ip: IpAddr) -> bool {
        self.has_entry(name, Entry::Address(ip))
    }

    fn has_entry(&self, name: &str, entry: Entry) -> bool {
        self.sets.get(name).is_some_and(|set| set.entries.contains(&entry))
    }
}

impl Set {
    fn add(&mut self, text: &str) -> Option<()> {
        let mut parts = text.split(',');
        let first = parts.next()?;
        let entry = match self.kind {
            Kind::Port => Entry::Port(first.parse().ok()?),
            Kind::Address => Entry::Address(first.parse().ok()?),
            Kind::Prefix => {
                self.prefixes.entry(None).or_default().push(net(first)?);
                return Some(());
            }
            Kind::Other => return None,
            Kind::AddressAndPort | Kind::AddressPortAddress | Kind::AddressPortPrefix => {
                let ip: IpAddr = first.parse().ok()?;
                let (protocol, port) = port(parts.next()?)?;
                let two = Entry::Two(protocol, ip, port);
                match self.kind {
                    Kind::AddressAndPort => two,
                    Kind::AddressPortAddress => Entry::Three(protocol, ip, port, parts.next()?.parse().ok()?),
                    _ => {
                        self.prefixes.entry(Some(two)).or_default().push(net(parts.next()?)?);
                        return Some(());
                    }
                }
            }
        };
        self.entries.insert(entry);
        Some(())
    }
}

/// `tcp:80`.
pub fn port(text: &str) -> Option<(Protocol, u16)> {
    let (protocol, port) = text.split_once(':')?;
    Some((Protocol::from_name(protocol)?, port.parse().ok()?))
}
