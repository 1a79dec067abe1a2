//! One rule as `iptables-save` prints it.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::objects::Protocol;

/// What a rule asks for and does, as far as kube-proxy's rules go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Its line in the text.
    pub line: usize,
    /// Its comment.
    pub comment: Option<String>,
    /// The transport protocol.
    pub protocol: Option<Protocol>,
    /// The source, and whether it is excluded.
    pub source: Option<(IpNet, bool)>,
    /// The destination, and whether it is excluded.
    pub destination: Option<(IpNet, bool)>,
    /// The destination port.
    pub port: Option<u16>,
    /// Whether it asks for the interface that the packet came in through.
    pub by_interface: bool,
    /// Whether the source has to be an address of the node.
    pub source_is_local: bool,
    /// Whether the destination has to be.
    pub destination_is_local: bool,
    /// The probability that it matches.
    pub probability: Option<f64>,
    /// What it does with a list of clients.
    pub recent: Option<Recent>,
    /// Where it leads to.
    pub target: Option<String>,
    /// The destination of DNAT.
    pub to_destination: Option<SocketAddr>,
}

/// A list of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recent {
    /// The client is noted.
    Set,
    /// The client has been noted, within so many seconds.
    Check {
        /// How many.
        seconds: Option<u32>,
    },
}

impl Rule {
    /// Reads `-A CHAIN …`; none where an option is not understood.
    pub fn parse(text: &str, line: usize) -> Option<(String, Rule)> {
        let words = split(text)?;
        let mut words = words.iter().map(String::as_str);
        (words.next()? == "-A").then_some(())?;
        let chain = words.next()?.to_owned();
        let mut rule = Rule { line, ..Rule::default() };
        let mut not = false;
        while let Some(word) = words.next() {
            if word == "!" {
                not = true;
                continue;
            }
            rule.option(word, not, &mut words)?;
            not = false;
        }
        Some((chain, rule))
    }

    fn option<'a>(&mut self, option: &str, not: bool, words: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        match option {
            "-p" => {
                self.protocol = match words.next()? {
                    "tcp" => Some(Protocol::Tcp),
                    "udp" => Some(Protocol::Udp),
                    "sctp" => Some(Protocol::Sctp),
                    _ => None,
                }
            }
            "-s" => self.source = Some((net(words.next()?)?, not)),
            "-d" => self.destination = Some((net(words.next()?)?, not)),
            "--dport" => self.port = Some(words.next()?.parse().ok()?),
            "-i" => {
                self.by_interface = true;
                words.next()?;
            }
            "--src-type" => self.source_is_local = words.next()? == "LOCAL" && !not,
            "--dst-type" => self.destination_is_local = words.next()? == "LOCAL" && !not,
            "--probability" => self.probability = Some(words.next()?.parse().ok()?),
            "--comment" => self.comment = Some(words.next()?.to_owned()),
            "--set" => self.recent = Some(Recent::Set),
            "--rcheck" | "--update" => self.recent = Some(Recent::Check { seconds: None }),
            "--seconds" => {
                let number = words.next()?.parse().ok();
                if let Some(Recent::Check { seconds }) = &mut self.recent {
                    *seconds = number;
                }
            }
            "-j" | "-g" => self.target = Some(words.next()?.to_owned()),
            "--to-destination" => self.to_destination = words.next()?.parse().ok(),
            // matches that only load what others ask with, and flags without a value
            "--reap" | "--rsource" | "--rdest" | "--random-fully" | "--random" | "--persistent" => {}
            "-m" | "-o" | "--ctstate" | "--mode" | "--name" | "--mask" | "--mark" | "--or-mark" | "--xor-mark"
            | "--and-mark" | "--set-xmark" | "--set-mark" | "--reject-with" | "--match-set" | "--sport" | "--state"
            | "--nfacct-name" | "--to-ports" | "--icmp-type" | "--icmpv6-type" | "--dports" | "--physdev-in"
            | "--limit" | "--limit-burst" | "--log-prefix" | "--log-level" | "--tcp-flags" | "--ctorigdst" => {
                words.next()?;
                if matches!(option, "--match-set" | "--tcp-flags") {
                    words.next()?;
                }
            }
            "--physdev-is-bridged" | "--syn" => {}
            _ => return None,
        }
        Some(())
    }

    /// Whether it asks where packets come from.
    pub fn asks_for_source(&self) -> bool {
        self.source.is_some() || self.by_interface
    }
}

/// An address or a prefix.
fn net(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Splits at spaces, but for those between quotation marks.
fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let word = match rest.strip_prefix('"') {
            Some(inside) => {
                let mut word = String::new();
                let mut chars = inside.char_indices();
                loop {
                    match chars.next()? {
                        (at, '"') => {
                            rest = &inside[at + 1..];
                            break word;
                        }
                        (_, '\\') => word.push(chars.next()?.1),
                        (_, other) => word.push(other),
                    }
                }
            }
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                let word = rest[..end].to_owned();
                rest = &rest[end..];
                word
            }
        };
        words.push(word);
        rest = rest.trim_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_kube_proxy() {
        let text = r#"-A KUBE-SVC-X ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment "ns/a:b cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ"#;
        let (chain, rule) = Rule::parse(text, 7).unwrap();
        assert_eq!(chain, "KUBE-SVC-X");
        assert_eq!(rule.source, Some(("10.244.0.0/16".parse().unwrap(), true)));
        assert_eq!(rule.destination, Some(("10.96.0.1/32".parse().unwrap(), false)));
        assert_eq!((rule.port, rule.target.as_deref()), (Some(80), Some("KUBE-MARK-MASQ")));
        assert_eq!(rule.comment.as_deref(), Some("ns/a:b cluster IP"));
        assert_eq!(Rule::parse("-A X --no-such-option -j Y", 1), None);
    }
}
