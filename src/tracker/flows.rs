//! Which UDP flows may have to end.

use std::collections::BTreeSet;
use std::net::IpAddr;

use hashbrown::HashMap;

use super::Tracker;
use super::store::ServiceId;
use crate::objects::FamilyOf;
use crate::plan::Claim;
use crate::policy::Context;
use crate::policy::flows::{self, Serving};

impl Tracker {
    /// The UDP frontends that flows may have to leave: those that came, went, passed from one Service to another, or
    /// whose serving endpoints changed (behaviour row H1), in what was taken since [`Tracker::settle`]. The first time,
    /// all that there are.
    pub fn unsettled(&self) -> &BTreeSet<Claim> {
        &self.unsettled
    }

    /// Adds to [`Tracker::unsettled`] what the kernel turned out to hold: an earlier run may have left frontends that
    /// no Service has any more (row H6).
    pub fn unsettle(&mut self, claims: impl IntoIterator<Item = Claim>) {
        self.unsettled.extend(claims);
    }

    /// What was sent to an address of the node before node ports were served there went elsewhere (rows F5, H4).
    pub(super) fn unsettle_node_ports(&mut self, before: Option<&Context>, now: &Context) {
        if before.is_none_or(|before| before.node.node_port_addresses == now.node.node_port_addresses) {
            return;
        }
        let flows = self.store.service_ids().flat_map(|id| self.flows(now, id));
        let node_ports: Vec<Claim> = flows.map(|(claim, _)| claim).filter(|claim| claim.ip().is_none()).collect();
        self.unsettled.extend(node_ports);
    }

    /// Where the flows to each of the [`Tracker::unsettled`] frontends may stay, now that what was taken is programmed;
    /// from then on they are settled. Where no Service has a frontend any more, that is nowhere (row H6).
    ///
    /// A node port is not alone on the node's addresses, which are `own`: an external address may be one of them, and
    /// its Service goes first there. So such frontends of the same port number are in the answer, too.
    pub fn settle(&mut self, own: &[IpAddr]) -> HashMap<Claim, Serving> {
        let mut wanted: HashMap<Claim, Serving> = HashMap::new();
        let mut services = BTreeSet::new();
        for claim in std::mem::take(&mut self.unsettled) {
            let addresses = own.iter().filter(|ip| claim.ip().is_none() && ip.family() == claim.family());
            let beside = addresses.map(|ip| Claim::address(*ip, claim.protocol(), claim.port()));
            for claim in beside.filter(|claim| self.claims.owner(claim).is_some()).chain([claim]) {
                services.extend(self.claims.owner(&claim));
                wanted.insert(claim, Serving::default());
            }
        }
        if let Some(context) = &self.planned {
            for (claim, serving) in services.into_iter().flat_map(|id| self.flows(context, id)) {
                if let Some(nowhere) = wanted.get_mut(&claim) {
                    *nowhere = serving;
                }
            }
        }
        wanted
    }

    /// The UDP frontends that the Service has, and where flows to each may stay.
    pub(super) fn flows(&self, context: &Context, id: ServiceId) -> Vec<(Claim, Serving)> {
        let Some(service) = self.store.service(id).filter(|service| flows::is_concerned(service)) else {
            return Vec::new();
        };
        let wins = |claim: &Claim| self.claims.owner(claim) == Some(id);
        flows::udp(context, service, &self.store.slices(id), wins)
    }

    /// Notes the frontends that are not in both lists with the same endpoints.
    pub(super) fn unsettle_between(&mut self, before: &[(Claim, Serving)], now: &[(Claim, Serving)]) {
        if before == now {
            return;
        }
        let differ = |a: &[(Claim, Serving)], b: &[(Claim, Serving)]| -> Vec<Claim> {
            let b: HashMap<Claim, &Serving> = b.iter().map(|(claim, serving)| (*claim, serving)).collect();
            a.iter().filter(|(claim, serving)| b.get(claim) != Some(&serving)).map(|(claim, _)| *claim).collect()
        };
        self.unsettled.extend(differ(before, now));
        self.unsettled.extend(differ(now, before));
    }
}
