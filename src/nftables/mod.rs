//! The plan as nftables maps.
