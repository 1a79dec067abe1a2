//! A rule's statements, as `nft` writes them in one line.

use super::ast::{Element, Rule, Statement, Value};
use super::text;
use super::token::{Token, Tokens, duration_ms};

/// Reads a rule up to the end of its line. What is not understood is kept as it is written.
pub fn rule(tokens: &mut Tokens) -> Rule {
    let mut rule = Rule { line: tokens.line, ..Rule::default() };
    loop {
        let begin = tokens.rest();
        match tokens.peek() {
            None | Some(Token::Line | Token::Mark('}')) => return rule,
            Some(Token::Mark(';')) => {
                tokens.next();
            }
            Some(Token::Word("comment")) => {
                tokens.next();
                rule.comment = tokens.next().and_then(Token::text).map(str::to_owned);
            }
            Some(Token::Word("#")) => hash(tokens, &mut rule),
            Some(_) => match statement(tokens) {
                Some(Statement::Condition(_)) => {
                    let end = begin.len() - tokens.rest().len();
                    rule.statements.push(Statement::Condition(begin[..end].trim().to_owned()));
                }
                Some(statement) => rule.statements.push(statement),
                None => {
                    tokens.rest_of_line();
                    let line = begin.lines().next().unwrap_or_default();
                    rule.statements.push(Statement::Unknown(line.trim().to_owned()));
                }
            },
        }
    }
}

/// `# handle 7` ends a line; `# xt_comment` is how nft 1.0 lists what iptables-nft keeps and it does not know.
fn hash(tokens: &mut Tokens, rule: &mut Rule) {
    tokens.next();
    match tokens.next().and_then(Token::text) {
        Some("handle") => {
            rule.handle = tokens.next().and_then(Token::text).and_then(|text| text.parse().ok()).unwrap_or_default();
        }
        Some("xt_comment") => {}
        Some(name) if name.chars().any(|c| c.is_ascii_uppercase()) => {
            rule.statements.push(Statement::Unknown(format!("# {name}")));
        }
        Some(name) => rule.statements.push(Statement::Condition(format!("# {name}"))),
        None => {}
    }
}

fn word<'a>(tokens: &mut Tokens<'a>) -> Option<&'a str> {
    tokens.next()?.text()
}

/// Takes the next word if it is one of these.
fn one_of<'a>(tokens: &mut Tokens<'a>, words: &[&str]) -> Option<&'a str> {
    match tokens.peek() {
        Some(Token::Word(word)) if words.contains(&word) => {
            tokens.next();
            Some(word)
        }
        _ => None,
    }
}

/// One statement; none if it is not understood.
fn statement(tokens: &mut Tokens) -> Option<Statement> {
    let mut ahead = tokens.clone();
    let first = word(&mut ahead)?;
    if let Some(verdict) = text::plain_verdict(first) {
        *tokens = ahead;
        return Some(Statement::Verdict(verdict));
    }
    let taken = match first {
        "jump" | "goto" => Statement::Verdict(text::verdict(&mut ahead, first).ok()?),
        "counter" => {
            if one_of(&mut ahead, &["name"]).is_some() {
                word(&mut ahead)?;
            }
            for _ in 0..2 {
                if one_of(&mut ahead, &["packets", "bytes"]).is_some() {
                    word(&mut ahead)?;
                }
            }
            Statement::Harmless
        }
        "log" => log(&mut ahead)?,
        "notrack" => Statement::Untrack,
        "limit" | "quota" => {
            while let Some(Token::Word(word)) = ahead.peek()
                && !is_end_of_limit(word)
            {
                ahead.next();
            }
            Statement::Condition(String::new())
        }
        "reject" => reject(&mut ahead)?,
        "masquerade" => Statement::Masquerade(nat_flags(&mut ahead)),
        "redirect" => {
            let port = match one_of(&mut ahead, &["to"]) {
                Some(_) => Some(Value::Word(word(&mut ahead)?.strip_prefix(':')?.to_owned())),
                None => None,
            };
            nat_flags(&mut ahead);
            Statement::Redirect(port)
        }
        "dnat" | "snat" => nat(&mut ahead, first == "snat")?,
        "update" | "add" | "delete" => update(&mut ahead, first)?,
        "xt" => xt(&mut ahead)?,
        _ => return matching(tokens),
    };
    *tokens = ahead;
    Some(taken)
}

