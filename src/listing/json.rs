//! What `nft -j list ruleset` prints: one object, in whose list `nftables` every table, chain, set and rule is an object.
//! They are read one at a time, since a listing may be long.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::NoListing;
use super::ast::{Chain, Data, Element, Rule, Set, Statement, TableName, Value};
use super::compile::Compiler;
use super::statement::rule as parse;
use super::text::{family, plain_verdict};
use super::token::Tokens;
use crate::netlink::model::Verdict;

/// Reads all objects of a listing.
pub fn read(text: &str, compiler: &mut Compiler) -> Result<(), NoListing> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_map(Whole(compiler)).and_then(|()| json.end());
    read.map_err(|error| NoListing { line: error.line(), what: error.to_string() })
}

/// `{"nftables": […]}`.
struct Whole<'a>(&'a mut Compiler);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what nft -j list ruleset prints")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "nftables" {
                map.next_value_seed(Objects(self.0))?;
                found = true;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::custom("there is no list \"nftables\" in it")) }
    }
}

struct Objects<'a>(&'a mut Compiler);

impl<'de> DeserializeSeed<'de> for Objects<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Objects<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<(), A::Error> {
        let mut number = 0;
        while let Some(object) = objects.next_element::<&RawValue>()? {
            number += 1;
            if let Err(what) = read_object(object.get(), number, self.0) {
                self.0.note(number, what);
            }
        }
        Ok(())
    }
}

/// The fields of an object, which are still to be read.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn read_object(object: &str, number: usize, compiler: &mut Compiler) -> Result<(), String> {
    let wrong = |error: serde_json::Error| error.to_string();
    let fields: Fields = serde_json::from_str(object).map_err(wrong)?;
    let Some((kind, object)) = fields.into_iter().next() else { return Ok(()) };
    match kind.as_str() {
        "metainfo" | "counter" | "quota" | "limit" | "ct helper" | "ct timeout" | "ct expectation" | "synproxy"
        | "secmark" | "tunnel" => return Ok(()),
        "flowtable" => return Err(super::FLOWTABLE.into()),
        "table" | "chain" | "set" | "map" | "rule" => {}
        other => return Err(format!("{other:?} is not understood")),
    }
    let mut fields: Fields = serde_json::from_str(object.get()).map_err(wrong)?;
    // of a set, elements are most of it: they are not held twice
    let elements = fields.remove("elem");
    let parsed = fields.into_iter().map(|(name, value)| Ok((name, serde_json::from_str(value.get())?)));
    let mut object = Json::Object(parsed.collect::<Result<_, _>>().map_err(wrong)?);
    let name = text(&object["family"]).and_then(|name| family(&name));
    let family = name.ok_or_else(|| format!("{kind}: family: {} is none", object["family"]))?;
    let table = text(&object[if kind == "table" { "name" } else { "table" }]);
    let table = TableName { family, name: table.ok_or_else(|| format!("{kind}: there is no table"))? };
    let comment = text(&object["comment"]);
    let missing = |what: &str| format!("{kind} of {}: there is no {what}", table.name);
    match kind.as_str() {
        "table" => {
            let dormant = words(&object["flags"]).iter().any(|flag| flag == "dormant");
            compiler.table(&table, comment, dormant);
        }
        "chain" => {
            let name = text(&object["name"]).ok_or_else(|| missing("name"))?;
            let priority = object["prio"].as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or_default();
            let hook = text(&object["type"]).zip(text(&object["hook"])).map(|(kind, hook)| (kind, hook, priority));
            compiler.chain(&table, &Chain { name, hook, drops: object["policy"] == "drop", comment });
        }
        "set" | "map" => {
            let elements = match elements {
                Some(elements) => Elements::read(elements).map_err(wrong)?,
                None => Vec::new(),
            };
            let set = set(&object).map_err(missing)?;
            compiler.set(&table, Set { elements, line: number, ..set });
        }
        _ => {
            let chain = text(&object["chain"]).ok_or_else(|| missing("chain"))?;
            let Json::Array(exprs) = object["expr"].take() else { return Err(missing("expr")) };
            let mut rule = Rule { comment, line: number, ..Rule::default() };
            rule.handle = object["handle"].as_u64().unwrap_or_default();
            rule.statements = exprs.into_iter().map(statement_or_text).collect();
            compiler.rule(&table, &chain, rule);
        }
    }
    Ok(())
}

