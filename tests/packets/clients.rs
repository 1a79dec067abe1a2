//! Session affinity (behaviour rows D, cases A): forty clients connect, and who answers each is remembered.
//!
//! Forty, since an endpoint that is picked anew may by chance be the one of before, and one of three may by chance be
//! picked by nobody; that forty clients do so is out of the question.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Place, Server};
use svcmap::netlink::model::{NfFamily, SetRef, set_flags};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::nftables::names::TABLE;
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{Clients, Expect, Given, Round, Stack, Sticky, address, destination, endpoint_ips};
use crate::common::fixture;
use crate::scene::{Scene, ask};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    Sticky::all().into_iter().map(Arc::new).flat_map(in_both_families).collect()
}

fn in_both_families(case: Arc<Sticky>) -> [Trial; 2] {
    let ignored = case.excluded_from("packets").inspect(|why| eprintln!("cannot run here: case {}: {why}", case.id));
    let ignored = ignored.is_some();
    [Stack::V4, Stack::V6].map(|stack| {
        let name = format!("affinity::{}::{}", case.id, format!("{stack:?}").to_lowercase());
        let case = case.clone();
        trial(name, move || fixture::in_a_lab(|lab| run(&case, stack, lab).with_context(|| case.complaint(stack))))
            .with_ignored_flag(ignored)
    })
}

/// The clients' endpoints, and when the kernel will forget each client.
#[derive(Default)]
struct Seen {
    picks: BTreeMap<IpAddr, SocketAddr>,
    forgets: BTreeMap<Vec<u8>, Instant>,
}

fn run(case: &Sticky, stack: Stack, lab: &mut Lab) -> Result<()> {
    let place = |who| match who {
        // not where endpoints are: answers would not come back through the node
        Clients::Outside | Clients::Pods => Place::Outside,
        Clients::Node => Place::Node,
    };
    let clients = Clients::ALL.into_iter().flat_map(|who| who.addresses().map(move |client| (client, place(who))));
    let mut scene = Scene::with(lab, stack, "L1 L2 R3 R4", &clients.collect::<Vec<_>>())?;
    let family = scene.family();
    scene.restart_with(case.config(stack))?;
    let _servers = serve(&scene)?;
    let (mut before, mut last, mut now) = (Seen::default(), Seen::default(), Given::new("nothing"));
    for step in &case.steps {
        match step {
            Round::Sync(given) => {
                now = given.as_ref().clone();
                scene.proxy.sync(case.snapshot(given, stack))?;
            }
            Round::Restart => {
                scene.restart_with(case.config(stack))?;
                let applied = scene.proxy.sync(case.snapshot(&now, stack))?;
                ensure!(applied.messages == 0, "a restart without any change sent {applied:?}");
            }
            Round::Pause(time) => sleep(*time),
            Round::Connect(who, to) => {
                let (protocol, to) = destination(to, &now, family);
                let clients = who.addresses().map(|client| address(&client, family));
                let pick = |from: IpAddr| Ok((from, ask(scene.lab, from, protocol, to)?.by));
                let picks = clients.map(pick).collect::<Result<_>>()?;
                before = std::mem::replace(&mut last, Seen { picks, forgets: forgets(scene.lab, family)? });
            }
        }
    }
    check(&case.expect, &before, &last, &now, stack)
}

/// On all ports that the cases have.
fn serve(scene: &Scene) -> Result<Vec<Server>> {
    let mut servers = scene.serve(Protocol::Tcp, 8443)?;
    for protocol in Protocol::ALL {
        servers.extend(scene.serve(protocol, 8080)?);
    }
    Ok(servers)
}

fn check(expect: &Expect, before: &Seen, last: &Seen, now: &Given, stack: Stack) -> Result<()> {
    let family = stack.families()[0];
    let pods = |seen: &Seen| seen.picks.values().map(SocketAddr::ip).collect::<Vec<_>>();
    let reached: BTreeSet<IpAddr> = pods(last).into_iter().collect();
    match expect {
        Expect::Same { later } => {
            ensure!(last.picks == before.picks, "expected {:?} again, seen {:?}", before.picks, last.picks);
            ensure!(last.forgets.len() >= last.picks.len(), "the kernel knows {} clients", last.forgets.len());
            for (client, time) in last.forgets.iter().filter(|_| *later) {
                let first = before.forgets.get(client).with_context(|| format!("{client:?} was not known before"))?;
                let delay = time.saturating_duration_since(*first);
                ensure!(delay > Duration::from_millis(500), "{client:?} will be forgotten {delay:?} later than before");
            }
        }
        Expect::Other => ensure!(pods(last) != pods(before), "all clients still have the endpoints {:?}", before.picks),
        Expect::Kept => {
            let there: BTreeSet<IpAddr> = now.places(stack).into_keys().collect();
            ensure!(reached.is_subset(&there), "of {there:?}, the clients have {reached:?}");
            for (client, endpoint) in before.picks.iter().filter(|(_, endpoint)| there.contains(&endpoint.ip())) {
                let seen = last.picks[client];
                ensure!(seen == *endpoint, "{client} had {endpoint}, which is still there, and got {seen}");
            }
            ensure!(pods(last) != pods(before), "nobody had an endpoint that left: {:?}", before.picks);
        }
        Expect::Among(names) => {
            let wanted = endpoint_ips(names, now, family);
            ensure!(reached == wanted, "of {wanted:?}, the clients have {reached:?}");
        }
    }
    Ok(())
}

/// When the kernel will forget the client of each entry, going by the clock of this machine.
fn forgets(lab: &Lab, family: Family) -> Result<BTreeMap<Vec<u8>, Instant>> {
    let family = if family == Family::V4 { NfFamily::IPV4 } else { NfFamily::IPV6 };
    let mut connection = lab.node().run(|| Connection::open(CodecKind::Native))?;
    let mut times = BTreeMap::new();
    for set in connection.sets(family, TABLE)?.into_iter().filter(|set| set.flags & set_flags::EVAL != 0) {
        let at = SetRef { family, table: TABLE.into(), name: set.name.clone() };
        for element in connection.elements(&at)? {
            let left = element.expiration_ms.context("a client that is never forgotten")?;
            let key = [set.name.as_bytes(), &element.key].concat();
            times.insert(key, Instant::now() + Duration::from_millis(left));
        }
    }
    Ok(times)
}
