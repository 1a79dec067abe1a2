//! The configuration file and the flags of kube-proxy.

#[macro_use]
mod common;

use clap::Parser;
use svcmap::config::{
    DetectLocal, Effective, KubeProxyConfiguration, Mode, NodePortAddresses, ProxyFlags, effective, effective_in,
};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    flags: ProxyFlags,
}

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
/// So that nothing depends on the host.
const HOST: [&str; 2] = ["--hostname-override=n1", "--node-ip=192.168.0.2"];

fn flags(args: &[&str]) -> ProxyFlags {
    let args = ["svcmap"].iter().chain(&HOST).chain(args);
    Command::try_parse_from(args).unwrap_or_else(|e| panic!("{e}")).flags
}

/// The outcome with this text after the head of the file, and these flags.
fn outcome(file: &str, args: &[&str]) -> Result<Effective, String> {
    outcome_in(None, file, args)
}

fn outcome_in(chosen: Option<Mode>, file: &str, args: &[&str]) -> Result<Effective, String> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("proxy.yaml");
    std::fs::write(&path, format!("{HEAD}{file}")).expect("writing the file");
    let flags = ProxyFlags { config: Some(path.clone()), ..flags(args) };
    effective_in(&flags, chosen).map_err(|e| e.to_string().replace(&path.display().to_string(), "proxy.yaml"))
}

fn good(file: &str, args: &[&str]) -> Effective {
    outcome(file, args).unwrap_or_else(|e| panic!("{file}: {e}"))
}

#[test]
fn defaults_are_those_of_kube_proxy_in_nftables_mode() {
    let found = effective(&flags(&[])).unwrap();
    assert_eq!(found.warnings, [""; 0]);
    assert_eq!(found.proxy.node_name, "n1");
    assert_eq!(found.proxy.node_port_addresses, NodePortAddresses::Primary);
    assert_eq!(found.proxy.masquerade_bit, 14);
    let yaml = found.configuration.to_yaml();
    for line in [
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
        "mode: nftables",
        "healthzBindAddress: 0.0.0.0:10256",
        "metricsBindAddress: 127.0.0.1:10249",
        "configSyncPeriod: 15m0s",
        "oomScoreAdj: -999",
        "  tcpEstablishedTimeout: 24h0m0s",
        "  maxPerCore: 32768",
        "detectLocalMode: ClusterCIDR",
        "  masqueradeBit: 14",
    ] {
        assert!(yaml.lines().any(|l| l == line), "no line {line:?} in\n{yaml}");
    }
}

/// What `kubeadm` writes: null, zero and empty mean the default.
#[test]
fn empty_fields_mean_their_defaults() {
    let file = "bindAddress: ''\nbindAddressHardFail: false\nclientConnection:\n  acceptContentTypes: ''\n  burst: 0\n\
        \x20 contentType: ''\n  kubeconfig: ''\n  qps: 0\nclusterCIDR: ''\nconfigSyncPeriod: 0s\nconntrack:\n\
        \x20 maxPerCore: null\n  min: null\n  tcpBeLiberal: false\n  tcpCloseWaitTimeout: null\n\
        \x20 tcpEstablishedTimeout: null\n  udpStreamTimeout: 0s\n  udpTimeout: 0s\ndetectLocal:\n  bridgeInterface: ''\n\
        \x20 interfaceNamePrefix: ''\ndetectLocalMode: ''\nenableProfiling: false\nhealthzBindAddress: ''\n\
        hostnameOverride: ''\niptables:\n  localhostNodePorts: null\n  masqueradeAll: false\n  masqueradeBit: null\n\
        \x20 minSyncPeriod: 0s\n  syncPeriod: 0s\nipvs:\n  excludeCIDRs: null\n  minSyncPeriod: 0s\n  scheduler: ''\n\
        \x20 strictARP: false\n  syncPeriod: 0s\n  tcpFinTimeout: 0s\n  tcpTimeout: 0s\n  udpTimeout: 0s\nlogging:\n\
        \x20 flushFrequency: 0\n  options:\n    json:\n      infoBufferSize: '0'\n    text:\n      infoBufferSize: 0\n\
        \x20 verbosity: 0\nmetricsBindAddress: ''\nmode: ''\nnftables:\n  masqueradeAll: false\n  masqueradeBit: null\n\
        \x20 minSyncPeriod: 0s\n  syncPeriod: 0s\nnodePortAddresses: null\noomScoreAdj: null\nportRange: ''\n\
        showHiddenMetricsForVersion: ''\nwinkernel:\n  enableDSR: false\n  forwardHealthCheckVip: false\n\
        \x20 networkName: ''\n  rootHnsEndpointName: ''\n  sourceVip: ''\n";
    let found = good(file, &[]);
    assert_eq!(found.warnings, [""; 0]);
    let want = effective(&flags(&[])).unwrap().configuration;
    assert_eq!(found.configuration, want);
}

