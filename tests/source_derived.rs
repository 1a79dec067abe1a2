//! Services without EndpointSlices: endpoints from Pods and from Endpoints objects.

use std::io::Write;

use svcmap::objects::EndpointSlice;
use svcmap::source::load;

/// The slices, each as `port/protocol=number… family: address state node…`, sorted.
fn slices(manifests: &str) -> Vec<String> {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a temporary file");
    file.write_all(manifests.as_bytes()).expect("writing the manifests");
    let loaded = load(&[file.path().to_path_buf()]).expect("the file is there");
    assert_eq!(loaded.problems, [], "{manifests}");
    let mut shown: Vec<_> = loaded.snapshot.slices.iter().map(show).collect();
    shown.sort();
    shown
}

fn show(slice: &EndpointSlice) -> String {
    let ports: Vec<_> = slice.ports.iter().map(|p| format!("{}/{}={}", p.name, p.protocol, p.port)).collect();
    let mut endpoints: Vec<_> = slice
        .endpoints
        .iter()
        .map(|e| {
            let flags = [('r', e.conditions.ready), ('s', e.conditions.serving), ('t', e.conditions.terminating)];
            let state: String = flags.iter().filter(|(_, on)| *on).map(|(flag, _)| flag).collect();
            format!("{}({state})@{}", e.address, e.node.as_deref().unwrap_or("-"))
        })
        .collect();
    endpoints.sort();
    format!("{} {} {}: {}", slice.service_key(), slice.family, ports.join(" "), endpoints.join(" "))
}

fn service(spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: {spec}\n---\n")
}

/// A Pod that runs, is ready and has a port `http`, unless the arguments say otherwise.
fn pod(name: &str, metadata: &str, spec: &str, status: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: web, tier: a}}{metadata}}}\n\
         spec: {{nodeName: n1{spec}}}\n\
         status: {{phase: Running{status}}}\n---\n"
    )
}

const READY: &str = ", conditions: [{type: Initialized, status: 'False'}, {type: Ready, status: 'True'}]";
const HTTP: &str = ", containers: [{ports: [{containerPort: 9090}, {name: http, containerPort: 8080}]}]";

fn ready_at(ip: &str) -> String {
    format!(", podIP: '{ip}', podIPs: [{{ip: '{ip}'}}]{READY}")
}

#[test]
fn pods_that_the_selector_matches_become_endpoints() {
    let manifests = service("{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}")
        + &pod("a", "", HTTP, &ready_at("10.0.0.1"))
        + &pod("b", "", HTTP, &ready_at("10.0.0.2"))
        + &pod("other", "", HTTP, &ready_at("10.0.0.3")).replace("app: web", "app: db")
        + &pod("elsewhere", "", HTTP, &ready_at("10.0.0.4")).replace("namespace: shop", "namespace: x");
    assert_eq!(slices(&manifests), ["shop/web IPv4 /tcp=8080: 10.0.0.1(rs)@n1 10.0.0.2(rs)@n1"]);
}

#[test]
fn every_label_of_the_selector_must_match() {
    let manifests = service("{clusterIP: 10.96.0.1, selector: {app: web, tier: b}, ports: [{port: 80}]}")
        + &pod("a", "", HTTP, &ready_at("10.0.0.1"))
        + &pod("b", "", HTTP, &ready_at("10.0.0.2")).replace("tier: a", "tier: b");
    assert_eq!(slices(&manifests), ["shop/web IPv4 /tcp=80: 10.0.0.2(rs)@n1"]);
}

#[test]
fn the_state_of_a_pod_is_the_state_of_its_endpoint() {
    let pods = pod("ready", "", HTTP, &ready_at("10.0.0.1"))
        + &pod("unready", "", HTTP, ", podIP: 10.0.0.2, conditions: [{type: Ready, status: 'False'}]")
        + &pod("silent", "", HTTP, ", podIP: 10.0.0.3")
        + &pod("leaving", ", deletionTimestamp: '2026-01-01T00:00:00Z'", HTTP, &ready_at("10.0.0.4"))
        + &pod("gone", ", deletionTimestamp: '2026-01-01T00:00:00Z'", HTTP, ", podIP: 10.0.0.5")
        + &pod("done", "", HTTP, &ready_at("10.0.0.6")).replace("Running", "Succeeded")
        + &pod("failed", "", HTTP, &ready_at("10.0.0.7")).replace("Running", "Failed")
        + &pod("starting", "", HTTP, ", podIP: ''").replace("Running", "Pending");
    for (publish, want) in [
        ("false", "10.0.0.1(rs)@n1 10.0.0.2()@n1 10.0.0.3()@n1 10.0.0.4(st)@n1 10.0.0.5(t)@n1"),
        ("true", "10.0.0.1(rs)@n1 10.0.0.2(r)@n1 10.0.0.3(r)@n1 10.0.0.4(rst)@n1 10.0.0.5(rt)@n1"),
    ] {
        let spec = format!(
            "{{clusterIP: 10.96.0.1, selector: {{app: web}}, publishNotReadyAddresses: {publish}, ports: [{{port: 80}}]}}"
        );
        assert_eq!(slices(&(service(&spec) + &pods)), [format!("shop/web IPv4 /tcp=80: {want}")], "{publish}");
    }
}

