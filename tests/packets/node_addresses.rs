//! Node ports follow the node's addresses while svcmap runs (behaviour row F5).

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use svcmap::lab::{Lab, Listen, Outcome, Place};
use svcmap::objects::Protocol;

use crate::common::cases::{Given, NODE_IPS, NodeSettings, Stack, address, manifests, snapshot};
use crate::common::fixture;
use crate::common::proxy::Proxy;
use crate::scene::{PATIENCE, Scene, ask, document, target};
use crate::trial;

/// A name, and what is done in a lab in one family.
type Test = (&'static str, fn(&mut Lab, Stack) -> Result<()>);

pub fn trials() -> Vec<Trial> {
    let tests: [Test; 2] = [
        ("F05_node_ports_move_with_the_primary_address", primary_moves),
        ("F05_an_address_that_comes_later_is_served_without_a_sync", comes_later),
    ];
    let in_family = |(name, test): Test| {
        [Stack::V4, Stack::V6].map(|stack| {
            let name = format!("node_addresses::{name}::{}", format!("{stack:?}").to_lowercase());
            trial(name, move || fixture::in_a_lab(|lab| test(lab, stack)))
        })
    };
    tests.into_iter().flat_map(in_family).collect()
}

const OBJECTS: [&str; 2] = ["service svc port=80@3001", "slice svc L1"];
const CLIENT: &str = "203.0.113.2";
const ENDPOINT: &str = "10.180.0.1";

/// The Node says that another one of its addresses is the first, and then the former one again.
fn primary_moves(lab: &mut Lab, stack: Stack) -> Result<()> {
    let mut scene = Scene::new(lab, stack, "L1", &[CLIENT])?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let (family, client) = (scene.family(), address(CLIENT, scene.family()));
    let [first, second] = NODE_IPS.map(|ip| target(ip, 3001, family));
    let before = document(stack, &OBJECTS);
    let [a, b] = [first, second].map(|address| format!("\"{}\"", address.ip()));
    let after = before.replace(&a, "#").replace(&b, &a).replace('#', &b);
    ensure!(before != after, "{a} and {b} are not in {before}");
    for (objects, served, other) in [(&before, first, second), (&after, second, first), (&before, first, second)] {
        scene.proxy.sync(snapshot(objects))?;
        let by = ask(scene.lab, client, Protocol::Tcp, served)?.by;
        ensure!(by == target(ENDPOINT, 8080, family), "{served} is answered by {by}");
        let seen = scene.lab.probe(client, Protocol::Tcp, other, PATIENCE)?;
        ensure!(seen == Outcome::Refused, "{other} is the other address, and is answered: {seen}");
    }
    Ok(())
}

/// An address within the prefixes that node ports are served on: it is the kernel that knows whether it is local.
fn comes_later(lab: &mut Lab, stack: Stack) -> Result<()> {
    let family = stack.families()[0];
    let [client, endpoint, later] = [CLIENT, ENDPOINT, "192.168.7.7"].map(|ip| address(ip, family));
    let mut places = HashMap::from([(client, Place::Outside), (endpoint, Place::Pod)]);
    lab.settle(&places)?;
    let settings = NodeSettings::parse("nodePorts=192.168.0.0/16");
    let mut given = Given::new("now");
    OBJECTS.iter().for_each(|line| given.add(line));
    let mut proxy = Proxy::start(lab, settings.config(stack))?;
    proxy.clean()?;
    proxy.sync(snapshot(&manifests(&settings, &given, stack)))?;
    let serving = Listen { protocol: Protocol::Tcp, address: SocketAddr::new(endpoint, 8080) };
    let _server = lab.serve(&[serving])?;
    let to = SocketAddr::new(later, 3001);
    let seen = lab.probe(client, Protocol::Tcp, to, PATIENCE)?;
    ensure!(!matches!(seen, Outcome::Answered(_)), "{later} is nobody's yet, and is answered: {seen}");
    places.insert(later, Place::Node);
    lab.settle(&places)?;
    let by = ask(lab, client, Protocol::Tcp, to)?.by;
    ensure!(by == serving.address, "{to} is answered by {by}");
    Ok(())
}