/// A set or map without its elements, or what is missing of it.
fn set(object: &Json) -> Result<Set, &'static str> {
    let has_counter = |all: &Vec<Json>| all.iter().any(|one| one.get("counter").is_some());
    Ok(Set {
        name: text(&object["name"]).ok_or("name")?,
        key: types(&object["type"]).ok_or("type")?,
        data: if object["map"].is_null() { None } else { types(&object["map"]) },
        flags: words(&object["flags"]),
        size: object["size"].as_u64().and_then(|size| u32::try_from(size).ok()),
        timeout_ms: seconds(&object["timeout"]),
        counter: object["stmt"].as_array().is_some_and(has_counter),
        conditions: conditions(&object["stmt"]),
        ..Set::default()
    })
}

/// The elements of a set, read one at a time.
struct Elements;

impl Elements {
    fn read(list: &RawValue) -> Result<Vec<Element>, serde_json::Error> {
        serde_json::Deserializer::from_str(list.get()).deserialize_seq(Elements)
    }
}

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<Element>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Element>, A::Error> {
        let mut elements = Vec::new();
        while let Some(json) = list.next_element::<Json>()? {
            let at = elements.len() + 1;
            elements.push(element(json).ok_or_else(|| A::Error::custom(format!("element {at} is not understood")))?);
        }
        Ok(elements)
    }
}

fn text(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}

fn number_or_text(json: &Json) -> Option<String> {
    text(json).or_else(|| json.as_u64().map(|number| number.to_string()))
}

/// A word, or a list of words.
fn words(json: &Json) -> Vec<String> {
    match json {
        Json::String(word) => vec![word.clone()],
        Json::Array(words) => words.iter().filter_map(text).collect(),
        _ => Vec::new(),
    }
}

/// The parts of a type: names, or with `typeof` expressions.
fn types(json: &Json) -> Option<Vec<String>> {
    match json {
        Json::String(name) => Some(name.split(" . ").map(str::to_owned).collect()),
        Json::Array(names) => names.iter().map(text).collect(),
        Json::Object(fields) => {
            let parts = match fields.get("typeof")? {
                Json::Object(one) if one.contains_key("concat") => one["concat"].as_array()?.clone(),
                one => vec![one.clone()],
            };
            parts.into_iter().map(|part| super::bytes::Kind::of(&expression(part)?).map(type_name)).collect()
        }
        _ => None,
    }
}

fn type_name(kind: super::bytes::Kind) -> String {
    use super::bytes::Kind;
    match kind {
        Kind::Ipv4 => "ipv4_addr",
        Kind::Ipv6 => "ipv6_addr",
        Kind::Protocol => "inet_proto",
        Kind::Port => "inet_service",
        Kind::Mark => "mark",
        Kind::Priority => "classid",
        Kind::Interface => "ifname",
        Kind::InterfaceIndex => "iface_index",
        Kind::Integer => "integer",
        Kind::Family => "nf_proto",
        Kind::EtherType => "ether_type",
        Kind::Direction => "ct_dir",
        Kind::State => "ct_state",
        Kind::Status => "ct_status",
        Kind::AddressType => "fib_addrtype",
        Kind::TcpFlags => "tcp_flag",
        // of these there is no type: their name is their field's
        Kind::Byte => "ip ttl",
        Kind::Short => "ip length",
        Kind::Long => "tcp sequence",
    }
    .into()
}

fn seconds(json: &Json) -> Option<u64> {
    json.as_u64().map(|seconds| seconds * 1000)
}

fn elements_of(json: Json) -> Option<Vec<Element>> {
    match json {
        Json::Null => Some(Vec::new()),
        Json::Array(elements) => elements.into_iter().map(element).collect(),
        _ => None,
    }
}

