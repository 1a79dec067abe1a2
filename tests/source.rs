//! Manifests to snapshots, through the library's front door.

use std::fs;
use std::path::PathBuf;

use svcmap::objects::{Service, ServiceType, Target};
use svcmap::source::{Loaded, load};

/// A directory that is gone after the test.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a temporary directory"))
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("writing a manifest");
        path
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }
}

fn load_text(text: impl AsRef<[u8]>) -> Loaded {
    load(&[Dir::new().write("test.yaml", text)]).expect("the file is there")
}

/// The problems as they are printed, without the directory.
fn problems(loaded: &Loaded) -> Vec<String> {
    let cut = |text: String| match (text.find("/"), text.find("test.yaml")) {
        (Some(start), Some(end)) if start < end => text[..start].to_string() + &text[end..],
        _ => text,
    };
    loaded.problems.iter().map(|p| cut(p.to_string())).collect()
}

fn service(spec: &str) -> (Service, Vec<String>) {
    let loaded = load_text(format!("apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {spec}\n"));
    let problems = problems(&loaded);
    let service = loaded.snapshot.services.first().unwrap_or_else(|| panic!("{spec}: no Service, {problems:?}"));
    (service.clone(), problems)
}

#[test]
fn one_bad_document_does_not_take_the_others_along() {
    let loaded = load_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.0.0.1}\n---\nspec: [\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec: {clusterIP: 10.0.0.2}\n---\na: 1\n---\nb: *c\n",
    );
    let names: Vec<_> = loaded.snapshot.services.iter().map(|s| s.key.to_string()).collect();
    assert_eq!(names, ["default/a", "default/b"]);
    assert_eq!(
        problems(&loaded),
        [
            "test.yaml: line 6, column 7: unclosed bracket '['",
            "test.yaml, document 4: kind: is missing, so this is no Kubernetes object",
            "test.yaml: line 15, column 4: reference to unknown value",
        ]
    );
    assert_eq!(loaded.broken.len(), 1);
}

