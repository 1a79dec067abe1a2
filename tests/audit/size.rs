//! Long listings are audited in little memory.

use std::fmt::Write as _;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::peers::{IPTABLES, NFTABLES};
use crate::sample;

const SERVICES: u32 = 45_000;
/// The most memory that an audit may take.
const MOST_MB: usize = 500;

/// The nftables mode of 1.29 with three endpoints for each Service: what surrounds Services is that of the sample.
fn listing() -> String {
    let sample = sample(NFTABLES[0]);
    let (mut ips, mut verdicts, mut chains) = (String::new(), String::new(), String::new());
    for service in 0..SERVICES {
        let ip = format!("10.100.{}.{}", service >> 8, service & 255);
        let chain = format!("AAAAAAAA-namespace-{}/service-{service}/tcp/http", service % 100);
        let _ = write!(ips, "{ip},\n\t\t\t     ");
        let _ = write!(verdicts, "{ip} . tcp . 80 : goto service-{chain},\n\t\t\t     ");
        let to: Vec<String> = (0..3).map(|at| format!("10.{}.{}.{}", 128 + at, service >> 8, service & 255)).collect();
        let draw: Vec<String> =
            to.iter().enumerate().map(|(at, ip)| format!("{at} : goto endpoint-{chain}__{ip}/8080")).collect();
        let _ = write!(
            chains,
            "\tchain service-{chain} {{\n\t\tip daddr {ip} tcp dport 80 ip saddr != 10.128.0.0/9 jump mark-for-masquerade\n\
             \t\tnumgen random mod 3 vmap {{ {} }}\n\t}}\n\n",
            draw.join(", ")
        );
        for ip in to {
            let _ = write!(
                chains,
                "\tchain endpoint-{chain}__{ip}/8080 {{\n\t\tip saddr {ip} jump mark-for-masquerade\n\
                 \t\tmeta l4proto tcp dnat to {ip}:8080\n\t}}\n\n"
            );
        }
    }
    let (table, end) = sample.rsplit_once('}').expect("the table ends");
    let with = |text: String, set: &str, elements: &str| {
        let begin = text.find(&format!("{set} {{")).expect("the sample has the set");
        let at = begin + text[begin..].find("elements = { ").expect("it has elements") + "elements = { ".len();
        format!("{}{elements}{}", &text[..at], &text[at..])
    };
    let table = with(with(table.to_owned(), "set cluster-ips", &ips), "map service-ips", &verdicts);
    format!("{table}\n{chains}}}{end}")
}

/// The mode iptables with three endpoints for each Service, beside those of the sample.
fn save() -> String {
    let (mut chains, mut rules, mut portals) = (String::new(), String::new(), String::new());
    for service in 0..SERVICES {
        let ip = format!("10.100.{}.{}", service >> 8, service & 255);
        let (name, hash) = (format!("namespace-{}/service-{service}:http", service % 100), format!("{service:016}"));
        let to = format!("-d {ip}/32 -p tcp -m comment --comment \"{name} cluster IP\" -m tcp --dport 80");
        let _ = writeln!(chains, ":KUBE-SVC-{hash} - [0:0]");
        let _ = writeln!(portals, "-A KUBE-SERVICES {to} -j KUBE-SVC-{hash}");
        let _ = writeln!(rules, "-A KUBE-SVC-{hash} ! -s 10.244.0.0/16 {to} -j KUBE-MARK-MASQ");
        for (at, draw) in [" --probability 0.33333333333", " --probability 0.50000000000", ""].iter().enumerate() {
            let (to, sep) =
                (format!("10.{}.{}.{}", 128 + at, service >> 8, service & 255), format!("KUBE-SEP-{at}{}", &hash[1..]));
            let draw = if draw.is_empty() { String::new() } else { format!(" -m statistic --mode random{draw}") };
            let _ = writeln!(chains, ":{sep} - [0:0]");
            let _ = writeln!(rules, "-A KUBE-SVC-{hash} -m comment --comment \"{name} -> {to}:8080\"{draw} -j {sep}");
            let why = format!("-m comment --comment \"{name}\"");
            let _ = writeln!(rules, "-A {sep} -s {to}/32 {why} -j KUBE-MARK-MASQ");
            let _ = writeln!(rules, "-A {sep} -p tcp {why} -m tcp -j DNAT --to-destination {to}:8080");
        }
    }
    let sample = sample(IPTABLES);
    let sample = sample.replacen("-A PREROUTING", &format!("{chains}-A PREROUTING"), 1);
    sample.replacen("-A KUBE-SERVICES", &format!("{rules}{portals}-A KUBE-SERVICES"), 1)
}

/// Audits a text: what is said, and the most memory that it took, in MB.
fn audited(text: String) -> (String, usize) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let length = text.len();
    std::fs::write(file.path(), text).unwrap();
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_svcmap"))
        .args(["audit", "--node-ip", "172.16.0.1", "--ruleset"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // it prints when it is done, and waits for its reader then
    let mut stdout = child.stdout.take().unwrap();
    let mut said = vec![0];
    stdout.read_exact(&mut said).unwrap();
    let elapsed = started.elapsed();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    stdout.read_to_end(&mut said).unwrap();
    child.wait().unwrap();
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says how much there was at most");
    let most = line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1000;
    println!("{:.1} MB of text: {elapsed:.1?}, {most} MB at most", length as f64 / 1e6);
    (String::from_utf8(said).unwrap(), most)
}

#[test]
fn listings_of_45_000_services_take_less_than_500_mb() {
    for (mode, text) in [("nftables", listing()), ("iptables", save())] {
        let (said, most) = audited(text);
        let begin = format!("kube-proxy ({mode}): {} Service ports\n", SERVICES + 6);
        assert!(said.starts_with(&begin), "{}", &said[..200]);
        assert!(said.ends_with("\nfindings: 0\n"), "{}", &said[said.len() - 200..]);
        assert!(most < MOST_MB, "{mode}: {most} MB");
    }
}
