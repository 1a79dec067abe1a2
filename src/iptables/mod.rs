//! The plan as text for `iptables-restore` and `ip6tables-restore`, in the layout of kube-proxy's iptables mode: what
//! [`nftables`](crate::nftables) is compared with.
//!
//! [`names`] gives chains their names, [`nat`] and [`filter`] say what stands in them, [`mod@matches`] what the rules of both
//! tables ask of a packet, [`ruleset`] puts a family's two tables together and writes them whole, onto what others have, or
//! as a change. [`kernel`] runs the programs that load them, [`variant`] tells their two makes apart, and [`program`] keeps the kernel in
//! step.
//!
//! What the layout cannot say is left out: unknown ports of a ClusterIP and free addresses of the range of ClusterIPs are
//! let through (rows B8, B9), the node itself is not refused at external addresses without endpoints (row C14), and the
//! number of clients with session affinity is the kernel's (`xt_recent`).

pub mod filter;
pub mod kernel;
pub mod matches;
pub mod names;
pub mod nat;
pub mod program;
pub mod ruleset;
pub mod saved;
pub mod variant;

pub use program::Programmer;
pub use ruleset::{Ruleset, Table};
