//! How often a way is taken, exactly.

use std::fmt;

/// A fraction of all connections, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    part: u128,
    of: u128,
}

impl Share {
    /// All of them.
    pub const ALL: Share = Share { part: 1, of: 1 };
    /// None of them.
    pub const NONE: Share = Share { part: 0, of: 1 };

    /// `part` of `of`.
    ///
    /// # Panics
    /// When `of` is 0.
    pub fn new(part: u128, of: u128) -> Share {
        assert!(of != 0, "a share of nothing");
        let common = greatest_common_divisor(part, of);
        Share { part: part / common, of: of / common }
    }

    /// Its value, rounded.
    pub fn as_f64(self) -> f64 {
        self.part as f64 / self.of as f64
    }

    /// The sum; none where it cannot be said exactly any more.
    pub fn checked_add(self, other: Share) -> Option<Share> {
        let common = greatest_common_divisor(self.of, other.of);
        let of = self.of.checked_mul(other.of / common)?;
        let left = self.part.checked_mul(other.of / common)?;
        Some(Share::new(left.checked_add(other.part.checked_mul(self.of / common)?)?, of))
    }

    /// The product; none where it cannot be said exactly any more.
    pub fn checked_mul(self, other: Share) -> Option<Share> {
        let (left, right) = (Share::new(self.part, other.of), Share::new(other.part, self.of));
        Some(Share { part: left.part.checked_mul(right.part)?, of: left.of.checked_mul(right.of)? })
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            1 => write!(f, "{}", self.part),
            of => write!(f, "{}/{of}", self.part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact() {
        let third = Share::new(2, 6);
        assert_eq!(third.to_string(), "1/3");
        assert_eq!(third.checked_add(third).and_then(|two| two.checked_add(third)), Some(Share::ALL));
        assert_eq!(third.checked_mul(Share::new(3, 4)), Some(Share::new(1, 4)));
        assert_eq!(Share::NONE.checked_add(third), Some(third));
        assert_eq!(Share::new(1, u128::MAX).checked_mul(Share::new(1, 2)), None);
        assert_eq!(Share::new(1, u128::MAX).checked_add(Share::new(1, u128::MAX - 1)), None);
    }
}