/// The words that can follow a limit; those of the limit itself never are these.
fn is_end_of_limit(word: &str) -> bool {
    const NEXT: [&str; 12] =
        ["accept", "drop", "return", "continue", "jump", "goto", "reject", "log", "counter", "comment", "meta", "ct"];
    NEXT.contains(&word)
}

fn log(tokens: &mut Tokens) -> Option<Statement> {
    while let Some(option) = one_of(tokens, &["prefix", "level", "group", "snaplen", "queue-threshold", "flags"]) {
        word(tokens)?;
        if option == "flags" {
            while tokens.peek() == Some(Token::Mark(',')) {
                tokens.next();
                word(tokens)?;
            }
            one_of(tokens, &["options", "sequence", "sequence,options"]);
        }
    }
    Some(Statement::Harmless)
}

fn xt(tokens: &mut Tokens) -> Option<Statement> {
    let kind = word(tokens)?;
    let name = word(tokens)?;
    Some(match (kind, name) {
        ("match", "comment") => Statement::Harmless,
        ("match", _) => Statement::Condition(String::new()),
        _ => return None,
    })
}

fn reject(tokens: &mut Tokens) -> Option<Statement> {
    if one_of(tokens, &["with"]).is_none() {
        return Some(Statement::Reject(None, None));
    }
    let kind = word(tokens)?.to_owned();
    if kind == "tcp" {
        return (word(tokens)? == "reset").then_some(Statement::Reject(Some("tcp reset".into()), None));
    }
    one_of(tokens, &["type"]);
    Some(Statement::Reject(Some(kind), Some(word(tokens)?.to_owned())))
}

fn nat_flags(tokens: &mut Tokens) -> Vec<String> {
    let mut flags = Vec::new();
    loop {
        match tokens.peek() {
            Some(Token::Word(flag @ ("random" | "fully-random" | "persistent"))) => {
                tokens.next();
                flags.push(flag.to_owned());
            }
            Some(Token::Mark(',')) => {
                tokens.next();
            }
            _ => return flags,
        }
    }
}

fn nat(tokens: &mut Tokens, source: bool) -> Option<Statement> {
    one_of(tokens, &["ip", "ip6"]);
    if one_of(tokens, &["addr"]).is_some() {
        (word(tokens)? == "." && word(tokens)? == "port").then_some(())?;
    }
    (word(tokens)? == "to").then_some(())?;
    let starts_expression = matches!(tokens.peek(), Some(Token::Word(word)) if is_expression(word));
    let (address, port) = if starts_expression {
        let (address, more) = mapped(tokens)?;
        let port = if more { Some(mapped(tokens)?.0) } else { None };
        (Some(address), port)
    } else {
        target(word(tokens)?)
    };
    Some(Statement::Nat { source, address, port, flags: nat_flags(tokens) })
}

/// `key map @name`, or with its elements; and whether a colon follows.
fn mapped(tokens: &mut Tokens) -> Option<(Value, bool)> {
    let key = expression(tokens)?;
    if one_of(tokens, &["map"]).is_none() {
        return Some((key, false));
    }
    if let Some((name, more)) = tokens.named() {
        return Some((Value::Map(Box::new(key), Box::new(Value::Named(name.into()))), more));
    }
    let elements = elements(tokens)?;
    Some((Value::Map(Box::new(key), Box::new(elements)), false))
}

fn elements(tokens: &mut Tokens) -> Option<Value> {
    (tokens.next()? == Token::Mark('{')).then_some(())?;
    text::elements(tokens).ok().map(Value::Elements)
}

