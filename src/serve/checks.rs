//! Health check node ports: a server for each Service that has one (behaviour rows I1–I8).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::RETRY;
use super::health::{Reader, check_answer};
use super::http::{self, Answer, Handler, Request, Wildcard};
use super::observer::News;
use crate::config::host;
use crate::events::{Event, Recorder};
use crate::objects::{FamilyOf, ServiceKey};
use crate::policy::health::HealthCheck;

/// Serves until there can be no more news.
pub async fn run(mut news: mpsc::UnboundedReceiver<News>, health: Reader, recorder: Recorder) {
    let mut servers = Servers { health, recorder, networks: Vec::new(), servers: BTreeMap::new() };
    let mut retry = interval(RETRY);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            news = news.recv() => match news {
                Some(news) => servers.take_in(news),
                None => return,
            },
            _ = retry.tick() => servers.listen(),
        }
    }
}

struct Servers {
    health: Reader,
    recorder: Recorder,
    /// Where node ports are served.
    networks: Vec<IpNet>,
    servers: BTreeMap<ServiceKey, Server>,
}

/// One Service's.
struct Server {
    port: u16,
    check: watch::Sender<HealthCheck>,
    listening: BTreeMap<IpAddr, Listening>,
}

/// The state of an address.
enum Listening {
    /// Dropping it closes the listener and all connections.
    Serving { _server: JoinSet<()> },
    /// What was the matter the last time.
    Failed(String),
    /// The host does not know the family.
    NoSuchFamily,
}

impl Servers {
    fn take_in(&mut self, news: News) {
        if let Some(networks) = news.networks {
            self.networks = networks;
        }
        for (service, check) in news.checks {
            match check {
                Some(check) => self.set(service, check),
                None => drop(self.servers.remove(&service)),
            }
        }
        self.listen();
    }

    /// A server whose port is another now is a new one (row I6).
    fn set(&mut self, service: ServiceKey, check: HealthCheck) {
        match self.servers.get(&service) {
            Some(server) if server.port == check.port => drop(server.check.send_replace(check)),
            _ => {
                let server = Server { port: check.port, check: watch::Sender::new(check), listening: BTreeMap::new() };
                // what was there has to be closed before anything is opened: another Service may want its port
                self.servers.insert(service, server);
            }
        }
    }

    /// Closes what must not be served any more, and opens what is not served yet; also what could not be opened before.
    fn listen(&mut self) {
        if self.servers.is_empty() {
            return;
        }
        let own = host::all_addresses().unwrap_or_else(|error| {
            warn!("the node's addresses cannot be read: {error}");
            Vec::new()
        });
        let addresses = addresses(&self.networks, &own);
        for (service, server) in &mut self.servers {
            server.listening.retain(|ip, _| addresses.contains(ip));
            for ip in &addresses {
                server.listen(*ip, service, &self.health, &self.recorder);
            }
        }
    }
}

impl Server {
    fn listen(&mut self, ip: IpAddr, service: &ServiceKey, health: &Reader, recorder: &Recorder) {
        let known = self.listening.get(&ip);
        if let Some(Listening::Serving { .. } | Listening::NoSuchFamily) = known {
            return;
        }
        let address = SocketAddr::new(ip, self.port);
        let listener = match http::listen(address, Wildcard::OwnFamily) {
            Ok(listener) => listener,
            Err(error) => {
                let failed = failed(&error);
                match (known, &failed) {
                    (Some(Listening::Failed(known)), Listening::Failed(text)) if known == text => {}
                    (_, Listening::Failed(text)) => {
                        let note = format!("health cannot be told on {address}: {text}");
                        warn!("Service {service}: {note}; trying again");
                        recorder.record(Event::check_failed(service, note));
                    }
                    _ => debug!("Service {service}: health is not told on {address}: {error}"),
                }
                self.listening.insert(ip, failed);
                return;
            }
        };
        info!("Service {service}: health is told on {address}");
        let teller = Teller { service: service.clone(), ip, check: self.check.subscribe(), health: health.clone() };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = http::serve(listener, teller).await {
                warn!("health is not told on {address} any more: {error}");
            }
        });
        self.listening.insert(ip, Listening::Serving { _server: tasks });
    }
}

fn failed(error: &io::Error) -> Listening {
    if http::is_lack_of_family(error) { Listening::NoSuchFamily } else { Listening::Failed(error.to_string()) }
}

/// Answers on one address, whatever the path is.
#[derive(Clone)]
struct Teller {
    service: ServiceKey,
    ip: IpAddr,
    check: watch::Receiver<HealthCheck>,
    health: Reader,
}

impl Handler for Teller {
    async fn answer(&self, _: Request) -> Answer {
        let ready = self.check.borrow().ready(self.ip.family());
        let progress = self.health.progress();
        check_answer(&self.service, ready, self.health.is_current(&progress) && !progress.damaged)
    }
}

/// The addresses to listen on, where node ports are served in these networks and the node has these addresses (row I1):
/// the wildcard for all addresses of a family; an address that is listed by itself, whether or not the node has it yet;
/// and those of the node's own that are in a network.
fn addresses(networks: &[IpNet], own: &[IpAddr]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for network in networks {
        if network.prefix_len() == 0 {
            addresses.push(match network {
                IpNet::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpNet::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            });
        } else if network.prefix_len() == network.max_prefix_len() {
            addresses.push(network.addr());
        } else {
            addresses.extend(own.iter().filter(|ip| network.contains(*ip) && !ip.is_loopback()));
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row I1.
    #[test]
    fn health_is_told_where_node_ports_are() {
        let own = ["127.0.0.1", "192.168.0.2", "192.168.1.2", "10.0.0.1", "::1", "2001:db8::2", "fe80::1"];
        for (networks, expected) in [
            (&["0.0.0.0/0", "::/0"][..], &["0.0.0.0", "::"][..]),
            (&["192.168.0.2/32", "2001:db8::7/128"], &["192.168.0.2", "2001:db8::7"]),
            (&["192.168.0.0/16"], &["192.168.0.2", "192.168.1.2"]),
            (&["192.168.0.0/16", "192.168.0.0/24", "::/0"], &["192.168.0.2", "192.168.1.2", "::"]),
            (&["127.0.0.0/7"], &[]),
            (&["2001:db8::/32"], &["2001:db8::2"]),
            (&[], &[]),
        ] {
            let networks: Vec<IpNet> = networks.iter().map(|text| text.parse().unwrap()).collect();
            let seen = addresses(&networks, &own.map(|text| text.parse().unwrap()));
            assert_eq!(seen.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{networks:?}");
        }
    }
}
