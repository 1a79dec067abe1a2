//! What a rule asks of a packet, beside its addresses, protocol and destination port.

use std::net::IpAddr;

use ipnet::IpNet;

use super::words::Words;
use crate::objects::Protocol;

/// Which end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
    /// Either.
    Both,
}

/// What is asked of a list of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recent {
    /// The client is noted.
    Set,
    /// The client has been noted, within so many seconds.
    Check {
        /// How many.
        seconds: Option<u32>,
    },
    /// The client is forgotten.
    Remove,
}

/// One thing that is asked. The `bool` of those that have one says that the opposite is wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// No first packet of a connection to a Service matches.
    Never,
    /// Any protocol but this one.
    OtherThan(Protocol),
    /// Ports, as ranges.
    Ports(Side, Box<[(u16, u16)]>, bool),
    /// A second address, or a range of addresses.
    Addresses(Side, Box<(IpAddr, IpAddr)>, bool),
    /// The interface that the packet came in through; a `+` at the end stands for anything.
    In(Box<str>, bool),
    /// The interface that it leaves through.
    Out(Box<str>, bool),
    /// Whether an address is one of the node's.
    Local(Side, bool),
    /// The state of the connection: any of these bits.
    State(u8, bool),
    /// The destination that the connection had at first.
    FirstDestination(IpNet, bool),
    /// Its port.
    FirstPort(u16, u16, bool),
    /// The packet's mark.
    Mark(u32, u32, bool),
    /// A set, and which parts of the packet are looked up in it.
    Set(Box<str>, Box<[Side]>, bool),
    /// Matches with this probability.
    Share(f64),
    /// A list of clients.
    Recent(Box<str>, Recent, bool),
    /// Something that cannot be told.
    Unknown,
}

/// Bits of [`Match::State`].
pub mod state {
    /// A first packet.
    pub const NEW: u8 = 1;
    /// A later one.
    pub const ESTABLISHED: u8 = 2;
    /// One that belongs to another connection.
    pub const RELATED: u8 = 4;
    /// One that belongs to none.
    pub const INVALID: u8 = 8;
    /// One that is not tracked.
    pub const UNTRACKED: u8 = 16;
    /// The destination was replaced.
    pub const DNAT: u8 = 32;
    /// The source was.
    pub const SNAT: u8 = 64;
}

/// Ports that a client sends from: those that Linux gives.
const CLIENT_PORTS: (u16, u16) = (32_768, 60_999);

/// Matches that hold for any first packet of a connection to a Service, whatever is asked: counters and rates.
const ALWAYS: [&str; 4] = ["nfacct", "limit", "quota", "comment"];
/// Matches that no such packet has anything to do with.
const NEVER: [&str; 7] = ["icmp", "icmp6", "icmpv6", "socket", "ah", "esp", "frag"];