/// `key`, `[key, data]`, or either with `elem` around the key, which has what else there is.
fn element(json: Json) -> Option<Element> {
    let (key, value) = match json {
        Json::Array(pair) => {
            let mut pair = pair.into_iter();
            (pair.next()?, pair.next())
        }
        key => (key, None),
    };
    let mut element = match key {
        Json::Object(mut fields) if fields.contains_key("elem") => {
            let mut inner = fields.remove("elem")?;
            let mut element = Element::new(constant(inner["val"].take())?);
            element.comment = text(&inner["comment"]);
            element.timeout_ms = seconds(&inner["timeout"]);
            element.expires_ms = seconds(&inner["expires"]);
            let counter = &inner["counter"];
            element.counter = counter["packets"].as_u64().zip(counter["bytes"].as_u64());
            element.is_conditional = ["limit", "quota", "ct count"].iter().any(|name| inner.get(*name).is_some())
                || !conditions(&inner["stmt"]).is_empty();
            element
        }
        key => Element::new(constant(key)?),
    };
    element.data = match value {
        Some(value) => Some(match verdict(&value) {
            Some(verdict) => Data::Verdict(verdict),
            None => Data::Value(constant(value)?),
        }),
        None => None,
    };
    Some(element)
}

fn verdict(json: &Json) -> Option<Verdict> {
    let (word, value) = json.as_object()?.iter().next()?;
    let target = || text(&value["target"]).map(Into::into);
    match word.as_str() {
        "jump" => target().map(Verdict::Jump),
        "goto" => target().map(Verdict::Goto),
        word => plain_verdict(word),
    }
}

/// A constant.
fn constant(json: Json) -> Option<Value> {
    Some(match json {
        Json::String(word) => Value::Word(word),
        Json::Number(number) => Value::Word(number.to_string()),
        Json::Bool(is_there) => Value::Word(if is_there { "exists" } else { "missing" }.into()),
        Json::Object(fields) => {
            let (kind, mut value) = fields.into_iter().next()?;
            match kind.as_str() {
                "concat" => Value::Concat(array(value)?.into_iter().map(constant).collect::<Option<_>>()?),
                "prefix" => Value::Prefix(number_or_text(&value["addr"])?, u8::try_from(value["len"].as_u64()?).ok()?),
                "range" => {
                    let mut ends = array(value.take())?.into_iter().map(constant);
                    match (ends.next()??, ends.next()??) {
                        (Value::Word(first), Value::Word(last)) => Value::Range(first, last),
                        _ => return None,
                    }
                }
                "set" => Value::Elements(elements_of(value)?),
                "|" => Value::Flags(bits(value)?),
                _ => return None,
            }
        }
        words @ Json::Array(_) => Value::Flags(bits(words)?),
        _ => return None,
    })
}

/// Words that name bits, all of which are meant.
fn bits(json: Json) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for part in array(json)? {
        match constant(part)? {
            Value::Word(word) => words.push(word),
            Value::Flags(more) => words.extend(more),
            _ => return None,
        }
    }
    Some(words)
}

/// Statements of sets and elements that a packet may not pass, as nft writes them.
fn conditions(statements: &Json) -> Vec<String> {
    let named = statements.as_array().into_iter().flatten().filter_map(|one| one.as_object()?.iter().next());
    named
        .filter(|(name, _)| !["counter", "last"].contains(&name.as_str()))
        .map(|(name, value)| named_text(name, value))
        .collect()
}

/// A statement that a packet may not pass, as nft writes it.
fn named_text(name: &str, value: &Json) -> String {
    let mut words = vec![name.to_owned()];
    match value {
        Json::String(object) => words.push(format!("name {object:?}")),
        value => {
            let part = |key: &str| number_or_text(&value[key]);
            words.extend((name == "limit").then(|| "rate".to_owned()));
            words.extend((value["inv"] == true).then(|| "over".to_owned()));
            words.extend(part("rate").zip(part("per")).map(|(rate, per)| match part("rate_unit") {
                Some(unit) if unit != "packets" => format!("{rate} {unit}/{per}"),
                _ => format!("{rate}/{per}"),
            }));
            words.extend(["val", "val_unit"].into_iter().filter_map(part));
        }
    }
    words.join(" ")
}