/// `10.0.0.1:80`, `[fd00::1]:80`, `10.0.0.1`, `fd00::1` or `:80`.
fn target(text: &str) -> (Option<Value>, Option<Value>) {
    let value = |text: &str| Some(Value::Word(text.to_owned()));
    if let Some(port) = text.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        return (None, value(port));
    }
    if let Some(inside) = text.strip_prefix('[') {
        return match inside.split_once(']') {
            Some((address, port)) => (value(address), port.strip_prefix(':').and_then(value)),
            None => (value(text), None),
        };
    }
    match text.split_once(':') {
        Some((address, port)) if !port.contains(':') => (value(address), value(port)),
        _ => (value(text), None),
    }
}

fn update(tokens: &mut Tokens, verb: &str) -> Option<Statement> {
    let op = match verb {
        "add" => 0,
        "update" => 1,
        _ => 2,
    };
    let (set, _) = tokens.named()?;
    (tokens.next()? == Token::Mark('{')).then_some(())?;
    let mut element = Element::new(expression(tokens)?);
    if one_of(tokens, &["timeout"]).is_some() {
        element.timeout_ms = Some(duration_ms(word(tokens)?)?);
    }
    if one_of(tokens, &[":"]).is_some() {
        element.data = Some(super::ast::Data::Value(expression(tokens)?));
    }
    (tokens.next()? == Token::Mark('}')).then_some(())?;
    Some(Statement::Update { op, set: set.into(), element })
}

/// `left op right`, `key vmap @map`, or `meta mark set …`.
fn matching(tokens: &mut Tokens) -> Option<Statement> {
    let mut ahead = tokens.clone();
    let left = expression(&mut ahead)?;
    let statement = match one_of(&mut ahead, &["vmap", "set", "==", "!=", "<", "<=", ">", ">=", "!"]) {
        Some("vmap") => {
            let map = match ahead.named() {
                Some((name, _)) => Value::Named(name.into()),
                None => elements(&mut ahead)?,
            };
            Statement::Vmap(left, map)
        }
        Some("set") => {
            let value = match ahead.peek() {
                Some(Token::Word(word)) if is_expression(word) => mapped(&mut ahead)?.0,
                _ => text::value(&mut ahead).ok()?,
            };
            match left {
                Value::Meta(key) => Statement::SetMeta(key, value),
                Value::Ct { key, direction: None } => Statement::SetCt(key, value),
                _ => return None,
            }
        }
        op => Statement::Match { left, op: op.unwrap_or("in").to_owned(), right: right(&mut ahead)? },
    };
    *tokens = ahead;
    Some(statement)
}

fn right(tokens: &mut Tokens) -> Option<Value> {
    if let Some((name, false)) = tokens.named() {
        return Some(Value::Named(name.into()));
    }
    match tokens.peek()? {
        Token::Mark('{') => return elements(tokens),
        Token::Mark(_) | Token::Line => return None,
        Token::Word(_) | Token::Quoted(_) => {}
    }
    let first = text::value(tokens).ok()?;
    let (Value::Word(word), Some(Token::Mark(','))) = (&first, tokens.peek()) else { return Some(first) };
    let mut flags = vec![word.clone()];
    while tokens.peek() == Some(Token::Mark(',')) {
        tokens.next();
        flags.push(tokens.next()?.text()?.to_owned());
    }
    Some(Value::Flags(flags))
}

const HEADERS: [&str; 12] =
    ["ip", "ip6", "tcp", "udp", "sctp", "th", "icmp", "icmpv6", "ether", "arp", "vlan", "udplite"];
const METAS: [&str; 10] =
    ["iif", "iifname", "oif", "oifname", "mark", "skuid", "skgid", "pkttype", "iiftype", "oiftype"];

fn is_expression(word: &str) -> bool {
    HEADERS.contains(&word) || METAS.contains(&word) || ["meta", "ct", "fib", "numgen"].contains(&word)
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
        value = Value::Bits(Box::new(value), operator, word(tokens)?.to_owned());
    }
    Some(value)
}

fn primary(tokens: &mut Tokens) -> Option<Value> {
    let first = word(tokens)?;
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
