//! Where values come from, as `nft` writes it: fields of headers, properties of packets and connections.

use super::ast::Value;
use super::token::{Token, Tokens};

const HEADERS: [&str; 24] = [
    "ip", "ip6", "tcp", "udp", "sctp", "th", "icmp", "icmpv6", "ether", "arp", "vlan", "udplite", "dccp", "igmp", "ah",
    "esp", "comp", "gre", "frag", "hbh", "dst", "mh", "srh", "rt0",
];
const METAS: [&str; 15] = [
    "iif",
    "iifname",
    "oif",
    "oifname",
    "mark",
    "skuid",
    "skgid",
    "pkttype",
    "iiftype",
    "oiftype",
    "iifgroup",
    "oifgroup",
    "ibrname",
    "obrname",
    "rtclassid",
];
/// What values of which nothing is known but their name begin with.
const OTHERS: [&str; 8] = ["socket", "rt", "ipsec", "exthdr", "jhash", "symhash", "osf", "tunnel"];

/// Whether a value begins with this word that comes from somewhere.
pub fn is_expression(word: &str) -> bool {
    let names = [&HEADERS[..], &METAS, &OTHERS, &["meta", "ct", "fib", "numgen"]];
    names.iter().any(|names| names.contains(&word))
        || word.starts_with('@') && matches!(&word[1..], "ll" | "nh" | "th" | "ih")
}

/// Where a value comes from: parts with dots between them, or one of which some bits are meant.
pub fn expression(tokens: &mut Tokens) -> Option<Value> {
    let mut parts = vec![primary(tokens)?];
    while one_of(tokens, &["."]).is_some() {
        parts.push(primary(tokens)?);
    }
    if parts.len() > 1 {
        return Some(Value::Concat(parts));
    }
    let mut value = parts.remove(0);
    while let Some(operator) = one_of(tokens, &["&", "and", "|", "or", "^", "xor"]) {
        let operator = match operator {
            "&" | "and" => '&',
            "|" | "or" => '|',
            _ => '^',
        };
        value = Value::Bits(Box::new(value), operator, operand(tokens)?);
    }
    Some(value)
}

/// A number, or bits in parentheses.
fn operand(tokens: &mut Tokens) -> Option<String> {
    match tokens.peek()? {
        Token::Word(word) if word.starts_with('(') => bits(tokens).map(|words| words.join(",")),
        _ => word(tokens).map(str::to_owned),
    }
}

/// Takes what a value is called of which nothing else is known: its first word was taken.
fn other(tokens: &mut Tokens, first: &str) -> Option<()> {
    match first {
        "socket" => {
            if word(tokens)? == "cgroupv2" {
                (word(tokens)? == "level").then_some(())?;
                word(tokens)?;
            }
        }
        "rt" => {
            one_of(tokens, &["ip", "ip6"]);
            word(tokens)?;
        }
        "ipsec" => {
            word(tokens)?;
            if one_of(tokens, &["spnum"]).is_some() {
                word(tokens)?;
            }
            one_of(tokens, &["ip", "ip6"]);
            word(tokens)?;
        }
        "osf" => {
            if one_of(tokens, &["ttl"]).is_some() {
                word(tokens)?;
            }
            word(tokens)?;
        }
        "jhash" | "symhash" => {
            if first == "jhash" {
                expression(tokens)?;
            }
            (word(tokens)? == "mod").then_some(())?;
            word(tokens)?;
            while one_of(tokens, &["seed", "offset"]).is_some() {
                word(tokens)?;
            }
        }
        "tcp" | "ip" | "dccp" | "sctp" => {
            // `tcp option maxseg size`, `ip option rr type`, `sctp chunk data tsn`; or whether there is one at all
            word(tokens)?;
            word(tokens)?;
            if !matches!(
                tokens.peek(),
                None | Some(Token::Line | Token::Word("exists" | "missing" | "set" | "comment" | "#"))
            ) {
                word(tokens)?;
            }
        }
        raw if raw.starts_with('@') => {
            for _ in 0..2 {
                (tokens.next()? == Token::Mark(',')).then_some(())?;
                word(tokens)?;
            }
        }
        _ => _ = word(tokens)?,
    }
    Some(())
}

/// Whether a value is known by its name alone.
fn is_other(tokens: &Tokens, first: &str) -> bool {
    let next = tokens.peek().and_then(Token::text);
    match first {
        "tcp" | "ip" | "dccp" => next == Some("option"),
        "sctp" => next == Some("chunk"),
        first => OTHERS.contains(&first) || first.starts_with('@'),
    }
}

fn primary(tokens: &mut Tokens) -> Option<Value> {
    let begin = tokens.rest();
    let first = word(tokens)?;
    if is_other(tokens, first) {
        other(tokens, first)?;
        return Some(Value::Other(between(begin, tokens)));
    }
    Some(match first {
        "meta" => Value::Meta(word(tokens)?.to_owned()),
        "ct" => {
            let direction = match one_of(tokens, &["original", "reply"]) {
                Some("original") => Some(0),
                Some(_) => Some(1),
                None => None,
            };
            let family = one_of(tokens, &["ip", "ip6"]);
            let key = word(tokens)?;
            Value::Ct { key: family.map_or_else(|| key.to_owned(), |family| format!("{family} {key}")), direction }
        }
        "fib" => {
            let mut flags = vec![word(tokens)?.to_owned()];
            while one_of(tokens, &["."]).is_some() {
                flags.push(word(tokens)?.to_owned());
            }
            Value::Fib { flags, result: word(tokens)?.to_owned() }
        }
        "numgen" => {
            let random = word(tokens)? == "random";
            (word(tokens)? == "mod").then_some(())?;
            let modulus = word(tokens)?.parse().ok()?;
            let offset = match one_of(tokens, &["offset"]) {
                Some(_) => word(tokens)?.parse().ok()?,
                None => 0,
            };
            Value::Numgen { random, modulus, offset }
        }
        header if HEADERS.contains(&header) => Value::Header(header.to_owned(), word(tokens)?.to_owned()),
        meta if METAS.contains(&meta) => Value::Meta(meta.to_owned()),
        _ => return None,
    })
}

/// Words that name bits, all of which are meant: `fin,syn`, `fin | syn`, or the same in parentheses.
pub fn bits(tokens: &mut Tokens) -> Option<Vec<String>> {
    let mut words = Vec::new();
    loop {
        let text = tokens.next()?.text()?;
        words.extend(text.split(['|', '(', ')']).filter(|word| !word.is_empty()).map(str::to_owned));
        match tokens.peek() {
            Some(Token::Mark(',') | Token::Word("|")) => _ = tokens.next(),
            _ => return Some(words),
        }
    }
}

/// What was taken since then.
pub fn between(begin: &str, tokens: &Tokens) -> String {
    begin[..begin.len() - tokens.rest().len()].trim().to_owned()
}

/// Takes a word.
pub fn word<'a>(tokens: &mut Tokens<'a>) -> Option<&'a str> {
    tokens.next()?.text()
}

/// Takes the next word if it is one of these.
pub fn one_of<'a>(tokens: &mut Tokens<'a>, words: &[&str]) -> Option<&'a str> {
    match tokens.peek() {
        Some(Token::Word(word)) if words.contains(&word) => {
            tokens.next();
            Some(word)
        }
        _ => None,
    }
}
