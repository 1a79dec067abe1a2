//! Rules that translate addresses and ports.

use std::net::{IpAddr, SocketAddr};

use super::describe::describe;
use super::flight::{Interface, status};
use super::hook::{Hook, Manip};
use super::refusal::{Refusal, Unknown};
use super::rule::{Flow, Progress, RuleEnd, RuleRun};
use super::way::{Event, Source};
use crate::netlink::model::{Expr, NfFamily, Register, Verdict};

/// `NF_NAT_RANGE_*` that say nothing about the address, nor about which port it is where one is given.
const HARMLESS_FLAGS: u32 = 0x1 | 0x2 | RANDOM | 0x8 | FULLY_RANDOM;
const RANDOM: u32 = 0x4;
const FULLY_RANDOM: u32 = 0x10;

impl RuleRun<'_> {
    /// `snat`, `dnat`, `masquerade` and `redirect`. With each of them the chain ends.
    pub fn translate(&self, progress: &mut Progress, expr: &Expr) -> Result<Flow, Refusal> {
        let v4 = progress.flight.family == NfFamily::IPV4;
        if let Expr::Nat { family, .. } = *expr
            && ![u32::from(progress.flight.family.0), u32::from(NfFamily::INET.0)].contains(&family)
        {
            return Ok(Flow::On); // nft_nat_inet_eval
        }
        self.sure(progress)?;
        let length = if v4 { 4 } else { 16 };
        match *expr {
            Expr::Nat { kind: 1, addr_min, addr_max, proto_min, proto_max, flags, .. } => {
                let ip = self.single_address(progress, expr, length, addr_min, addr_max)?;
                let port = self.destination_port(progress, expr, proto_min, proto_max, flags)?;
                self.send_to(progress, ip, port);
            }
            Expr::Nat { addr_min, addr_max, proto_min, flags, .. } => {
                let ip = self.single_address(progress, expr, length, addr_min, addr_max)?;
                self.no_strange_flags(expr, flags)?;
                let random = flags & (RANDOM | FULLY_RANDOM) != 0;
                self.send_from(progress, ip.map_or(Source::Kept, Source::Address), random || proto_min.is_some());
            }
            Expr::Masq { flags, proto_min, .. } => {
                self.no_strange_flags(expr, flags)?;
                let random = flags & (RANDOM | FULLY_RANDOM) != 0;
                self.send_from(progress, Source::Masqueraded, random || proto_min.is_some());
            }
            Expr::Redir { proto_min, proto_max, flags } => {
                let port = self.destination_port(progress, expr, proto_min, proto_max, flags)?;
                let Some(ip) = self.own_address(progress, expr)? else {
                    return self.verdict(progress, &Verdict::Drop);
                };
                self.send_to(progress, Some(ip), port);
            }
            _ => return Err(self.refusal(Unknown::Expression(describe(expr)))),
        }
        Ok(Flow::End(RuleEnd::Verdict(Verdict::Accept)))
    }

    fn no_strange_flags(&self, expr: &Expr, flags: u32) -> Result<(), Refusal> {
        if flags & !HARMLESS_FLAGS == 0 { Ok(()) } else { Err(self.refusal(Unknown::Expression(describe(expr)))) }
    }

    /// Which address of a range it is only the kernel knows.
    fn single_address(
        &self,
        progress: &Progress,
        expr: &Expr,
        length: usize,
        min: Option<Register>,
        max: Option<Register>,
    ) -> Result<Option<IpAddr>, Refusal> {
        let Some(min) = min else { return Ok(None) };
        let first = self.known(progress, min, length)?;
        if let Some(max) = max
            && self.known(progress, max, length)? != first
        {
            return Err(self.refusal(Unknown::Expression(format!("{} to a range of addresses", describe(expr)))));
        }
        Ok(match length {
            4 => <[u8; 4]>::try_from(&first[..]).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(&first[..]).ok().map(IpAddr::from),
        })
    }

    fn destination_port(
        &self,
        progress: &Progress,
        expr: &Expr,
        min: Option<Register>,
        max: Option<Register>,
        flags: u32,
    ) -> Result<Option<u16>, Refusal> {
        self.no_strange_flags(expr, flags)?;
        let Some(min) = min else { return Ok(None) };
        let port =
            |register| Ok(self.known(progress, register, 2)?.iter().fold(0, |port, byte| port << 8 | u16::from(*byte)));
        let first = port(min)?;
        match max {
            Some(max) if port(max)? != first => {
                Err(self.refusal(Unknown::Expression(format!("{} to a range of ports", describe(expr)))))
            }
            _ => Ok(Some(first)),
        }
    }

    fn send_to(&self, progress: &mut Progress, ip: Option<IpAddr>, port: Option<u16>) {
        let flight = &mut progress.flight;
        let before = flight.destination;
        flight.destination = SocketAddr::new(ip.unwrap_or(before.ip()), port.unwrap_or(before.port()));
        if flight.destination != before {
            flight.status |= status::DST_NAT;
        }
        flight.translated = true;
        flight.decide(Manip::Destination);
        let to = flight.destination;
        self.act(progress, Event::Destination(to));
    }

    /// The port may become another one in any case, where it is in use.
    fn send_from(&self, progress: &mut Progress, source: Source, port_changes: bool) {
        let flight = &mut progress.flight;
        let before = flight.original.source;
        let surely = match source {
            Source::Kept => false,
            Source::Address(ip) => ip != before,
            Source::Masqueraded => !self.walk.node.is_local(before),
        };
        if surely {
            flight.status |= status::SRC_NAT;
        } else {
            flight.status_unknown |= status::SRC_NAT;
        }
        if port_changes || source != Source::Kept {
            flight.source_port = None;
        }
        flight.source = source;
        flight.translated = true;
        flight.decide(Manip::Source);
        self.act(progress, Event::Source(source));
    }

    /// Where a redirected packet goes: to loopback if the node sent it, else to the first address of the interface that
    /// it came in through; without one it is dropped (`net/netfilter/nf_nat_redirect.c`).
    fn own_address(&self, progress: &Progress, expr: &Expr) -> Result<Option<IpAddr>, Refusal> {
        let flight = &progress.flight;
        let v4 = flight.family == NfFamily::IPV4;
        if self.walk.hook == Hook::Output {
            return Ok(Some(if v4 { IpAddr::from([127, 0, 0, 1]) } else { std::net::Ipv6Addr::LOCALHOST.into() }));
        }
        let unknown = || self.refusal(Unknown::Expression(describe(expr)));
        if let IpAddr::V6(to) = flight.destination.ip()
            && (to.is_unicast_link_local() || to.is_loopback())
        {
            return Err(unknown());
        }
        let Interface::Named(name) = &flight.incoming else { return Err(unknown()) };
        let interface = self.walk.node.interface(name).ok_or_else(unknown)?;
        Ok(interface.addresses.iter().find(|address| address.is_ipv4() == v4).copied())
    }
}
