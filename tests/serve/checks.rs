//! Health check node ports (rows I1–I8, cases H01–H05).

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

use crate::client::get;
use crate::daemon::{Daemon, give_addresses};

/// A load balancer with this health check port, and a slice of these endpoints: where they are, and in what state.
fn objects(port: u16, endpoints: &[(&str, &str)]) -> String {
    let endpoint = |(n, (node, conditions)): (usize, &(&str, &str))| {
        format!("{{addresses: [10.0.0.{}], nodeName: {node}, conditions: {{{conditions}}}}}", n + 1)
    };
    let endpoints: Vec<String> = endpoints.iter().enumerate().map(endpoint).collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: default}}\nspec: {{type: LoadBalancer, \
         clusterIP: 10.96.0.1, externalTrafficPolicy: Local, healthCheckNodePort: {port}, \
         ports: [{{port: 80, nodePort: 30080}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, namespace: default, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nports: [{{name: '', port: 8080, protocol: TCP}}]\n\
         endpoints: [{}]\n",
        endpoints.join(", ")
    )
}

const HERE: (&str, &str) = ("n1", "");
const EVERYWHERE: [&str; 2] = ["--nodeport-addresses", "0.0.0.0/0,::/0"];

/// Whether nobody listens.
fn is_closed(address: &str) -> bool {
    get(address, "/").is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

netns_test! {
    fn load_balancers_are_told_how_many_endpoints_are_here() {
        give_addresses();
        let mut daemon = Daemon::start(&objects(9376, &[]), &EVERYWHERE);
        let none = daemon.wait_for("127.0.0.1:9376", "/", |_| true);
        assert_eq!(none.status, 503, "H01");
        assert_eq!(none.header("X-Load-Balancing-Endpoint-Weight"), Some("0"), "{none:?}");

        // on other nodes, not ready, going away: they do not count (row I3)
        let states = [HERE, HERE, ("n2", ""), ("n1", "ready: false"), ("n1", "ready: false, serving: true, terminating: true")];
        daemon.tell(&objects(9376, &states));
        for (address, path) in [("127.0.0.1:9376", "/"), ("192.168.0.2:9376", "/healthz"), ("[2001:db8::2]:9376", "/a/b?c")] {
            let two = daemon.wait_for(address, path, |answer| answer.status == 200);
            assert_eq!(two.header("X-Load-Balancing-Endpoint-Weight"), Some("2"), "{two:?}");
            assert_eq!(two.header("Content-Type"), Some("application/json"), "{two:?}");
            assert_eq!(two.header("X-Content-Type-Options"), Some("nosniff"), "{two:?}");
            let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\
                        \t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
            assert_eq!(two.body, body);
        }

        daemon.tell(&objects(9376, &[("n2", "")]));
        let none = daemon.wait_for("127.0.0.1:9376", "/", |answer| answer.status == 503);
        assert_eq!(none.header("X-Load-Balancing-Endpoint-Weight"), Some("0"), "H03: {none:?}");

        daemon.tell(&objects(9377, &[HERE]));
        daemon.wait_for("127.0.0.1:9377", "/", |answer| answer.status == 200);
        assert!(is_closed("127.0.0.1:9376"), "H04");

        // only this sort of Service has one, whatever the field says
        daemon.tell(&objects(9377, &[HERE]).replace("externalTrafficPolicy: Local", "externalTrafficPolicy: Cluster"));
        daemon.wait("the check is gone", || is_closed("127.0.0.1:9377"));
        assert!(is_closed("[::1]:9377"));
        daemon.stop();
    }
}

netns_test! {
    /// Row I7: whoever has a connection open is not told anything that is not so any more.
    fn connections_end_with_the_service() {
        give_addresses();
        let mut daemon = Daemon::start(&objects(9376, &[HERE]), &EVERYWHERE);
        daemon.wait_for("127.0.0.1:9376", "/", |answer| answer.status == 200);
        let mut open = TcpStream::connect("127.0.0.1:9376").unwrap();
        daemon.tell("apiVersion: v1\nkind: List\nitems: []\n");
        daemon.wait("the check is gone", || is_closed("127.0.0.1:9376"));
        assert!(matches!(open.read(&mut [0]), Ok(0) | Err(_)), "the connection stays open");
        daemon.stop();
    }
}

netns_test! {
    /// Row I1: with `primary`, on the node's own addresses and on no others.
    fn health_is_told_where_node_ports_are_served() {
        give_addresses();
        let mut daemon = Daemon::start(&objects(9376, &[HERE]), &[]);
        daemon.wait_for("192.168.0.2:9376", "/", |answer| answer.status == 200);
        daemon.wait_for("[2001:db8::2]:9376", "/", |answer| answer.status == 200);
        assert!(is_closed("127.0.0.1:9376") && is_closed("[::1]:9376"));
        daemon.stop();
    }
}

netns_test! {
    /// Row I8: a port that somebody else has is said once, tried again, and disturbs nothing else.
    fn a_port_that_is_taken_is_had_later() {
        give_addresses();
        let taken = TcpListener::bind("192.168.0.2:9376").unwrap();
        let mut daemon = Daemon::start(&objects(9376, &[HERE]), &[]);
        daemon.wait_for("[2001:db8::2]:9376", "/", |answer| answer.status == 200);
        daemon.wait_for_log("Service default/web: health cannot be told on 192.168.0.2:9376: Address already in use");
        drop(taken);
        daemon.wait_for("192.168.0.2:9376", "/", |answer| answer.status == 200);
        assert_eq!(daemon.log().matches("health cannot be told").count(), 1, "{}", daemon.log());
        daemon.stop();
    }
}