/// Every field at a value of its own: it must arrive, be written and be read again.
#[test]
fn every_field_is_read_and_written() {
    let file = "featureGates: {A: true, B: false}\n\
        clientConnection: {kubeconfig: /k, acceptContentTypes: a/b, contentType: c/d, qps: 2.5, burst: 7}\n\
        logging: {format: json, flushFrequency: 2s, verbosity: 3, vmodule: [{filePattern: x, verbosity: 4}], \
        options: {text: {splitStream: true, infoBufferSize: 64Ki}, json: {splitStream: true, infoBufferSize: 5}}}\n\
        hostnameOverride: other\nbindAddress: 10.0.0.9\nhealthzBindAddress: 1.2.3.4:5\nmetricsBindAddress: '[::1]:6'\n\
        bindAddressHardFail: true\nenableProfiling: true\nshowHiddenMetricsForVersion: '1.30'\nmode: nftables\n\
        iptables: {masqueradeBit: 1, masqueradeAll: true, localhostNodePorts: false, snatNodeInternalIP: true, \
        syncPeriod: 40s, minSyncPeriod: 2s}\n\
        ipvs: {syncPeriod: 41s, minSyncPeriod: 3s, scheduler: lc, excludeCIDRs: [10.9.0.0/16], strictARP: true, \
        tcpTimeout: 1s, tcpFinTimeout: 2s, udpTimeout: 3s}\n\
        nftables: {masqueradeBit: 0, masqueradeAll: true, syncPeriod: 42s, minSyncPeriod: 500ms}\n\
        winkernel: {networkName: n, sourceVip: v, enableDSR: true, rootHnsEndpointName: e, forwardHealthCheckVip: true}\n\
        detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0, interfaceNamePrefix: cali}\n\
        clusterCIDR: 10.1.0.0/16,fd01::/48\nnodePortAddresses: [192.168.0.0/16, 'fd00::/8']\noomScoreAdj: 0\n\
        conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 1h30m, tcpBeLiberal: true, \
        udpTimeout: 4s, udpStreamTimeout: 5s}\n\
        configSyncPeriod: 1h\nportRange: 1-2\nwindowsRunAsService: true\n";
    let (read, warnings) = KubeProxyConfiguration::parse(&format!("{HEAD}{file}")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(warnings, [""; 0]);
    let (value, default) =
        (serde_json::to_value(&read).unwrap(), serde_json::to_value(KubeProxyConfiguration::default()).unwrap());
    let mut same = Vec::new();
    collect_same(&value, &default, "", &mut same);
    assert_eq!(same, ["apiVersion", "kind"], "the fields that did not arrive, and two that cannot differ");
    let again = KubeProxyConfiguration::parse(&read.to_yaml()).map(|(again, _)| again);
    assert_eq!(again.as_ref(), Ok(&read), "{}", read.to_yaml());
}

fn collect_same(value: &serde_json::Value, default: &serde_json::Value, path: &str, same: &mut Vec<String>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() && path != "featureGates" => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_same(field, &default[name], &path, same);
            }
        }
        _ if value == default => same.push(path.into()),
        _ => {}
    }
}