#[test]
fn yaml_json_and_every_sort_of_list_say_the_same() {
    let one = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.1"}}"#;
    let untyped = r#"{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.1"}}"#;
    let want = load_text(one).snapshot;
    assert_eq!(want.services.len(), 1);
    for text in [
        format!("---\n{one}\n"),
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  clusterIP: 10.0.0.1\n".into(),
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  spec: {clusterIP: 10.0.0.1}\nkind: List\n".into(),
        format!(r#"{{"kind":"ServiceList","apiVersion":"v1","items":[{untyped}]}}"#),
        format!(r#"{{"items":[{untyped}],"kind":"ServiceList","apiVersion":"v1"}}"#),
        format!(r#"{{"kind":"List","apiVersion":"v1","items":[{{"kind":"List","apiVersion":"v1","items":[{one}]}}]}}"#),
        format!(r#"{{"kind":"ConfigMap","apiVersion":"v1"}} {one}"#),
        format!("{{apiVersion: v1, kind: List, items: [{one}]}}"),
        format!("\u{feff}{one}"),
        "apiVersion: v1\r\nkind: Service\r\nmetadata:\r\n  name: a\r\nspec:\r\n  clusterIP: 10.0.0.1\r\n".into(),
    ] {
        let loaded = load_text(&text);
        assert_eq!(problems(&loaded), [""; 0], "{text}");
        assert_eq!(loaded.snapshot, want, "{text}");
    }
}

#[test]
fn other_kinds_groups_and_unknown_fields_are_passed_over_quietly() {
    let loaded = load_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\n\
         apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: b, x: [1]}\nspec: {clusterIP: 10.0.0.1, y: {z: 1}}\nw: 1\n",
    );
    assert_eq!(problems(&loaded), [""; 0]);
    assert_eq!(loaded.snapshot.services.len(), 1);
}

#[test]
fn a_version_that_is_not_read_is_told() {
    let loaded = load_text("apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: a}\n");
    assert_eq!(
        problems(&loaded),
        ["EndpointSlice default/a: apiVersion: discovery.k8s.io/v1beta1 is not read, only discovery.k8s.io/v1"]
    );
}

#[test]
fn bad_ports_are_left_out_and_named() {
    let (service, problems) = service(
        "{clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {name: b, port: 70000}, {name: c, port: 0}, \
         {name: d, port: '80'}, {name: e}, {name: f, port: 81, protocol: ICMP}, {name: g, port: 80}, \
         {name: a, port: 82}, {name: a, port: 83, protocol: UDP}, {name: 'a b', port: 84}, \
         {name: h, port: 85, nodePort: 70000}, {name: i, port: -1}, {name: j, port: 80.5}, 7]}",
    );
    let ports: Vec<_> = service.ports.iter().map(|p| format!("{}:{}/{}", p.name, p.port, p.protocol)).collect();
    assert_eq!(ports, ["a:80/tcp", "a:83/udp", "h:85/tcp"]);
    let want = [
        "[1].port: 70000 is not a port",
        "[2].port: 0 is not a port",
        "[3].port: \"80\" is not a port",
        "[4].port: is missing; this port is left out",
        "[5].protocol: \"ICMP\" is not TCP, UDP or SCTP; this port is left out",
        "[6]: TCP port 80 is spec.ports[0] already; this one is left out",
        "[7].name: \"a\" is the name of spec.ports[0] already; this port is left out",
        "[9].name: \"a b\" is not a port name (at most 63 of a-z, 0-9 and -)",
        "[10].nodePort: 70000 is not a port",
        "[11].port: -1 is not a port",
    ];
    let mut want: Vec<String> = want.iter().map(|w| format!("Service default/web: spec.ports{w}")).collect();
    want.push("Service default/web: not listed: 2 more problems of this object".into());
    assert_eq!(problems, want);
}

/// Case C20.
#[test]
fn addresses_of_old_objects_become_canonical() {
    let (service, problems) = service(
        "{clusterIP: 172.30.0.041, externalIPs: [192.168.099.022, 127.0.0.1, fe80::1, x], type: LoadBalancer, \
         loadBalancerSourceRanges: [' 203.0.113.000/025 ']}",
    );
    assert_eq!(format!("{:?}", service.cluster_ips), "[172.30.0.41]");
    assert_eq!(format!("{:?}", service.external_ips), "[192.168.99.22]");
    assert_eq!(format!("{:?}", service.source_ranges), "[203.0.113.0/25]");
    let want = [
        "Service default/web: spec.externalIPs[1]: 127.0.0.1 is a loopback address, which cannot stand here",
        "Service default/web: spec.externalIPs[2]: fe80::1 is a link-local address, which cannot stand here",
        "Service default/web: spec.externalIPs[3]: \"x\" is not an IP address",
    ];
    assert_eq!(problems, want);
}

#[test]
fn cluster_ips_are_what_an_api_server_would_make_of_both_fields() {
    for (spec, want, want_problem) in [
        ("{clusterIP: 10.0.0.1}", "[10.0.0.1]", ""),
        ("{clusterIPs: [10.0.0.1, 'fd00::1']}", "[10.0.0.1, fd00::1]", ""),
        ("{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1]}", "[10.0.0.1]", ""),
        ("{clusterIP: None}", "[]", ""),
        ("{clusterIPs: [None]}", "[]", ""),
        ("{type: ExternalName, externalName: example.org}", "[]", ""),
        ("{clusterIPs: [10.0.0.1, 10.0.0.2]}", "[10.0.0.1]", "spec.clusterIPs[1]: 10.0.0.2 is a second IPv4 address"),
        ("{clusterIP: 10.0.0.2, clusterIPs: [10.0.0.1]}", "[10.0.0.1]", "spec.clusterIP: 10.0.0.2 differs from"),
        ("{clusterIP: 10.0.0.1, ipFamilies: [IPv6]}", "[10.0.0.1]", "spec.ipFamilies[0]: IPv6 is not the family of"),
    ] {
        let (service, problems) = service(spec);
        assert_eq!(format!("{:?}", service.cluster_ips), want, "{spec}");
        assert_eq!(problems.len(), usize::from(!want_problem.is_empty()), "{spec}: {problems:?}");
        assert!(problems.iter().all(|p| p.contains(want_problem)), "{spec}: {problems:?}, not {want_problem}");
    }
}

#[test]
fn a_service_whose_addresses_cannot_be_read_is_not_taken_for_a_headless_one() {
    for (spec, why) in [
        ("{clusterIP: 10.0.0.300}", "no address of the Service can be used; the Service is left out"),
        ("{clusterIPs: [10.0.0.300]}", "no address of the Service can be used; the Service is left out"),
        ("{clusterIP: 5}", "no address of the Service can be used; the Service is left out"),
        ("{clusterIP: ''}", "is not set (an API server allocates it); the Service is left out"),
        ("{clusterIP: '', clusterIPs: []}", "is not set (an API server allocates it); the Service is left out"),
        ("{ports: [{port: 80}]}", "is not set (an API server allocates it); the Service is left out"),
    ] {
        let loaded = load_text(format!("apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {spec}\n"));
        assert_eq!(loaded.snapshot.services, [], "{spec}");
        assert_eq!(loaded.snapshot.left_alone(), Default::default(), "{spec}");
        let all = problems(&loaded).join("\n");
        assert!(all.contains(&format!("Service default/web: spec.clusterIP: {why}")), "{all}");
    }
}

#[test]
fn source_ranges_that_are_no_text_do_not_open_a_load_balancer() {
    let loaded = load_text(
        "apiVersion: v1\nkind: Service\n\
         metadata: {name: web, annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: [1.2.3.0/24]}}\n\
         spec: {type: LoadBalancer, clusterIP: 10.96.0.4, ports: [{port: 80}]}\n\
         status: {loadBalancer: {ingress: [{ip: 5.5.5.5}]}}\n",
    );
    assert_eq!(loaded.snapshot.services[0].load_balancer_ips, [] as [std::net::IpAddr; 0], "{:?}", problems(&loaded));
}

#[test]
fn session_affinity_has_its_default_and_its_range() {
    for (spec, want, faults) in [
        ("{clusterIP: 10.0.0.1}", None, 0),
        ("{clusterIP: 10.0.0.1, sessionAffinity: None}", None, 0),
        ("{clusterIP: 10.0.0.1, sessionAffinity: ClientIP}", Some(10_800), 0),
        (
            "{clusterIP: 10.0.0.1, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}}",
            Some(86_400),
            0,
        ),
        (
            "{clusterIP: 10.0.0.1, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}}",
            Some(10_800),
            1,
        ),
        (
            "{clusterIP: 10.0.0.1, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}}",
            Some(10_800),
            1,
        ),
        ("{clusterIP: 10.0.0.1, sessionAffinity: clientip}", None, 1),
    ] {
        let (service, problems) = service(spec);
        assert_eq!(service.affinity, want, "{spec}");
        assert_eq!(problems.len(), faults, "{spec}: {problems:?}");
    }
}

#[test]
fn target_ports_are_numbers_or_names() {
    let (service, problems) = service(
        "{clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {name: b, port: 81, targetPort: 8080}, \
         {name: c, port: 82, targetPort: http}, {name: d, port: 83, targetPort: '8083'}, \
         {name: e, port: 84, targetPort: 0}, {name: f, port: 85, targetPort: ''}, {name: g, port: 86, targetPort: 70000}, \
         {name: h, port: 87, targetPort: '70000'}, {name: i, port: 88, targetPort: more-than-fifteen}, \
         {name: j, port: 89, targetPort: 1.5}]}",
    );
    let targets: Vec<_> = service.ports.into_iter().map(|p| p.target).collect();
    let number = Target::Number;
    let want =
        [number(80), number(8080), Target::Named("http".into()), number(8083), number(84), number(85), number(86)];
    assert_eq!(targets[..7], want);
    assert_eq!(targets[7..], [number(87), number(88), number(89)]);
    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
    for (problem, taken) in said.iter().zip(["the number 8083", "86", "87", "88", "89"]) {
        assert!(problem.contains(&format!("taken for {taken}")), "{said:?}");
    }
    assert_eq!(said.len(), 5, "{said:?}");
}

#[test]
fn load_balancer_addresses_follow_the_ip_mode_and_readable_ranges() {
    let status = "status: {loadBalancer: {ingress: [{ip: 1.2.3.004}, {ip: 5.6.7.8, ipMode: VIP}, \
                  {ip: 9.9.9.9, ipMode: Proxy}, {hostname: lb.example.org}, {ip: 1.2.3.4}]}}";
    for (extra, addresses, ranges, faults) in [
        ("metadata: {name: web}\nspec: {clusterIP: 10.0.0.1}", "[1.2.3.4, 5.6.7.8]", "[]", 0),
        (
            "metadata: {name: web}\nspec: {clusterIP: 10.0.0.1, loadBalancerSourceRanges: [10.0.0.0/8, x]}",
            "[1.2.3.4, 5.6.7.8]",
            "[10.0.0.0/8]",
            1,
        ),
        ("metadata: {name: web}\nspec: {clusterIP: 10.0.0.1, loadBalancerSourceRanges: [x]}", "[]", "[]", 2),
        ("metadata: {name: web}\nspec: {clusterIP: 10.0.0.1, loadBalancerSourceRanges: 10.0.0.0/8}", "[]", "[]", 2),
        (
            "metadata: {name: web}\nspec: {clusterIP: 10.0.0.1, loadBalancerSourceRanges: []}",
            "[1.2.3.4, 5.6.7.8]",
            "[]",
            0,
        ),
        (
            "metadata: {name: web, annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: \
             '10.0.0.0/8, 11.0.0.0/8'}}\nspec: {clusterIP: 10.0.0.1}",
            "[1.2.3.4, 5.6.7.8]",
            "[10.0.0.0/8, 11.0.0.0/8]",
            0,
        ),
    ] {
        let loaded = load_text(format!("apiVersion: v1\nkind: Service\n{extra}\n{status}\n"));
        let service = &loaded.snapshot.services[0];
        assert_eq!(format!("{:?}", service.load_balancer_ips), addresses, "{extra}");
        assert_eq!(format!("{:?}", service.source_ranges), ranges, "{extra}");
        assert_eq!(loaded.problems.len(), faults, "{extra}: {:?}", problems(&loaded));
    }
}

#[test]
fn names_that_no_api_server_would_take_cost_the_object() {
    const NAMELESS: &str = "Service without a name (test.yaml, document 1)";
    for (metadata, object, why) in [
        ("{}", NAMELESS, "metadata.name: is missing"),
        ("{name: ''}", NAMELESS, "metadata.name: is missing"),
        ("{name: 5}", NAMELESS, "metadata.name: 5 is not a string"),
        ("{name: [a]}", NAMELESS, "metadata.name: a list is not a string"),
        ("{name: 'a\"b'}", "Service default/a\"b", "metadata.name: is not a valid name (a-z, 0-9, - and dots)"),
        ("{name: A}", "Service default/A", "metadata.name: is not a valid name (a-z, 0-9, - and dots)"),
        ("{name: a, namespace: 7}", "Service default/a", "metadata.namespace: 7 is not a string"),
        (
            "{name: a, namespace: 'x y'}",
            "Service x y/a",
            "metadata.namespace: is not a valid namespace (at most 63 of a-z, 0-9 and -)",
        ),
        ("7", NAMELESS, "metadata.name: is missing"),
    ] {
        let loaded = load_text(format!("apiVersion: v1\nkind: Service\nmetadata: {metadata}\n"));
        assert_eq!(loaded.snapshot.services, [], "{metadata}");
        let lost = loaded.problems.iter().position(|problem| problem.skipped);
        let all = problems(&loaded);
        assert_eq!(lost.map(|at| &all[at]), Some(&format!("{object}: {why}")), "{metadata}: {all:?}");
    }
}

/// What was written before may be what a half-written object is going to say again.
#[test]
fn a_file_that_ends_within_an_object_is_not_read_to_its_end() {
    let whole = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.0.0.1}\n---\n";
    for begun in
        ["apiVers", "apiVersion", "apiVersion:", "apiVersion: v1", "apiVersion: v1\nki", "apiVersion: v1\nkind:"]
    {
        let loaded = load_text(format!("{whole}{begun}"));
        assert_eq!((loaded.snapshot.services.len(), loaded.broken.len()), (1, 1), "{begun}");
    }
    assert_eq!(load_text(format!("{whole}a: 1\n")).broken.len(), 0);
}

/// Whether every input is said to be wrong in these words, among others.
fn are_said(cases: &[(&str, &str)]) {
    for (text, want) in cases {
        let all = problems(&load_text(text));
        assert!(all.iter().any(|problem| problem.contains(want)), "{text}\ngave {all:?}, not {want:?}");
    }
}

/// What is not a string, a mapping or a list where one should be is neither passed over nor taken for something else.
#[test]
fn wrong_types_of_what_an_object_is_are_said() {
    are_said(&[
        ("{kind: 5}", "test.yaml, document 1: kind: 5 is not a string, so this is no Kubernetes object"),
        ("{kind: Service}", "apiVersion: is missing; v1 is read"),
        ("{kind: Service, apiVersion: 1}", "apiVersion: 1 is not a string; v1 is read"),
        ("{kind: EndpointSlice}", "apiVersion: is missing; discovery.k8s.io/v1 is read"),
        (
            "{kind: ServiceCIDR, apiVersion: 1}",
            "apiVersion: 1 is not a string; networking.k8s.io/v1 and networking.k8s.io/v1beta1 is read",
        ),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: []}",
            "Service default/a: spec: a list is not a mapping",
        ),
        (
            "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {name: a, labels: {kubernetes.io/service-name: 14}}}",
            "metadata.labels[kubernetes.io/service-name]: 14 is not text",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: 5}}",
            "Pod default/a: status.phase: 5 is not text",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {conditions: [{type: Ready, status: True}]}}",
            "Pod default/a: status.conditions[0].status: true is not \"True\", \"False\" or \"Unknown\" (in quotes); the \
             Pod is taken for not ready",
        ),
    ]);
}

