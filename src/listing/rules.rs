//! Statements as the expressions that the kernel runs.

use super::ast::{Element, Rule, Statement, TableName, Value};
use super::bytes::{Kind, bounds, number};
use super::compile::{Anonymous, Compiler, MapData, address_kind, concatenated};
use crate::netlink::attr::Writer;
use crate::netlink::model::{Bytes, Data, Expr, NfFamily, Register, Verdict};
use crate::netlink::uapi::comparison as cmp;
use crate::netlink::uapi::data::VALUE;
use crate::trace::{LISTED, LISTED_CONDITION};

/// The register that begins with a 4 byte word.
fn register(word: u32) -> Register {
    if word.is_multiple_of(4) { 1 + word / 4 } else { 8 + word }
}

/// A rule's expressions. A statement that cannot be put so stays as text.
pub fn compile(compiler: &mut Compiler, table: &TableName, rule: &Rule) -> Vec<Expr> {
    let mut made = Made { compiler, table, line: rule.line, exprs: Vec::new(), protocol: None };
    for statement in &rule.statements {
        let (begin, protocol) = (made.exprs.len(), made.protocol.clone());
        if made.statement(statement).is_none() {
            made.exprs.truncate(begin);
            made.protocol = protocol;
            made.not_understood(statement);
        }
    }
    made.exprs.shrink_to_fit();
    made.exprs
}

struct Made<'a> {
    compiler: &'a mut Compiler,
    table: &'a TableName,
    line: usize,
    exprs: Vec<Expr>,
    /// The transport protocol that the rule has asked for.
    protocol: Option<String>,
}

