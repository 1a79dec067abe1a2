//! The configuration file: `kubeproxy.config.k8s.io/v1alpha1` KubeProxyConfiguration (section L of the behaviour).
//!
//! As in kube-proxy, null, zero and the empty text mean the default of a field. The values of a struct here are the
//! effective ones: defaults are applied.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

use super::duration::GoDuration;
use crate::shown::Clipped;
use crate::yaml;

/// `apiVersion` of the file.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
/// `kind` of the file.
pub const KIND: &str = "KubeProxyConfiguration";

macro_rules! group {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        impl $name {
            #[allow(dead_code)] // One group has a rule of its own.
            /// Gives the fields that hold nothing their defaults.
            fn apply_defaults(&mut self) {
                let defaults = $name::default();
                $(self.$field.default_to(defaults.$field);)*
            }
        }
    };
}

/// Values that mean the default where they are zero or empty.
trait DefaultTo {
    fn default_to(&mut self, default: Self);
}

macro_rules! default_to {
    ($($type:ty: $empty:expr;)*) => {
        $(impl DefaultTo for $type {
            fn default_to(&mut self, default: Self) {
                let empty: fn(&$type) -> bool = $empty;
                if empty(self) {
                    *self = default;
                }
            }
        })*
    };
}

default_to! {
    String: String::is_empty;
    GoDuration: |duration| duration.is_zero();
    f32: |number| *number == 0.0;
    u32: |number| *number == 0;
    Vec<String>: Vec::is_empty;
    Vec<VModule>: Vec::is_empty;
    BTreeMap<String, bool>: BTreeMap::is_empty;
    // Zero is a value of these, and the absent ones got their defaults when they were read.
    i32: |_| false;
    bool: |_| false;
}

macro_rules! nested {
    ($($type:ty)*) => {
        $(impl DefaultTo for $type {
            fn default_to(&mut self, _: Self) {
                self.apply_defaults();
            }
        })*
    };
}

nested! { ClientConnection Logging LogOptions LogRouting Iptables Ipvs Nftables Winkernel DetectLocalFields }

/// A time of zero leaves the kernel's value here.
impl DefaultTo for Conntrack {
    fn default_to(&mut self, _: Self) {}
}

group! {
    /// The whole file.
    KubeProxyConfiguration {
        /// Always `kubeproxy.config.k8s.io/v1alpha1`.
        api_version: String = API_VERSION.into(),
        /// Always `KubeProxyConfiguration`.
        kind: String = KIND.into(),
        /// Features of kube-proxy that are switched on or off.
        feature_gates: BTreeMap<String, bool> = BTreeMap::new(),
        /// How the API server is reached.
        client_connection: ClientConnection = ClientConnection::default(),
        /// What is logged, and how.
        logging: Logging = Logging::default(),
        /// The name of the node; empty for the host's name.
        hostname_override: String = String::new(),
        /// The node's primary address, in the place of the Node's own; 0.0.0.0 and :: stand for none.
        bind_address: String = "0.0.0.0".into(),
        /// Where health is told.
        healthz_bind_address: String = "0.0.0.0:10256".into(),
        /// Where metrics are told.
        metrics_bind_address: String = "127.0.0.1:10249".into(),
        /// Whether an address that cannot be bound is fatal.
        bind_address_hard_fail: bool = false,
        /// Whether the metrics server has profiling handlers.
        enable_profiling: bool = false,
        /// Show metrics that this release hid.
        show_hidden_metrics_for_version: String = String::new(),
        /// Which sort of rules is made; empty for kube-proxy's default, which is iptables.
        mode: String = String::new(),
        /// For the mode iptables.
        iptables: Iptables = Iptables::default(),
        /// For the mode ipvs.
        ipvs: Ipvs = Ipvs::default(),
        /// For the mode nftables.
        nftables: Nftables = Nftables::default(),
        /// For Windows.
        winkernel: Winkernel = Winkernel::default(),
        /// How pods' traffic is told from other traffic (row E12).
        detect_local_mode: String = "ClusterCIDR".into(),
        /// What the mode needs.
        detect_local: DetectLocalFields = DetectLocalFields::default(),
        /// Prefixes of pods, at most one of a family, with a comma between them.
        #[serde(rename = "clusterCIDR")]
        cluster_cidr: String = String::new(),
        /// Where node ports are served (rows F1–F3).
        node_port_addresses: Vec<String> = vec!["primary".into()],
        /// The process's `oom_score_adj`.
        oom_score_adj: i32 = -999,
        /// What is set in the kernel's connection tracking.
        conntrack: Conntrack = Conntrack::default(),
        /// How often everything is read anew from the API server (row J2).
        config_sync_period: GoDuration = GoDuration::seconds(15 * 60),
        /// Nothing any more.
        port_range: String = String::new(),
        /// For Windows.
        windows_run_as_service: bool = false,
    }
}

