//! What came before.

use std::hash::Hash;

use hashbrown::HashSet;
use smallvec::SmallVec;

/// So many are compared one by one: nearly all Services have no more ports, and need no table.
const FEW: usize = 8;

/// Values that came before. Each is found in the same time, however many there are.
#[derive(Debug)]
pub struct Seen<T> {
    few: SmallVec<[T; FEW]>,
    many: HashSet<T>,
}

impl<T> Default for Seen<T> {
    fn default() -> Seen<T> {
        Seen { few: SmallVec::new(), many: HashSet::new() }
    }
}

impl<T: Copy + Eq + Hash> Seen<T> {
    /// Takes note of it; whether it is new.
    pub fn insert(&mut self, value: T) -> bool {
        if self.many.is_empty() {
            if self.few.contains(&value) {
                return false;
            }
            if self.few.len() < FEW {
                self.few.push(value);
                return true;
            }
            self.many.extend(self.few.drain(..));
        }
        self.many.insert(value)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use super::*;

    /// A value that counts how often it is compared.
    #[derive(Clone, Copy)]
    struct Counted<'c>(u32, &'c Cell<usize>);

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted<'_> {}

    impl Hash for Counted<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn the_number_of_comparisons_follows_the_number_of_values() {
        for count in [1, 8, 9, 20_000] {
            let comparisons = Cell::new(0);
            let mut seen = Seen::default();
            for round in 0..2 {
                for number in 0..count {
                    let value = Counted(number, &comparisons);
                    assert_eq!(seen.insert(value), round == 0, "{number}");
                }
            }
            let most = 2 * (FEW + 2) * count as usize;
            assert!(comparisons.get() <= most, "{} comparisons for {count} values", comparisons.get());
        }
    }
}
