//! svcmap: Kubernetes Services as nftables maps.
//!
//! The modules follow the way data takes:
//! [`source`] → [`tracker`] → [`policy`] → [`plan`] → [`nftables`] → [`netlink`] → kernel,
//! and back: kernel → [`netlink`] → [`nftables`] → [`plan`].

pub mod amounts;
pub mod audit;
pub mod cli;
pub mod compare;
pub mod config;
pub mod conntrack;
pub mod dataplane;
pub mod events;
pub mod explain;
pub mod iptables;
pub mod ipvs;
pub mod lab;
pub mod leftovers;
pub mod listing;
pub mod netlink;
pub mod nftables;
pub mod objects;
pub mod plan;
pub mod policy;
pub mod serve;
pub mod shown;
pub mod source;
pub mod sync;
pub mod sysctl;
pub mod tool;
pub mod top;
pub mod trace;
pub mod tracker;
pub mod userspace;
pub mod yaml;
