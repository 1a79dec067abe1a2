//! What is tried in the machine.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use svcmap::lab::{Answer, Lab, Listen, Outcome, Place, Server};
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{LOCAL_NODE, NODE_IPS, Stack, address, document};

/// One of them.
pub type Scene = fn() -> Result<()>;

/// What is applied once. None needs what another left.
pub const ALL: &[(&str, Scene)] = &[
    ("virtual_servers_look_as_an_operator_expects", looks),
    ("requests_reach_the_endpoints", requests),
    ("policies_hold_as_far_as_ipvs_can", policies),
    ("an_endpoint_that_goes_keeps_its_connections", graceful),
    ("virtual_servers_of_others_stay", excluded),
    ("every_scheduler_is_known_to_the_kernel", schedulers),
    ("what_is_rendered_is_what_is_applied", rendered),
    ("an_audit_finds_what_is_missing", audited),
    ("cleanup_leaves_nothing", cleaned_up),
    ("what_kube_proxy_left_goes_and_all_else_stays", left_over),
    ("connections_fare_as_in_nftables_but_for_what_is_known", compared),
];

/// For what comes.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// For what does not come.
pub const SHORT: Duration = Duration::from_millis(1500);

pub fn lab() -> Result<Lab> {
    let both = |text: &str| Family::BOTH.map(|family| address(text, family));
    let node: Vec<_> = NODE_IPS.iter().flat_map(|ip| both(ip)).collect();
    let mut lab = Lab::new(&node)?;
    lab.add_pod("P", &both("10.0.0.2"))?;
    let place = |ips: &[&str], place| -> Vec<_> { ips.iter().flat_map(|ip| both(ip)).map(|ip| (ip, place)).collect() };
    lab.place(&place(&["10.180.0.1"], Place::Pod))?;
    lab.place(&place(&["10.180.0.2", "10.180.0.3"], Place::Elsewhere))?;
    lab.place(&place(&["203.0.113.2", "203.0.113.130"], Place::Outside))?;
    Ok(lab)
}

fn serve(lab: &Lab, protocol: Protocol) -> Result<Vec<Server>> {
    let endpoints = ["10.180.0.1", "10.180.0.2", "10.180.0.3"];
    let listen = |ip: &str, family| Listen { protocol, address: SocketAddr::new(address(ip, family), 8080) };
    let listens: Vec<_> = endpoints.iter().flat_map(|ip| Family::BOTH.map(|family| listen(ip, family))).collect();
    lab.serve(&listens)
}

const NODE: [&str; 4] = ["--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.0.0.0/8,fd00:5c::a00:0/104"];

pub fn svcmap(lab: &Lab, arguments: &[&str], input: &str) -> Result<String> {
    lab.node().command(env!("CARGO_BIN_EXE_svcmap"), arguments, input)
}

pub fn apply(lab: &Lab, arguments: &[&str], stack: Stack, objects: &[&str]) -> Result<String> {
    let all = [&["apply", "--mode", "ipvs", "-f", "-"], &NODE[..], arguments].concat();
    svcmap(lab, &all, &document(stack, objects))
}

pub fn with_config(ipvs: &str) -> Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new()?;
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
         clusterCIDR: 10.0.0.0/8,fd00:5c::a00:0/104\nipvs: {ipvs}\n"
    );
    std::fs::write(file.path(), text)?;
    Ok(file)
}

pub fn target(ip: &str, port: u16, family: Family) -> SocketAddr {
    SocketAddr::new(address(ip, family), port)
}

pub fn ask(lab: &Lab, from: &str, to: SocketAddr, family: Family) -> Result<Answer> {
    match lab.probe(address(from, family), Protocol::Tcp, to, PATIENCE)? {
        Outcome::Answered(answer) => Ok(answer),
        other => anyhow::bail!("{from} -> {to}: expected an answer, seen: {other}"),
    }
}

