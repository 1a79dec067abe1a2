//! The plan as virtual servers of IPVS, in the layout of kube-proxy's ipvs mode: what [`nftables`](crate::nftables) is
//! compared with, and what nodes have that come from there.
//!
//! [`state`] says what a plan comes to in a family: addresses on a dummy interface, virtual servers with the endpoints as
//! real servers, and sets. [`companions`] are the few rules of iptables beside them, the same for any Services, which look
//! those sets up. [`text`] writes all of it for the tools; [`program`] keeps the kernel in step, [`mod@servers`] the virtual
//! servers and [`mod@sets`] the sets.
//!
//! What IPVS cannot say is decided by address and port alone, never by who asks: where the external policy is Local and the
//! node has endpoints, pods and the node itself get those, too (rows E7, E8), where it has none they get the cluster's and
//! everybody else is dropped by a rule (row C13). An address is captured as a whole, with all its ports and pings
//! (rows B7, B8). Affinity is remembered for each address and port (row D1). Source ranges are not asked of the node itself,
//! whose packets are translated before (row F7).

pub mod companions;
pub mod names;
pub mod program;
pub mod servers;
pub mod sets;
pub mod settings;
pub mod state;
pub mod text;

pub use names::Set;
pub use program::Programmer;
pub use settings::Settings;
pub use state::{Key, Server, State};
