//! The way to the API server, and a cluster that is read once.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use svcmap::events::recorder;
use svcmap::source::cluster::{Access, follow, read};
use tempfile::TempDir;

use crate::fake::{CIDRS, Fake, Manner, NODES, SERVICES, SLICES};
use crate::model::{Followed, access, cidr, node, service, slice};

fn kubeconfig(directory: &TempDir, server: &str, user: &str) -> PathBuf {
    let path = directory.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {user}}}]\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn by_kubeconfig(path: PathBuf) -> Access {
    Access { kubeconfig: Some(path), masters: Vec::new(), qps: -1.0, burst: 10 }
}

#[test]
fn a_token_that_was_replaced_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Fake::start(Manner { token: Some("first".into()), ..Manner::default() });
    server.put(SERVICES, service("s", 1));
    std::fs::write(directory.path().join("token"), "first").unwrap();
    let mut followed = Followed::by(by_kubeconfig(kubeconfig(&directory, &server.url(), "{tokenFile: token}")));
    followed.wait_until_listed();

    server.set(|manner| manner.token = Some("second".into()));
    server.disconnect();
    server.put(SERVICES, service("new", 2));
    followed.wait_for_silence();
    assert_eq!(followed.names(), ["default/s"], "the old token is good for nothing");
    std::fs::write(directory.path().join("token"), "second").unwrap();
    followed.wait_for("the new token to be used", |f| f.services.contains_key("default/new"));
}

#[test]
fn a_master_takes_the_place_of_the_servers_url() {
    let directory = tempfile::tempdir().unwrap();
    let server = Fake::start(Manner { token: Some("secret".into()), ..Manner::default() });
    server.put(SERVICES, service("s", 1));
    let path = kubeconfig(&directory, "https://192.0.2.1:6443", "{token: secret}");
    let mut followed = Followed::by(Access { masters: vec![server.url()], ..by_kubeconfig(path) });
    followed.wait_until_listed();
    assert_eq!(followed.names(), ["default/s"]);
}

#[test]
fn a_way_that_leads_nowhere_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let error = |access: Access| follow(access, "n1", recorder().1, |_| {}).unwrap_err().to_string();
    let text = error(by_kubeconfig(missing.clone()));
    assert!(text.contains(&missing.display().to_string()) && text.contains("No such file"), "{text}");
    let garbage = directory.path().join("garbage");
    std::fs::write(&garbage, "clusters: 7").unwrap();
    assert!(error(by_kubeconfig(garbage)).contains("garbage"));
    for master in ["192.0.2.1:6443", "ftp://192.0.2.1", "https://", "https://a b"] {
        let access = Access { masters: vec![master.into()], ..access(&[]) };
        assert!(error(access).contains("not a URL such as"), "{master}");
    }
    assert!(error(access(&[])).contains("--kubeconfig"));
    let certificate = "{client-certificate-data: AAAA, client-key-data: AAAA}";
    let mut followed = Followed::by(by_kubeconfig(kubeconfig(&directory, "https://127.0.0.1:1", certificate)));
    followed.wait_for_silence(); // it may be a certificate that is being replaced
    assert_eq!(followed.listed, 0);
}

/// A proxy that leads every connection to one server, and notes to whom it was asked for.
fn proxy(server: &str) -> (String, Arc<Mutex<Vec<String>>>) {
    let to = server.trim_start_matches("http://").to_owned();
    let (listener, asked) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(Mutex::new(Vec::new())));
    let (url, noted) = (format!("http://{}", listener.local_addr().unwrap()), asked.clone());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok);
            noted.lock().unwrap().extend(lines.next());
            lines.find(|line| line.is_empty());
            let server = TcpStream::connect(&to).unwrap();
            (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let ways = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
            for (mut from, mut to) in ways.map(|(from, to)| (from.unwrap(), to.unwrap())) {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    (url, asked)
}

/// kubeadm gives the DaemonSet the proxy variables of whoever ran it.
#[test]
fn a_proxy_of_the_environment_is_gone_through_unless_it_is_not_for_that_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = Fake::start(Manner::default());
    server.put(SERVICES, service("s", 1));
    let (proxy, asked) = proxy(&server.url());
    let render = |url: &str, environment: &[(&str, &str)]| {
        let path = kubeconfig(&directory, url, "{token: t}");
        let output = Command::new(env!("CARGO_BIN_EXE_svcmap"))
            .args(["render", "--hostname-override=n1", "--node-ip=192.168.0.2", "--kubeconfig"])
            .arg(path)
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said, std::mem::take(&mut *asked.lock().unwrap()))
    };
    let dead = ("HTTP_PROXY", "http://127.0.0.1:1");
    let (done, said, asked) = render("http://api.example:8080", &[("HTTP_PROXY", proxy.as_str())]);
    assert!(done && asked.iter().all(|line| line == "CONNECT api.example:8080 HTTP/1.1"), "{said}: {asked:?}");
    assert!(!asked.is_empty());
    let (done, said, asked) = render(&server.url(), &[dead]);
    assert!(done && asked.is_empty(), "a loopback address is behind no proxy: {said}");
    let (done, said, _) = render("http://192.0.2.1:1", &[dead, ("NO_PROXY", "192.0.2.0/24")]);
    assert!(!done && !said.contains("127.0.0.1"), "{said}");
    let named = format!("http://api.example:8080', proxy-url: '{proxy}");
    let (done, said, asked) = render(&named, &[dead, ("NO_PROXY", ".example")]);
    assert!(done && !asked.is_empty(), "what the kubeconfig names counts: {said}");
}

#[test]
fn a_cluster_is_read_once() {
    for streams in [true, false] {
        let server = Fake::start(Manner { streams, ..Manner::default() });
        for n in 0..250 {
            server.put(SERVICES, service(&format!("s{n}"), n));
            server.put(SLICES, slice(&format!("s{n}-a"), &format!("s{n}"), 2));
        }
        server.put(NODES, node("n1", "192.0.2.1"));
        server.put(CIDRS, cidr("kubernetes", "10.96.0.0/16"));
        let loaded = read(&access(&[&server]), "n1").unwrap();
        assert_eq!(loaded.problems, []);
        let snapshot = loaded.snapshot;
        assert_eq!((snapshot.services.len(), snapshot.slices.len(), snapshot.nodes.len()), (250, 250, 1));
        assert_eq!(snapshot.service_cidrs.len(), 1);
        assert!(server.requests().iter().all(|request| !request.contains("watch=")));
    }
}

#[test]
fn a_cluster_that_cannot_be_read_is_an_error_and_a_part_of_it_a_problem() {
    let server = Fake::start(Manner { refused: [(NODES, 403), (CIDRS, 404)].into(), ..Manner::default() });
    server.put(SERVICES, service("s", 1));
    let loaded = read(&access(&[&server]), "n1").unwrap();
    assert_eq!(loaded.snapshot.services.len(), 1);
    let problems: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, [format!("{}/: Nodes cannot be read: not for you (403)", server.url())]);

    server.set(|manner| manner.refused = [(SLICES, 403)].into());
    let error = read(&access(&[&server]), "n1").unwrap_err().to_string();
    assert_eq!(error, format!("{}/: EndpointSlices cannot be read: not for you (403)", server.url()));

    let away = Fake::start(Manner::default());
    away.stop();
    let error = read(&access(&[&away]), "n1").unwrap_err().to_string();
    assert!(error.contains(&away.url()) && error.contains("Connection refused"), "{error}");
    server.set(|manner| manner.refused.clear());
    assert_eq!(read(&access(&[&away, &server]), "n1").unwrap().snapshot.services.len(), 1, "the next one is asked");
}