#[test]
fn wrong_types_in_a_service_are_said() {
    for (spec, want) in [
        ("ports: [{port: 1e20}]", "spec.ports[0].port: 1e+20 is not a port"),
        ("ports: {port: 80}", "spec.ports: a mapping is not a list"),
        ("ports: [80]", "spec.ports[0]: 80 is not a mapping; this port is left out"),
        ("sessionAffinity: ClientIP, sessionAffinityConfig: 7", "spec.sessionAffinityConfig: 7 is not a mapping"),
    ] {
        let (_, problems) = service(&format!("{{clusterIP: 10.0.0.1, {spec}}}"));
        assert_eq!(problems, [format!("Service default/web: {want}")], "{spec}");
    }
}

/// Row A6: names make the port. The outcome is what it is, but it is said.
#[test]
fn slice_ports_that_have_another_name_than_the_service_port_are_said() {
    let input = |service_ports: &str, slice_ports: &str| {
        let loaded = load_text(format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{clusterIP: 10.0.0.1, ports: {service_ports}}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
             metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}\nports: {slice_ports}\n\
             endpoints: [{{addresses: [10.1.0.1]}}]\n"
        ));
        assert_eq!(loaded.snapshot.services.len() + loaded.snapshot.slices.len(), 2);
        problems(&loaded)
    };
    let said = "EndpointSlice default/web-1: ports: no TCP port of Service default/web has the name \"\", so that it leads to \
                none of these endpoints; \"http\" has no endpoints";
    assert_eq!(input("[{name: http, port: 80}]", "[{name: '', port: 8080}]"), [said]);
    for (service_ports, slice_ports) in [
        ("[{name: http, port: 80}]", "[{name: http, port: 8080}, {name: metrics, port: 9090}]"), // more than is wanted
        ("[{name: http, port: 80}, {name: admin, port: 81}]", "[{name: http, port: 8080}]"),     // a port of no Pod
        ("[{name: http, port: 80}]", "[]"),
        ("[{name: dns, port: 53, protocol: UDP}]", "[{name: '', port: 53}]"), // of another protocol
    ] {
        assert_eq!(input(service_ports, slice_ports), [""; 0], "{service_ports} {slice_ports}");
    }
}