group! {
    /// `clientConnection`.
    ClientConnection {
        /// The path of a kubeconfig file.
        kubeconfig: String = String::new(),
        /// What is accepted from the API server.
        accept_content_types: String = String::new(),
        /// What is sent to it.
        content_type: String = "application/vnd.kubernetes.protobuf".into(),
        /// Requests per second, on average.
        qps: f32 = 5.0,
        /// Requests at once.
        burst: u32 = 10,
    }
}

group! {
    /// `logging`.
    Logging {
        /// `text` or `json`.
        format: String = "text".into(),
        /// How often the log is flushed.
        flush_frequency: GoDuration = GoDuration::seconds(5),
        /// How much is logged.
        verbosity: i32 = 0,
        /// The same for single files of the sources.
        vmodule: Vec<VModule> = Vec::new(),
        /// More for each format.
        options: LogOptions = LogOptions::default(),
    }
}

/// An entry of `logging.vmodule`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VModule {
    /// A file name, without its ending.
    pub file_pattern: String,
    /// How much of it is logged.
    pub verbosity: i32,
}

group! {
    /// `logging.options`.
    LogOptions {
        /// For the format `text`.
        text: LogRouting = LogRouting::default(),
        /// For the format `json`.
        json: LogRouting = LogRouting::default(),
    }
}

group! {
    /// `logging.options.text` and `logging.options.json`.
    LogRouting {
        /// Whether errors go to standard error and the rest to standard output.
        split_stream: bool = false,
        /// How much of the rest is held back.
        #[serde(deserialize_with = "quantity")]
        info_buffer_size: String = "0".into(),
    }
}

/// A quantity is a number or a text such as `64Ki`.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Quantity {
        Number(u64),
        Text(String),
    }
    Ok(match Quantity::deserialize(deserializer)? {
        Quantity::Number(number) => number.to_string(),
        Quantity::Text(text) => text,
    })
}

group! {
    /// `iptables`.
    Iptables {
        /// The bit of the mark, 0 to 31.
        masquerade_bit: i32 = 14,
        /// Whether all ClusterIP traffic is masqueraded.
        masquerade_all: bool = false,
        /// Whether node ports are served on 127.0.0.1.
        localhost_node_ports: bool = true,
        /// Whether masquerading takes the node's InternalIP.
        #[serde(rename = "snatNodeInternalIP")]
        snat_node_internal_ip: bool = false,
        /// The time between repairs.
        sync_period: GoDuration = GoDuration::seconds(30),
        /// The shortest time between two changes.
        min_sync_period: GoDuration = GoDuration::seconds(1),
    }
}

group! {
    /// `ipvs`.
    Ipvs {
        /// The time between repairs.
        sync_period: GoDuration = GoDuration::seconds(30),
        /// The shortest time between two changes.
        min_sync_period: GoDuration = GoDuration::seconds(1),
        /// The scheduler; empty for `rr`.
        scheduler: String = String::new(),
        /// Virtual servers in these prefixes are somebody else's.
        #[serde(rename = "excludeCIDRs")]
        exclude_cidrs: Vec<String> = Vec::new(),
        /// Whether ARP answers are kept to the addresses of the interface.
        #[serde(rename = "strictARP")]
        strict_arp: bool = false,
        /// For idle TCP sessions; 0 leaves the kernel's value.
        tcp_timeout: GoDuration = GoDuration::seconds(0),
        /// For TCP sessions after a FIN.
        tcp_fin_timeout: GoDuration = GoDuration::seconds(0),
        /// For UDP.
        udp_timeout: GoDuration = GoDuration::seconds(0),
    }
}

group! {
    /// `nftables`.
    Nftables {
        /// The bit of the mark, 0 to 31 (row E9).
        masquerade_bit: i32 = 14,
        /// Whether all ClusterIP traffic is masqueraded (row E4).
        masquerade_all: bool = false,
        /// The time between repairs.
        sync_period: GoDuration = GoDuration::seconds(30),
        /// The shortest time between two changes.
        min_sync_period: GoDuration = GoDuration::seconds(1),
    }
}

