//! One rule as `iptables-save` prints it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use super::matches::{self, Found, Match, Recent, Side};
use super::words::Words;
use crate::objects::Protocol;

/// What a rule asks for and does.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its line in the text.
    pub line: u32,
    /// Its comment.
    pub comment: Option<Box<str>>,
    /// The transport protocol.
    pub protocol: Option<Protocol>,
    /// The source, and whether it is excluded.
    pub source: Option<(IpNet, bool)>,
    /// The destination, and whether it is excluded.
    pub destination: Option<(IpNet, bool)>,
    /// The destination port.
    pub port: Option<u16>,
    /// What else it asks for.
    pub more: Box<[Match]>,
    /// Where it leads to, as it is written.
    pub target: Option<Arc<str>>,
    /// What it does.
    pub action: Action,
}

/// What a rule does to a packet that it matches.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing that matters to where the packet goes.
    None,
    /// Goes on in a chain of the table, which `Table::resolve` finds; and returns or not.
    Chain(u32, bool),
    /// Ends what the table does.
    Accept,
    /// Goes back to where the chain was entered.
    Return,
    /// Ends the connection without a word.
    Drop,
    /// Ends it with an answer.
    Reject,
    /// The mark becomes what is left of it without the bits of a mask, with those of a value flipped.
    Mark {
        /// The bits to flip.
        value: u32,
        /// The bits to clear before.
        mask: u32,
    },
    /// Replaces the destination: the address, the port, or both.
    Destination(Option<IpAddr>, Option<u16>),
    /// Replaces the destination by the node itself, at this port.
    Redirect(Option<u16>),
    /// Replaces the source.
    Source,
    /// The connection is not tracked, and so not translated.
    NoTrack,
    /// Hands the packet to somebody on the node, whatever its destination.
    Divert,
    /// Something that is not known.
    Unknown,
}

/// The chain of a rule before its table is whole.
pub const UNRESOLVED: u32 = u32::MAX;

/// Targets that do nothing to where a packet goes.
const HARMLESS: [&str; 25] = [
    "LOG",
    "NFLOG",
    "ULOG",
    "TRACE",
    "CONNMARK",
    "TCPMSS",
    "CLASSIFY",
    "DSCP",
    "TOS",
    "CHECKSUM",
    "AUDIT",
    "SECMARK",
    "CONNSECMARK",
    "SET",
    "HL",
    "TTL",
    "RATEEST",
    "TEE",
    "IDLETIMER",
    "TCPOPTSTRIP",
    "ECN",
    "LED",
    "NOTE",
    "CONTINUE",
    "SYNPROXY",
];

impl Rule {
    /// Reads `-A CHAIN …`; none where it is not whole. What is whole and not known is in it as such.
    pub fn parse(text: &str, line: u32) -> Option<(String, Rule)> {
        let mut words = Words::of(text)?;
        (words.next()? == "-A").then_some(())?;
        let chain = words.next()?.to_owned();
        let mut reader = Reader::new(line);
        let mut not = false;
        while let Some(word) = words.next() {
            if word == "!" {
                not = true;
                continue;
            }
            let word = word.to_owned();
            reader.option(&word, not, &mut words)?;
            not = false;
        }
        Some((chain, reader.done()?))
    }

    /// Whether it asks where packets come from.
    pub fn asks_for_source(&self) -> bool {
        self.source.is_some() || self.more.iter().any(|one| matches!(one, Match::In(..)))
    }

    /// Whether the source has to be an address of the node.
    pub fn source_is_local(&self) -> bool {
        self.more.contains(&Match::Local(Side::Source, false))
    }

    /// Whether the destination has to be.
    pub fn destination_is_local(&self) -> bool {
        self.more.contains(&Match::Local(Side::Destination, false))
    }

    /// The probability that it matches.
    pub fn probability(&self) -> Option<f64> {
        self.more.iter().find_map(|one| if let Match::Share(share) = one { Some(*share) } else { None })
    }

    /// What it does with a list of clients, and which.
    pub fn recent(&self) -> Option<(&str, Recent)> {
        self.more
            .iter()
            .find_map(|one| if let Match::Recent(name, ask, _) = one { Some((&**name, *ask)) } else { None })
    }

    /// The endpoint that it replaces the destination by.
    pub fn to_destination(&self) -> Option<SocketAddr> {
        match self.action {
            Action::Destination(Some(ip), Some(port)) => Some(SocketAddr::new(ip, port)),
            _ => None,
        }
    }

    /// Whether all of it is known, once its table is whole.
    pub fn is_understood(&self) -> bool {
        self.action != Action::Unknown
            && !matches!(self.action, Action::Chain(UNRESOLVED, _))
            && !self.more.contains(&Match::Unknown)
    }

    /// Whether it matches every packet, of new connections at least.
    pub fn matches_all(&self) -> bool {
        let is_new = |one: &Match| matches!(one, Match::State(bits, false) if bits & matches::state::NEW != 0);
        self.protocol.is_none() && self.source.is_none() && self.destination.is_none() && self.more.iter().all(is_new)
    }
}

