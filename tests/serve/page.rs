//! The status page (metrics port, `/`), as text and in a browser.

use std::process::Command;

use crate::client::get;
use crate::daemon::{Daemon, METRICS, give_addresses};

const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80, nodePort: 30080}], type: NodePort}
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: other}
spec: {clusterIP: 10.96.0.2, ports: [{port: 81}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.1.1], nodeName: n2}, {addresses: [10.0.1.2], nodeName: n1}]
";

netns_test! {
    fn the_page_says_what_a_person_wants_to_know() {
        give_addresses();
        let mut daemon = Daemon::start(OBJECTS, &[]);
        daemon.wait_for_log(" synced");
        // the Services are told as soon as they are known, the figures with the sync
        let page = daemon.wait_for(METRICS, "/", |answer| answer.body.contains("2 Services"));
        assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
        assert!(page.header("Content-Security-Policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
        for text in [
            "<h1>svcmap on n1</h1>",
            ">in step</p>",
            "Mode nftables",
            "2 Services, 2 of them proxied; 1 EndpointSlice with 2 endpoints",
            "<td>default/web:http<td>IPv4 tcp<td>10.96.0.1:80<br>node port 30080<td class=\"n\">2<td class=\"n\">1<td></tr>",
            "<td>other/empty<td>IPv4 tcp<td>10.96.0.2:81<td class=\"n\">0<td class=\"n\">0<td><span class=\"bad\">refused",
        ] {
            assert!(page.body.contains(text), "{text}: {}", page.body);
        }
        let some = get(METRICS, "/?services=r%2Fem").unwrap().body;
        assert!(some.contains("other/empty") && !some.contains("default/web"), "{some}");
        let syncs = daemon.log().matches(" synced").count();
        get(METRICS, "/").unwrap();
        assert_eq!(daemon.log().matches(" synced").count(), syncs, "looking at it changes nothing");
        daemon.stop();
    }
}

netns_test! {
    /// As a browser shows it: what it makes of the text, and that there is a picture.
    #[ignore = "needs Debian's chromium, and runs with --ignored"]
    fn the_page_is_shown_by_a_browser() {
        let browser = ["chromium", "chromium-browser"].into_iter().find(|name| exists(name)).expect("chromium");
        give_addresses();
        let mut daemon = Daemon::start(OBJECTS, &[]);
        daemon.wait_for(METRICS, "/", |answer| answer.body.contains("default/web"));
        let picture = daemon.path("page.png");
        let shown = browse(browser, &daemon, &["--dump-dom"]);
        for text in ["<h1>svcmap on n1</h1>", "<td>default/web:http</td><td>IPv4 tcp</td>", "<p class=\"good\" id=\"health\">"] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        browse(browser, &daemon, &[&format!("--screenshot={}", picture.display()), "--window-size=1000,700"]);
        assert!(std::fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
        if let Some(kept) = std::env::var_os("SVCMAP_TEST_SCREENSHOT") {
            std::fs::copy(&picture, kept).unwrap();
        }
        daemon.stop();
    }
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn browse(browser: &str, daemon: &Daemon, arguments: &[&str]) -> String {
    let profile = format!("--user-data-dir={}", daemon.path("profile").display());
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &profile])
        .args(arguments)
        .arg(format!("http://{METRICS}/"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{browser}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
