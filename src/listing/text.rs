//! What `nft list ruleset` prints, versions 1.0.6 to 1.1.

use super::NoListing;
use super::ast::{Chain, Data, Element, Set, TableName, Value};
use super::compile::Compiler;
use super::statement;
use super::token::{Token, Tokens, duration_ms, shown};
use crate::netlink::model::{NfFamily, Verdict};

/// Reads all tables of a text.
pub fn read(text: &str, compiler: &mut Compiler) -> Result<(), NoListing> {
    let mut tokens = Tokens::new(text);
    let mut tables = 0;
    while let Some(token) = tokens.next_word() {
        match token {
            Token::Word("table") => {
                table(&mut tokens, compiler)?;
                tables += 1;
            }
            Token::Word(word) if word.starts_with('#') => {
                tokens.rest_of_line();
            }
            // svcmap's own scripts begin so
            Token::Word("add" | "delete" | "flush" | "destroy") => {
                tokens.rest_of_line();
            }
            other => return Err(wrong(&tokens, format!("a table was expected, not {other}"))),
        }
    }
    if tables == 0 && !text.trim().is_empty() {
        return Err(wrong(&tokens, "there is no table in it"));
    }
    Ok(())
}

fn wrong(tokens: &Tokens, what: impl Into<String>) -> NoListing {
    NoListing { line: tokens.line, what: what.into() }
}

/// The number of a family's name.
pub fn family(name: &str) -> Option<NfFamily> {
    [1, 2, 3, 5, 7, 10].map(NfFamily).into_iter().find(|family| family.name() == name)
}

fn word<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, NoListing> {
    let token = tokens.next_word();
    token.and_then(Token::text).ok_or_else(|| wrong(tokens, format!("a word was expected, not {}", shown(token))))
}

/// `# handle 7` behind what opens an object, or a line of its own. A rule may begin with `# xt_comment`.
fn is_remark(tokens: &Tokens) -> bool {
    let mut ahead = tokens.clone();
    let begins = matches!(ahead.next(), Some(Token::Word(word)) if word.starts_with('#'));
    begins && !matches!(ahead.next(), Some(Token::Word(word)) if word.starts_with("xt_"))
}

fn mark(tokens: &mut Tokens, expected: char) -> Result<(), NoListing> {
    match tokens.next_word() {
        Some(Token::Mark(found)) if found == expected => Ok(()),
        other => Err(wrong(tokens, format!("\"{expected}\" was expected, not {}", shown(other)))),
    }
}

fn table(tokens: &mut Tokens, compiler: &mut Compiler) -> Result<(), NoListing> {
    let family_name = word(tokens)?;
    let family = family(family_name).ok_or_else(|| wrong(tokens, format!("{family_name:?} is no family")))?;
    let name = TableName { family, name: word(tokens)?.to_owned() };
    mark(tokens, '{')?;
    let (mut comment, mut dormant, mut begun) = (None, false, false);
    loop {
        tokens.skip_lines();
        let before = tokens.line;
        if is_remark(tokens) {
            tokens.rest_of_line();
            continue;
        }
        let token = tokens.next_word();
        if !begun && !matches!(token, Some(Token::Word("comment" | "flags"))) {
            compiler.table(&name, comment.take(), dormant);
            begun = true;
        }
        match token {
            Some(Token::Mark('}')) => return Ok(()),
            Some(Token::Word("comment")) => comment = Some(word(tokens)?.to_owned()),
            Some(Token::Word("flags")) => dormant = tokens.rest_of_line().contains("dormant"),
            Some(Token::Word("set" | "map")) => {
                let set = set(tokens, before)?;
                compiler.set(&name, set);
            }
            Some(Token::Word("chain")) => chain(tokens, &name, compiler)?,
            Some(Token::Word(
                kind @ ("counter" | "quota" | "limit" | "ct" | "synproxy" | "secmark" | "tunnel" | "flowtable"),
            )) => {
                while tokens.next_word().is_some_and(|token| token != Token::Mark('{')) {}
                tokens.skip_block();
                if kind == "flowtable" {
                    compiler.note(before, super::FLOWTABLE.into());
                }
            }
            Some(Token::Mark(';')) => {}
            other => return Err(wrong(tokens, format!("a set, a map or a chain was expected, not {}", shown(other)))),
        }
    }
}