/// A rule of which the options are read one after the other.
struct Reader {
    rule: Rule,
    more: Vec<Match>,
    /// The match, or the target, that was named last.
    module: String,
    list: Option<(Recent, bool)>,
    list_name: Option<Box<str>>,
    /// Whether the target means nothing without an option that has not come yet.
    needs_option: bool,
}

impl Reader {
    fn new(line: u32) -> Reader {
        let rule = Rule {
            line,
            comment: None,
            protocol: None,
            source: None,
            destination: None,
            port: None,
            more: Box::default(),
            target: None,
            action: Action::None,
        };
        let module = String::new();
        Reader { rule, more: Vec::new(), module, list: None, list_name: None, needs_option: false }
    }

    fn option(&mut self, option: &str, not: bool, words: &mut Words) -> Option<()> {
        let rule = &mut self.rule;
        match option {
            "-p" => {
                let protocol = words.next()?;
                protocol.clone_into(&mut self.module);
                self.protocol(protocol, not);
            }
            "-s" if rule.source.is_none() => rule.source = Some((matches::net(words.next()?)?, not)),
            "-d" if rule.destination.is_none() => rule.destination = Some((matches::net(words.next()?)?, not)),
            "-i" => self.more.push(Match::In(words.next()?.into(), not)),
            "-o" => self.more.push(Match::Out(words.next()?.into(), not)),
            "-f" => self.more.push(Match::Never),
            "-m" => {
                words.next()?.clone_into(&mut self.module);
                self.more.extend(matches::named(&self.module));
            }
            "-j" | "-g" => {
                let target = words.next()?;
                target.clone_into(&mut self.module);
                rule.target = Some(target.into());
                rule.action = built_in(target);
                if rule.action == Action::Unknown {
                    rule.action = Action::Chain(UNRESOLVED, option == "-j");
                }
                self.needs_option = matches!(target, "DNAT" | "MARK");
            }
            "--comment" => rule.comment = Some(words.next()?.into()),
            "--dport" if !not && !matches!(self.module.as_str(), "multiport") => self.port(words)?,
            _ if rule.target.is_some() => self.target_option(option, words)?,
            _ => self.match_option(option, not, words)?,
        }
        Some(())
    }

    fn protocol(&mut self, text: &str, not: bool) {
        let protocol = match text {
            "tcp" | "6" => Protocol::Tcp,
            "udp" | "17" => Protocol::Udp,
            "sctp" | "132" => Protocol::Sctp,
            "all" | "0" => return,
            _ if not => return,
            _ => return self.more.push(Match::Never),
        };
        if not { self.more.push(Match::OtherThan(protocol)) } else { self.rule.protocol = Some(protocol) }
    }

    fn port(&mut self, words: &mut Words) -> Option<()> {
        let text = words.next()?;
        match text.parse() {
            Ok(port) => self.rule.port = Some(port),
            Err(_) => {
                let (from, to) = text.split_once(':')?;
                let range = (from.parse().unwrap_or(0), to.parse().unwrap_or(u16::MAX));
                self.more.push(Match::Ports(Side::Destination, Box::new([range]), false));
            }
        }
        Some(())
    }

    fn match_option(&mut self, option: &str, not: bool, words: &mut Words) -> Option<()> {
        match matches::option(&self.module, option, not, words)? {
            Found::Match(found) => self.more.push(found),
            Found::Nothing => {}
            Found::Recent(ask, not) => self.list = Some((ask, not)),
            Found::RecentName(name) => self.list_name = Some(name),
            Found::RecentSeconds(within) => {
                if let Some((Recent::Check { seconds }, _)) = &mut self.list {
                    *seconds = Some(within);
                }
            }
        }
        Some(())
    }

    fn target_option(&mut self, option: &str, words: &mut Words) -> Option<()> {
        let action = &mut self.rule.action;
        self.needs_option = false;
        match (self.module.as_str(), option) {
            ("MARK", "--set-xmark" | "--set-mark") => {
                let (value, mask) = matches::masked(words.next()?)?;
                // the second also sets the bits that are in the value alone
                let mask = if option == "--set-mark" { value | mask } else { mask };
                *action = Action::Mark { value, mask };
            }
            ("MARK", "--or-mark") => {
                let value = matches::number(words.next()?)?;
                *action = Action::Mark { value, mask: value };
            }
            ("MARK", "--xor-mark") => *action = Action::Mark { value: matches::number(words.next()?)?, mask: 0 },
            ("MARK", "--and-mark") => *action = Action::Mark { value: 0, mask: !matches::number(words.next()?)? },
            ("DNAT", "--to-destination") => {
                *action = destination(words.next()?)?;
            }
            ("REDIRECT", "--to-ports") => *action = Action::Redirect(words.next()?.split('-').next()?.parse().ok()),
            ("CT", "--notrack") => *action = Action::NoTrack,
            ("REJECT", "--reject-with") | ("MASQUERADE" | "SNAT", "--to-ports" | "--to-source") => drop(words.next()?),
            (_, "--random" | "--random-fully" | "--persistent") => {}
            (target, _) => {
                if matches!(target, "REJECT" | "MARK" | "DNAT") {
                    *action = Action::Unknown;
                }
                words.skip_values();
            }
        }
        Some(())
    }

