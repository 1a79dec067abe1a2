//! Numbers that look random and are the same every time.

/// A linear congruential generator, with a seed.
pub struct Random(pub u64);

impl Random {
    /// The next number, below this one.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    /// One of these.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Whether something that happens once in `times` does.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
