//! A lab with a proxy, for tests that go through several states. Objects are in the notation of the cases.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, bail};
use svcmap::config::ProxyConfig;
use svcmap::lab::{Answer, Lab, Listen, Outcome, Place, Server};
use svcmap::nftables::program::Applied;
use svcmap::objects::{Family, Protocol};

pub use crate::common::cases::document;
use crate::common::cases::{Given, Home, NodeSettings, Stack, address, snapshot};
use crate::common::proxy::Proxy;

/// For answers.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A lab with a proxy on its node, in the families of a stack.
pub struct Scene<'a> {
    pub lab: &'a Lab,
    pub stack: Stack,
    pub proxy: Proxy,
    endpoints: Vec<IpAddr>,
}

impl Scene<'_> {
    /// A lab whose node has no rules, with these endpoints, of the notation, and these clients outside.
    pub fn new<'a>(lab: &'a mut Lab, stack: Stack, endpoints: &str, clients: &[&str]) -> Result<Scene<'a>> {
        let clients: Vec<_> = clients.iter().map(|client| (client.to_string(), Place::Outside)).collect();
        Scene::with(lab, stack, endpoints, &clients)
    }

    /// The same, with clients in these places.
    pub fn with<'a>(lab: &'a mut Lab, stack: Stack, endpoints: &str, clients: &[(String, Place)]) -> Result<Scene<'a>> {
        let mut all = Given::new("all");
        all.add(&format!("slice all {endpoints}"));
        let endpoints = all.places(stack);
        let place = |home| if home == Home::Pod { Place::Pod } else { Place::Elsewhere };
        let in_family = |family| clients.iter().map(move |(client, place)| (address(client, family), *place));
        let clients = stack.families().iter().flat_map(|family| in_family(*family));
        let endpoint_places = endpoints.iter().map(|(address, home)| (*address, place(*home)));
        lab.settle(&endpoint_places.chain(clients).collect())?;
        let mut proxy = Proxy::start(lab, NodeSettings::default().config(stack))?;
        proxy.clean()?;
        Ok(Scene { lab, stack, proxy, endpoints: endpoints.into_keys().collect() })
    }

    /// Makes these the objects that there are.
    pub fn sync(&mut self, objects: &[&str]) -> Result<Applied> {
        self.proxy.sync(snapshot(&document(self.stack, objects)))
    }

    /// Makes these the objects that there are, and ends the UDP flows that are stale then; how many.
    pub fn sync_and_clean(&mut self, objects: &[&str]) -> Result<usize> {
        self.sync(objects)?;
        self.proxy.clean_up(self.lab)
    }

    /// The only family, or the first of both.
    pub fn family(&self) -> Family {
        self.stack.families()[0]
    }

    /// Replaces the proxy by another, which has to read from the kernel what there is.
    pub fn restart(&mut self) -> Result<()> {
        self.restart_with(NodeSettings::default().config(self.stack))
    }

    /// The same, with another configuration.
    pub fn restart_with(&mut self, config: ProxyConfig) -> Result<()> {
        self.proxy = Proxy::start(self.lab, config)?;
        Ok(())
    }

    /// Servers on a port of every endpoint.
    pub fn serve(&self, protocol: Protocol, port: u16) -> Result<Vec<Server>> {
        let listen = |ip: &IpAddr| Listen { protocol, address: SocketAddr::new(*ip, port) };
        self.lab.serve(&self.endpoints.iter().map(listen).collect::<Vec<_>>())
    }
}

/// Opens one connection, which must be answered.
pub fn ask(lab: &Lab, from: IpAddr, protocol: Protocol, to: SocketAddr) -> Result<Answer> {
    match lab.probe(from, protocol, to, PATIENCE)? {
        Outcome::Answered(answer) => Ok(answer),
        other => bail!("{from} -> {to}/{protocol}: expected an answer, seen: {other}"),
    }
}

/// An address and port of the notation in a family.
pub fn target(ip: &str, port: u16, family: Family) -> SocketAddr {
    SocketAddr::new(address(ip, family), port)
}