/// They would turn what follows in a terminal or a log into something else.
#[test]
fn messages_hold_nothing_that_is_not_seen() {
    for unseen in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{2028}', '\u{85}', '\u{1b}'] {
        for text in [
            format!("{{apiVersion: v1, kind: Service, metadata: {{name: \"a\\u{:04x}b\"}}}}", unseen as u32),
            format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: a}}, spec: {{type: \"a\\u{:04x}\"}}}}",
                unseen as u32
            ),
            format!("{{\"a\\u{0:04x}b\": 1, \"a\\u{0:04x}b\": 1}}", unseen as u32),
        ] {
            let all = problems(&load_text(&text));
            assert!(!all.is_empty() && !all.iter().any(|line| line.contains(unseen)), "{text}: {all:?}");
        }
        let dir = Dir::new();
        let file = dir.write(&format!("a{unseen}.yaml"), "");
        let said: Vec<String> = load(&[file]).unwrap().problems.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && !said[0].contains(unseen), "{said:?}");
    }
}

#[test]
fn of_two_objects_of_a_name_the_later_one_counts() {
    let one = |ip| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{clusterIP: {ip}}}\n---\n");
    let loaded = load_text(one("10.0.0.1") + &one("10.0.0.2"));
    assert_eq!(format!("{:?}", loaded.snapshot.services[0].cluster_ips), "[10.0.0.2]");
    assert_eq!(loaded.snapshot.services.len(), 1);
    assert_eq!(problems(&loaded), ["Service default/a: is there twice; the later one counts"]);
}

