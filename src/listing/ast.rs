//! A listing's objects: the same for both forms.

use std::fmt;

use crate::netlink::model::{NfFamily, Verdict};

/// A value, or where one comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A field of a header: `ip daddr`, `th dport`.
    Header(String, String),
    /// `meta mark`.
    Meta(String),
    /// `ct state`; with a direction, `ct original ip daddr`.
    Ct { key: String, direction: Option<u8> },
    /// `fib daddr type`.
    Fib { flags: Vec<String>, result: String },
    /// `numgen random mod 3`.
    Numgen { random: bool, modulus: u32, offset: u32 },
    /// Parts with dots between them.
    Concat(Vec<Value>),
    /// A word or number as it is written.
    Word(String),
    /// `10.0.0.0/8`.
    Prefix(String, u8),
    /// `1-5`.
    Range(String, String),
    /// `@name`.
    Named(String),
    /// `{ … }`.
    Elements(Vec<Element>),
    /// `key map @name`.
    Map(Box<Value>, Box<Value>),
    /// `meta mark & 0x4000`: the operator is `&`, `|` or `^`.
    Bits(Box<Value>, char, String),
    /// Words with commas between them, which name bits.
    Flags(Vec<String>),
    /// Something that is known by its name alone.
    Other(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter, values: &[Value], between: &str| {
            values.iter().enumerate().try_for_each(|(at, value)| {
                let between = if at == 0 { "" } else { between };
                write!(f, "{between}{value}")
            })
        };
        match self {
            Value::Header(header, field) => write!(f, "{header} {field}"),
            Value::Meta(key) => write!(f, "meta {key}"),
            Value::Ct { key, direction: None } => write!(f, "ct {key}"),
            Value::Ct { key, direction: Some(0) } => write!(f, "ct original {key}"),
            Value::Ct { key, direction: Some(_) } => write!(f, "ct reply {key}"),
            Value::Fib { flags, result } => write!(f, "fib {} {result}", flags.join(" . ")),
            Value::Numgen { modulus, .. } => write!(f, "numgen mod {modulus}"),
            Value::Concat(parts) => list(f, parts, " . "),
            Value::Word(word) => f.write_str(word),
            Value::Prefix(address, length) => write!(f, "{address}/{length}"),
            Value::Range(first, last) => write!(f, "{first}-{last}"),
            Value::Named(name) => write!(f, "@{name}"),
            Value::Elements(elements) => {
                let keys: Vec<Value> = elements.iter().map(|element| element.key.clone()).collect();
                f.write_str("{ ")?;
                list(f, &keys, ", ")?;
                f.write_str(" }")
            }
            Value::Map(key, map) => write!(f, "{key} map {map}"),
            Value::Bits(value, operator, bits) => write!(f, "{value} {operator} {bits}"),
            Value::Flags(words) => f.write_str(&words.join(",")),
            Value::Other(text) => f.write_str(text),
        }
    }
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key.
    pub key: Value,
    /// What a map has for it.
    pub data: Option<Data>,
    /// Its comment.
    pub comment: Option<String>,
    /// How long it lives, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// How long it still lives.
    pub expires_ms: Option<u64>,
    /// The packets and bytes that it counted.
    pub counter: Option<(u64, u64)>,
    /// Whether it has a statement that a packet may not pass.
    pub is_conditional: bool,
}

impl Element {
    /// An element with a key alone.
    pub fn new(key: Value) -> Element {
        Element {
            key,
            data: None,
            comment: None,
            timeout_ms: None,
            expires_ms: None,
            counter: None,
            is_conditional: false,
        }
    }
}

/// What a map has for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A value.
    Value(Value),
    /// A verdict.
    Verdict(Verdict),
}

/// A statement of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// A comparison: `==`, `!=`, `<`, `<=`, `>`, `>=`; `in` where none is written, which for bits means any of
    /// them; or `!` for bits of which none is set.
    Match { left: Value, op: String, right: Value },
    /// `key vmap @map`.
    Vmap(Value, Value),
    /// A verdict.
    Verdict(Verdict),
    /// `dnat` or `snat` to an address, a port, or both.
    Nat { source: bool, address: Option<Value>, port: Option<Value>, flags: Vec<String> },
    /// `masquerade`, perhaps to other ports.
    Masquerade { port: Option<Value>, flags: Vec<String> },
    /// `redirect`.
    Redirect { port: Option<Value>, flags: Vec<String> },
    /// `reject with TYPE EXPRESSION`.
    Reject(Option<String>, Option<String>),
    /// `meta mark set …`.
    SetMeta(String, Value),
    /// `ct mark set …`.
    SetCt(String, Value),
    /// `update @set { key timeout 3h : value }`; perhaps with a statement that a packet may not pass.
    Update { op: u32, set: String, element: Element, condition: Option<String> },
    /// `counter`, or anything that does nothing to a packet.
    Harmless,
    /// `notrack`.
    Untrack,
    /// Something that does nothing to a packet, but behind which the rule may not match, such as `limit rate 5/second`.
    Condition(String),
    /// The same of a match of iptables, of which nft does not say all.
    Extension(String),
    /// Something that is not understood.
    Unknown(String),
}

