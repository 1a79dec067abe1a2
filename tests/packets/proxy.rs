//! svcmap on the node of a lab: objects in, rules in the kernel.

use anyhow::{Context, Result};
use svcmap::config::ProxyConfig;
use svcmap::lab::Lab;
use svcmap::netlink::model::{NfFamily, Op, Table};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::state::State;
use svcmap::source::Snapshot;
use svcmap::tracker::Tracker;

/// A node's proxy, which has programmed what it was given last.
pub struct Proxy {
    tracker: Tracker,
    state: State,
    connection: Connection,
}

impl Proxy {
    /// A proxy on the lab's node, which has no rules yet.
    pub fn new(lab: &Lab, config: ProxyConfig) -> Result<Proxy> {
        let mut connection = lab.node().run(|| Connection::open(CodecKind::Native))?;
        let remove = |family| {
            let table = Table { family, name: "svcmap".into(), flags: 0, comment: None };
            [Op::AddTable(table.clone()), Op::DeleteTable { family, name: table.name }]
        };
        connection.commit(&[NfFamily::IPV4, NfFamily::IPV6].map(remove).concat())?;
        Ok(Proxy { tracker: Tracker::new(config), state: State::default(), connection })
    }

    /// Brings the kernel from what it has to what the snapshot asks for.
    pub fn sync(&mut self, snapshot: Snapshot) -> Result<()> {
        self.tracker.replace(snapshot);
        let (change, _) = self.tracker.take();
        let transaction = self.state.advance(change);
        self.connection.commit(&transaction.ops).context("the kernel refused the rules")?;
        Ok(())
    }
}