group! {
    /// `winkernel`, of no meaning on Linux.
    Winkernel {
        /// The HNS network.
        network_name: String = String::new(),
        /// The source address for load balancing.
        source_vip: String = String::new(),
        /// Direct server return.
        #[serde(rename = "enableDSR")]
        enable_dsr: bool = false,
        /// The HNS endpoint of the host.
        root_hns_endpoint_name: String = String::new(),
        /// Whether health checks are forwarded.
        forward_health_check_vip: bool = false,
    }
}

group! {
    /// `detectLocal`.
    DetectLocalFields {
        /// For the mode BridgeInterface.
        bridge_interface: String = String::new(),
        /// For the mode InterfaceNamePrefix.
        interface_name_prefix: String = String::new(),
    }
}

group! {
    /// `conntrack`.
    Conntrack {
        /// Connections per processor; 0 leaves the limit alone.
        max_per_core: i32 = 32 * 1024,
        /// Connections at least.
        min: i32 = 128 * 1024,
        /// For idle TCP connections; 0 leaves the kernel's value.
        tcp_established_timeout: GoDuration = GoDuration::seconds(24 * 3600),
        /// For TCP connections that the other end closed.
        tcp_close_wait_timeout: GoDuration = GoDuration::seconds(3600),
        /// Whether TCP packets out of the window are let through.
        tcp_be_liberal: bool = false,
        /// For UDP without a reply.
        udp_timeout: GoDuration = GoDuration::seconds(0),
        /// For UDP with replies.
        udp_stream_timeout: GoDuration = GoDuration::seconds(0),
    }
}

impl KubeProxyConfiguration {
    /// Reads a file's text, YAML or JSON. As in kube-proxy, a field that there is not, or not any more, is no reason to refuse
    /// the others: it is left out, and so is all but the last of a field that is there more than once. The warnings name them.
    ///
    /// # Errors
    /// A message that names the field, or the line where the text is not YAML.
    pub fn parse(text: &str) -> Result<(KubeProxyConfiguration, Vec<String>), String> {
        let (mut value, mut warnings) = read_yaml(text)?;
        for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match value.get(field) {
                Some(Value::String(found)) if found == wanted => {}
                Some(Value::String(found)) if !found.is_empty() => {
                    return Err(format!("{field}: \"{}\" is not {wanted}", Clipped(found)));
                }
                None | Some(Value::Null | Value::String(_)) => {
                    return Err(format!("{field}: is missing; {wanted} is read"));
                }
                Some(_) => return Err(format!("{field}: is not a string; {wanted} is read")),
            }
        }
        drop_nulls(&mut value);
        let known = serde_json::to_value(KubeProxyConfiguration::default()).expect("a configuration is plain data");
        drop_unknown(&mut value, &known, "", &mut |field| {
            warnings.push(format!("{field}: there is no such field of {KIND}; it is left out"));
        });
        let mut configuration: KubeProxyConfiguration =
            serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
                "." => error.inner().to_string(),
                path => format!("{path}: {}", error.inner()),
            })?;
        configuration.apply_defaults();
        Ok((configuration, warnings))
    }

    /// The configuration as a file.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).expect("a configuration is plain maps, lists and scalars")
    }
}

/// The text as plain data, and a warning where a field is there more than once.
fn read_yaml(text: &str) -> Result<(Value, Vec<String>), String> {
    let read = |duplicate_keys| {
        let options =
            serde_saphyr::options! { with_snippet: false, strict_booleans: true, duplicate_keys: duplicate_keys };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| yaml::message(&error))
    };
    read(DuplicateKeyPolicy::Error).map(|value| (value, Vec::new())).or_else(|error| {
        let value = read(DuplicateKeyPolicy::LastWins).map_err(|_| error.clone())?;
        Ok((value, vec![format!("{error}; the last one counts")]))
    })
}

/// Takes null fields away: null means absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Takes away what `known` does not have, and tells its path. What is empty there may hold anything.
fn drop_unknown(value: &mut Value, known: &Value, path: &str, tell: &mut impl FnMut(&str)) {
    let (Value::Object(fields), Value::Object(known)) = (value, known) else { return };
    if known.is_empty() {
        return;
    }
    let path_of = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    fields.retain(|name, _| {
        known.contains_key(name) || {
            tell(&path_of(name));
            false
        }
    });
    fields.iter_mut().for_each(|(name, field)| drop_unknown(field, &known[name], &path_of(name), tell));
}