pub fn expect(lab: &Lab, from: &str, to: SocketAddr, family: Family, expected: &Outcome) -> Result<()> {
    let patience = if *expected == Outcome::TimedOut { SHORT } else { PATIENCE };
    let outcome = lab.probe(address(from, family), Protocol::Tcp, to, patience)?;
    ensure!(outcome == *expected, "{from} -> {to}: expected {expected}, seen: {outcome}");
    Ok(())
}

pub fn ipvsadm(lab: &Lab, arguments: &[&str]) -> Result<String> {
    lab.node().command("ipvsadm", arguments, "")
}

fn looks() -> Result<()> {
    let lab = lab()?;
    apply(&lab, &[], Stack::Dual, &["service svc ip=10.96.1.5 port=80@30080", "slice svc L1 R2"])?;
    let listing = ipvsadm(&lab, &["-Ln"])?;
    for line in [
        "TCP  10.96.1.5:80 rr",
        "  -> 10.180.0.1:8080              Masq    1",
        "  -> 10.180.0.2:8080              Masq    1",
        "TCP  192.168.0.2:30080 rr",
        "TCP  [fd00:5c::a60:105]:80 rr",
    ] {
        ensure!(listing.contains(line), "{line:?} is not in:\n{listing}");
    }
    let addresses = lab.node().command("ip", &["-o", "address", "show", "dev", "kube-ipvs0"], "")?;
    ensure!(addresses.contains("10.96.1.5/32") && addresses.contains("fd00:5c::a60:105/128"), "{addresses}");
    ensure!(!addresses.contains("192.168.0.2"), "{addresses}");
    Ok(())
}

fn requests() -> Result<()> {
    let lab = lab()?;
    let _servers = [serve(&lab, Protocol::Tcp)?, serve(&lab, Protocol::Udp)?];
    let objects = [
        "service svc port=80@30080",
        "slice svc L1 R2",
        "service udp ip=172.30.0.45 port=53/UDP",
        "slice udp port=8080/UDP L1 R2",
        "service sticky ip=172.30.0.43 port=80 affinity=10800",
        "slice sticky L1 R2 R3",
        "service empty ip=172.30.0.44 port=80@30082",
    ];
    apply(&lab, &[], Stack::Dual, &objects)?;
    for family in Family::BOTH {
        let (svc, pod) = (target("172.30.0.41", 80, family), address("10.0.0.2", family));
        let answers = (0..4).map(|_| ask(&lab, "10.0.0.2", svc, family)).collect::<Result<Vec<_>>>()?;
        let by = |ip| answers.iter().filter(|answer| answer.by.ip() == address(ip, family)).count();
        ensure!([by("10.180.0.1"), by("10.180.0.2")] == [2, 2], "round robin: {answers:?}");
        ensure!(answers.iter().all(|answer| answer.seen.ip() == pod), "a pod keeps its address: {answers:?}");
        ensure!(ask(&lab, "203.0.113.2", svc, family)?.masqueraded(), "who is no pod is masqueraded");
        ask(&lab, "192.168.0.2", svc, family).context("the node itself")?;
        ask(&lab, "192.168.0.2", svc, family).context("the node itself")?;
        let node_port = target("192.168.0.2", 30080, family);
        ensure!(ask(&lab, "203.0.113.2", node_port, family)?.masqueraded(), "at a node port");
        let own = (0..2).map(|_| ask(&lab, "10.180.0.1", svc, family)).collect::<Result<Vec<_>>>()?;
        let itself = own.iter().find(|answer| answer.by.ip() == address("10.180.0.1", family));
        ensure!(itself.is_some_and(Answer::masqueraded), "a pod that reaches itself: {own:?}");
        let sticky = target("172.30.0.43", 80, family);
        let first = ask(&lab, "10.0.0.2", sticky, family)?.by;
        for _ in 0..3 {
            ensure!(ask(&lab, "10.0.0.2", sticky, family)?.by == first, "session affinity");
        }
        for to in [target("172.30.0.44", 80, family), target("192.168.0.2", 30082, family)] {
            expect(&lab, "10.0.0.2", to, family, &Outcome::Refused).context("without endpoints")?;
        }
        expect(&lab, "10.0.0.2", target("172.30.0.41", 81, family), family, &Outcome::Refused)
            .context("no such port")?;
        let outcome = lab.probe(pod, Protocol::Udp, target("172.30.0.45", 53, family), PATIENCE)?;
        ensure!(matches!(outcome, Outcome::Answered(_)), "UDP: {outcome}");
    }
    Ok(())
}