    fn done(mut self) -> Option<Rule> {
        if self.needs_option {
            return None;
        }
        if let Some((ask, not)) = self.list {
            // what has no name is in the list of that name
            let name = self.list_name.unwrap_or_else(|| "DEFAULT".into());
            self.more.push(Match::Recent(name, ask, not));
        }
        self.rule.more = self.more.into();
        Some(self.rule)
    }
}

/// What a target does that is none of the table's chains.
fn built_in(target: &str) -> Action {
    match target {
        "ACCEPT" => Action::Accept,
        "RETURN" => Action::Return,
        "DROP" => Action::Drop,
        "REJECT" => Action::Reject,
        "MARK" => Action::Mark { value: 0, mask: 0 },
        "DNAT" => Action::Destination(None, None),
        "REDIRECT" => Action::Redirect(None),
        "MASQUERADE" | "SNAT" => Action::Source,
        "NOTRACK" => Action::NoTrack,
        "TPROXY" | "NFQUEUE" | "QUEUE" => Action::Divert,
        "CT" => Action::None,
        _ if HARMLESS.contains(&target) => Action::None,
        _ => Action::Unknown,
    }
}

/// `10.0.0.1:80`, `[fd00::1]:80`, `10.0.0.1`, `:80`, or the first of a range.
fn destination(text: &str) -> Option<Action> {
    if let Ok(to) = text.parse::<SocketAddr>() {
        return Some(Action::Destination(Some(to.ip()), Some(to.port())));
    }
    let first = |text: &str| text.split('-').next().unwrap_or_default().to_owned();
    if let Some(port) = text.strip_prefix(':') {
        return Some(Action::Destination(None, first(port).parse().ok()));
    }
    let (address, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':')),
        None => match text.rsplit_once(':') {
            Some((address, port)) if !address.contains(':') => (address, Some(port)),
            _ => (text, None),
        },
    };
    let port = match port {
        Some(port) => Some(first(port).parse().ok()?),
        None => None,
    };
    Some(Action::Destination(Some(first(address).parse().ok()?), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Rule {
        Rule::parse(text, 7).unwrap_or_else(|| panic!("{text}")).1
    }

    #[test]
    fn a_rule_of_kube_proxy() {
        let text = r#"-A KUBE-SVC-X ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment "ns/a:b cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ"#;
        let (chain, rule) = Rule::parse(text, 7).unwrap();
        assert_eq!(chain, "KUBE-SVC-X");
        assert_eq!(rule.source, Some(("10.244.0.0/16".parse().unwrap(), true)));
        assert_eq!(rule.destination, Some(("10.96.0.1/32".parse().unwrap(), false)));
        assert_eq!((rule.port, rule.target.as_deref()), (Some(80), Some("KUBE-MARK-MASQ")));
        assert_eq!(rule.comment.as_deref(), Some("ns/a:b cluster IP"));
        assert!(!rule.matches_all() && parsed("-A X -m conntrack --ctstate NEW -j Y").matches_all());
    }

    #[test]
    fn what_is_not_whole_is_none_and_what_is_not_known_says_so() {
        for cut in [
            "-A X -j DNAT",
            "-A X -j DNAT --to-destination",
            "-A X -j DNAT --to-destination 10.0.0.",
            "-A X -d 10.96.",
            "-A X -m comment --comment \"default/w",
            "-A X -p tcp -m tcp --dport",
            "-A X -j MARK --set-xmark 0x",
            "-A X -j MARK",
            "-A",
        ] {
            assert_eq!(Rule::parse(cut, 1), None, "{cut}");
        }
        for unknown in ["-A X -m u32 --u32 0>>22&0x3C@4 -j DROP", "-A X --no-such-option -j DROP"] {
            assert!(!parsed(unknown).is_understood(), "{unknown}");
        }
        assert!(parsed("-A X -p icmp -m icmp --icmp-type 8 -j DROP").more.contains(&Match::Never));
    }

    #[test]
    fn destinations_and_marks() {
        for (text, expected) in [
            ("10.0.0.1:80", Action::Destination(Some([10, 0, 0, 1].into()), Some(80))),
            ("10.0.0.1-10.0.0.3:80-90", Action::Destination(Some([10, 0, 0, 1].into()), Some(80))),
            (":8080", Action::Destination(None, Some(8080))),
            ("[fd00::1]:80", Action::Destination(Some("fd00::1".parse().unwrap()), Some(80))),
            ("fd00::1", Action::Destination(Some("fd00::1".parse().unwrap()), None)),
        ] {
            assert_eq!(parsed(&format!("-A X -j DNAT --to-destination {text}")).action, expected, "{text}");
        }
        let mark = |text: &str| parsed(&format!("-A X -j MARK {text}")).action;
        assert_eq!(mark("--or-mark 0x4000"), mark("--set-xmark 0x4000/0x4000"));
        assert_eq!(mark("--xor-mark 0x4000"), mark("--set-xmark 0x4000/0x0"));
        assert_eq!(mark("--and-mark 0xffffbfff"), mark("--set-xmark 0x0/0x4000"));
    }
}