#[test]
fn the_file_decides_what_services_mean() {
    let found = good(
        "clusterCIDR: 10.1.0.0/16, fd01::/48\ndetectLocalMode: InterfaceNamePrefix\n\
         detectLocal: {interfaceNamePrefix: cali}\nnodePortAddresses: [192.168.0.0/16]\n\
         nftables: {masqueradeAll: true, masqueradeBit: 31}\n",
        &[],
    );
    assert_eq!(found.warnings, [""; 0]);
    assert_eq!(format!("{:?}", found.proxy.cluster_cidrs), "[10.1.0.0/16, fd01::/48]");
    assert_eq!(found.proxy.detect_local, DetectLocal::InterfaceNamePrefix("cali".into()));
    assert_eq!(found.proxy.node_port_addresses, NodePortAddresses::Networks(vec!["192.168.0.0/16".parse().unwrap()]));
    assert_eq!((found.proxy.masquerade_all, found.proxy.masquerade_bit), (true, 31));
}

#[test]
fn flags_say_the_same_as_the_file() {
    let found = effective(&flags(&[
        "--cluster-cidr=10.1.0.0/16,fd01::/48",
        "--detect-local-mode=BridgeInterface",
        "--pod-bridge-interface=cni0",
        "--nodeport-addresses=192.168.0.0/16,fd00::/8",
        "--masquerade-all",
        "--node-ip=fd00::2",
    ]))
    .unwrap();
    let same = good(
        "clusterCIDR: 10.1.0.0/16,fd01::/48\ndetectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}\n\
         nodePortAddresses: [192.168.0.0/16, 'fd00::/8']\nnftables: {masqueradeAll: true}\n",
        &["--node-ip=fd00::2"],
    );
    assert_eq!(found, same);
    assert_eq!(format!("{:?}", found.proxy.node_ips), "[192.168.0.2, fd00::2]");
    assert_eq!(found.proxy.detect_local, DetectLocal::BridgeInterface("cni0".into()));
}

#[test]
fn a_file_comes_before_most_flags() {
    let found = good(
        "hostnameOverride: file\nclusterCIDR: 10.1.0.0/16\nnftables: {masqueradeAll: true}\n",
        &["--cluster-cidr=10.2.0.0/16", "--nodeport-addresses=10.0.0.0/8", "--masquerade-all=false"],
    );
    assert_eq!(found.proxy.node_name, "n1");
    assert!(!found.proxy.masquerade_all);
    assert_eq!(format!("{:?}", found.proxy.cluster_cidrs), "[10.1.0.0/16]");
    assert_eq!(
        found.warnings,
        [
            "--cluster-cidr is ignored, because --config is given",
            "--nodeport-addresses is ignored, because --config is given",
        ]
    );
}

#[test]
fn the_way_to_the_cluster_comes_from_the_file_before_the_flags() {
    let arguments = ["--kubeconfig=/flag", "--kube-api-qps=7.5", "--kube-api-burst=70"];
    let connection = effective(&flags(&arguments)).unwrap().configuration.client_connection;
    assert_eq!((connection.kubeconfig.as_str(), connection.qps, connection.burst), ("/flag", 7.5, 70));

    let found = good("clientConnection: {kubeconfig: /file, qps: 2}\nnftables: {minSyncPeriod: 2s}\n", &arguments);
    let connection = found.configuration.client_connection;
    assert_eq!((connection.kubeconfig.as_str(), connection.qps, connection.burst), ("/file", 2.0, 10));
    assert_eq!(
        found.warnings,
        [
            "--kubeconfig is ignored, because --config names one",
            "--kube-api-qps is ignored, because --config is given",
            "--kube-api-burst is ignored, because --config is given",
        ]
    );
    let found = good("clientConnection: {qps: 2}\n", &arguments[..1]);
    assert_eq!((found.configuration.client_connection.kubeconfig.as_str(), found.warnings.len()), ("/flag", 0));
}