fn policies() -> Result<()> {
    let lab = lab()?;
    let _servers = serve(&lab, Protocol::Tcp)?;
    let objects = [
        "service local ip=172.30.0.42 port=80@30081 eTP=Local external=198.51.100.7",
        "slice local L1 R2",
        "service remote ip=172.30.0.46 port=80@30086 eTP=Local external=198.51.100.8",
        "slice remote R2",
        "service inner ip=172.30.0.47 port=80 iTP=Local",
        "slice inner R2",
        "service ranged ip=172.30.0.48 port=80 vip=198.51.100.9 ranges=203.0.113.0/25",
        "slice ranged L1 R2",
    ];
    apply(&lab, &[], Stack::Dual, &objects)?;
    for family in Family::BOTH {
        let outside = address("203.0.113.2", family);
        for to in [target("192.168.0.2", 30081, family), target("198.51.100.7", 80, family)] {
            for _ in 0..3 {
                let answer = ask(&lab, "203.0.113.2", to, family)?;
                let is_local = answer.by.ip() == address("10.180.0.1", family) && answer.seen.ip() == outside;
                ensure!(is_local, "policy Local: {answer:?}");
            }
        }
        for to in [target("192.168.0.2", 30086, family), target("198.51.100.8", 80, family)] {
            expect(&lab, "203.0.113.2", to, family, &Outcome::TimedOut).context("no local endpoint")?;
            ensure!(!ask(&lab, "10.0.0.2", to, family)?.masqueraded(), "a pod keeps its address");
            ask(&lab, "192.168.0.2", to, family).context("the node itself")?;
        }
        let inner = target("172.30.0.47", 80, family);
        for from in ["10.0.0.2", "192.168.0.2"] {
            expect(&lab, from, inner, family, &Outcome::TimedOut).context("internal policy Local")?;
        }
        let ranged = target("198.51.100.9", 80, family);
        ask(&lab, "203.0.113.2", ranged, family).context("within the source ranges")?;
        expect(&lab, "203.0.113.130", ranged, family, &Outcome::TimedOut).context("outside the source ranges")?;
    }
    Ok(())
}

/// Its weight becomes 0 while it has connections, and it is deleted once it has none.
fn graceful() -> Result<()> {
    let lab = lab()?;
    let service = "service svc port=80";
    apply(&lab, &[], Stack::V4, &[service, "slice svc L1 R2"])?;
    let listener =
        lab.home(address("10.180.0.1", Family::V4)).run(|| std::net::TcpListener::bind("10.180.0.1:8080"))?;
    let pod = lab.home(address("10.0.0.2", Family::V4));
    // the one that is not there refuses, and the other's turn comes
    let connect = || std::net::TcpStream::connect("172.30.0.41:80");
    let client = pod.run(|| connect().or_else(|_| connect()))?;
    let (mut server, _) = listener.accept()?;
    apply(&lab, &[], Stack::V4, &[service, "slice svc R2"])?;
    let listing = ipvsadm(&lab, &["-Ln"])?;
    ensure!(listing.contains("10.180.0.1:8080              Masq    0      1"), "{listing}");
    std::io::Write::write_all(&mut server, b"still there")?;
    let mut text = [0; 11];
    let mut reader = &client;
    std::io::Read::read_exact(&mut reader, &mut text)?;
    // as it comes back, it gets connections again
    apply(&lab, &[], Stack::V4, &[service, "slice svc L1 R2"])?;
    let listing = ipvsadm(&lab, &["-Ln"])?;
    ensure!(listing.contains("10.180.0.1:8080              Masq    1      1"), "{listing}");
    lab.node().command("conntrack", &["-F"], "").ok();
    drop((client, server, listener));
    Ok(())
}

