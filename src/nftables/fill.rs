//! The room of maps that are made with a size.

/// How full a map with a size is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// The elements that it holds.
    pub used: usize,
    /// The most that it may hold.
    pub size: u32,
}

/// Room of the smallest maps.
pub(super) const MIN_SIZE: u32 = 3072;

/// The most elements that room is left for. A map's buckets are made at once, empty: the memory of very large ones takes
/// the kernel longer to get than a transaction should last.
const MOST_ROOM: usize = 1 << 19;

/// The size of a map that holds so many elements: the kernel makes a third more buckets, rounded up to a power of two
/// (`nft_hash_buckets` in `net/netfilter/nft_set_hash.c`), so sizes that are three quarters of one waste none.
fn size_for(elements: usize) -> u32 {
    let quarter = u32::try_from(elements.div_ceil(3)).ok().and_then(u32::checked_next_power_of_two);
    quarter.and_then(|quarter| quarter.checked_mul(3)).unwrap_or(u32::MAX).max(MIN_SIZE)
}

/// The size of a map that holds so many elements and may come to hold as many again, within [`MOST_ROOM`].
fn roomy(elements: usize) -> u32 {
    size_for(elements.saturating_add(elements.min(MOST_ROOM)))
}

impl Fill {
    /// The size for what it holds, with room for more.
    pub(super) fn fit(&mut self) {
        self.size = roomy(self.used);
    }

    /// Enlarges the map where so many more elements would not fit; whether it had to be.
    pub(super) fn grow(&mut self, more: isize) -> bool {
        let total = self.used.saturating_add_signed(more);
        let grown = total > self.size as usize;
        if grown {
            self.size = roomy(total);
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's `nft_hash_buckets`: what is not needed for the size is wasted.
    #[test]
    fn sizes_waste_no_buckets() {
        for elements in [0, 1, 3072, 3073, 90_000, 98_304, 98_305, 2_400_000] {
            let size = size_for(elements);
            assert!(size as usize >= elements && size >= MIN_SIZE, "{elements} -> {size}");
            assert!((u64::from(size) * 4 / 3).is_power_of_two(), "{elements} -> {size}");
            assert!(size == MIN_SIZE || size as usize / 2 < elements, "{elements} -> {size} is too large");
        }
        assert_eq!(size_for(usize::MAX), u32::MAX);
    }

    /// A million endpoints get 2^21 buckets, which are 16 MiB, instead of twice that.
    #[test]
    fn room_is_as_much_again_but_not_without_end() {
        assert_eq!(roomy(45_000), 98_304);
        assert_eq!(roomy(1_000_000), (1 << 21) / 4 * 3);
        for elements in [0, 3072, 500_000, 524_288, 1_000_000, 3_000_000] {
            let room = roomy(elements) as usize - elements;
            assert!(room >= elements.min(MOST_ROOM), "{elements}: {room}");
        }
        assert_eq!(roomy(usize::MAX), u32::MAX);
    }
}
