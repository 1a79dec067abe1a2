//! Statements as the expressions that the kernel runs.

use super::ast::{Element, Rule, Statement, TableName, Value};
use super::bytes::{Kind, all_bits, bounds, number};
use super::compile::{Anonymous, Compiler, MapData, address_kind, concatenated};
use super::fields;
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

/// `NFTA_FIB_F_PRESENT`.
const FIB_PRESENT: u32 = 32;

/// `NFTA_FIB_F_*`.
fn fib_flags(names: &[String]) -> Option<u32> {
    let bit = |name: &String| match name.as_str() {
        "saddr" => Some(1),
        "daddr" => Some(2),
        "mark" => Some(4),
        "iif" => Some(8),
        "oif" => Some(16),
        _ => None,
    };
    names.iter().map(bit).sum()
}

/// Whether something is wanted to be there.
fn existence(word: &str) -> Option<bool> {
    match word {
        "exists" => Some(true),
        "missing" => Some(false),
        _ => None,
    }
}

impl Made<'_> {
    fn raw(&mut self, name: &str, text: &str) {
        let text = format!("{text} (line {})", self.line);
        self.exprs.push(Expr::Raw { name: name.into(), data: text.into_bytes() });
    }

    /// What is only a condition stays one; what it presupposes is known of it all the same.
    fn not_understood(&mut self, statement: &Statement) {
        let text = statement.to_string();
        if let Statement::Match { left, .. } = statement {
            self.presuppose(left);
            self.raw(LISTED_CONDITION, &text);
            // of something that no rule of packets' ways asks for it is enough that it is asked for
            if Kind::of(left).is_none() {
                return;
            }
        } else {
            self.raw(LISTED, &text);
        }
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
            Statement::Masquerade { port, flags } => {
                let (proto_min, proto_max) = self.ports(port.as_ref(), 0)?;
                self.exprs.push(Expr::Masq { flags: nat_flags(flags), proto_min, proto_max });
            }
            Statement::Redirect { port, flags } => {
                let (proto_min, proto_max) = self.ports(port.as_ref(), 0)?;
                self.exprs.push(Expr::Redir { proto_min, proto_max, flags: nat_flags(flags) });
            }
            Statement::Reject(kind, what) => self.reject(kind.as_deref(), what.as_deref())?,
            Statement::SetMeta(key, value) => self.set_meta(key, value)?,
            // these say nothing about where a packet goes
            Statement::SetCt(key, _) if matches!(key.as_str(), "label" | "event" | "secmark") => {}
            Statement::SetCt(key, value) => {
                (key == "mark").then_some(())?;
                self.marked(value)?;
                let mut writer = Writer::default();
                writer.u32(2, 3); // NFTA_CT_KEY: NFT_CT_MARK
                writer.u32(4, 1); // NFTA_CT_SREG
                self.exprs.push(Expr::Raw { name: "ct".into(), data: writer.bytes });
            }
            Statement::Update { op, set, element, condition } => {
                self.update(*op, set, element)?;
                condition.iter().for_each(|text| self.raw(LISTED_CONDITION, text));
            }
            Statement::Harmless => {}
            Statement::Untrack => self.exprs.push(Expr::Raw { name: "notrack".into(), data: Vec::new() }),
            Statement::Condition(text) | Statement::Extension(text) => self.raw(LISTED_CONDITION, text),
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
        let (header, field) = match value {
            Value::Header(header, field) => (header, field.as_str()),
            // `tcp option maxseg size`, `sctp chunk init`
            Value::Other(text) if text.contains(' ') => {
                let (header, rest) = text.split_once(' ').expect("it has a space");
                return self.presuppose_part(header, rest);
            }
            _ => return,
        };
        self.presuppose_part(header, field);
    }

    fn presuppose_part(&mut self, header: &str, field: &str) {
        match header {
            "tcp" | "udp" | "udplite" | "sctp" | "dccp" | "icmp" | "icmpv6" | "igmp" | "ah" | "esp" | "comp"
            | "gre"
                if self.protocol.as_deref() != Some(header) =>
            {
                self.exprs.push(Expr::MetaLoad { dreg: 1, key: 16 });
                let number = Kind::Protocol.bytes(header).expect("its number is known");
                self.compare(cmp::EQ, &number);
                self.protocol = Some(header.to_owned());
            }
            "ip" if field != "nexthdr" => self.presuppose_family(NfFamily::IPV4),
            "ip6" if field != "nexthdr" => self.presuppose_family(NfFamily::IPV6),
            // headers behind that of IPv6
            "frag" | "hbh" | "dst" | "rt0" | "srh" | "mh" | "exthdr" => self.presuppose_family(NfFamily::IPV6),
            _ => {}
        }
    }

    /// In tables of both families: that the packet is of this one.
    fn presuppose_family(&mut self, family: NfFamily) {
        if self.table.family == NfFamily::INET {
            self.exprs.push(Expr::MetaLoad { dreg: 1, key: 15 });
            self.compare(cmp::EQ, &[family.0]);
        }
    }

    fn load_one(&mut self, value: &Value, dreg: Register) -> Option<()> {
        let expr = match value {
            Value::Header(header, field) => {
                let (base, offset, kind) = fields::field(header, field)?;
                Expr::Payload { dreg, base, offset, len: kind.len() as u32 }
            }
            Value::Meta(key) => Expr::MetaLoad { dreg, key: meta_key(key)? },
            Value::Ct { key, direction } => Expr::Ct { dreg, key: ct_key(key)?, direction: *direction },
            Value::Fib { flags, .. } => Expr::Fib { dreg, result: 3, flags: fib_flags(flags)? },
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
            let bits = all_bits(kind, bits.split(','))?;
            self.bitwise(&bits.clone(), &Bytes::from_elem(0, bits.len()));
            let (wanted, last) = bounds(kind, right)?;
            let op = match op {
                "!=" => cmp::NEQ,
                "in" | "==" => cmp::EQ,
                _ => return None,
            };
            (wanted == last).then_some(())?;
            self.compare(op, &wanted);
            return Some(());
        }
        if let (Value::Fib { flags, result }, Value::Word(word)) = (left, right)
            && result == "oif"
            && let Some(is_there) = existence(word)
        {
            self.exprs.push(Expr::Fib { dreg: 1, result: 1, flags: fib_flags(flags)? | FIB_PRESENT });
            self.compare(if op == "!=" { cmp::NEQ } else { cmp::EQ }, &[u8::from(is_there)]);
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
            let bits = match right {
                Value::Flags(words) => all_bits(kind, words.iter().map(String::as_str))?,
                Value::Word(word) => kind.bytes(word)?,
                _ => return None,
            };
            let none = Bytes::from_elem(0, bits.len());
            self.bitwise(&bits, &none);
            self.compare(if op == "!" { cmp::EQ } else { cmp::NEQ }, &none);
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
        let (mut first, mut last) = bounds(kind, right)?;
        if kind.is_of_host() && (first != last || op.starts_with(['<', '>'])) {
            // as nft has it: what is compared is turned round, if need be, so that the highest byte comes first
            self.exprs.push(Expr::Byteorder { sreg: 1, dreg: 1, op: 1, len: 4, size: 4 });
            if cfg!(target_endian = "little") {
                first.reverse();
                last.reverse();
            }
        }
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

    /// The same of a constant or a range: the registers of its ends.
    fn ends(&mut self, kind: Kind, value: &Value, word: u32) -> Option<(Option<Register>, Option<Register>)> {
        let (first, last) = bounds(kind, value)?;
        let is_range = first != last;
        let mut put = |bytes, word| {
            self.exprs.push(Expr::Immediate { dreg: register(word), data: Data::Value(bytes) });
            Some(register(word))
        };
        let begin = put(first, word);
        let end = if is_range { put(last, word + (kind.len() as u32).div_ceil(4)) } else { begin };
        Some((begin, end))
    }

    /// Loads the ports of a translation, which a map may give, from a word on that begins a long register.
    fn ports(&mut self, port: Option<&Value>, word: u32) -> Option<(Option<Register>, Option<Register>)> {
        match port {
            None => Some((None, None)),
            Some(Value::Map(key, map)) => {
                let kinds = self.load(key, word)?;
                let found = Some(register(word));
                self.lookup(&kinds, map, MapData::Value(&[Kind::Port]), found, false)?;
                if let Some(Expr::Lookup { sreg, .. }) = self.exprs.last_mut() {
                    *sreg = register(word);
                }
                Some((found, found))
            }
            Some(value) => self.ends(Kind::Port, value, word),
        }
    }

    fn nat(&mut self, source: bool, address: Option<&Value>, port: Option<&Value>, flags: &[String]) -> Option<()> {
        let kind = address_kind(self.table.family).or_else(|| match address {
            Some(Value::Word(word)) if word.contains(':') => Some(Kind::Ipv6),
            _ => Some(Kind::Ipv4),
        })?;
        let words = kind.len() as u32 / 4;
        let ((mut to, mut to_last), mut of_map) = ((None, None), None);
        match address {
            Some(Value::Map(key, map)) => {
                let key = self.load(key, 0)?;
                let both = [kind, Kind::Port];
                let has_port = port.is_none() && self.gives_port(map);
                let data = if has_port { &both[..] } else { &both[..1] };
                self.lookup(&key, map, MapData::Value(data), Some(1), false)?;
                (to, to_last) = (Some(1), Some(1));
                of_map = has_port.then_some(register(words));
            }
            Some(value) => (to, to_last) = self.ends(kind, value, 0)?,
            None => {}
        }
        // behind the address, which takes four words at most, or twice as many
        let (mut to_port, mut to_last_port) = self.ports(port, if to == to_last { 4 } else { 8 })?;
        if of_map.is_some() {
            (to_port, to_last_port) = (of_map, of_map);
        }
        let specified = u32::from(to.is_some()) | if to_port.is_some() { 2 } else { 0 };
        self.exprs.push(Expr::Nat {
            kind: u32::from(!source),
            family: if kind == Kind::Ipv4 { 2 } else { 10 },
            addr_min: to,
            addr_max: to_last,
            proto_min: to_port,
            proto_max: to_last_port,
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

    fn reject(&mut self, named: Option<&str>, what: Option<&str>) -> Option<()> {
        let (kind, code) = match (named, what) {
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
        match (kind, what) {
            (1, _) => self.presuppose_part("tcp", "flags"),
            (0, Some(_)) if named == Some("icmp") => self.presuppose_family(NfFamily::IPV4),
            (0, Some(_)) => self.presuppose_family(NfFamily::IPV6),
            _ => {}
        }
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
            "nftrace" | "secmark" => {}
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
            Value::Map(key, map) => {
                let kinds = self.load(key, 0)?;
                self.lookup(&kinds, map, MapData::Value(&[Kind::Mark]), Some(1), false)?;
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
                match value {
                    Value::Word(_) => _ = self.constant(self.compiler.data_kind(self.table, set)?, value, word)?,
                    value => _ = self.load(value, word)?,
                }
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