fn excluded() -> Result<()> {
    let lab = lab()?;
    let config = with_config("{excludeCIDRs: [10.97.0.0/16], strictARP: true, tcpTimeout: 11m, udpTimeout: 7s}")?;
    let config = config.path().to_string_lossy().into_owned();
    let service = ["service svc ip=10.97.1.5 port=80", "slice svc L1 R2"];
    let other = ["service other ip=10.96.1.6 port=80", "slice other R2"];
    let all = [&service[..], &other].concat();
    let settings = ["--config", config.as_str()];
    let apply = |objects: &[&str]| {
        let arguments = [&["apply", "--mode", "ipvs", "-f", "-", "--hostname-override", LOCAL_NODE], &settings[..]];
        svcmap(&lab, &arguments.concat(), &document(Stack::V4, objects))
    };
    apply(&all)?;
    for (sysctl, value) in [("arp_ignore", "1"), ("arp_announce", "2")] {
        let found = lab.node().command("cat", &[&format!("/proc/sys/net/ipv4/conf/all/{sysctl}")], "")?;
        ensure!(found.trim() == value, "{sysctl}: {found}");
    }
    let timeouts = ipvsadm(&lab, &["-L", "--timeout"])?;
    ensure!(timeouts.contains("660 120 7"), "{timeouts}");
    ipvsadm(&lab, &["-A", "-t", "203.0.113.77:80", "-s", "wlc"])?;
    apply(&[])?;
    let listing = ipvsadm(&lab, &["-Ln"])?;
    ensure!(!listing.contains("10.96.1.6"), "{listing}");
    ensure!(listing.contains("10.97.1.5") && listing.contains("203.0.113.77"), "what is not ours went: {listing}");
    Ok(())
}

fn schedulers() -> Result<()> {
    let lab = lab()?;
    // Debian 12's kernel is built without the last one
    let twos = if std::env::var("VM_KERNEL").is_ok_and(|kernel| kernel == "6.1") { &[][..] } else { &["twos"] };
    let common = ["rr", "wrr", "lc", "wlc", "fo", "ovf", "lblc", "lblcr", "sh", "dh", "mh", "sed", "nq"];
    for scheduler in common.iter().chain(twos) {
        let config = with_config(&format!("{{scheduler: {scheduler}}}"))?;
        let config = config.path().to_string_lossy().into_owned();
        let arguments = ["apply", "--mode", "ipvs", "-f", "-", "--hostname-override", LOCAL_NODE, "--config", &config];
        let objects = document(Stack::V4, &["service svc ip=10.96.1.5 port=80", "slice svc L1 R2"]);
        svcmap(&lab, &arguments, &objects).context(*scheduler)?;
        let listing = ipvsadm(&lab, &["-Ln"])?;
        ensure!(listing.contains(&format!("TCP  10.96.1.5:80 {scheduler}")), "{scheduler}:\n{listing}");
        ensure!(*scheduler != "mh" || listing.contains("(mh-fallback,mh-port)"), "{listing}");
    }
    Ok(())
}

