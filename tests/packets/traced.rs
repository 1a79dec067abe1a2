//! The tracer beside the packets: the rules that a lab's node holds, and the node as the tracer wants to know it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use svcmap::explain::explanation::Question;
use svcmap::explain::{Surroundings, explain};
use svcmap::lab::{Lab, Place};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::objects::Protocol;
use svcmap::trace::{Interface, LOOPBACK, Node, Origin, Packet, Route, Ruleset, trace};

use crate::common::cases::{Flow, Outcome};
use crate::common::trace::expected;

/// The rules that the node holds now.
pub fn ruleset(lab: &Lab) -> Result<Ruleset> {
    lab.node().run(|| {
        let mut connection = Connection::open(CodecKind::Native)?;
        Ok(Ruleset::read(&mut connection)?)
    })
}

/// The node's interfaces, addresses and routes, as `ip` shows them.
pub fn node(lab: &Lab) -> Result<Node> {
    let mut node = Node::default();
    for link in listing(lab, &["-j", "address", "show"])? {
        let name = link["ifname"].as_str().context("a link without a name")?;
        let addresses = link["addr_info"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|address| address["local"].as_str()?.parse().ok()).collect();
        let index = link["ifindex"].as_u64().and_then(|index| u32::try_from(index).ok());
        if name != LOOPBACK {
            node.interfaces.push(Interface { name: name.into(), index, addresses, is_bridge: false });
        }
    }
    for (family, everything) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
        for route in listing(lab, &["-j", family, "route", "show", "table", "main"])? {
            let (Some(to), Some(device)) = (route["dst"].as_str(), route["dev"].as_str()) else { continue };
            let to = match to.parse::<IpAddr>() {
                Ok(ip) => ip.into(),
                Err(_) if to == "default" => everything.parse()?,
                Err(_) => to.parse()?,
            };
            node.routes.push(Route { to, interface: device.into() });
        }
    }
    ensure!(node.interfaces.len() > 2 && node.routes.len() > 2, "this is no node of a lab: {node:?}");
    Ok(node)
}

fn listing(lab: &Lab, arguments: &[&str]) -> Result<Vec<Value>> {
    let text = lab.node().command("ip", arguments, "")?;
    Ok(serde_json::from_str(&text)?)
}

/// A packet as it comes to the node, or from it. The port that it is sent from is not known.
pub fn packet(lab: &Lab, node: &Node, from: IpAddr, protocol: Protocol, to: SocketAddr) -> Result<Packet> {
    let origin = match lab.place_of(from) {
        Place::Node => Origin::Node,
        _ => Origin::Interface(node.route(from).with_context(|| format!("no route to {from}"))?),
    };
    Ok(Packet { protocol, source: from, source_port: None, destination: to, origin })
}

/// Whether the tracer says of the node's rules what packets have just shown: these endpoints and no others, each as
/// often, with the same source.
pub fn check(lab: &Lab, ruleset: &Ruleset, node: &Node, flow: &Flow) -> Result<()> {
    let packet = packet(lab, node, flow.from.ip, flow.protocol, flow.to)?;
    let traced = trace(ruleset, node, &packet).with_context(|| format!("{flow}: the trace is refused"))?;
    let ways: String = traced.ways.iter().map(ToString::to_string).collect();
    ensure!(traced.outcomes() == expected(flow), "{flow}: packets show {}, the trace says\n{ways}", flow.expect);
    Ok(())
}

/// Whether `svcmap explain` says the same, of the node as it reads it itself.
pub fn check_explanation(lab: &Lab, ruleset: &Ruleset, flow: &Flow) -> Result<()> {
    let surroundings = lab.node().run(|| Ok::<_, anyhow::Error>(Surroundings::of_namespace(Vec::new())?))?;
    let question = Question { from: flow.from.ip, to: flow.to, protocol: flow.protocol, interface: None };
    let explanation = explain(ruleset, &surroundings, &question);
    let [only] = explanation.possibilities.as_slice() else {
        anyhow::bail!("{flow}: rules of svcmap are in doubt:\n{explanation}")
    };
    let verdict = |verdict: &str| only.outcomes.len() == 1 && only.outcomes[0].verdict == verdict;
    let right = match &flow.expect {
        Outcome::Untouched => verdict("untouched"),
        Outcome::Drop => verdict("dropped"),
        Outcome::Reject => verdict("rejected"),
        Outcome::Endpoints(expected) => {
            only.outcomes.len() == expected.len()
                && only.outcomes.iter().all(|ending| {
                    let masqueraded = ending.endpoint.and_then(|endpoint| expected.get(&endpoint));
                    masqueraded == Some(&ending.masqueraded) && ending.share == share(expected.len())
                })
        }
    };
    ensure!(right, "{flow}: packets show {}, the explanation says\n{explanation}", flow.expect);
    Ok(())
}

fn share(of: usize) -> String {
    if of == 1 { "1".into() } else { format!("1/{of}") }
}
