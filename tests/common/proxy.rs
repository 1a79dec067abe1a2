//! svcmap on the node of a lab: objects in, rules in the kernel.

use anyhow::{Context, Result, ensure};
use svcmap::config::ProxyConfig;
use svcmap::conntrack;
use svcmap::dataplane::Dataplane;
use svcmap::lab::Lab;
use svcmap::netlink::CodecKind;
use svcmap::nftables::program::{Applied, Programmer};
use svcmap::source::Snapshot;
use svcmap::tracker::Tracker;

/// A node's proxy, in one of the modes.
pub struct Proxy<D: Dataplane = Programmer> {
    tracker: Tracker,
    programmer: D,
}

impl Proxy {
    /// A proxy on the lab's node, which may have rules from an earlier one.
    pub fn start(lab: &Lab, config: ProxyConfig) -> Result<Proxy> {
        let programmer = lab.node().run(|| Programmer::open(CodecKind::Native))?;
        Ok(Proxy::of(programmer, config))
    }

    /// Removes the node's rules.
    pub fn clean(&mut self) -> Result<()> {
        self.programmer.cleanup()?;
        Ok(())
    }
}

impl<D: Dataplane> Proxy<D> {
    /// One that programs with this.
    pub fn of(programmer: D, config: ProxyConfig) -> Proxy<D> {
        Proxy { tracker: Tracker::new(config), programmer }
    }

    /// Deletes the chains that nothing uses any more.
    pub fn collect(&mut self) -> Result<()> {
        self.programmer.collect()?;
        Ok(())
    }

    /// Brings the kernel from what it has to what the snapshot asks for.
    pub fn sync(&mut self, snapshot: Snapshot) -> Result<Applied> {
        self.tracker.replace(snapshot);
        let (change, _) = self.tracker.take();
        let applied = if self.programmer.is_in_step() {
            self.programmer.change(change)
        } else {
            self.programmer.replace(change.node.unwrap_or_default(), change.changed)
        };
        applied.context("the rules could not be programmed")
    }

    /// Puts right what somebody else changed, as the daemon does when it hears of it.
    pub fn repair(&mut self) -> Result<Applied> {
        let (node, ports) = self.tracker.whole().context("nothing was synced yet")?;
        self.programmer.replace(node, ports).context("the rules could not be put right")
    }

    /// Ends the UDP flows that are stale after what was synced, as `svcmap apply` does; how many.
    pub fn clean_up(&mut self, lab: &Lab) -> Result<usize> {
        lab.node().run(|| {
            let criteria = conntrack::due(&mut self.tracker, self.programmer.take_found())?;
            let swept = conntrack::clean(&criteria)?;
            ensure!(swept.refused.is_none(), "{swept:?}");
            Ok(swept.deleted)
        })
    }
}