/// The text, loaded by the tools, makes the same as svcmap does by itself.
fn rendered() -> Result<()> {
    let objects = [
        "service svc port=80@30080 external=198.51.100.7",
        "slice svc L1 R2",
        "service sticky ip=172.30.0.43 port=80,s:9/SCTP affinity=10800",
        "slice sticky port=8080,s:9/SCTP L1 R2 R3",
        "service ranged ip=172.30.0.48 port=80 vip=198.51.100.9 ranges=203.0.113.0/25,0.0.0.0/0 eTP=Local",
        "slice ranged L1 R2",
    ];
    let (by_tools, by_itself) = (lab()?, lab()?);
    let text = |part: &str| {
        let arguments =
            [&["render", "--mode", "ipvs", "--part", part, "-f", "-"], &NODE[..], &["--nodeport-addresses", "primary"]]
                .concat();
        svcmap(&by_tools, &arguments, &document(Stack::Dual, &objects))
    };
    let node = by_tools.node();
    node.ip(&text("addresses")?)?;
    node.command("ipset", &["restore"], &text("ipset")?)?;
    node.command("iptables-restore", &[], &text("iptables")?)?;
    node.command("ip6tables-restore", &[], &text("ip6tables")?)?;
    node.command("ipvsadm", &["--restore"], &text("ipvsadm")?)?;
    apply(&by_itself, &["--nodeport-addresses", "primary"], Stack::Dual, &objects)?;
    for (program, arguments) in [
        ("ipvsadm", &["-Sn"][..]),
        ("ipset", &["save"]),
        ("iptables-save", &["-t", "nat"]),
        ("iptables-save", &["-t", "filter"]),
        ("ip6tables-save", &["-t", "nat"]),
        ("ip6tables-save", &["-t", "filter"]),
    ] {
        let listing = |lab: &Lab| -> Result<Vec<String>> {
            let text = lab.node().command(program, arguments, "")?;
            let is_same = |line: &&str| !line.starts_with(['#', ':']);
            let plain = |line: &str| line.split(" initval").next().unwrap_or_default().to_owned();
            let mut lines: Vec<String> = text.lines().filter(is_same).map(plain).collect();
            lines.sort();
            Ok(lines)
        };
        let (tools, itself) = (listing(&by_tools)?, listing(&by_itself)?);
        let differ: Vec<_> = tools
            .iter()
            .filter(|line| !itself.contains(line))
            .chain(itself.iter().filter(|line| !tools.contains(line)))
            .collect();
        ensure!(tools.len() > 2 && differ.is_empty(), "{program} {arguments:?}: {differ:#?}");
    }
    Ok(())
}

/// What is there is read as it was applied, and what somebody takes away is named.
fn audited() -> Result<()> {
    let lab = lab()?;
    let node = lab.node();
    let objects = [
        "service svc ip=10.96.1.5 port=80@30080 vip=5.6.7.8",
        "slice svc L1 R2",
        "service local ip=10.96.1.6 port=80@30081 vip=5.6.7.9 eTP=Local ranges=203.0.113.0/24",
        "slice local L1 R2",
    ];
    apply(&lab, &[], Stack::Dual, &objects)?;
    ipvsadm(&lab, &["-A", "-t", "203.0.113.77:30099", "-s", "wlc"])?;
    // it ends with a status that says whether there are findings
    let audit = || node.command("sh", &["-c", "\"$0\" audit || test $? = 1", env!("CARGO_BIN_EXE_svcmap")], "");
    let said = audit()?;
    ensure!(said.contains("kube-proxy (ipvs)") && said.contains("\nfindings: 0\n"), "{said}");
    let damages: [(&str, &[&str], &str); 6] = [
        ("ip", &["address", "del", "10.96.1.5/32", "dev", "kube-ipvs0"], "10.96.1.5: on no interface"),
        (
            "ipset",
            &["del", "KUBE-CLUSTER-IP", "10.96.1.5,tcp:80"],
            "10.96.1.5:80/tcp: virtual servers that are in none",
        ),
        ("ipvsadm", &["-D", "-t", "5.6.7.8:80"], "5.6.7.8:80/tcp: in the sets, but there is no virtual server"),
        ("iptables", &["-t", "nat", "-F", "KUBE-MARK-MASQ"], "in spite of KUBE-MARK-MASQ, whose mark is 0x0"),
        ("iptables", &["-I", "INPUT", "-p", "tcp", "--dport", "80", "-j", "DROP"], "ip filter INPUT, rule 1: DROP"),
        ("iptables", &["-P", "INPUT", "DROP"], "ip filter INPUT, policy DROP"),
    ];
    for (program, arguments, expected) in damages {
        node.command(program, arguments, "")?;
        let said = audit()?;
        ensure!(said.contains(expected), "{program} {arguments:?}: {expected:?} is not in {said}");
        node.command("iptables", &["-P", "INPUT", "ACCEPT"], "")?;
        node.command("iptables", &["-F", "INPUT"], "")?;
        apply(&lab, &[], Stack::Dual, &objects)?;
    }
    Ok(())
}

