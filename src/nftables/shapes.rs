//! How many endpoints the shared picking chains are made for, so that each has the same chance (row C15).
//!
//! A chain that picks one of N endpoints is shared by all Services with N endpoints. Making one costs the kernel a
//! walk over the whole `endpoints` map, so there must not be too many: up to 64 every number has its chain, above that
//! sizes rise in steps of a sixteenth of a power of two, and slots behind the last endpoint stay empty.

/// Up to here a shape has exactly as many slots as there are endpoints.
const EXACT: u32 = 64;

/// The size of the shape for so many endpoints: at least as large, and less than an eighth larger.
pub fn size(endpoints: u32) -> u32 {
    if endpoints <= EXACT {
        return endpoints;
    }
    let step = endpoints.next_power_of_two() / 32;
    endpoints.next_multiple_of(step)
}

/// Whether a shape of this size has no empty slots.
pub fn is_exact(size: u32) -> bool {
    size <= EXACT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_few_and_hardly_larger_than_needed() {
        let mut sizes = std::collections::BTreeSet::new();
        for n in 0..=100_000 {
            let shape = size(n);
            assert!(shape >= n && size(shape) == shape, "{n} -> {shape}");
            assert!(f64::from(shape - n) <= f64::from(shape) / 16.0, "{n} -> {shape}: too many empty slots");
            assert!(n > EXACT || shape == n);
            sizes.insert(shape);
        }
        assert!(sizes.len() < 64 + 16 * 11, "{} shapes", sizes.len());
    }
}