fn set(tokens: &mut Tokens, line: usize) -> Result<Set, NoListing> {
    let mut set = Set { name: word(tokens)?.to_owned(), line, ..Set::default() };
    mark(tokens, '{')?;
    loop {
        match tokens.next_word() {
            Some(Token::Mark('}')) => return Ok(set),
            Some(Token::Mark(';')) => {}
            Some(Token::Word("type" | "typeof")) => {
                let rest = tokens.rest_of_line().split(';').next().unwrap_or_default().trim();
                let (key, data) = match rest.split_once(" : ") {
                    Some((key, data)) => (key, Some(data)),
                    None => (rest, None),
                };
                let parts = |text: &str| text.split(" . ").map(|part| part.trim().to_owned()).collect();
                (set.key, set.data) = (parts(key), data.map(parts));
            }
            Some(Token::Word("size")) => set.size = word(tokens)?.parse().ok(),
            Some(Token::Word("flags")) => {
                let line = tokens.rest_of_line();
                let words = line.split([',', ';', ' ']).filter(|word| !word.is_empty());
                set.flags = words.map(str::to_owned).collect();
            }
            Some(Token::Word("timeout")) => set.timeout_ms = duration_ms(word(tokens)?),
            Some(Token::Word("counter")) => set.counter = true,
            Some(Token::Word("comment" | "gc-interval" | "policy")) => {
                word(tokens)?;
            }
            Some(Token::Word("auto-merge")) => {}
            Some(Token::Word(first @ ("limit" | "quota" | "ct"))) => {
                set.conditions.push(format!("{first}{}", tokens.rest_of_line().trim_end()));
            }
            Some(Token::Word("last")) => _ = tokens.rest_of_line(),
            Some(Token::Word("elements")) => {
                word(tokens)?; // "="
                mark(tokens, '{')?;
                set.elements = elements(tokens)?;
            }
            Some(Token::Word(word)) if word.starts_with('#') => {
                tokens.rest_of_line();
            }
            Some(Token::Word(first)) => set.unknown.push(format!("{first}{}", tokens.rest_of_line().trim_end())),
            other => return Err(wrong(tokens, format!("{} of the set {} is not understood", shown(other), set.name))),
        }
    }
}

/// Elements up to the brace that closes them.
pub fn elements(tokens: &mut Tokens) -> Result<Vec<Element>, NoListing> {
    let mut elements = Vec::new();
    loop {
        tokens.skip_lines();
        match tokens.peek() {
            Some(Token::Mark('}')) => {
                tokens.next();
                return Ok(elements);
            }
            Some(Token::Mark(',')) => {
                tokens.next();
            }
            Some(_) => elements.push(element(tokens)?),
            None => return Err(wrong(tokens, "the listing ends within a set")),
        }
    }
}

fn element(tokens: &mut Tokens) -> Result<Element, NoListing> {
    let mut element = Element::new(value(tokens)?);
    loop {
        tokens.skip_lines();
        match tokens.peek() {
            Some(Token::Word("timeout")) => {
                tokens.next();
                element.timeout_ms = duration_ms(word(tokens)?);
            }
            Some(Token::Word("expires")) => {
                tokens.next();
                element.expires_ms = duration_ms(word(tokens)?);
            }
            Some(Token::Word("comment")) => {
                tokens.next();
                element.comment = Some(word(tokens)?.to_owned());
            }
            Some(Token::Word("counter")) => {
                tokens.next();
                let mut number = |name: &str| match tokens.peek() {
                    Some(Token::Word(word)) if word == name => {
                        tokens.next();
                        tokens.next().and_then(Token::text).and_then(|text| text.parse().ok())
                    }
                    _ => None,
                };
                element.counter = number("packets").zip(number("bytes"));
            }
            Some(Token::Word(first @ ("limit" | "quota" | "ct" | "last"))) => {
                element.is_conditional |= first != "last";
                statement::of_element(tokens);
            }
            Some(Token::Word(":")) => {
                tokens.next();
                element.data = Some(data(tokens)?);
            }
            _ => return Ok(element),
        }
    }
}

fn data(tokens: &mut Tokens) -> Result<Data, NoListing> {
    Ok(match tokens.peek() {
        Some(Token::Word(word)) if verdict_needs_chain(word).is_some() || plain_verdict(word).is_some() => {
            tokens.next();
            Data::Verdict(verdict(tokens, word)?)
        }
        _ => Data::Value(value(tokens)?),
    })
}

/// The verdicts that name no chain.
pub fn plain_verdict(word: &str) -> Option<Verdict> {
    Some(match word {
        "accept" => Verdict::Accept,
        "drop" => Verdict::Drop,
        "continue" => Verdict::Continue,
        "return" => Verdict::Return,
        _ => return None,
    })
}

fn verdict_needs_chain(word: &str) -> Option<fn(crate::netlink::model::Name) -> Verdict> {
    match word {
        "jump" => Some(Verdict::Jump),
        "goto" => Some(Verdict::Goto),
        _ => None,
    }
}

/// The verdict that begins with a word that was taken.
pub fn verdict(tokens: &mut Tokens, first: &str) -> Result<Verdict, NoListing> {
    match verdict_needs_chain(first) {
        Some(verdict) => Ok(verdict(word(tokens)?.into())),
        None => plain_verdict(first).ok_or_else(|| wrong(tokens, format!("{first:?} is no verdict"))),
    }
}