fn cleaned_up() -> Result<()> {
    let lab = lab()?;
    apply(&lab, &[], Stack::Dual, &["service svc port=80@30080 iTP=Local", "slice svc R2"])?;
    svcmap(&lab, &["cleanup", "--mode", "ipvs"], "")?;
    let servers = ipvsadm(&lab, &["-Sn"])?;
    let sets = lab.node().command("ipset", &["list", "-name"], "")?;
    ensure!(servers.trim().is_empty() && sets.trim().is_empty(), "left: {servers}{sets}");
    let rules = lab.node().command("iptables-save", &[], "")?;
    ensure!(!rules.contains("KUBE"), "{rules}");
    ensure!(lab.node().command("ip", &["link", "show", "kube-ipvs0"], "").is_err(), "kube-ipvs0 is still there");
    Ok(())
}

/// Behaviour row J12. What svcmap makes in this mode has kube-proxy's names, so that it stands for what kube-proxy left; beside it
/// is what others have.
fn left_over() -> Result<()> {
    let lab = lab()?;
    let node = lab.node();
    ipvsadm(&lab, &["-A", "-t", "203.0.113.77:30080", "-s", "wlc"])?;
    ipvsadm(&lab, &["-A", "-t", "192.168.0.2:5000", "-s", "wlc"])?;
    node.command("ipset", &["create", "mine", "hash:ip"], "")?;
    node.command("iptables", &["-t", "nat", "-N", "MINE"], "")?;
    let others = || -> Result<[String; 4]> {
        Ok([
            ipvsadm(&lab, &["-Sn"])?,
            node.command("ipset", &["list", "-name"], "")?,
            node.command("ip", &["-o", "link", "show", "type", "dummy"], "")?,
            node.command("iptables-save", &["-t", "nat"], "")?.lines().filter(|line| line.contains("MINE")).collect(),
        ])
    };
    let before = others()?;
    apply(&lab, &[], Stack::Dual, &["service svc port=80@30080", "slice svc L1 R2"])?;
    node.command("ipset", &["create", "KUBE-HEALTH-CHECK-NODE-PORT", "bitmap:port", "range", "0-65535"], "")?;
    let full = ipvsadm(&lab, &["-Sn"])?;
    ensure!(full.contains("172.30.0.41:80") && full.contains("192.168.0.2:30080"), "{full}");

    let said = svcmap(&lab, &["cleanup", "--kube-proxy"], "")?;
    for what in
        ["virtual servers of IPVS", "interface kube-ipvs0", "set KUBE-CLUSTER-IP", "set KUBE-HEALTH-CHECK-NODE-PORT"]
    {
        ensure!(said.contains(what), "{what:?} is not told: {said}");
    }
    ensure!(others()? == before, "{before:#?} became {:#?}: {said}", others()?);
    for program in ["iptables-save", "ip6tables-save"] {
        let rules = node.command(program, &[], "")?;
        ensure!(!rules.contains("KUBE"), "{program}: {rules}");
    }
    let again = svcmap(&lab, &["cleanup", "--kube-proxy"], "")?;
    ensure!(again.contains("nothing removed"), "{again}");
    Ok(())
}

fn compared() -> Result<()> {
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/policies.yaml");
    let arguments = ["compare", "--only", "behaviour", "--modes", "nftables,ipvs", "-f", manifests];
    let node = ["--hostname-override", LOCAL_NODE, "--cluster-cidr", "10.128.0.0/9,fd10::/48"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_svcmap"));
    command.args(arguments).args(node);
    let output = lab()?.node().run(|| command.output())?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{output:?}");
    ensure!(said.contains("fare the same in every mode"), "{said}");
    for row in ["rows E7, E8", "row F7"] {
        ensure!(said.contains(row), "{row} is not seen: {said}");
    }
    Ok(())
}
