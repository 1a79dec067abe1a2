//! A rule's statements, as `nft` writes them in one line.

use super::ast::{Element, Rule, Statement, Value};
use super::expression::{between, bits, expression, is_expression, one_of, word};
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
                Some(Statement::Condition(_)) => rule.statements.push(Statement::Condition(between(begin, tokens))),
                Some(Statement::Extension(_)) => rule.statements.push(Statement::Extension(between(begin, tokens))),
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
        Some(name) => rule.statements.push(Statement::Extension(format!("# {name}"))),
        None => {}
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
            counter(&mut ahead)?;
            Statement::Harmless
        }
        "log" => log(&mut ahead)?,
        "notrack" => Statement::Untrack,
        "last" => {
            condition(&mut ahead, first)?;
            Statement::Harmless
        }
        "limit" | "quota" | "flow" | "reset" => {
            condition(&mut ahead, first)?;
            Statement::Condition(String::new())
        }
        "ct" if ahead.peek() == Some(Token::Word("count")) => {
            condition(&mut ahead, first)?;
            Statement::Condition(String::new())
        }
        "ct" if is_object_of_connections(&ahead) => {
            word(&mut ahead)?;
            word(&mut ahead)?;
            taken_value(&mut ahead)?;
            Statement::Harmless
        }
        "reject" => reject(&mut ahead)?,
        "masquerade" => {
            let port = to_port(&mut ahead)?;
            Statement::Masquerade { port, flags: nat_flags(&mut ahead) }
        }
        "redirect" => {
            let port = to_port(&mut ahead)?;
            Statement::Redirect { port, flags: nat_flags(&mut ahead) }
        }
        "dnat" | "snat" => nat(&mut ahead, first == "snat")?,
        "update" | "add" | "delete" => update(&mut ahead, first)?,
        "xt" => xt(&mut ahead)?,
        _ => return matching(tokens),
    };
    *tokens = ahead;
    Some(taken)
}

/// `name "x"`, or a map that gives the name; if there is one.
fn object(tokens: &mut Tokens) -> Option<bool> {
    if one_of(tokens, &["name"]).is_none() {
        return Some(false);
    }
    taken_value(tokens)?;
    Some(true)
}

/// Takes a word, or a map's value.
fn taken_value(tokens: &mut Tokens) -> Option<()> {
    match tokens.peek()? {
        Token::Word(word) if is_expression(word) => mapped(tokens).map(drop),
        _ => word(tokens).map(drop),
    }
}

/// `ct helper set`, and the like.
fn is_object_of_connections(tokens: &Tokens) -> bool {
    let mut ahead = tokens.clone();
    one_of(&mut ahead, &["helper", "timeout", "expectation"]).is_some() && one_of(&mut ahead, &["set"]).is_some()
}

/// What follows `counter`.
fn counter(tokens: &mut Tokens) -> Option<()> {
    object(tokens)?;
    for _ in 0..2 {
        if one_of(tokens, &["packets", "bytes"]).is_some() {
            word(tokens)?;
        }
    }
    Some(())
}

/// What follows the first word of a statement that a packet may not pass.
fn condition(tokens: &mut Tokens, first: &str) -> Option<()> {
    const UNITS: [&str; 5] = ["packets", "bytes", "kbytes", "mbytes", "gbytes"];
    match first {
        "ct" => {
            (word(tokens)? == "count").then_some(())?;
            one_of(tokens, &["over"]);
            word(tokens)?;
        }
        // an option that is taken out of the packet says nothing about where it goes
        "reset" => _ = expression(tokens)?,
        "flow" => _ = (word(tokens)?, word(tokens)?),
        "last" => {
            if one_of(tokens, &["used"]).is_some() {
                word(tokens)?;
            }
        }
        _ if object(tokens)? => {}
        "limit" => {
            (word(tokens)? == "rate").then_some(())?;
            one_of(tokens, &["over"]);
            // `10/second`, or `10 mbytes/second`
            if !word(tokens)?.contains('/') {
                word(tokens)?;
            }
            if one_of(tokens, &["burst"]).is_some() {
                word(tokens)?;
                one_of(tokens, &UNITS);
            }
        }
        _ => {
            one_of(tokens, &["over", "until"]);
            word(tokens)?;
            one_of(tokens, &UNITS)?;
            if one_of(tokens, &["used"]).is_some() {
                word(tokens)?;
                one_of(tokens, &UNITS)?;
            }
        }
    }
    Some(())
}