#[test]
fn services_that_are_left_alone_are_counted() {
    let text: String = ["{clusterIP: None}", "{type: ExternalName}", "{clusterIP: 10.0.0.1}"]
        .iter()
        .enumerate()
        .map(|(i, spec)| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: s{i}}}\nspec: {spec}\n---\n"))
        .collect();
    let snapshot = load_text(text).snapshot;
    let counts = snapshot.left_alone();
    assert_eq!((counts.headless, counts.external_name, counts.other_proxy), (1, 1, 0));
    assert_eq!(snapshot.services[1].kind, ServiceType::ExternalName);
}

#[test]
fn nodes_and_service_cidrs_are_read() {
    let loaded = load_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}\n\
         spec: {podCIDR: 10.1.0.0/24, podCIDRs: [10.1.0.0/24, 'fd01::/64']}\n\
         status: {addresses: [{type: ExternalIP, address: 1.2.3.4}, {type: Hostname, address: n1}, \
         {type: InternalIP, address: 192.168.0.2}]}\n---\n\
         apiVersion: networking.k8s.io/v1beta1\nkind: ServiceCIDR\nmetadata: {name: k}\nspec: {cidrs: [172.30.0.0/16]}\n",
    );
    assert_eq!(problems(&loaded), [""; 0]);
    let node = &loaded.snapshot.nodes[0];
    assert_eq!(format!("{:?} {:?}", node.addresses, node.pod_cidrs), "[192.168.0.2, 1.2.3.4] [10.1.0.0/24, fd01::/64]");
    assert_eq!(node.zone.as_deref(), Some("a"));
    assert_eq!(format!("{:?}", loaded.snapshot.service_cidrs), "[172.30.0.0/16]");
}

