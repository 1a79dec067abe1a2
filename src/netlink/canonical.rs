//! The form in which objects come back from the kernel. Several ways to write an object mean the same; the kernel
//! answers with one of them, and everything that is read is in it. Make what is to be compared with it canonical too.

use std::sync::Arc;

use super::model::*;
use super::uapi::expr::{nat, reject};
use super::userdata::fitting;

impl Expr {
    /// The form that the kernel lists: the 16 byte register's number where a 4 byte one starts it, no end of a range
    /// that is its beginning, no flag that only says that a register is given.
    pub fn canonical(mut self) -> Expr {
        self.registers(|register| *register = canonical_register(*register));
        match &mut self {
            Expr::Nat { addr_min, addr_max, proto_min, proto_max, flags, .. } => {
                collapse(addr_min, addr_max, flags, nat::F_ADDR);
                collapse(proto_min, proto_max, flags, nat::F_PROTO);
            }
            Expr::Masq { flags, proto_min, proto_max } | Expr::Redir { proto_min, proto_max, flags } => {
                collapse(proto_min, proto_max, flags, nat::F_PROTO);
            }
            Expr::Reject { kind, code } if *kind == reject::TYPE_TCP_RESET => *code = 0,
            Expr::Dynset { timeout_ms, .. } => *timeout_ms = timeout_ms.filter(|timeout| *timeout != 0),
            _ => {}
        }
        self
    }

    /// Calls `f` on every register that the expression uses.
    fn registers(&mut self, mut f: impl FnMut(&mut Register)) {
        match self {
            Expr::Payload { dreg, .. }
            | Expr::MetaLoad { dreg, .. }
            | Expr::Ct { dreg, .. }
            | Expr::Numgen { dreg, .. }
            | Expr::Immediate { dreg, .. }
            | Expr::Fib { dreg, .. } => f(dreg),
            Expr::MetaSet { sreg, .. } | Expr::Cmp { sreg, .. } => f(sreg),
            Expr::Bitwise { sreg, dreg, .. } | Expr::Byteorder { sreg, dreg, .. } => {
                [sreg, dreg].into_iter().for_each(f)
            }
            Expr::Lookup { sreg, dreg, .. } => {
                f(sreg);
                dreg.as_mut().map(f);
            }
            Expr::Nat { addr_min, addr_max, proto_min, proto_max, .. } => {
                [addr_min, addr_max, proto_min, proto_max].into_iter().flatten().for_each(f);
            }
            Expr::Masq { proto_min, proto_max, .. } | Expr::Redir { proto_min, proto_max, .. } => {
                [proto_min, proto_max].into_iter().flatten().for_each(f);
            }
            Expr::Dynset { sreg_key, sreg_data, .. } => {
                f(sreg_key);
                sreg_data.as_mut().map(f);
            }
            Expr::Reject { .. } | Expr::Counter { .. } | Expr::Raw { .. } => {}
        }
    }

    /// Canonical, and a counter at 0.
    pub fn without_state(self) -> Expr {
        match self.canonical() {
            Expr::Counter { .. } => Expr::Counter { packets: 0, bytes: 0 },
            other => other,
        }
    }
}

/// The 4 byte registers 8, 12, 16 and 20 are the beginnings of the 16 byte registers 1 to 4.
fn canonical_register(register: Register) -> Register {
    match register {
        8 | 12 | 16 | 20 => register / 4 - 1,
        other => other,
    }
}

fn collapse(min: &Option<Register>, max: &mut Option<Register>, flags: &mut u32, given: u32) {
    if min.is_some() {
        *flags &= !given;
    }
    if max == min {
        *max = None;
    }
}

impl Rule {
    /// What the rule says, without what only the kernel's copy has: no handle, counters at 0, expressions canonical.
    pub fn without_state(mut self) -> Rule {
        self.handle = 0;
        self.exprs = self.exprs.into_iter().map(Expr::without_state).collect();
        self.comment = self.comment.map(fit);
        self
    }
}

impl Set {
    /// The form that the kernel lists: no value type on sets, no length of verdicts, no lengths of single parts, absent
    /// rather than 0.
    pub fn canonical(mut self) -> Set {
        let map = self.flags & set_flags::MAP != 0;
        self.data_type = if map { self.data_type } else { 0 };
        self.data_len = if map && self.data_type != VERDICT_TYPE { self.data_len } else { 0 };
        self.size = self.size.filter(|size| *size != 0);
        self.timeout_ms = self.timeout_ms.filter(|timeout| *timeout != 0);
        if self.concat.len() < 2 {
            self.concat.clear();
        }
        self.exprs = self.exprs.into_iter().map(Expr::without_state).collect();
        self
    }
}

impl Element {
    /// What the element says, without what only the kernel's copy has: no expiration and no counter.
    pub fn without_state(mut self) -> Element {
        self.expiration_ms = None;
        self.counter = None;
        self.comment = self.comment.map(fit);
        self
    }
}

fn fit(comment: Arc<str>) -> Arc<str> {
    match fitting(&comment) {
        cut if cut.len() < comment.len() => cut.into(),
        _ => comment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_meanings_become_equal_values() {
        let nat = |addr_min, addr_max, flags| Expr::Nat {
            kind: 1,
            family: 2,
            addr_min,
            addr_max,
            proto_min: None,
            proto_max: None,
            flags,
        };
        assert_eq!(nat(Some(8), Some(1), 1).canonical(), nat(Some(1), None, 0));
        assert_eq!(nat(Some(1), Some(9), 3).canonical(), nat(Some(1), Some(9), 2));
        assert_eq!((8..24).map(canonical_register).collect::<Vec<_>>(), {
            [1, 9, 10, 11, 2, 13, 14, 15, 3, 17, 18, 19, 4, 21, 22, 23]
        });
        assert_eq!(Expr::Reject { kind: 1, code: 3 }.canonical(), Expr::Reject { kind: 1, code: 0 });
        assert_eq!(Expr::Reject { kind: 0, code: 3 }.canonical(), Expr::Reject { kind: 0, code: 3 });
    }
}