/// Takes a statement of an element; where it is not understood, its first word.
pub fn of_element(tokens: &mut Tokens) {
    let first = word(tokens).unwrap_or_default();
    let mut ahead = tokens.clone();
    if condition(&mut ahead, first).is_some() {
        *tokens = ahead;
    }
}

/// `to :80`, `to :80-90`, or `to :` and a map; if there is one.
fn to_port(tokens: &mut Tokens) -> Option<Option<Value>> {
    if one_of(tokens, &["to"]).is_none() {
        return Some(None);
    }
    tokens.colon().then_some(())?;
    Some(Some(match tokens.peek()? {
        Token::Word(word) if is_expression(word) => mapped(tokens)?.0,
        _ => text::part(word(tokens)?),
    }))
}

fn log(tokens: &mut Tokens) -> Option<Statement> {
    while let Some(option) = one_of(tokens, &["prefix", "level", "group", "snaplen", "queue-threshold", "flags"]) {
        word(tokens)?;
        if option == "flags" {
            while tokens.peek() == Some(Token::Mark(',')) {
                tokens.next();
                word(tokens)?;
            }
            while one_of(tokens, &["options", "sequence"]).is_some() && tokens.peek() == Some(Token::Mark(',')) {
                tokens.next();
            }
        }
    }
    Some(Statement::Harmless)
}

fn xt(tokens: &mut Tokens) -> Option<Statement> {
    let kind = word(tokens)?;
    let name = word(tokens)?;
    Some(match (kind, name) {
        ("match", "comment") => Statement::Harmless,
        ("match", _) => Statement::Extension(String::new()),
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
    let value = |text: &str| {
        Some(match text.split_once('-') {
            Some((first, last)) => Value::Range(first.into(), last.into()),
            None => Value::Word(text.into()),
        })
    };
    if let Some(port) =
        text.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
    {
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
    let mut condition_of_it = None;
    loop {
        let begin = tokens.rest();
        match tokens.next()? {
            Token::Mark('}') => break,
            Token::Word("timeout") => element.timeout_ms = Some(duration_ms(word(tokens)?)?),
            Token::Word("expires") => _ = word(tokens)?,
            Token::Word("counter") => counter(tokens)?,
            Token::Word("last") => condition(tokens, "last")?,
            Token::Word(first @ ("limit" | "quota" | "ct")) => {
                condition(tokens, first)?;
                condition_of_it = Some(between(begin, tokens));
            }
            Token::Word(":") => {
                let data = match tokens.peek()? {
                    Token::Word(word) if is_expression(word) => expression(tokens)?,
                    _ => text::value(tokens).ok()?,
                };
                element.data = Some(super::ast::Data::Value(data));
            }
            _ => return None,
        }
    }
    Some(Statement::Update { op, set: set.into(), element, condition: condition_of_it })
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
                _ => right(&mut ahead)?,
            };
            match left {
                Value::Meta(key) => Statement::SetMeta(key, value),
                Value::Ct { key, direction: None } => Statement::SetCt(key, value),
                field => Statement::written(&field, &value)?,
            }
        }
        op => {
            let (op, right) = (op.unwrap_or("in").to_owned(), right(&mut ahead)?);
            match one_of(&mut ahead, &["/"]) {
                // `tcp flags syn / fin,syn,rst`: of these bits
                Some(_) => {
                    let bits = bits(&mut ahead)?.join(",");
                    let op = if op == "in" { "==".into() } else { op };
                    Statement::Match { left: Value::Bits(Box::new(left), '&', bits), op, right }
                }
                None => Statement::Match { left, op, right },
            }
        }
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
    let mut ahead = tokens.clone();
    let first = text::value(&mut ahead).ok()?;
    let Value::Word(word) = &first else {
        *tokens = ahead;
        return Some(first);
    };
    let is_more = matches!(ahead.peek(), Some(Token::Mark(',') | Token::Word("|")));
    if is_more || word.starts_with('(') {
        return bits(tokens).map(Value::Flags);
    }
    *tokens = ahead;
    Some(first)
}
