//! The registers of a rule: bytes, each bit of which may be unknown.

use crate::netlink::model::{Bytes, Register};

/// Bytes of all data registers (`NFT_REG32_COUNT` of `nf_tables.h`).
const SIZE: usize = 64;

/// The registers. What no expression loaded is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    bytes: [u8; SIZE],
    /// Which bits are known.
    known: [u8; SIZE],
    /// Which expression of the rule loaded a word.
    loaded: [usize; SIZE / 4],
}

/// A value of which some bits may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// The value; unknown bits are 0.
    pub bytes: Bytes,
    /// Which bits are known.
    pub known: Bytes,
}

impl Key {
    /// A value that is known.
    pub fn exactly(bytes: &[u8]) -> Key {
        Key { bytes: Bytes::from_slice(bytes), known: Bytes::from_elem(0xff, bytes.len()) }
    }

    /// A value of which nothing is known but its length.
    pub fn unknown(length: usize) -> Key {
        Key { bytes: Bytes::from_elem(0, length), known: Bytes::from_elem(0, length) }
    }

    /// The value, if all of it is known.
    pub fn known(&self) -> Option<Bytes> {
        self.known.iter().all(|known| *known == 0xff).then(|| self.bytes.clone())
    }

    /// Whether it may be this value.
    pub fn may_be(&self, value: &[u8]) -> bool {
        self.bytes.len() == value.len()
            && self
                .bytes
                .iter()
                .zip(&self.known)
                .zip(value)
                .all(|((byte, known), wanted)| byte & known == wanted & known)
    }
}

/// The first byte of a register: 1–4 are 16 bytes long, 8–23 are 4 (`nft_parse_register` of `nf_tables_api.c`).
fn start(register: Register) -> Option<usize> {
    match register {
        1..=4 => Some((register as usize - 1) * 16),
        8..=23 => Some((register as usize - 8) * 4),
        _ => None,
    }
}

impl Registers {
    pub fn new() -> Registers {
        Registers { bytes: [0; SIZE], known: [0; SIZE], loaded: [0; SIZE / 4] }
    }

    /// Puts a value where a register begins. What is left of its last word is 0.
    pub fn store(&mut self, register: Register, value: &Key, expression: usize) {
        let Some(start) = start(register) else { return };
        let end = (start + value.bytes.len()).next_multiple_of(4).min(SIZE);
        self.bytes[start..end].fill(0);
        self.known[start..end].fill(0xff);
        for (at, (byte, known)) in (start..end).zip(value.bytes.iter().zip(&value.known)) {
            (self.bytes[at], self.known[at]) = (byte & known, *known);
        }
        self.loaded[start / 4..end / 4].fill(expression);
    }

    /// The bytes from where a register begins. Behind the last register there is nothing known.
    pub fn load(&self, register: Register, length: usize) -> Key {
        let Some(start) = start(register) else { return Key::unknown(length) };
        let at = |bytes: &[u8; SIZE]| (start..start + length).map(|at| bytes.get(at).copied().unwrap_or(0)).collect();
        Key { bytes: at(&self.bytes), known: at(&self.known) }
    }

    /// The expression that loaded the first unknown word of what [`Registers::load`] gives.
    pub fn culprit(&self, register: Register, length: usize) -> usize {
        let Some(start) = start(register) else { return 0 };
        let unknown = (start..(start + length).min(SIZE)).find(|at| self.known[*at] != 0xff);
        self.loaded[unknown.unwrap_or(start) / 4]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_overlap() {
        let mut registers = Registers::new();
        registers.store(1, &Key::exactly(&[1, 2, 3, 4]), 0);
        registers.store(9, &Key::exactly(&[17]), 1);
        registers.store(10, &Key::exactly(&[0, 80]), 2);
        assert_eq!(registers.load(1, 12), Key::exactly(&[1, 2, 3, 4, 17, 0, 0, 0, 0, 80, 0, 0]));
        assert_eq!(registers.load(8, 4).known().as_deref(), Some(&[1, 2, 3, 4][..]));
        assert_eq!(registers.load(1, 13).known(), None);
        assert_eq!(registers.load(2, 2), Key::unknown(2));
    }

    #[test]
    fn a_value_may_be_what_its_known_bits_say() {
        let key = Key { bytes: Bytes::from_slice(&[0x40, 0]), known: Bytes::from_slice(&[0xf0, 0]) };
        assert!(key.may_be(&[0x4f, 7]) && !key.may_be(&[0x50, 7]) && !key.may_be(&[0x40]));
        let mut registers = Registers::new();
        registers.store(1, &Key::exactly(&[0; 4]), 3);
        registers.store(9, &key, 4);
        assert_eq!(registers.culprit(1, 6), 4);
    }
}