/// A constant: parts with dots between them.
pub fn value(tokens: &mut Tokens) -> Result<Value, NoListing> {
    let mut parts = vec![one_part(tokens)?];
    loop {
        let mut ahead = tokens.clone();
        match ahead.next_word() {
            Some(Token::Word(".")) => {
                *tokens = ahead;
                parts.push(one_part(tokens)?);
            }
            _ if parts.len() == 1 => return Ok(parts.remove(0)),
            _ => return Ok(Value::Concat(parts)),
        }
    }
}

/// A part, which is a range of two texts where these are in quotation marks, such as times.
fn one_part(tokens: &mut Tokens) -> Result<Value, NoListing> {
    let mut ahead = tokens.clone();
    let Some(Token::Quoted(first)) = ahead.next_word() else { return Ok(part(word(tokens)?)) };
    *tokens = ahead.clone();
    match (ahead.next(), ahead.next()) {
        (Some(Token::Word("-")), Some(Token::Quoted(last))) => {
            *tokens = ahead;
            Ok(Value::Range(first.into(), last.into()))
        }
        _ => Ok(Value::Word(first.into())),
    }
}

/// A value, a prefix or a range in one word.
pub fn part(text: &str) -> Value {
    if let Some((address, length)) = text.split_once('/')
        && let Ok(length) = length.parse()
    {
        return Value::Prefix(address.into(), length);
    }
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':');
    match text.split_once('-') {
        Some((first, last))
            if is_number(first)
                && is_number(last)
                && (text.contains(['.', ':']) || digits(first) || first.starts_with("0x")) =>
        {
            Value::Range(first.into(), last.into())
        }
        _ => Value::Word(text.into()),
    }
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn chain(tokens: &mut Tokens, table: &TableName, compiler: &mut Compiler) -> Result<(), NoListing> {
    let mut chain = Chain { name: word(tokens)?.to_owned(), ..Chain::default() };
    mark(tokens, '{')?;
    let mut begun = false;
    loop {
        tokens.skip_lines();
        if is_remark(tokens) {
            tokens.rest_of_line();
            continue;
        }
        let token = tokens.peek();
        let is_head =
            matches!(token, Some(Token::Word("type" | "policy" | "comment" | "flags")) | Some(Token::Mark(';')));
        if !is_head && !begun {
            compiler.chain(table, &chain);
            begun = true;
        }
        match token {
            Some(Token::Mark('}')) => {
                tokens.next();
                return Ok(());
            }
            Some(Token::Word("type")) if !begun => hook(tokens, &mut chain)?,
            Some(Token::Word("policy")) if !begun => {
                tokens.next();
                chain.drops = word(tokens)? == "drop";
            }
            Some(Token::Word("flags")) if !begun => {
                tokens.next();
                word(tokens)?;
            }
            Some(Token::Word("comment")) if !begun => {
                tokens.next();
                chain.comment = Some(word(tokens)?.to_owned());
            }
            Some(Token::Mark(';')) => {
                tokens.next();
            }
            Some(_) => {
                let rule = statement::rule(tokens);
                compiler.rule(table, &chain.name, rule);
            }
            None => return Err(wrong(tokens, "the listing ends within a chain")),
        }
    }
}

/// `type nat hook prerouting priority dstnat - 1`
fn hook(tokens: &mut Tokens, chain: &mut Chain) -> Result<(), NoListing> {
    tokens.next();
    let kind = word(tokens)?.to_owned();
    let (mut hook, mut priority) = (String::new(), 0);
    loop {
        match tokens.next() {
            Some(Token::Word("hook")) => hook = word(tokens)?.to_owned(),
            Some(Token::Word("priority")) => {
                let name = word(tokens)?;
                let base = base_priority(name).ok_or_else(|| wrong(tokens, format!("{name:?} is no priority")))?;
                let sign = match tokens.peek() {
                    Some(Token::Word("+")) => 1,
                    Some(Token::Word("-")) => -1,
                    _ => 0,
                };
                priority = base;
                if sign != 0 {
                    tokens.next();
                    let more = word(tokens)?;
                    priority +=
                        sign * more.parse::<i32>().map_err(|_| wrong(tokens, format!("{more:?} is no number")))?;
                }
            }
            Some(Token::Word("device" | "devices")) => {}
            Some(Token::Mark(';' | '\n') | Token::Line) | None => break,
            Some(_) => {}
        }
    }
    chain.hook = Some((kind, hook, priority));
    Ok(())
}

/// A priority by its name in the families of IP, or by its number.
pub fn base_priority(name: &str) -> Option<i32> {
    Some(match name {
        "raw" => -300,
        "mangle" => -150,
        "dstnat" => -100,
        "filter" => 0,
        "security" => 50,
        "srcnat" => 100,
        number => number.parse().ok()?,
    })
}