#[test]
fn named_target_ports_are_looked_up_in_every_pod() {
    let container = |ports: &str| format!(", containers: [{{ports: [{ports}]}}]");
    let sidecar = |policy: &str| {
        format!(", initContainers: [{{restartPolicy: {policy}, ports: [{{name: http, containerPort: 7000}}]}}]")
    };
    let manifests = service(
        "{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: a, port: 80, targetPort: http}, \
         {name: b, port: 53, protocol: UDP, targetPort: http}, {name: c, port: 90, targetPort: 9000}]}",
    ) + &pod("a", "", &container("{name: http, containerPort: 8080}"), &ready_at("10.0.0.1"))
        + &pod("b", "", &container("{name: http, containerPort: 8080}"), &ready_at("10.0.0.2"))
        + &pod("c", "", &container("{name: http, containerPort: 8081}"), &ready_at("10.0.0.3"))
        + &pod("d", "", &container("{name: http, containerPort: 5353, protocol: UDP}"), &ready_at("10.0.0.4"))
        + &pod("e", "", &container("{name: web, containerPort: 8080}"), &ready_at("10.0.0.5"))
        + &pod("f", "", &sidecar("Always"), &ready_at("10.0.0.6"))
        + &pod("g", "", &sidecar("Never"), &ready_at("10.0.0.7"));
    assert_eq!(
        slices(&manifests),
        [
            "shop/web IPv4 a/tcp=7000 c/tcp=9000: 10.0.0.6(rs)@n1",
            "shop/web IPv4 a/tcp=8080 c/tcp=9000: 10.0.0.1(rs)@n1 10.0.0.2(rs)@n1",
            "shop/web IPv4 a/tcp=8081 c/tcp=9000: 10.0.0.3(rs)@n1",
            "shop/web IPv4 b/udp=5353 c/tcp=9000: 10.0.0.4(rs)@n1",
            "shop/web IPv4 c/tcp=9000: 10.0.0.5(rs)@n1 10.0.0.7(rs)@n1",
        ]
    );
}

#[test]
fn each_family_of_the_service_takes_the_pods_addresses_of_that_family() {
    let dual = format!(", podIP: 10.0.0.1, podIPs: [{{ip: 10.0.0.1}}, {{ip: 'fd01::1'}}]{READY}");
    let pods = pod("dual", "", HTTP, &dual)
        + &pod("host", ", annotations: {x: y}", &format!(", hostNetwork: true{HTTP}"), &ready_at("192.168.0.2"));
    let four = "shop/web IPv4 /tcp=8080: 10.0.0.1(rs)@n1 192.168.0.2(rs)@n1";
    let six = "shop/web IPv6 /tcp=8080: fd01::1(rs)@n1";
    for (cluster_ips, want) in
        [("['10.96.0.1']", vec![four]), ("['fd96::1']", vec![six]), ("['fd96::1', '10.96.0.1']", vec![four, six])]
    {
        let spec =
            format!("{{clusterIPs: {cluster_ips}, selector: {{app: web}}, ports: [{{port: 80, targetPort: http}}]}}");
        assert_eq!(slices(&(service(&spec) + &pods)), want, "{cluster_ips}");
    }
}

#[test]
fn headless_and_selectorless_services_take_no_pods() {
    let pods = pod("a", "", HTTP, &ready_at("10.0.0.1"));
    for spec in [
        "{clusterIP: None, selector: {app: web}, ports: [{port: 80}]}",
        "{clusterIP: 10.96.0.1, ports: [{port: 80}]}",
        "{clusterIP: 10.96.0.1, selector: {}, ports: [{port: 80}]}",
        "{type: ExternalName, selector: {app: web}, ports: [{port: 80}]}",
    ] {
        assert_eq!(slices(&(service(spec) + &pods)), [""; 0], "{spec}");
    }
}

const ENDPOINTS: &str = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web, namespace: shop}\nsubsets:\n\
    - {addresses: [{ip: 10.1.0.1, nodeName: n2}, {ip: 'fd01::1'}], notReadyAddresses: [{ip: 10.1.0.2}], \
    ports: [{port: 80}]}\n\
    - {addresses: [{ip: 10.1.0.3}], ports: [{name: x, port: 81, protocol: UDP}]}\n---\n";

#[test]
fn an_endpoints_object_is_mirrored() {
    let manifests = service("{clusterIP: 10.96.0.1, ports: [{port: 80}]}") + ENDPOINTS;
    assert_eq!(
        slices(&manifests),
        [
            "shop/web IPv4 /tcp=80: 10.1.0.1(rs)@n2 10.1.0.2(s)@-",
            "shop/web IPv4 x/udp=81: 10.1.0.3(rs)@-",
            "shop/web IPv6 /tcp=80: fd01::1(rs)@-",
        ]
    );
}

#[test]
fn slices_come_before_endpoints_and_these_before_pods() {
    let web = service("{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80}]}");
    let pods = pod("a", "", HTTP, &ready_at("10.0.0.1"));
    let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
        metadata: {name: x, namespace: shop, labels: {kubernetes.io/service-name: web}}\n\
        ports: [{name: '', port: 80}]\nendpoints: [{addresses: [10.2.0.1]}]\n---\n";
    let leader = ENDPOINTS
        .replace("namespace: shop", "namespace: shop, annotations: {control-plane.alpha.kubernetes.io/leader: '{}'}");
    let headless = slice.replace("service-name: web", "service-name: web, service.kubernetes.io/headless: ''");
    for (case, manifests, want) in [
        ("slice", format!("{web}{pods}{ENDPOINTS}{slice}"), &["shop/web IPv4 /tcp=80: 10.2.0.1(rs)@-"][..]),
        ("pods", format!("{web}{pods}"), &["shop/web IPv4 /tcp=80: 10.0.0.1(rs)@n1"]),
        ("leader", format!("{web}{pods}{leader}"), &["shop/web IPv4 /tcp=80: 10.0.0.1(rs)@n1"]),
        ("slice for others", format!("{web}{pods}{headless}"), &[]),
    ] {
        assert_eq!(slices(&manifests), want, "{case}");
    }
    assert_eq!(slices(&format!("{web}{pods}{ENDPOINTS}")).len(), 3);
}