#[test]
fn what_nothing_acts_on_is_told() {
    let found =
        good("mode: ipvs\nconntrack: {min: 5}\nenableProfiling: true\nfeatureGates: {X: true}\nportRange: 1-2\n", &[]);
    assert_eq!(
        found.warnings,
        [
            "enableProfiling is set, and has no effect: nothing is profiled over HTTP; perf(1) profiles any program",
            "featureGates.X is set, and has no effect: kube-proxy's features are not switched here: what is stable or beta in 1.36 is on",
            "portRange is set, and has no effect without --mode userspace: no ports are opened for Services",
            "mode: ipvs is what the configuration says, and what is run; --mode nftables serves the same Services from maps",
        ]
    );
    assert_eq!((found.configuration.mode.as_str(), found.mode), ("ipvs", Mode::Ipvs));
}

/// A configuration's mode is handed over to, also where a flag of kube-proxy says it, unless `--mode` chooses another one.
#[test]
fn the_configuration_says_the_mode_unless_it_is_chosen() {
    for (file, mode) in [
        ("", Mode::Nftables),
        ("mode: ''\n", Mode::Nftables),
        ("mode: nftables\n", Mode::Nftables),
        ("mode: iptables\n", Mode::Iptables),
        ("mode: ipvs\n", Mode::Ipvs),
        ("mode: userspace\n", Mode::Userspace),
    ] {
        let found = good(file, &[]);
        assert_eq!((found.mode, found.configuration.mode.as_str()), (mode, mode.name()), "{file}");
        assert_eq!(found.warnings.len(), usize::from(mode != Mode::Nftables), "{:?}", found.warnings);
        let chosen = outcome_in(Some(Mode::Nftables), file, &[]).unwrap();
        assert_eq!((chosen.mode, chosen.configuration.mode.as_str()), (Mode::Nftables, "nftables"), "{file}");
    }
    assert_eq!(effective(&flags(&["--proxy-mode", "iptables"])).unwrap().mode, Mode::Iptables);
}

/// A configuration says what it was written for, and `--mode` what is made of it.
#[test]
fn fields_of_ipvs_are_acted_on_in_that_mode_alone() {
    let file = "mode: ipvs\nipvs: {scheduler: wrr, strictARP: true, tcpTimeout: 5s}\n";
    for (mode, told) in [
        (Mode::Nftables, &["ipvs.scheduler", "ipvs.strictARP", "ipvs.tcpTimeout", "mode"][..]),
        (Mode::Iptables, &["ipvs.scheduler", "ipvs.strictARP", "ipvs.tcpTimeout", "mode"]),
        (Mode::Ipvs, &[]),
    ] {
        let found = outcome_in(Some(mode), file, &[]).unwrap();
        let fields: Vec<&str> = found.warnings.iter().filter_map(|warning| warning.split([' ', ':']).next()).collect();
        assert_eq!(fields, told, "{:?}", found.warnings);
        assert_eq!(found.configuration.mode, mode.name());
    }
    let found = outcome_in(Some(Mode::Ipvs), "mode: nftables\n", &[]).unwrap();
    assert_eq!(found.warnings, ["mode: nftables does not count, since the rules of ipvs were asked for"]);
}

/// kube-proxy refuses this mode since 1.26.
#[test]
fn what_was_written_for_the_mode_userspace_is_taken() {
    let file = "mode: userspace\nportRange: 7000-7999\niptables: {minSyncPeriod: 2s}\n";
    let found = outcome_in(Some(Mode::Userspace), file, &[]).unwrap();
    assert_eq!(found.warnings, [""; 0]);
    assert_eq!(found.configuration.nftables.min_sync_period.0, std::time::Duration::from_secs(2));
    let found = outcome_in(Some(Mode::Nftables), file, &[]).unwrap();
    assert_eq!(
        found.warnings,
        [
            "mode: userspace does not count, since the rules of nftables were asked for",
            "portRange is set, and has no effect without --mode userspace: no ports are opened for Services",
        ]
    );
}

