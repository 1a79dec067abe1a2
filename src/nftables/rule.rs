//! Writes a rule twice at once: as nft's text, and as the expressions that nft makes of it.
//!
//! The two grow together, piece by piece, so that they cannot say different things; that `nft` agrees is proved by
//! loading the text and reading the kernel back.

use std::fmt::Write;

use super::names::{Chain, Map, TABLE};
use super::numbers::{PREFIX, PREFIX_MASK};
use crate::netlink::model::{self, Bytes, Data, Expr, NfFamily, Register};
use crate::netlink::uapi::comparison as cmp;
use crate::objects::{Family, Protocol};

/// A rule, in both forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As `nft` lists it.
    pub text: String,
    /// As the kernel runs it.
    pub exprs: Vec<Expr>,
}

/// The netlink layer's number of a family.
pub fn nf_family(family: Family) -> NfFamily {
    match family {
        Family::V4 => NfFamily::IPV4,
        Family::V6 => NfFamily::IPV6,
    }
}

/// The family that the netlink layer's number stands for; none where svcmap has no table.
pub fn family_of(family: NfFamily) -> Option<Family> {
    Family::BOTH.into_iter().find(|ours| nf_family(*ours) == family)
}

/// The word for a family's header in rules, and for the family in table names.
pub fn ip_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// A hook function's return code and other constants of the kernel's `nf_tables.h`.
mod nft {
    pub const NETWORK_HEADER: u32 = 1;
    pub const TRANSPORT_HEADER: u32 = 2;
    pub const META_PRIORITY: u32 = 2;
    pub const META_MARK: u32 = 3;
    pub const META_IIFNAME: u32 = 6;
    pub const META_L4PROTO: u32 = 16;
    pub const CT_STATE: u32 = 0;
    pub const CT_STATUS: u32 = 2;
    pub const FIB_ADDRTYPE: u32 = 3;
    pub const FIB_SADDR: u32 = 1;
    pub const FIB_DADDR: u32 = 2;
    pub const NUMGEN_RANDOM: u32 = 1;
    pub const DNAT: u32 = 1;
    pub const DYNSET_UPDATE: u32 = 1;
    pub const DYNSET_DELETE: u32 = 2;
    pub const HTON: u32 = 1;
    pub const REJECT_ICMP: u32 = 0;
    /// `RTN_LOCAL` of `rtnetlink.h`.
    pub const RTN_LOCAL: u32 = 2;
    /// `NF_CT_STATE_BIT(IP_CT_NEW)`.
    pub const STATE_NEW: u32 = 8;
    /// `IPS_DST_NAT`.
    pub const STATUS_DNAT: u32 = 0x20;
    /// `NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED`.
    pub const MAP_IP_AND_PORT: u32 = 3;
    /// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`.
    pub const FULLY_RANDOM: u32 = 0x10;
}

/// The register that begins with the n-th 4 byte word, named as the kernel names it when it lists a rule.
fn register(word: u32) -> Register {
    if word.is_multiple_of(4) { 1 + word / 4 } else { 8 + word }
}

/// Which half of a split pool a random slot comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many.
    pub count: u32,
    /// The first.
    pub offset: u32,
}

/// Builds a [`Rule`] of one family.
pub struct RuleBuilder {
    family: Family,
    text: String,
    exprs: Vec<Expr>,
}

impl RuleBuilder {
    /// A rule that says nothing yet.
    pub fn new(family: Family) -> RuleBuilder {
        RuleBuilder { family, text: String::new(), exprs: Vec::new() }
    }

    /// The rule.
    pub fn build(self) -> Rule {
        Rule { text: self.text, exprs: self.exprs }
    }