/// What a value is called of which nothing else is known.
fn other(kind: &str, value: &Json) -> Option<Value> {
    let part = |key: &str| number_or_text(&value[key]);
    let (first, keys): (&str, &[&str]) = match kind {
        "tcp option" | "ip option" | "sctp chunk" | "dccp option" => (kind, &["name", "type", "field"]),
        "exthdr" if part("field").is_some() => ("", &["name", "field"]),
        "exthdr" => (kind, &["name"]),
        "socket" | "osf" => (kind, &["key"]),
        "rt" => (kind, &["family", "key"]),
        "ipsec" => (kind, &["dir", "family", "key"]),
        "tunnel" => (kind, &["key"]),
        "jhash" => {
            let of = value.get("expr").cloned().and_then(expression)?;
            return Some(Value::Other(format!("jhash {of} mod {}", part("mod")?)));
        }
        "symhash" => return Some(Value::Other(format!("symhash mod {}", part("mod")?))),
        "payload" => return Some(Value::Other(format!("@{},{},{}", part("base")?, part("offset")?, part("len")?))),
        _ => return None,
    };
    let words = std::iter::once(first.to_owned()).chain(keys.iter().filter_map(|key| part(key)));
    Some(Value::Other(words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")))
}

fn array(json: Json) -> Option<Vec<Json>> {
    match json {
        Json::Array(list) => Some(list),
        _ => None,
    }
}

/// Where a value comes from.
fn expression(json: Json) -> Option<Value> {
    let Json::Object(fields) = json else { return None };
    let (kind, mut value) = fields.into_iter().next()?;
    Some(match kind.as_str() {
        "payload" if value.get("protocol").is_some() => {
            Value::Header(text(&value["protocol"])?, text(&value["field"])?)
        }
        "meta" => Value::Meta(text(&value["key"])?),
        "ct" => {
            let direction = match value["dir"].as_str() {
                Some("original") => Some(0),
                Some(_) => Some(1),
                None => None,
            };
            // with a family: {"key": "ip daddr"} of 1.0, {"key": "daddr", "family": "ip"} before
            let key = text(&value["key"])?;
            let family = text(&value["family"]);
            Value::Ct { key: family.map_or_else(|| key.clone(), |family| format!("{family} {key}")), direction }
        }
        "fib" => Value::Fib { flags: words(&value["flags"]), result: text(&value["result"])? },
        "numgen" => Value::Numgen {
            random: value["mode"] == "random",
            modulus: u32::try_from(value["mod"].as_u64()?).ok()?,
            offset: u32::try_from(value["offset"].as_u64().unwrap_or_default()).ok()?,
        },
        "concat" => Value::Concat(array(value)?.into_iter().map(expression).collect::<Option<_>>()?),
        "map" => {
            let key = expression(value["key"].take())?;
            Value::Map(Box::new(key), Box::new(set_of(value["data"].take())?))
        }
        "&" | "|" | "^" => {
            let mut sides = array(value)?.into_iter();
            let left = expression(sides.next()?)?;
            let bits = match constant(sides.next()?)? {
                Value::Word(bits) => bits,
                Value::Flags(words) => words.join(","),
                _ => return None,
            };
            Value::Bits(Box::new(left), kind.chars().next()?, bits)
        }
        _ => other(&kind, &value)?,
    })
}

/// `"@name"`, or a set of elements.
fn set_of(json: Json) -> Option<Value> {
    match json {
        Json::String(name) => Some(match name.strip_prefix('@') {
            Some(name) => Value::Named(name.into()),
            None => Value::Word(name),
        }),
        other => constant(other),
    }
}

fn statement_or_text(json: Json) -> Statement {
    let text = match json.as_object().and_then(|fields| fields.iter().next()) {
        Some((kind, value)) => unknown(kind, value),
        None => json.to_string(),
    };
    statement(json).unwrap_or(Statement::Unknown(text))
}

/// A statement that is not understood: what it writes into, or what it is called and what it says.
fn unknown(kind: &str, value: &Json) -> String {
    match value.get("key").cloned().and_then(expression).filter(|_| kind == "mangle") {
        Some(field) => format!("{field} set {}", value["value"]),
        None => format!("{kind} {value}"),
    }
}

fn statement(json: Json) -> Option<Statement> {
    if let Some(verdict) = verdict(&json) {
        return Some(Statement::Verdict(verdict));
    }
    if let Json::String(text) = &json {
        // nft prints as text what it has no JSON for, such as updates of maps
        let mut statements = parse(&mut Tokens::new(text)).statements;
        return statements.pop().filter(|_| statements.is_empty());
    }
    let text_of_it = json.to_string();
    let Json::Object(fields) = json else { return None };
    let (kind, mut value) = fields.into_iter().next()?;
    Some(match kind.as_str() {
        "match" => {
            let op = text(&value["op"])?;
            let left = value["left"].take();
            let Some(left) = expression(left) else { return Some(Statement::Condition(text_of_it)) };
            Statement::Match { left, op, right: set_of(value["right"].take())? }
        }
        "vmap" => Statement::Vmap(expression(value["key"].take())?, set_of(value["data"].take())?),
        "counter" | "log" | "last" => Statement::Harmless,
        "notrack" => Statement::Untrack,
        "limit" | "quota" | "ct count" => Statement::Condition(named_text(&kind, &value)),
        "reset" => Statement::Condition(format!("reset {}", expression(value)?)),
        "flow" => Statement::Condition(format!("flow add {}", text(&value["flowtable"])?)),
        "ct helper" | "ct timeout" | "ct expectation" => Statement::Harmless,
        "xt" if value["type"] == "match" && value["name"] == "comment" => Statement::Harmless,
        "xt" if value["type"] == "match" => Statement::Extension(text_of_it),
        "masquerade" => Statement::Masquerade { port: side(&mut value, "port")?, flags: words(&value["flags"]) },
        "redirect" => Statement::Redirect { port: side(&mut value, "port")?, flags: words(&value["flags"]) },
        "dnat" | "snat" => {
            // whole prefixes are translated into others otherwise
            if words(&value["type_flags"]).iter().any(|flag| flag != "concat") {
                return None;
            }
            let (address, port) = (side(&mut value, "addr")?, side(&mut value, "port")?);
            Statement::Nat { source: kind == "snat", address, port, flags: words(&value["flags"]) }
        }
        "reject" => match text(&value["type"]) {
            Some(kind) => Statement::Reject(Some(kind), text(&value["expr"])),
            None => Statement::Reject(None, None),
        },
        "mangle" => {
            let right = value["value"].take();
            let right = expression(right.clone()).or_else(|| constant(right))?;
            match expression(value["key"].take())? {
                Value::Meta(key) => Statement::SetMeta(key, right),
                Value::Ct { key, direction: None } => Statement::SetCt(key, right),
                field => Statement::written(&field, &right)?,
            }
        }
        "set" | "map" => update(&kind, value)?,
        _ => return None,
    })
}

/// An address or a port to translate to, if there is one.
fn side(value: &mut Json, name: &str) -> Option<Option<Value>> {
    match value.get_mut(name).map(Json::take) {
        None | Some(Json::Null) => Some(None),
        Some(json) => expression(json.clone()).or_else(|| constant(json)).map(Some),
    }
}

/// `update @set { key timeout 3h : value }`.
fn update(kind: &str, mut value: Json) -> Option<Statement> {
    let op = match value["op"].as_str()? {
        "add" => 0,
        "update" => 1,
        _ => 2,
    };
    let set = text(&value[kind])?.strip_prefix('@')?.to_owned();
    let inner = match value["elem"].take() {
        Json::Object(mut fields) if fields.contains_key("elem") => fields.remove("elem")?,
        other => other,
    };
    let (key, timeout) = match inner.get("val") {
        Some(key) => (key.clone(), seconds(&inner["timeout"])),
        None => (inner, None),
    };
    let mut element = Element::new(expression(key)?);
    element.timeout_ms = timeout;
    element.data = match value["data"].take() {
        Json::Null => None,
        data => Some(Data::Value(expression(data.clone()).or_else(|| constant(data))?)),
    };
    let condition = Some(conditions(&value["stmt"]).join(" ")).filter(|text| !text.is_empty());
    Some(Statement::Update { op, set, element, condition })
}