impl Made<'_> {
    fn raw(&mut self, name: &str, text: &str) {
        let text = format!("{text} (line {})", self.line);
        self.exprs.push(Expr::Raw { name: name.into(), data: text.into_bytes() });
    }

    /// What is only a condition stays one; what it presupposes is known of it all the same.
    fn not_understood(&mut self, statement: &Statement) {
        let text = match statement {
            Statement::Match { left, op, right } => {
                let text = format!("{left} {op} {right}");
                self.presuppose(left);
                self.raw(LISTED_CONDITION, &text);
                text
            }
            other => {
                let text = format!("{other:?}");
                self.raw(LISTED, &text);
                text
            }
        };
        let (family, table) = (self.table.family.name(), &self.table.name);
        self.compiler.note(self.line, format!("{family} {table}: {text} is not understood"));
    }

    fn statement(&mut self, statement: &Statement) -> Option<()> {
        match statement {
            Statement::Match { left, op, right } => self.matching(left, op, right)?,
            Statement::Vmap(key, map) => {
                let kinds = self.load(key, 0)?;
                self.lookup(&kinds, map, MapData::Verdict, Some(0), false)?;
            }
            Statement::Verdict(verdict) => self.verdict(verdict.clone()),
            Statement::Nat { source, address, port, flags } => {
                self.nat(*source, address.as_ref(), port.as_ref(), flags)?;
            }
            Statement::Masquerade(flags) => {
                self.exprs.push(Expr::Masq { flags: nat_flags(flags), proto_min: None, proto_max: None });
            }
            Statement::Redirect(port) => {
                let register = match port {
                    Some(port) => Some(self.constant(Kind::Port, port, 0)?),
                    None => None,
                };
                self.exprs.push(Expr::Redir { proto_min: register, proto_max: register, flags: 0 });
            }
            Statement::Reject(kind, what) => self.reject(kind.as_deref(), what.as_deref())?,
            Statement::SetMeta(key, value) => self.set_meta(key, value)?,
            Statement::SetCt(key, value) => {
                (key == "mark").then_some(())?;
                self.marked(value)?;
                let mut writer = Writer::default();
                writer.u32(2, 3); // NFTA_CT_KEY: NFT_CT_MARK
                writer.u32(4, 1); // NFTA_CT_SREG
                self.exprs.push(Expr::Raw { name: "ct".into(), data: writer.bytes });
            }
            Statement::Update { op, set, element } => self.update(*op, set, element)?,
            Statement::Harmless => {}
            Statement::Untrack => self.exprs.push(Expr::Raw { name: "notrack".into(), data: Vec::new() }),
            Statement::Condition(text) => self.raw(LISTED_CONDITION, text),
            Statement::Unknown(text) => self.raw(LISTED, text),
        }
        Some(())
    }

    fn verdict(&mut self, verdict: Verdict) {
        self.exprs.push(Expr::Immediate { dreg: 0, data: Data::Verdict(verdict) });
    }

    fn compare(&mut self, op: u32, data: &[u8]) {
        self.exprs.push(Expr::Cmp { sreg: 1, op, data: Bytes::from_slice(data) });
    }

    /// Loads a value from a word on; the kinds of its parts. What they presuppose is asked for first.
    fn load(&mut self, value: &Value, word: u32) -> Option<Vec<Kind>> {
        let parts = match value {
            Value::Concat(parts) => parts.as_slice(),
            value => std::slice::from_ref(value),
        };
        parts.iter().for_each(|part| self.presuppose(part));
        let mut word = word;
        let mut kinds = Vec::new();
        for part in parts {
            let kind = Kind::of(part)?;
            self.load_one(part, register(word))?;
            word += (kind.len() as u32).div_ceil(4);
            kinds.push(kind);
        }
        Some(kinds)
    }

    /// `tcp dport` is a port of TCP alone, and `ip daddr` in tables of both families one of IPv4.
    fn presuppose(&mut self, value: &Value) {
        let Value::Header(header, field) = value else { return };
        match header.as_str() {
            "tcp" | "udp" | "sctp" | "icmp" | "icmpv6" if self.protocol.as_ref() != Some(header) => {
                self.exprs.push(Expr::MetaLoad { dreg: 1, key: 16 });
                let number = Kind::Protocol.bytes(header).expect("its number is known");
                self.compare(cmp::EQ, &number);
                self.protocol = Some(header.clone());
            }
            "ip" | "ip6" if self.table.family == NfFamily::INET && field != "nexthdr" => {
                self.exprs.push(Expr::MetaLoad { dreg: 1, key: 15 });
                self.compare(cmp::EQ, &[if header == "ip" { 2 } else { 10 }]);
            }
            _ => {}
        }
    }

    fn load_one(&mut self, value: &Value, dreg: Register) -> Option<()> {
        let expr = match value {
            Value::Header(header, field) => {
                let (base, offset, len) = match (header.as_str(), field.as_str()) {
                    ("ip", "saddr") => (1, 12, 4),
                    ("ip", "daddr") => (1, 16, 4),
                    ("ip", "protocol") => (1, 9, 1),
                    ("ip6", "saddr") => (1, 8, 16),
                    ("ip6", "daddr") => (1, 24, 16),
                    ("ip6", "nexthdr") => (1, 6, 1),
                    (_, "sport") => (2, 0, 2),
                    (_, "dport") => (2, 2, 2),
                    _ => return None,
                };
                Expr::Payload { dreg, base, offset, len }
            }
            Value::Meta(key) => Expr::MetaLoad { dreg, key: meta_key(key)? },
            Value::Ct { key, direction } => Expr::Ct { dreg, key: ct_key(key)?, direction: *direction },
            Value::Fib { flags, .. } => {
                let flags = match flags.as_slice() {
                    [flag] if flag == "saddr" => 1,
                    [flag] if flag == "daddr" => 2,
                    _ => return None,
                };
                Expr::Fib { dreg, result: 3, flags }
            }
            Value::Numgen { random, modulus, offset } => {
                Expr::Numgen { dreg, modulus: *modulus, kind: u32::from(*random), offset: *offset }
            }
            _ => return None,
        };
        self.exprs.push(expr);
        Some(())
    }

    fn lookup(&mut self, key: &[Kind], set: &Value, data: MapData, dreg: Option<Register>, invert: bool) -> Option<()> {
        let set = match set {
            Value::Named(name) => name.as_str().into(),
            Value::Elements(elements) => {
                let set = Anonymous { table: self.table, key, data };
                self.compiler.anonymous(self.line, &set, elements.clone())
            }
            _ => return None,
        };
        self.exprs.push(Expr::Lookup { sreg: 1, set, dreg, invert });
        Some(())
    }

    fn matching(&mut self, left: &Value, op: &str, right: &Value) -> Option<()> {
        if let Value::Bits(value, '&', bits) = left {
            let kinds = self.load(value, 0)?;
            let [kind] = kinds[..] else { return None };
            let bits = kind.bytes(bits)?;
            self.bitwise(&bits.clone(), &Bytes::from_elem(0, bits.len()));
            let (wanted, _) = bounds(kind, right)?;
            let op = if op == "!=" { cmp::NEQ } else { cmp::EQ };
            self.compare(op, &wanted);
            return Some(());
        }
        let kinds = self.load(left, 0)?;
        if let (Value::Header(header, field), Value::Word(word)) = (left, right)
            && (header, field) == (&"ip".into(), &"protocol".into())
        {
            self.protocol = Some(word.clone());
        }
        match right {
            Value::Named(_) | Value::Elements(_) => self.lookup(&kinds, right, MapData::None, None, op == "!="),
            Value::Concat(_) => {
                let one = Value::Elements(vec![Element::new(right.clone())]);
                self.lookup(&kinds, &one, MapData::None, None, op == "!=")
            }
            _ => self.compare_one(*kinds.first()?, op, right),
        }
    }

    fn compare_one(&mut self, kind: Kind, op: &str, right: &Value) -> Option<()> {
        if kind.is_bits() && matches!(op, "in" | "!") {
            let words = match right {
                Value::Flags(words) => words.clone(),
                Value::Word(word) => vec![word.clone()],
                _ => return None,
            };
            let bits: Option<Vec<Bytes>> = words.iter().map(|word| kind.bytes(word)).collect();
            let of = |bytes: &Bytes| u32::from_ne_bytes(bytes[..].try_into().expect("four bytes"));
            let bits = bits?.iter().fold(0u32, |all, bytes| all | of(bytes));
            self.bitwise(&Bytes::from_slice(&bits.to_ne_bytes()), &Bytes::from_elem(0, 4));
            self.compare(if op == "!" { cmp::EQ } else { cmp::NEQ }, &[0; 4]);
            return Some(());
        }
        if let (Kind::Interface, Value::Word(word)) = (kind, right)
            && let Some(prefix) = word.strip_suffix('*')
        {
            self.compare(if op == "!=" { cmp::NEQ } else { cmp::EQ }, prefix.as_bytes());
            return Some(());
        }
        if let Value::Prefix(_, length) = right {
            let mask = kind.mask(*length)?;
            self.bitwise(&mask, &Bytes::from_elem(0, mask.len()));
            let (first, _) = bounds(kind, right)?;
            self.compare(if op == "!=" { cmp::NEQ } else { cmp::EQ }, &first);
            return Some(());
        }
        let (first, last) = bounds(kind, right)?;
        match (op, first == last) {
            ("in" | "==", true) => self.compare(cmp::EQ, &first),
            ("!=", true) => self.compare(cmp::NEQ, &first),
            ("<", true) => self.compare(cmp::LT, &first),
            ("<=", true) => self.compare(cmp::LTE, &first),
            (">", true) => self.compare(cmp::GT, &first),
            (">=", true) => self.compare(cmp::GTE, &first),
            ("in" | "==", false) => {
                self.compare(cmp::GTE, &first);
                self.compare(cmp::LTE, &last);
            }
            ("!=", false) => {
                let mut writer = Writer::default(); // NFTA_RANGE_*
                writer.u32(1, 1);
                writer.u32(2, 1);
                writer.nest(3, |from| from.put(VALUE, &first));
                writer.nest(4, |to| to.put(VALUE, &last));
                self.exprs.push(Expr::Raw { name: "range".into(), data: writer.bytes });
            }
            _ => return None,
        }
        Some(())
    }

    fn bitwise(&mut self, mask: &Bytes, xor: &Bytes) {
        let len = mask.len() as u32;
        self.exprs.push(Expr::Bitwise {
            sreg: 1,
            dreg: 1,
            len,
            mask: Box::new(mask.clone()),
            xor: Box::new(xor.clone()),
        });
    }

    /// Loads a constant into the register of a word; that register.
    fn constant(&mut self, kind: Kind, value: &Value, word: u32) -> Option<Register> {
        let (bytes, last) = concatenated(&[kind], value)?;
        (bytes == last).then_some(())?;
        self.exprs.push(Expr::Immediate { dreg: register(word), data: Data::Value(bytes) });
        Some(register(word))
    }

    fn nat(&mut self, source: bool, address: Option<&Value>, port: Option<&Value>, flags: &[String]) -> Option<()> {
        let kind = address_kind(self.table.family).or_else(|| match address {
            Some(Value::Word(word)) if word.contains(':') => Some(Kind::Ipv6),
            _ => Some(Kind::Ipv4),
        })?;
        let words = kind.len() as u32 / 4;
        let (mut to, mut to_port) = (None, None);
        match address {
            Some(Value::Map(key, map)) => {
                let key = self.load(key, 0)?;
                let both = [kind, Kind::Port];
                let has_port = port.is_none() && self.gives_port(map);
                let data = if has_port { &both[..] } else { &both[..1] };
                self.lookup(&key, map, MapData::Value(data), Some(1), false)?;
                to = Some(1);
                to_port = has_port.then_some(register(words));
            }
            Some(value) => to = Some(self.constant(kind, value, 0)?),
            None => {}
        }
        match port {
            Some(Value::Map(key, map)) => {
                // behind the address, which takes four words at most
                let kinds = self.load(key, 4)?;
                let before = self.exprs.len();
                self.lookup(&kinds, map, MapData::Value(&[Kind::Port]), Some(2), false)?;
                if let Some(Expr::Lookup { sreg, .. }) = self.exprs.get_mut(before) {
                    *sreg = 2;
                }
                to_port = Some(2);
            }
            Some(value) => to_port = Some(self.constant(Kind::Port, value, 4)?),
            None => {}
        }
        let specified = u32::from(to.is_some()) | if to_port.is_some() { 2 } else { 0 };
        self.exprs.push(Expr::Nat {
            kind: u32::from(!source),
            family: if kind == Kind::Ipv4 { 2 } else { 10 },
            addr_min: to,
            addr_max: to,
            proto_min: to_port,
            proto_max: to_port,
            flags: nat_flags(flags) | specified,
        });
        Some(())
    }

    /// Whether a map gives a port with each address.
    fn gives_port(&self, map: &Value) -> bool {
        match map {
            Value::Named(name) => self.compiler.gives_two(self.table, name),
            Value::Elements(elements) => {
                let first = elements.first().and_then(|element| element.data.as_ref());
                matches!(first, Some(super::ast::Data::Value(Value::Concat(_))))
            }
            _ => false,
        }
    }

    fn reject(&mut self, kind: Option<&str>, what: Option<&str>) -> Option<()> {
        let (kind, code) = match (kind, what) {
            (None, _) if self.table.family == NfFamily::IPV4 => (0, 3),
            (None, _) if self.table.family == NfFamily::IPV6 => (0, 4),
            (None, _) => (2, 1),
            (Some("tcp reset"), _) => (1, 0),
            (Some("icmp"), Some(what)) => (
                0,
                match what {
                    "net-unreachable" => 0,
                    "host-unreachable" => 1,
                    "prot-unreachable" => 2,
                    "port-unreachable" => 3,
                    "net-prohibited" => 9,
                    "host-prohibited" => 10,
                    "admin-prohibited" => 13,
                    _ => return None,
                },
            ),
            (Some("icmpv6"), Some(what)) => (
                0,
                match what {
                    "no-route" => 0,
                    "admin-prohibited" => 1,
                    "addr-unreachable" => 3,
                    "port-unreachable" => 4,
                    _ => return None,
                },
            ),
            (Some("icmpx"), Some(what)) => (
                2,
                match what {
                    "no-route" => 0,
                    "port-unreachable" => 1,
                    "host-unreachable" => 2,
                    "admin-prohibited" => 3,
                    _ => return None,
                },
            ),
            _ => return None,
        };
        self.exprs.push(Expr::Reject { kind, code });
        Some(())
    }

    fn set_meta(&mut self, key: &str, value: &Value) -> Option<()> {
        match key {
            "mark" => {
                self.marked(value)?;
                self.exprs.push(Expr::MetaSet { sreg: 1, key: 3 });
            }
            "priority" => {
                match value {
                    Value::Map(key, map) => {
                        let kinds = self.load(key, 0)?;
                        self.lookup(&kinds, map, MapData::Value(&[Kind::Priority]), Some(1), false)?;
                    }
                    value => drop(self.constant(Kind::Priority, value, 0)?),
                }
                self.exprs.push(Expr::MetaSet { sreg: 1, key: 2 });
            }
            // this says nothing about where a packet goes
            "nftrace" => {}
            _ => return None,
        }
        Some(())
    }

    /// Loads a mark: a number, or another mark of which some bits become others.
    fn marked(&mut self, value: &Value) -> Option<()> {
        match value {
            Value::Word(word) => {
                let bytes = Bytes::from_slice(&number(word)?.to_ne_bytes());
                self.exprs.push(Expr::Immediate { dreg: 1, data: Data::Value(bytes) });
            }
            Value::Bits(inner, operator, word) => {
                self.marked(inner)?;
                let bits = number(word)?;
                let (mask, xor) = match operator {
                    '&' => (bits, 0),
                    '|' => (!bits, bits),
                    _ => (u32::MAX, bits),
                };
                self.bitwise(&Bytes::from_slice(&mask.to_ne_bytes()), &Bytes::from_slice(&xor.to_ne_bytes()));
            }
            value => {
                matches!(self.load(value, 0)?[..], [Kind::Mark | Kind::Integer]).then_some(())?;
            }
        }
        Some(())
    }

    fn update(&mut self, op: u32, set: &str, element: &Element) -> Option<()> {
        let kinds = self.load(&element.key, 0)?;
        let words: u32 = kinds.iter().map(|kind| (kind.len() as u32).div_ceil(4)).sum();
        let sreg_data = match &element.data {
            Some(super::ast::Data::Value(value)) => {
                let word = words.next_multiple_of(4);
                self.load(value, word)?;
                Some(register(word))
            }
            _ => None,
        };
        let set = set.into();
        self.exprs.push(Expr::Dynset { op, set, sreg_key: 1, sreg_data, timeout_ms: element.timeout_ms });
        Some(())
    }
}

/// `NFT_META_*`.
fn meta_key(name: &str) -> Option<u32> {
    Some(match name {
        "protocol" => 1,
        "priority" => 2,
        "mark" => 3,
        "iif" => 4,
        "oif" => 5,
        "iifname" => 6,
        "oifname" => 7,
        "nfproto" => 15,
        "l4proto" => 16,
        _ => return None,
    })
}

/// `NFT_CT_*`.
fn ct_key(name: &str) -> Option<u32> {
    Some(match name {
        "state" => 0,
        "direction" => 1,
        "status" => 2,
        "mark" => 3,
        "l3proto" => 7,
        "protocol" => 10,
        "proto-src" => 11,
        "proto-dst" => 12,
        "ip saddr" => 19,
        "ip daddr" => 20,
        "ip6 saddr" => 21,
        "ip6 daddr" => 22,
        _ => return None,
    })
}

/// `NF_NAT_RANGE_PROTO_RANDOM`, `…_PERSISTENT`, `…_PROTO_RANDOM_FULLY`.
fn nat_flags(flags: &[String]) -> u32 {
    flags.iter().fold(0, |all, flag| {
        all | match flag.as_str() {
            "random" => 0x4,
            "persistent" => 0x8,
            _ => 0x10,
        }
    })
}