/// Row I9.
#[test]
fn nodes_that_are_about_to_go_are_told_from_others() {
    for (metadata, spec, leaving) in [
        ("", "", false),
        (", deletionTimestamp: null", "taints: null", false),
        (", deletionTimestamp: '2026-11-30T00:00:00Z'", "", true),
        ("", "taints: [{key: ToBeDeletedByClusterAutoscaler, value: '1', effect: NoSchedule}]", true),
        ("", "taints: [{key: a}, {key: ToBeDeletedByClusterAutoscaler}]", true),
        ("", "taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]", false),
    ] {
        let loaded =
            load_text(format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n1{metadata}}}\nspec: {{{spec}}}\n"));
        assert_eq!(problems(&loaded), [""; 0]);
        assert_eq!(loaded.snapshot.nodes[0].leaving, leaving, "{metadata} {spec}");
    }
}

#[test]
fn a_directory_stands_for_its_manifests_and_not_for_what_is_below() {
    let service =
        |name: &str| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: None}}\n");
    let dir = Dir::new();
    for name in ["b.yaml", "a.yml", ".hidden.yaml", "readme.md"] {
        dir.write(name, service(name.replace(['.', '_'], "-").trim_matches('-')));
    }
    dir.write("c.json", r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"},"spec":{"clusterIP":"None"}}"#);
    fs::create_dir(dir.path().join("d.yaml")).unwrap();
    fs::write(dir.path().join("d.yaml/e.yaml"), service("e")).unwrap();
    let loaded = load(&[dir.path(), dir.path().join("b.yaml")]).unwrap();
    let names: Vec<_> = loaded.snapshot.services.iter().map(|s| s.key.name.as_str()).collect();
    assert_eq!(names, ["a-yml", "b-yaml", "c"]);
    assert_eq!(problems(&loaded), [""; 0]);
}

