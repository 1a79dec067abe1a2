//! What rules ask of a packet.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::objects::{Family, FamilyOf};
use crate::plan::{Detector, FrontendAddress, InterfaceMatch, NodePlan, PortPlan};

/// A comment, as the first match of a rule.
pub fn comment(text: &str) -> String {
    format!("-m comment --comment \"{text}\"")
}

/// Packets to a port of an address.
pub fn to_address(port: &PortPlan, ip: IpAddr, number: u16) -> String {
    let protocol = port.protocol;
    format!("-m {protocol} -p {protocol} -d {ip} --dport {number}")
}

/// Packets to a frontend: one match, or for a node port one for each range of the node's addresses.
pub fn to_frontend(node: &NodePlan, port: &PortPlan, address: FrontendAddress) -> Vec<String> {
    let protocol = port.protocol;
    match address {
        FrontendAddress::Cluster(ip, number) | FrontendAddress::External(ip, number) => {
            vec![to_address(port, ip, number)]
        }
        FrontendAddress::NodePort(number) => to_node(node, port.id.family)
            .into_iter()
            .map(|to| format!("{to} -m {protocol} -p {protocol} --dport {number}"))
            .collect(),
    }
}

/// Packets to the addresses that node ports are served on (rows F1–F6), one match for each prefix.
pub fn to_node(node: &NodePlan, family: Family) -> Vec<String> {
    let loopback = loopback(family);
    let prefixes = node.node_port_addresses.iter().filter(|prefix| prefix.family() == family);
    prefixes
        .filter(|prefix| node.serves_loopback(family) || !loopback.contains(*prefix))
        .map(|prefix| {
            let to = match prefix.prefix_len() {
                0 if node.serves_loopback(family) => String::new(),
                0 => format!("! -d {loopback} "),
                _ => format!("-d {prefix} "),
            };
            format!("{to}-m addrtype --dst-type LOCAL")
        })
        .collect()
}

/// Packets from pods, one match for each way to tell (row E12); none where there is no way.
pub fn from_pods(node: &NodePlan, family: Family) -> Vec<String> {
    match node.detector(family) {
        Detector::None => Vec::new(),
        Detector::Sources(prefixes) => prefixes.iter().map(|prefix| format!("-s {prefix}")).collect(),
        Detector::Interface(InterfaceMatch::Exact(name)) => vec![format!("-i {name}")],
        Detector::Interface(InterfaceMatch::Prefix(prefix)) => vec![format!("-i {prefix}+")],
    }
}

/// The loopback addresses of a family.
pub fn loopback(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::new_assert([127, 0, 0, 0].into(), 8),
        Family::V6 => IpNet::new_assert(std::net::Ipv6Addr::LOCALHOST.into(), 128),
    }
}