    fn say(&mut self, text: impl AsRef<str>) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(text.as_ref());
    }

    fn words(&self) -> u32 {
        self.family.address_len() as u32 / 4
    }

    fn address(&mut self, source: bool, word: u32) {
        let len = self.family.address_len() as u32;
        let offset = match (self.family, source) {
            (Family::V4, true) => 12,
            (Family::V4, false) => 16,
            (Family::V6, true) => 8,
            (Family::V6, false) => 24,
        };
        self.exprs.push(Expr::Payload { dreg: register(word), base: nft::NETWORK_HEADER, offset, len });
    }

    /// `meta l4proto . th dport` from this word on; returns the word behind.
    fn port_key(&mut self, word: u32) -> u32 {
        self.exprs.push(Expr::MetaLoad { dreg: register(word), key: nft::META_L4PROTO });
        self.dport(word + 1);
        word + 2
    }

    fn dport(&mut self, word: u32) {
        self.exprs.push(Expr::Payload { dreg: register(word), base: nft::TRANSPORT_HEADER, offset: 2, len: 2 });
    }

    /// `daddr . meta l4proto . th dport`; returns the text and the word behind.
    fn frontend_key(&mut self, with_address: bool) -> (String, u32) {
        if with_address {
            self.address(false, 0);
            let next = self.port_key(self.words());
            (format!("{} daddr . meta l4proto . th dport", ip_word(self.family)), next)
        } else {
            (String::from("meta l4proto . th dport"), self.port_key(0))
        }
    }

    fn lookup(&mut self, word: u32, map: Map, dreg: Option<Register>, invert: bool) {
        self.exprs.push(Expr::Lookup { sreg: register(word), set: map.name(), dreg, invert });
    }

    /// `… vmap @map`, by address, protocol and port, or without the address for node ports.
    pub fn vmap(mut self, map: Map, with_address: bool) -> Self {
        let (key, _) = self.frontend_key(with_address);
        self.lookup(0, map, Some(0), false);
        self.say(format!("{key} vmap @{map}"));
        self
    }

    /// `meta l4proto tcp`.
    pub fn l4proto(mut self, protocol: Protocol) -> Self {
        self.exprs.push(Expr::MetaLoad { dreg: 1, key: nft::META_L4PROTO });
        self.compare(cmp::EQ, &[protocol.number()]);
        self.say(format!("meta l4proto {protocol}"));
        self
    }

    /// DNAT to the endpoint in a random one of the slots.
    pub fn dnat_to_slot(mut self, map: Map, with_address: bool, slots: Slots) -> Self {
        let (key, next) = self.frontend_key(with_address);
        let Slots { count, offset } = slots;
        self.exprs.push(Expr::Numgen { dreg: register(next), modulus: count, kind: nft::NUMGEN_RANDOM, offset });
        self.lookup(0, map, Some(1), false);
        self.dnat(1, register(self.words()));
        let offset = if offset == 0 { String::new() } else { format!(" offset {offset}") };
        let ip = ip_word(self.family);
        self.say(format!("dnat {ip} to {key} . numgen random mod {count}{offset} map @{map}"));
        self
    }

    /// DNAT to the endpoint whose number is the packet's priority.
    pub fn dnat_to_member(mut self, members: Map) -> Self {
        self.load_priority(0);
        self.lookup(0, members, Some(1), false);
        self.dnat(1, register(self.words()));
        self.say(format!("dnat {} to meta priority map @{members}", ip_word(self.family)));
        self
    }

    fn dnat(&mut self, address: Register, port: Register) {
        self.exprs.push(Expr::Nat {
            kind: nft::DNAT,
            family: u32::from(nf_family(self.family).0),
            addr_min: Some(address),
            addr_max: Some(address),
            proto_min: Some(port),
            proto_max: Some(port),
            flags: nft::MAP_IP_AND_PORT,
        });
    }

    fn load_priority(&mut self, word: u32) {
        self.exprs.push(Expr::MetaLoad { dreg: register(word), key: nft::META_PRIORITY });
    }

    fn set_priority(&mut self) {
        self.exprs.push(Expr::MetaSet { sreg: 1, key: nft::META_PRIORITY });
    }

    /// The packet has no priority from here on.
    pub fn without_priority(mut self) -> Self {
        self.exprs.push(Expr::Immediate { dreg: 1, data: Data::Value(Bytes::from_slice(&0u32.to_ne_bytes())) });
        self.set_priority();
        self.say("meta priority set none");
        self
    }

    /// The packet's priority becomes the number that is noted for the client.
    pub fn priority_of_client(mut self, affinity: Map) -> Self {
        self.address(true, 0);
        self.lookup(0, affinity, Some(1), false);
        self.set_priority();
        self.say(format!("meta priority set {} saddr map @{affinity}", ip_word(self.family)));
        self
    }

    /// The packet's priority becomes the number in a random one of so many slots.
    pub fn priority_of_slot(mut self, slots: Map, count: u32) -> Self {
        self.exprs.push(Expr::Numgen { dreg: 1, modulus: count, kind: nft::NUMGEN_RANDOM, offset: 0 });
        self.lookup(0, slots, Some(1), false);
        self.set_priority();
        self.say(format!("meta priority set numgen random mod {count} map @{slots}"));
        self
    }

    /// The packet has some priority.
    pub fn has_priority(mut self) -> Self {
        self.load_priority(0);
        self.compare(cmp::NEQ, &0u32.to_ne_bytes());
        self.say("meta priority != none");
        self
    }

    /// The packet's priority is the number of an endpoint.
    pub fn has_number(mut self) -> Self {
        self.load_priority(0);
        self.exprs.push(bitwise(PREFIX_MASK, 0));
        self.compare(cmp::EQ, &PREFIX.to_ne_bytes());
        let [mask, prefix] = [PREFIX_MASK, PREFIX].map(|number| number >> 16);
        self.say(format!("meta priority & {mask:x}:0 == {prefix:x}:0"));
        self
    }

    /// Notes the packet's priority for the client, or has what is noted live on.
    pub fn note_client(mut self, affinity: Map, seconds: u32) -> Self {
        let timeout = duration(seconds);
        self.client(nft::DYNSET_UPDATE, affinity, Some(u64::from(seconds) * 1000));
        let ip = ip_word(self.family);
        self.say(format!("update @{affinity} {{ {ip} saddr timeout {timeout} : meta priority }}"));
        self
    }

    /// Forgets the client.
    pub fn forget_client(mut self, affinity: Map) -> Self {
        self.client(nft::DYNSET_DELETE, affinity, None);
        self.say(format!("delete @{affinity} {{ {} saddr : meta priority }}", ip_word(self.family)));
        self
    }

    fn client(&mut self, op: u32, affinity: Map, timeout_ms: Option<u64>) {
        self.address(true, 0);
        self.load_priority(4);
        self.exprs.push(Expr::Dynset { op, set: affinity.name(), sreg_key: 1, sreg_data: Some(2), timeout_ms });
    }

    /// `daddr @set`.
    pub fn destination_in(mut self, set: Map) -> Self {
        self.address(false, 0);
        self.lookup(0, set, None, false);
        self.say(format!("{} daddr @{set}", ip_word(self.family)));
        self
    }

    /// `saddr @set`, or `saddr != @set`.
    pub fn source_in(mut self, set: Map, invert: bool) -> Self {
        self.address(true, 0);
        self.lookup(0, set, None, invert);
        self.say(format!("{} saddr {}@{set}", ip_word(self.family), if invert { "!= " } else { "" }));
        self
    }

    /// `saddr . daddr @set`.
    pub fn pair_in(mut self, set: Map) -> Self {
        let ip = ip_word(self.family);
        self.address(true, 0);
        self.address(false, self.words());
        self.lookup(0, set, None, false);
        self.say(format!("{ip} saddr . {ip} daddr @{set}"));
        self
    }

    /// `daddr . meta l4proto . th dport @set`, or without the address for node ports.
    pub fn frontend_in(mut self, set: Map, with_address: bool) -> Self {
        let (key, _) = self.frontend_key(with_address);
        self.lookup(0, set, None, false);
        self.say(format!("{key} @{set}"));
        self
    }

    /// `daddr . meta l4proto . th dport . saddr != @set`, where the set holds ranges.
    pub fn frontend_and_source_not_in(mut self, set: Map) -> Self {
        let ip = ip_word(self.family);
        let words = self.words();
        self.address(false, 0);
        self.exprs.push(Expr::MetaLoad { dreg: register(words), key: nft::META_L4PROTO });
        let protocol = register(words);
        self.exprs.push(Expr::Byteorder { sreg: protocol, dreg: protocol, op: nft::HTON, len: 1, size: 2 });
        self.dport(words + 1);
        self.address(true, words + 2);
        self.lookup(0, set, None, true);
        self.say(format!("{ip} daddr . meta l4proto . th dport . {ip} saddr != @{set}"));
        self
    }

    /// The destination is a loopback address.
    pub fn destination_loopback(self) -> Self {
        self.loopback_destination(cmp::EQ, "")
    }

    /// The destination is no loopback address.
    pub fn destination_not_loopback(self) -> Self {
        self.loopback_destination(cmp::NEQ, "!= ")
    }

    fn loopback_destination(mut self, op: u32, not: &str) -> Self {
        match self.family {
            Family::V4 => {
                // nft compares only as many bytes as the prefix has
                self.exprs.push(Expr::Payload { dreg: 1, base: nft::NETWORK_HEADER, offset: 16, len: 1 });
                self.compare(op, &[127]);
                self.say(format!("ip daddr {not}127.0.0.0/8"));
            }
            Family::V6 => {
                self.address(false, 0);
                self.compare(op, &std::net::Ipv6Addr::LOCALHOST.octets());
                self.say(format!("ip6 daddr {not}::1"));
            }
        }
        self
    }

    /// The destination is an address of this node.
    pub fn destination_local(self) -> Self {
        self.fib_local(nft::FIB_DADDR, "daddr")
    }

    /// The source is an address of this node.
    pub fn source_local(self) -> Self {
        self.fib_local(nft::FIB_SADDR, "saddr")
    }

    fn fib_local(mut self, flags: u32, which: &str) -> Self {
        self.exprs.push(Expr::Fib { dreg: 1, result: nft::FIB_ADDRTYPE, flags });
        self.compare(cmp::EQ, &nft::RTN_LOCAL.to_ne_bytes());
        self.say(format!("fib {which} type local"));
        self
    }

    /// The packet came in through the interface of this name, or one whose name begins so.
    pub fn via_interface(mut self, name: &str, prefix: bool) -> Self {
        self.exprs.push(Expr::MetaLoad { dreg: 1, key: nft::META_IIFNAME });
        let mut bytes = name.as_bytes().to_vec();
        if !prefix {
            bytes.resize(16, 0); // IFNAMSIZ
        }
        self.compare(cmp::EQ, &bytes);
        self.say(format!("iifname \"{name}{}\"", if prefix { "*" } else { "" }));
        self
    }

    /// The packet came in from another host, or a pod.
    pub fn from_outside(mut self) -> Self {
        self.exprs.push(Expr::MetaLoad { dreg: 1, key: nft::META_IIFNAME });
        let mut name = b"lo".to_vec();
        name.resize(16, 0); // IFNAMSIZ
        self.compare(cmp::NEQ, &name);
        self.say("iifname != \"lo\"");
        self
    }

    /// `ct state new`.
    pub fn new_connection(mut self) -> Self {
        self.exprs.push(Expr::Ct { dreg: 1, key: nft::CT_STATE, direction: None });
        self.bits(nft::STATE_NEW, cmp::NEQ);
        self.say("ct state new");
        self
    }

    /// `ct status dnat`.
    pub fn translated(mut self) -> Self {
        self.exprs.push(Expr::Ct { dreg: 1, key: nft::CT_STATUS, direction: None });
        self.bits(nft::STATUS_DNAT, cmp::NEQ);
        self.say("ct status dnat");
        self
    }

    /// `ct status ! dnat`.
    pub fn not_translated(mut self) -> Self {
        self.exprs.push(Expr::Ct { dreg: 1, key: nft::CT_STATUS, direction: None });
        self.bits(nft::STATUS_DNAT, cmp::EQ);
        self.say("ct status ! dnat");
        self
    }

    /// Goes on where any (or with `cmp::EQ` none) of the bits in register 1 is set.
    fn bits(&mut self, mask: u32, op: u32) {
        self.exprs.push(bitwise(mask, 0));
        self.compare(op, &0u32.to_ne_bytes());
    }

    fn compare(&mut self, op: u32, value: &[u8]) {
        self.exprs.push(Expr::Cmp { sreg: 1, op, data: Bytes::from_slice(value) });
    }

    /// Sets the bit that asks for masquerading (behaviour row E9: no other bit is touched).
    pub fn mark(self, mark: u32) -> Self {
        self.change_mark(!mark, mark, format!("meta mark set meta mark | 0x{mark:08x}"))
    }

    /// The bit is set; clears it.
    pub fn take_mark(mut self, mark: u32) -> Self {
        self.exprs.push(Expr::MetaLoad { dreg: 1, key: nft::META_MARK });
        self.bits(mark, cmp::NEQ);
        self.say(format!("meta mark & 0x{mark:08x} != 0x00000000"));
        self.change_mark(u32::MAX, mark, format!("meta mark set meta mark ^ 0x{mark:08x}"))
    }

    fn change_mark(mut self, mask: u32, xor: u32, text: String) -> Self {
        self.exprs.push(Expr::MetaLoad { dreg: 1, key: nft::META_MARK });
        self.exprs.push(bitwise(mask, xor));
        self.exprs.push(Expr::MetaSet { sreg: 1, key: nft::META_MARK });
        self.say(text);
        self
    }

    /// `masquerade fully-random` (behaviour row E10).
    pub fn masquerade(mut self) -> Self {
        self.exprs.push(Expr::Masq { flags: nft::FULLY_RANDOM, proto_min: None, proto_max: None });
        self.say("masquerade fully-random");
        self
    }

    /// `reject`, which is ICMP port unreachable in both families.
    pub fn reject(mut self) -> Self {
        let code = if self.family == Family::V4 { 3 } else { 4 };
        self.exprs.push(Expr::Reject { kind: nft::REJECT_ICMP, code });
        self.say("reject");
        self
    }

    /// `drop`.
    pub fn drop(self) -> Self {
        self.verdict(model::Verdict::Drop, "drop")
    }

    /// `jump chain`.
    pub fn jump(self, chain: Chain) -> Self {
        self.verdict(model::Verdict::Jump(chain.name()), &format!("jump {chain}"))
    }

    /// `goto chain`.
    pub fn goto(self, chain: Chain) -> Self {
        self.verdict(model::Verdict::Goto(chain.name()), &format!("goto {chain}"))
    }

    fn verdict(mut self, verdict: model::Verdict, text: &str) -> Self {
        self.exprs.push(Expr::Immediate { dreg: 0, data: Data::Verdict(verdict) });
        self.say(text);
        self
    }
}

