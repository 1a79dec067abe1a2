//! What becomes of each field of the configuration: a table. What is acted on needs no words; what is not is told to whoever
//! sets it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::file::KubeProxyConfiguration;
use super::mode::Mode;

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    /// It does what it says.
    Acted,
    /// It does the same where the configuration was written for one of kube-proxy's other modes than nftables; for that one it
    /// is told.
    Carried,
    /// It says what the configuration was written for: told where something else was asked for.
    Written,
    /// It does what it says with `--mode ipvs`, and without nothing: this is why, or what there is instead.
    OfIpvs(&'static str),
    /// The same with `--mode userspace`.
    OfUserspace(&'static str),
    /// It does nothing, and this is why, or what there is instead.
    Told(&'static str),
}

use Treatment::{Acted, Carried, OfIpvs, OfUserspace, Told, Written};

const WINDOWS: Treatment = Told("it is about Windows");
const ONE_STREAM: Treatment = Told("all of the log goes to standard error, line by line");
const NO_IPVS: Treatment = OfIpvs("connections are tracked by conntrack alone, whose times the group conntrack sets");

/// The fields, or groups of them, by the beginnings of their paths; the first that fits counts.
const FIELDS: [(&str, Treatment); 48] = [
    ("apiVersion", Acted),
    ("kind", Acted),
    ("featureGates", Told("kube-proxy's features are not switched here: what is stable or beta in 1.36 is on")),
    ("clientConnection.kubeconfig", Acted),
    ("clientConnection.qps", Acted),
    ("clientConnection.burst", Acted),
    ("clientConnection.acceptContentTypes", Told("JSON is what is spoken with the API server")),
    ("clientConnection.contentType", Told("JSON is what is spoken with the API server")),
    ("logging.format", Acted),
    ("logging.verbosity", Acted),
    ("logging.flushFrequency", ONE_STREAM),
    ("logging.options", ONE_STREAM),
    ("logging.vmodule", Told("--log has levels for single modules")),
    ("hostnameOverride", Acted),
    ("bindAddressHardFail", Acted),
    ("bindAddress", Acted),
    ("healthzBindAddress", Acted),
    ("metricsBindAddress", Acted),
    ("enableProfiling", Told("nothing is profiled over HTTP; perf(1) profiles any program")),
    ("showHiddenMetricsForVersion", Told("no metrics are hidden")),
    ("mode", Written),
    ("iptables.masquerade", Carried),
    ("iptables.syncPeriod", Carried),
    ("iptables.minSyncPeriod", Carried),
    ("iptables.localhostNodePorts", Told("node ports are served on 127.0.0.1 with --localhost-nodeports only")),
    (
        // row E11
        "iptables.snatNodeInternalIP",
        Told("what is masqueraded leaves with the address of the interface that it leaves by"),
    ),
    ("ipvs.syncPeriod", Carried),
    ("ipvs.minSyncPeriod", Carried),
    ("ipvs.scheduler", OfIpvs("endpoints are picked at random, each as often as any other")),
    (
        "ipvs.excludeCIDRs",
        OfIpvs("no virtual servers are made, and of those that there are only kube-proxy's are removed"),
    ),
    ("ipvs.strictARP", OfIpvs("Services' addresses are on no interface, so nothing answers ARP for them")),
    ("ipvs.tcpTimeout", NO_IPVS),
    ("ipvs.tcpFinTimeout", NO_IPVS),
    ("ipvs.udpTimeout", NO_IPVS),
    ("nftables.masqueradeBit", Acted),
    ("nftables.masqueradeAll", Acted),
    ("nftables.syncPeriod", Acted),
    ("nftables.minSyncPeriod", Acted),
    ("winkernel", WINDOWS),
    ("windowsRunAsService", WINDOWS),
    ("detectLocalMode", Acted),
    ("detectLocal", Acted),
    ("clusterCIDR", Acted),
    ("nodePortAddresses", Acted),
    ("oomScoreAdj", Acted),
    ("conntrack", Acted),
    ("configSyncPeriod", Told("the API server is watched; what it says is not asked for again by the clock")),
    ("portRange", OfUserspace("no ports are opened for Services")),
];

/// A warning for each field that is not at its default and does not do what it says where rules are made for this mode. The
/// configuration's own mode is still the one that it was written for.
pub fn warnings(configuration: &KubeProxyConfiguration, mode: Mode) -> Vec<String> {
    let changed = changed(configuration, &KubeProxyConfiguration::default());
    changed.iter().filter_map(|field| warning(field, configuration, mode)).collect()
}

/// The paths of the fields in which two configurations differ.
pub fn changed(new: &KubeProxyConfiguration, old: &KubeProxyConfiguration) -> Vec<String> {
    let value = |configuration| serde_json::to_value(configuration).expect("a configuration is plain data");
    let mut changed = BTreeSet::new();
    collect_changes(&value(new), &value(old), String::new(), &mut changed);
    changed.into_iter().collect()
}

fn warning(field: &str, configuration: &KubeProxyConfiguration, mode: Mode) -> Option<String> {
    match treatment(field) {
        Acted => None,
        Carried if !is_for(Mode::Nftables, configuration) => None,
        Carried => {
            Some(format!("{field} is set, and has no effect where mode is nftables; that has the group nftables"))
        }
        Written if is_for(mode, configuration) => None,
        Written => Some(format!(
            "mode: {} does not count, since the rules of {} were asked for",
            configuration.mode,
            mode.name()
        )),
        OfIpvs(_) if mode == Mode::Ipvs => None,
        OfIpvs(what) => Some(format!("{field} is set, and has no effect without --mode ipvs: {what}")),
        OfUserspace(_) if mode == Mode::Userspace => None,
        OfUserspace(what) => Some(format!("{field} is set, and has no effect without --mode userspace: {what}")),
        Told(what) => Some(format!("{field} is set, and has no effect: {what}")),
    }
}

fn is_for(mode: Mode, configuration: &KubeProxyConfiguration) -> bool {
    configuration.mode == mode.name()
}

fn treatment(field: &str) -> Treatment {
    let found = FIELDS.iter().find(|(beginning, _)| field.starts_with(beginning));
    found.map(|(_, treatment)| *treatment).expect("the table has all fields")
}

/// A configuration for one of kube-proxy's other modes says in their groups what all modes have in common: takes it into the
/// group nftables, where that says nothing itself.
pub fn carry_over(configuration: &mut KubeProxyConfiguration) {
    if is_for(Mode::Nftables, configuration) {
        return;
    }
    let unset = KubeProxyConfiguration::default().nftables;
    let (iptables, ipvs) = (&configuration.iptables, &configuration.ipvs);
    let (period, shortest) = match configuration.mode.as_str() {
        "ipvs" => (ipvs.sync_period, ipvs.min_sync_period),
        _ => (iptables.sync_period, iptables.min_sync_period),
    };
    let nftables = &mut configuration.nftables;
    take(&mut nftables.masquerade_bit, &unset.masquerade_bit, iptables.masquerade_bit);
    take(&mut nftables.masquerade_all, &unset.masquerade_all, iptables.masquerade_all);
    take(&mut nftables.sync_period, &unset.sync_period, period);
    take(&mut nftables.min_sync_period, &unset.min_sync_period, shortest);
}

fn take<T: PartialEq>(field: &mut T, unset: &T, value: T) {
    if field == unset {
        *field = value;
    }
}

/// The paths of the fields that differ.
fn collect_changes(value: &Value, default: &Value, path: String, changed: &mut BTreeSet<String>) {
    match (value, default) {
        (Value::Object(fields), Value::Object(defaults)) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_changes(field, defaults.get(name).unwrap_or(&Value::Null), path, changed);
            }
        }
        _ if value != default => {
            changed.insert(path);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All fields, and no more than there are.
    #[test]
    fn the_table_has_every_field() {
        let fields = leaves(&serde_json::to_value(KubeProxyConfiguration::default()).unwrap(), String::new());
        assert!(fields.len() > 60, "{fields:?}");
        fields.iter().for_each(|field| drop(format!("{:?}", treatment(field))));
        for (beginning, _) in FIELDS {
            assert!(fields.iter().any(|field| field.starts_with(beginning)), "{beginning} is no field");
        }
    }

    fn leaves(value: &Value, path: String) -> Vec<String> {
        let Value::Object(fields) = value else { return vec![path] };
        if fields.is_empty() {
            return vec![path];
        }
        let join = |name: &String| if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        fields.iter().flat_map(|(name, field)| leaves(field, join(name))).collect()
    }
}