/// What one option of a match asks. `module` is the match that was named last. None where a value is missing or malformed.
pub fn option(module: &str, option: &str, not: bool, words: &mut Words) -> Option<Found> {
    let one = |found: Match| Some(Found::Match(found));
    match (module, option) {
        (_, "--sport" | "--source-port") => one(Match::Ports(Side::Source, ranges(words.next()?)?, not)),
        (_, "--dport" | "--destination-port") => one(Match::Ports(Side::Destination, ranges(words.next()?)?, not)),
        ("multiport", "--sports" | "--source-ports") => one(Match::Ports(Side::Source, ranges(words.next()?)?, not)),
        ("multiport", "--dports" | "--destination-ports") => {
            one(Match::Ports(Side::Destination, ranges(words.next()?)?, not))
        }
        ("multiport", "--ports") => one(Match::Ports(Side::Both, ranges(words.next()?)?, not)),
        ("iprange", "--src-range") => one(Match::Addresses(Side::Source, addresses(words.next()?)?, not)),
        ("iprange", "--dst-range") => one(Match::Addresses(Side::Destination, addresses(words.next()?)?, not)),
        ("addrtype", "--src-type") => Some(address_type(Side::Source, words.next()?, not)),
        ("addrtype", "--dst-type") => Some(address_type(Side::Destination, words.next()?, not)),
        ("conntrack", "--ctstate") | ("state", "--state") => one(Match::State(states(words.next()?)?, not)),
        ("conntrack", "--ctstatus") => one(Match::State(statuses(words.next()?)?, not)),
        ("conntrack", "--ctorigdst") => one(Match::FirstDestination(net(words.next()?)?, not)),
        ("conntrack", "--ctorigdstport") => {
            let (from, to) = range(words.next()?)?;
            one(Match::FirstPort(from, to, not))
        }
        ("conntrack", "--ctdir") => Some(holds((words.next()? == "ORIGINAL") != not)),
        ("mark", "--mark") | ("connmark", "--mark") => {
            let (value, mask) = masked(words.next()?)?;
            // the first packet of a connection finds no mark that was kept for it
            if module == "connmark" { Some(holds((value == 0) != not)) } else { one(Match::Mark(value, mask, not)) }
        }
        ("set", "--match-set") => {
            let name = words.next()?.into();
            let sides = words.next()?.split(',').map(side).collect::<Option<_>>()?;
            one(Match::Set(name, sides, not))
        }
        ("statistic", "--mode") => words.next().map(|_| Found::Nothing),
        ("statistic", "--probability") => {
            let share: f64 = words.parsed()?;
            one(Match::Share(if not { 1.0 - share } else { share }))
        }
        ("statistic", "--every") => one(Match::Share(1.0 / words.parsed::<f64>()?.max(1.0))),
        ("statistic", "--packet") => words.next().map(|_| Found::Nothing),
        ("recent", _) => recent(option, not, words),
        ("tcp", "--syn") => Some(holds(!not)),
        ("tcp", "--tcp-flags") => {
            let (mask, wanted) = (words.next()?.to_owned(), words.next()?);
            Some(holds(is_first_of_tcp(&mask, wanted) != not))
        }
        // whether there are more than that is not for one connection to say
        ("connlimit", "--connlimit-above") | ("hashlimit", "--hashlimit-above") if !not => {
            words.next().map(|_| Found::Match(Match::Unknown))
        }
        ("connlimit" | "hashlimit", _) => skipped(words, Found::Nothing),
        ("rpfilter", "--invert") => Some(Found::Match(Match::Never)),
        ("rpfilter", "--loose" | "--validmark" | "--accept-local") => Some(Found::Nothing),
        ("physdev", "--physdev-is-bridged") => Some(holds(not)),
        ("pkttype", "--pkt-type") => Some(holds((words.next()? == "unicast") != not)),
        _ if ALWAYS.contains(&module) && option.trim_start_matches('-').starts_with(module) => {
            skipped(words, Found::Nothing)
        }
        _ if NEVER.contains(&module) => skipped(words, Found::Match(Match::Never)),
        _ => skipped(words, Found::Match(Match::Unknown)),
    }
}

/// What naming a match alone says.
pub fn named(module: &str) -> Option<Match> {
    NEVER.contains(&module).then_some(Match::Never)
}

/// What an option came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// It asks for something.
    Match(Match),
    /// It asks for nothing.
    Nothing,
    /// It belongs to the list of clients that is named by another one.
    Recent(Recent, bool),
    /// The name of that list.
    RecentName(Box<str>),
    /// Within how many seconds.
    RecentSeconds(u32),
}

fn skipped(words: &mut Words, found: Found) -> Option<Found> {
    words.skip_values();
    Some(found)
}

fn holds(does: bool) -> Found {
    if does { Found::Nothing } else { Found::Match(Match::Never) }
}