#[test]
fn wrong_fields_are_named() {
    for (file, want) in [
        (
            "nftables: {masqueradeBit: x}",
            "proxy.yaml: nftables.masqueradeBit: invalid type: string \"x\", expected i32",
        ),
        ("nftables: {masqueradeBit: 32}", "nftables.masqueradeBit: 32 is not between 0 and 31"),
        ("nftables: {masqueradeBit: -1}", "nftables.masqueradeBit: -1 is not between 0 and 31"),
        ("nftables: {syncPeriod: 5}", "nftables.minSyncPeriod: 1s is longer than nftables.syncPeriod, 5ns"),
        ("nftables: {syncPeriod: -5s}", "proxy.yaml: nftables.syncPeriod: -5s is negative"),
        ("nftables: {syncPeriod: soon}", "proxy.yaml: nftables.syncPeriod: \"soon\" is not a duration such as 30s"),
        ("nftables: 5", "proxy.yaml: nftables: invalid type: integer `5`"),
        ("mode: magic", "mode: \"magic\" is none of nftables, iptables, ipvs, userspace"),
        ("clusterCIDR: 10.0.0.0", "clusterCIDR: \"10.0.0.0\" is not a prefix"),
        ("clusterCIDR: 10.0.0.0/8,11.0.0.0/8", "clusterCIDR: 11.0.0.0/8 is a second IPv4 prefix"),
        ("detectLocalMode: magic", "detectLocalMode: \"magic\" is none of ClusterCIDR, NodeCIDR"),
        ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface: is empty, and detectLocalMode Bridge"),
        ("detectLocalMode: InterfaceNamePrefix", "detectLocal.interfaceNamePrefix: is empty, and detectLocalMode Int"),
        (
            "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: 'a\"; x'}",
            "detectLocal.bridgeInterface: \"a\\\"; x\" is not a name of interfaces",
        ),
        ("nodePortAddresses: [primary, 10.0.0.0/8]", "nodePortAddresses: primary must stand alone"),
        ("nodePortAddresses: [10.0.0.0/8, x]", "nodePortAddresses[1]: \"x\" is neither primary nor a prefix"),
        ("bindAddress: x", "bindAddress: \"x\" is not an IP address"),
        ("healthzBindAddress: x:1", "healthzBindAddress: \"x:1\" is not an address and port"),
        ("oomScoreAdj: 2000", "oomScoreAdj: 2000 is not between -1000 and 1000"),
        ("conntrack: {min: -1}", "conntrack.min: -1 is less than 0"),
        ("a: [", "proxy.yaml: "),
    ] {
        let error = outcome(file, &[]).err().unwrap_or_else(|| panic!("{file}: accepted"));
        assert!(error.starts_with(want), "{file}\n gave {error}\n not  {want}");
    }
    assert_eq!(
        outcome("oomScoreAdj: 2000\nconntrack: {min: -1}", &[]).unwrap_err().lines().count(),
        2,
        "both are told"
    );
}

/// Clusters that are older than their release have fields that are gone; kube-proxy takes the rest.
#[test]
fn fields_that_there_are_not_are_left_out_and_said() {
    let file = "resourceContainer: /kube-proxy\nudpIdleTimeout: 250ms\nfeatureGates: {Anything: true}\n\
        nftables: {masqueradBit: 1, masqueradeBit: 2, deep: {er: 1}}\nmode: nftables\noomScoreAdj: 5\noomScoreAdj: 6\n";
    let found = good(file, &[]);
    assert_eq!((found.configuration.nftables.masquerade_bit, found.configuration.oom_score_adj), (2, 6));
    let (twice, others) = found.warnings.split_first().unwrap();
    assert!(twice.contains("oomScoreAdj") && twice.ends_with("; the last one counts"), "{twice}");
    let fields: Vec<&str> = others.iter().map(|warning| warning.split(' ').next().unwrap()).collect();
    let gone = ["nftables.deep:", "nftables.masqueradBit:", "resourceContainer:", "udpIdleTimeout:"];
    assert!(gone.iter().all(|field| fields.contains(field)), "{fields:?}");
    assert_eq!(fields.len(), gone.len() + 1, "and one that does nothing: {others:?}");
    assert!(
        others
            .iter()
            .any(|warning| *warning
                == "udpIdleTimeout: there is no such field of KubeProxyConfiguration; it is left out")
    );
}

