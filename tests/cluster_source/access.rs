//! The way to the API server, and a cluster that is read once.

use std::path::PathBuf;

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