#[test]
fn paths_that_cannot_be_read_are_an_error() {
    let dir = Dir::new();
    let missing = dir.path().join("missing.yaml");
    assert_eq!(
        load(std::slice::from_ref(&missing)).unwrap_err().to_string(),
        format!("{}: No such file or directory (os error 2)", missing.display())
    );
    assert_eq!(
        load(&[dir.path()]).unwrap_err().to_string(),
        format!("{}: there is no *.yaml, *.yml or *.json file in this directory", dir.path().display())
    );
}

#[test]
fn empty_binary_and_truncated_files_are_named_and_broken() {
    for (text, want) in [
        (&b""[..], "test.yaml: holds no objects"),
        (b"# nothing\n", "test.yaml: holds no objects"),
        (b"\x7fELF\0\0\0", "test.yaml: line 1: this is a binary file, not YAML or JSON"),
        (b"\xff\xfea\0", "test.yaml: this is UTF-16 text; save it as UTF-8"),
        (b"just text\n", "test.yaml: document 1: invalid type: string \"just text\", expected a Kubernetes object"),
        (b"{\"kind\": \"Service\", \"apiV", "test.yaml: line 1, column 25: EOF while parsing a string"),
        (b"kind: Service\nmetadata: {name: \"we", "test.yaml: line 2, column 18: unclosed quote"),
        (b"a: &a [x, x]\nb: *a\nb: *a\n", "test.yaml: line 3, column 1: duplicate mapping key `b` is not allowed here"),
    ] {
        let loaded = load_text(text);
        let shown = String::from_utf8_lossy(text);
        assert_eq!(problems(&loaded), [want], "{shown:?}");
        assert_eq!(loaded.broken.len(), 1, "{shown:?}");
        assert!(loaded.problems[0].skipped, "{shown:?}");
    }
}

/// Nine lists that each hold the one before nine times would be 9^9 entries.
#[test]
fn an_alias_bomb_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        let aliases = vec![format!("*a{}", i - 1); 9].join(", ");
        text += &format!("a{i}: &a{i} [{aliases}]\n");
    }
    let loaded = load_text(text);
    assert_eq!(loaded.broken.len(), 1, "{:?}", problems(&loaded));
    let said = &problems(&loaded)[0];
    assert!(said.ends_with("this is too much: text repeated by anchors and aliases (& and *)"), "{said}");
}

/// Nesting must end in an error before it ends the stack.
#[test]
fn what_is_nested_deeply_is_refused() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", ""), ("{\"a\":", "}"), ("{\"items\":[", "]}")] {
        let text = open.repeat(100_000) + "1" + &close.repeat(100_000);
        let loaded = load_text(&text);
        assert_eq!(loaded.broken.len(), 1, "{open:?}: {:?}", problems(&loaded));
    }
}

#[test]
fn messages_hold_no_control_characters_and_are_short() {
    let long = "x".repeat(100_000);
    for text in [
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: \"a\\e[31m\\nb{long}\"}}}}"),
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: a}}, spec: {{type: \"a\\e[31m\\nb{long}\"}}}}"),
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: a}}, spec: {{selector: {{\"\\e{long}\": 1}}}}}}"),
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: a}}, \
             spec: {{clusterIP: None, ports: [{{port: 1, targetPort: \"\\n{long}\"}}]}}}}"
        ),
        format!("{{apiVersion: \"discovery.k8s.io/\\n{long}\", kind: EndpointSlice, metadata: {{name: a}}}}"),
        format!("\"a\\n{long}\": 1\n\"a\\n{long}\": 1\n"),
        format!("\"a\\n{long}\""),
    ] {
        let loaded = load_text(&text);
        let start = &text[..60];
        assert!(!loaded.problems.is_empty(), "{start}");
        for line in loaded.problems.iter().map(ToString::to_string) {
            assert!(line.len() < 500 && !line.contains(char::is_control), "{start}: {line:.600?}");
        }
    }
}

#[test]
fn a_service_of_ten_thousand_endpoints_is_read() {
    let mut text = String::from(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {name: a, labels: {kubernetes.io/service-name: a}}\nports: [{name: '', port: 80}]\nendpoints:\n",
    );
    for i in 0..10_000 {
        text += &format!("- {{addresses: [10.0.{}.{}], nodeName: n{}}}\n", i / 250, i % 250 + 1, i % 3);
    }
    let loaded = load_text(text);
    assert_eq!(problems(&loaded), [""; 0]);
    assert_eq!(loaded.snapshot.slices[0].endpoints.len(), 10_000);
}