#[test]
fn another_file_is_refused() {
    for (text, want) in [
        ("kind: KubeProxyConfiguration\n", "apiVersion: is missing"),
        ("apiVersion: v1\nkind: ConfigMap\n", "apiVersion: \"v1\" is not kubeproxy.config.k8s.io/v1alpha1"),
        ("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: X\n", "kind: \"X\" is not KubeProxyConfiguration"),
        ("- x\n", "apiVersion: is missing"),
        ("", "apiVersion: is missing"),
    ] {
        let error = KubeProxyConfiguration::parse(text).expect_err(text);
        assert!(error.starts_with(want), "{text:?} gave {error}, not {want}");
    }
    let missing = ProxyFlags { config: Some("/nonexistent/proxy.yaml".into()), ..flags(&[]) };
    assert_eq!(
        effective(&missing).unwrap_err().to_string(),
        "/nonexistent/proxy.yaml: No such file or directory (os error 2)"
    );
}

#[test]
fn bad_flags_are_refused_by_name() {
    for (flag, value) in [
        ("--cluster-cidr", "10.0.0.0"),
        ("--node-ip", "x"),
        ("--detect-local-mode", "magic"),
        ("--masquerade-all", "maybe"),
        ("--hostname-override", " "),
    ] {
        let error = Command::try_parse_from(["svcmap", &format!("{flag}={value}")]).err();
        let error = error.unwrap_or_else(|| panic!("{flag}={value}: accepted")).to_string();
        assert!(error.contains(flag) && error.contains(value), "{flag}={value}: {error}");
    }
}

fn ip(arguments: &str) {
    let status = std::process::Command::new("ip").args(arguments.split(' ')).status().expect("ip runs");
    assert!(status.success(), "ip {arguments}");
}

netns_test! {
    fn the_host_is_asked_where_nothing_is_said() {
        for arguments in [
            "link set lo up",
            "addr add 10.9.9.9/32 dev lo",
            "link add e-a type veth peer name p-a",
            "link add e-b type veth peer name p-b",
            "link add e-down type veth peer name p-wn",
            "link add kube-ipvs0 type veth peer name p-s0",
            "link set p-a up",
            "link set p-b up",
            "link set e-a up",
            "link set e-b up",
            "link set kube-ipvs0 up",
            "addr add 10.0.0.1/24 dev e-a",
            "addr add 169.254.0.1/16 dev e-a",
            "addr add fd00::1/64 dev e-a nodad",
            "addr add 10.0.1.1/24 dev e-b",
            "addr add 10.0.1.2/24 dev e-b",
            "addr add fd00:1::1/64 dev e-b nodad",
            "addr add 10.0.2.1/24 dev e-down",
            "addr add 10.96.0.1/32 dev kube-ipvs0",
            "route add default via 10.0.1.254",
            "route add default via fd00:1::2",
        ] {
            ip(arguments);
        }
        let found = effective(&ProxyFlags::default()).unwrap().proxy;
        let name = nix::unistd::gethostname().unwrap().to_string_lossy().to_lowercase();
        assert_eq!(found.node_name, name);
        let addresses: Vec<_> = found.node_ips.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.1.1", "10.0.0.1", "10.0.1.2", "10.9.9.9", "fd00:1::1", "fd00::1"]);
    }
}
