//! The effective configuration as kube-proxy's `/configz` shows it: by the names of its internal type.

use serde_json::{Value, json};

use crate::config::{Conntrack, Ipvs, KubeProxyConfiguration, Winkernel};

/// The object that `/configz` answers.
pub fn shown(configuration: &KubeProxyConfiguration) -> Value {
    let c = configuration;
    let (client, iptables, nftables) = (&c.client_connection, &c.iptables, &c.nftables);
    let prefixes: Vec<&str> = c.cluster_cidr.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
    json!({"kubeproxy.config.k8s.io": {
        "Linux": {
            "Conntrack": conntrack(&c.conntrack),
            "MasqueradeAll": nftables.masquerade_all,
            "OOMScoreAdj": c.oom_score_adj,
        },
        "Windows": {"RunAsService": c.windows_run_as_service},
        "FeatureGates": c.feature_gates,
        "ClientConnection": {
            "Kubeconfig": client.kubeconfig,
            "AcceptContentTypes": client.accept_content_types,
            "ContentType": client.content_type,
            "QPS": client.qps,
            "Burst": client.burst,
        },
        "Logging": c.logging,
        "HostnameOverride": c.hostname_override,
        "BindAddress": c.bind_address,
        "HealthzBindAddress": c.healthz_bind_address,
        "MetricsBindAddress": c.metrics_bind_address,
        "BindAddressHardFail": c.bind_address_hard_fail,
        "EnableProfiling": c.enable_profiling,
        "ShowHiddenMetricsForVersion": c.show_hidden_metrics_for_version,
        "Mode": c.mode,
        "IPTables": {
            "MasqueradeBit": iptables.masquerade_bit,
            "LocalhostNodePorts": iptables.localhost_node_ports,
        },
        "IPVS": ipvs(&c.ipvs),
        "Winkernel": winkernel(&c.winkernel),
        "NFTables": {"MasqueradeBit": nftables.masquerade_bit},
        "DetectLocalMode": c.detect_local_mode,
        "DetectLocal": {
            "BridgeInterface": c.detect_local.bridge_interface,
            "ClusterCIDRs": prefixes,
            "InterfaceNamePrefix": c.detect_local.interface_name_prefix,
        },
        "NodePortAddresses": c.node_port_addresses,
        "SyncPeriod": nftables.sync_period,
        "MinSyncPeriod": nftables.min_sync_period,
        "ConfigSyncPeriod": c.config_sync_period,
    }})
}

fn conntrack(conntrack: &Conntrack) -> Value {
    json!({
                "MaxPerCore": conntrack.max_per_core,
                "Min": conntrack.min,
                "TCPEstablishedTimeout": conntrack.tcp_established_timeout,
                "TCPCloseWaitTimeout": conntrack.tcp_close_wait_timeout,
                "TCPBeLiberal": conntrack.tcp_be_liberal,
                "UDPTimeout": conntrack.udp_timeout,
                "UDPStreamTimeout": conntrack.udp_stream_timeout,
    })
}

fn ipvs(ipvs: &Ipvs) -> Value {
    json!({
            "Scheduler": ipvs.scheduler,
            "ExcludeCIDRs": ipvs.exclude_cidrs,
            "StrictARP": ipvs.strict_arp,
            "TCPTimeout": ipvs.tcp_timeout,
            "TCPFinTimeout": ipvs.tcp_fin_timeout,
            "UDPTimeout": ipvs.udp_timeout,
    })
}

fn winkernel(windows: &Winkernel) -> Value {
    json!({
            "NetworkName": windows.network_name,
            "SourceVip": windows.source_vip,
            "EnableDSR": windows.enable_dsr,
            "RootHnsEndpointName": windows.root_hns_endpoint_name,
            "ForwardHealthCheckVip": windows.forward_health_check_vip,
    })
}