fn recent(option: &str, not: bool, words: &mut Words) -> Option<Found> {
    Some(match option {
        "--set" => Found::Recent(Recent::Set, not),
        "--rcheck" | "--update" => Found::Recent(Recent::Check { seconds: None }, not),
        "--remove" => Found::Recent(Recent::Remove, not),
        "--name" => Found::RecentName(words.next()?.into()),
        "--seconds" => Found::RecentSeconds(words.parsed()?),
        "--hitcount" | "--mask" => words.next().map(|_| Found::Nothing)?,
        "--reap" | "--rsource" | "--rdest" | "--rttl" => Found::Nothing,
        _ => return skipped(words, Found::Match(Match::Unknown)),
    })
}

fn address_type(side: Side, kind: &str, not: bool) -> Found {
    match kind {
        "LOCAL" => Found::Match(Match::Local(side, not)),
        // what is not the node's and none of the kinds below
        "UNICAST" => Found::Match(Match::Local(side, !not)),
        "BROADCAST" | "ANYCAST" | "MULTICAST" | "BLACKHOLE" | "UNREACHABLE" | "PROHIBIT" | "UNSPEC" => holds(not),
        _ => Found::Match(Match::Unknown),
    }
}

fn states(text: &str) -> Option<u8> {
    let bit = |word: &str| {
        Some(match word {
            "NEW" => state::NEW,
            "ESTABLISHED" => state::ESTABLISHED,
            "RELATED" => state::RELATED,
            "INVALID" => state::INVALID,
            "UNTRACKED" => state::UNTRACKED,
            "DNAT" => state::DNAT,
            "SNAT" => state::SNAT,
            _ => return None,
        })
    };
    text.split(',').map(bit).try_fold(0, |bits, one| Some(bits | one?))
}

/// Of the statuses, those that a first packet may have.
fn statuses(text: &str) -> Option<u8> {
    let bit = |word: &str| match word {
        "DNAT" => Some(state::DNAT),
        "SNAT" => Some(state::SNAT),
        "EXPECTED" | "SEEN_REPLY" | "ASSURED" | "CONFIRMED" | "NONE" => Some(0),
        _ => None,
    };
    text.split(',').map(bit).try_fold(0, |bits, one| Some(bits | one?))
}

fn is_first_of_tcp(mask: &str, wanted: &str) -> bool {
    let mut asked = mask.split(',');
    let wants_syn = wanted.split(',').any(|flag| flag == "SYN" || flag == "ALL");
    let wants_other = wanted.split(',').any(|flag| flag != "SYN" && flag != "NONE");
    let asks_syn = asked.any(|flag| flag == "SYN" || flag == "ALL");
    !wants_other && wants_syn == asks_syn
}

fn side(text: &str) -> Option<Side> {
    match text {
        "src" => Some(Side::Source),
        "dst" => Some(Side::Destination),
        _ => None,
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once(':').unwrap_or((text, text));
    let end = |text: &str, open: u16| if text.is_empty() { Some(open) } else { text.parse().ok() };
    Some((end(from, 0)?, end(to, u16::MAX)?))
}

fn ranges(text: &str) -> Option<Box<[(u16, u16)]>> {
    text.split(',').map(range).collect()
}

fn addresses(text: &str) -> Option<Box<(IpAddr, IpAddr)>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    Some(Box::new((from.parse().ok()?, to.parse().ok()?)))
}

/// An address or a prefix.
pub fn net(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// A number, decimal or hexadecimal.
pub fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `VALUE/MASK`, where a missing mask has all bits.
pub fn masked(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

/// Whether an interface's name is the one that is asked for, where a `+` at the end stands for anything.
pub fn is_named(asked: &str, name: &str) -> bool {
    asked.strip_suffix('+').map_or(asked == name, |begin| name.starts_with(begin))
}

/// Whether one of the ports that clients send from is in ranges; none where only some are.
pub fn has_client_port(ranges: &[(u16, u16)]) -> Option<bool> {
    let (first, last) = CLIENT_PORTS;
    if ranges.iter().any(|(from, to)| *from <= first && last <= *to) {
        Some(true)
    } else {
        ranges.iter().all(|(from, to)| *to < first || last < *from).then_some(false)
    }
}