fn bitwise(mask: u32, xor: u32) -> Expr {
    let bytes = |value: u32| Box::new(Bytes::from_slice(&value.to_ne_bytes()));
    Expr::Bitwise { sreg: 1, dreg: 1, len: 4, mask: bytes(mask), xor: bytes(xor) }
}

/// Seconds as nft lists them: `1d2h3m4s`, without the parts that are zero.
pub fn duration(seconds: u32) -> String {
    let mut text = String::new();
    let mut rest = seconds;
    for (unit, length) in [('d', 86400), ('h', 3600), ('m', 60), ('s', 1)] {
        if rest / length > 0 {
            let _ = write!(text, "{}{unit}", rest / length);
        }
        rest %= length;
    }
    if text.is_empty() { "0s".into() } else { text }
}

impl Rule {
    /// The rule as the netlink layer wants it.
    pub fn to_wire(&self, chain: Chain, family: Family) -> model::Rule {
        model::Rule {
            family: nf_family(family),
            table: TABLE.into(),
            chain: chain.name(),
            handle: 0,
            exprs: self.exprs.clone(),
            comment: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_nft_lists_them() {
        for (seconds, want) in [(1, "1s"), (10800, "3h"), (90061, "1d1h1m1s"), (86400, "1d"), (3660, "1h1m")] {
            assert_eq!(duration(seconds), want);
        }
    }
}
