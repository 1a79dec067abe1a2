//! Leftovers of kube-proxy's mode ipvs: virtual servers, the interface that holds their addresses, and sets.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::Report;
use crate::config::host;
use crate::ipvs::Set;
use crate::netlink::link;
use crate::objects::Family;
use crate::tool::output_of;

/// The interface that has the addresses of all Services.
const INTERFACE: &str = host::IPVS_INTERFACE;
/// Where the kernel lists virtual servers; not there without IPVS.
const SERVERS: &str = "/proc/thread-self/net/ip_vs";
/// Not there where nothing has used sets since the machine began: asking for them would bring the module in.
const SETS_MODULE: &str = "/sys/module/ip_set";
/// The one of kube-proxy's sets that svcmap has no use for.
const HEALTH_CHECKS: [&str; 2] = ["KUBE-HEALTH-CHECK-NODE-PORT", "KUBE-6-HEALTH-CHECK-NODE-PORT"];

/// Removes them.
pub fn remove(report: &mut Report) {
    let sets =
        if Path::new(SETS_MODULE).exists() { output_of("ipset", &["save"], "") } else { Ok(Some(String::new())) };
    let listing = match sets {
        Ok(Some(listing)) => listing,
        Ok(None) => {
            report.troubles.push("there may be sets of kube-proxy's (KUBE-…), and ipset is not installed".into());
            String::new()
        }
        Err(trouble) => {
            report.troubles.push(trouble);
            String::new()
        }
    };
    // while the interface and the sets are there, which say whose a virtual server is
    remove_servers(&node_ports(&listing), report);
    match link::delete(INTERFACE) {
        Ok(true) => report.removed.push(format!("interface {INTERFACE}")),
        Ok(false) => {}
        Err(error) => report.troubles.push(format!("interface {INTERFACE}: {error}")),
    }
    for set in sets_of_kube_proxy(&listing) {
        report.note(output_of("ipset", &["destroy", set], "").map(|_| Some(format!("set {set}"))));
    }
}

fn remove_servers(node_ports: &BTreeSet<u16>, report: &mut Report) {
    let listed = std::fs::read_to_string(SERVERS).unwrap_or_default();
    let any = listed.lines().any(|line| ["TCP", "UDP", "SCTP"].iter().any(|protocol| line.starts_with(protocol)));
    if !any {
        return;
    }
    let outcome = host::addresses_by_interface().map_err(|error| error.to_string()).and_then(|own| {
        let Some(servers) = output_of("ipvsadm", &["-S", "-n"], "")? else {
            return Err("there are virtual servers of IPVS, and ipvsadm is not installed to delete kube-proxy's".into());
        };
        let deletions = deletions(&servers, &own, node_ports);
        if deletions.is_empty() {
            return Ok(None);
        }
        output_of("ipvsadm", &["-R"], &deletions.concat())?;
        Ok(Some(format!("{} virtual servers of IPVS", deletions.len())))
    });
    report.note(outcome);
}

/// The lines for `ipvsadm -R` that delete those of the listed virtual servers that are kube-proxy's: at an address of its
/// interface, or at a node port of its sets and an address of the node.
fn deletions(listing: &str, own: &[(String, IpAddr)], node_ports: &BTreeSet<u16>) -> Vec<String> {
    let is_of_kube_proxy = |at: SocketAddr| {
        own.iter().any(|(interface, ip)| *ip == at.ip() && (interface == INTERFACE || node_ports.contains(&at.port())))
    };
    let servers = listing.lines().filter_map(|line| {
        let mut words = line.strip_prefix("-A ")?.split(' ');
        let (option, address) = (words.next()?, words.next()?);
        let at: SocketAddr = address.parse().ok()?;
        is_of_kube_proxy(at).then(|| format!("-D {option} {address}\n"))
    });
    servers.collect()
}

fn is_of_kube_proxy(set: &str) -> bool {
    let named = |kind: &Set| Family::BOTH.iter().any(|family| kind.name(*family) == set);
    HEALTH_CHECKS.contains(&set) || Set::ALL.iter().any(named)
}

/// The sets of `ipset save`.
fn sets_of_kube_proxy(listing: &str) -> Vec<&str> {
    let names = listing.lines().filter_map(|line| line.strip_prefix("create ")?.split(' ').next());
    names.filter(|name| is_of_kube_proxy(name)).collect()
}

/// The node ports in the sets of `ipset save`: by number, or behind an address and the protocol.
fn node_ports(listing: &str) -> BTreeSet<u16> {
    let members = listing.lines().filter_map(|line| line.strip_prefix("add ")?.split_once(' '));
    let is_node_port = |set: &str| is_of_kube_proxy(set) && set.contains("-NODE-PORT-") && !set.contains("HEALTH");
    members.filter(|(set, _)| is_node_port(set)).filter_map(|(_, port)| port.rsplit(':').next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\n\
        add KUBE-CLUSTER-IP 10.96.0.1,tcp:443\n\
        create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 30080\n\
        create KUBE-NODE-PORT-SCTP-HASH hash:ip,port family inet\nadd KUBE-NODE-PORT-SCTP-HASH 192.168.0.2,sctp:30090\n\
        create KUBE-6-LOAD-BALANCER-SOURCE-CID hash:ip,port,net family inet6\n\
        create KUBE-MINE hash:ip\nadd KUBE-MINE 10.0.0.1\ncreate blocked hash:net\n";

    #[test]
    fn sets_are_known_by_their_whole_names() {
        let expected =
            ["KUBE-CLUSTER-IP", "KUBE-NODE-PORT-TCP", "KUBE-NODE-PORT-SCTP-HASH", "KUBE-6-LOAD-BALANCER-SOURCE-CID"];
        assert_eq!(sets_of_kube_proxy(SAVED), expected);
        assert_eq!(node_ports(SAVED), BTreeSet::from([30080, 30090]));
    }

    #[test]
    fn virtual_servers_of_others_stay() {
        let own = [("kube-ipvs0", "10.96.0.1"), ("kube-ipvs0", "fd00::1"), ("eth0", "192.168.0.2")];
        let own = own.map(|(interface, ip)| (interface.to_string(), ip.parse().unwrap()));
        let listing = "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1\n\
            -A -u [fd00::1]:53 -s rr\n-A -t 192.168.0.2:30080 -s rr\n-A -t 192.168.0.2:80 -s wlc\n\
            -A -t 203.0.113.9:30080 -s rr\n-A -f 5 -s rr\n";
        assert_eq!(
            deletions(listing, &own, &node_ports(SAVED)),
            ["-D -t 10.96.0.1:443\n", "-D -u [fd00::1]:53\n", "-D -t 192.168.0.2:30080\n"]
        );
    }
}