/// As nft writes it, as far as the name of what is not understood goes.
impl Statement {
    /// What writes a value into a field of the packet; none where packets may go elsewhere by it.
    pub fn written(field: &Value, value: &Value) -> Option<Statement> {
        let is_let_on = || matches!(value, Value::Word(hops) if hops.parse::<u8>().is_ok_and(|hops| hops > 1));
        match field {
            Value::Header(header, field) => match (header.as_str(), field.as_str()) {
                ("ether", _) | ("ip", "dscp" | "ecn" | "id") | ("ip6", "dscp" | "ecn" | "flowlabel") => {
                    Some(Statement::Harmless)
                }
                ("ip", "ttl") | ("ip6", "hoplimit") if is_let_on() => Some(Statement::Harmless),
                _ => None,
            },
            // not every packet has the option
            Value::Other(option) if option.starts_with("tcp option ") => {
                Some(Statement::Condition(format!("{option} set {value}")))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Match { left, op, right } if op == "in" || op == "==" && !matches!(left, Value::Bits(..)) => {
                write!(f, "{left} {right}")
            }
            Statement::Match { left, op, right } => write!(f, "{left} {op} {right}"),
            Statement::Vmap(key, map) => write!(f, "{key} vmap {map}"),
            Statement::Verdict(verdict) => f.write_str(&crate::trace::verdict_text(verdict)),
            Statement::Nat { source, address, port, .. } => {
                f.write_str(if *source { "snat to " } else { "dnat to " })?;
                address.iter().try_for_each(|address| write!(f, "{address}"))?;
                port.iter().try_for_each(|port| write!(f, ":{port}"))
            }
            Statement::Masquerade { .. } => f.write_str("masquerade"),
            Statement::Redirect { port: Some(port), .. } => write!(f, "redirect to :{port}"),
            Statement::Redirect { port: None, .. } => f.write_str("redirect"),
            Statement::Reject(kind, what) => {
                let parts = kind.iter().chain(what).map(String::as_str);
                write!(f, "reject with {}", parts.collect::<Vec<_>>().join(" "))
            }
            Statement::SetMeta(key, value) => write!(f, "meta {key} set {value}"),
            Statement::SetCt(key, value) => write!(f, "ct {key} set {value}"),
            Statement::Update { op, set, element, .. } => {
                let verb = ["add", "update"].get(*op as usize).unwrap_or(&"delete");
                write!(f, "{verb} @{set} {{ {} }}", element.key)
            }
            Statement::Harmless => f.write_str("counter"),
            Statement::Untrack => f.write_str("notrack"),
            Statement::Condition(text) | Statement::Extension(text) | Statement::Unknown(text) => f.write_str(text),
        }
    }
}

/// A rule.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// Its statements.
    pub statements: Vec<Statement>,
    /// Its comment.
    pub comment: Option<String>,
    /// Its handle, where it is listed.
    pub handle: u64,
    /// Where it stands.
    pub line: usize,
}

/// Which table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// Its family.
    pub family: NfFamily,
    /// Its name.
    pub name: String,
}

/// A chain without its rules.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// `filter`, `nat` or `route`, the hook and the priority; on base chains.
    pub hook: Option<(String, String, i32)>,
    /// Whether the policy is to drop.
    pub drops: bool,
    /// Its comment.
    pub comment: Option<String>,
}

/// A set or map.
#[derive(Clone, Debug, Default)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// The types of the key's parts: `ipv4_addr`, or the expression of `typeof`.
    pub key: Vec<String>,
    /// Those of the value; `verdict` for verdict maps. Nothing for sets.
    pub data: Option<Vec<String>>,
    /// `interval`, `dynamic`, `timeout`, `constant`.
    pub flags: Vec<String>,
    /// The most elements that it holds.
    pub size: Option<u32>,
    /// How long elements live, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whether its elements count.
    pub counter: bool,
    /// What else its elements do, which a packet may not pass.
    pub conditions: Vec<String>,
    /// What is said of it and is not understood.
    pub unknown: Vec<String>,
    /// Its elements.
    pub elements: Vec<Element>,
    /// Where it stands.
    pub line: usize,
}
