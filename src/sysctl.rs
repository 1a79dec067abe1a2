//! What the daemon sets on the host before it begins: connection tracking (behaviour row H10) and how unlikely it is to
//! be ended when memory runs out (row J14).
//!
//! Whatever cannot be set is only said: hosts whose `/proc/sys` is read-only, or whose kernel lacks a setting, are served
//! all the same.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::{Conntrack, GoDuration, KubeProxyConfiguration};

/// What is written where, below the root of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file.
    pub path: &'static str,
    /// The number.
    pub value: i64,
    /// Whether a larger number that is there already is left alone.
    at_least: bool,
}

/// Something that could not be set.
#[derive(Debug)]
pub struct Trouble {
    path: PathBuf,
    value: i64,
    error: io::Error,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be set to {}: {}", self.path.display(), self.value, self.error)
    }
}

/// The limit that is reached by a number of processors alone: more flows than that take too much memory.
const MOST_SCALED: i64 = 1 << 20;
/// Flows for each bucket of the hash table, when it is full.
const FLOWS_PER_BUCKET: i64 = 4;

const OOM_SCORE_ADJ: &str = "proc/self/oom_score_adj";
const HASH_SIZE: &str = "sys/module/nf_conntrack/parameters/hashsize";

/// What the configuration asks for on a host with so many processors. A zero leaves the kernel's value alone.
pub fn settings(configuration: &KubeProxyConfiguration, processors: usize) -> Vec<Setting> {
    let set = |path, value| Setting { path, value, at_least: false };
    let conntrack = &configuration.conntrack;
    let mut settings = vec![set(OOM_SCORE_ADJ, configuration.oom_score_adj.into())];
    if let Some(most) = most_flows(conntrack, processors) {
        settings.push(set("proc/sys/net/netfilter/nf_conntrack_max", most));
        settings.push(Setting { path: HASH_SIZE, value: most / FLOWS_PER_BUCKET, at_least: true });
    }
    let mut time = |path, time: GoDuration| {
        if !time.is_zero() {
            settings.push(set(path, i64::try_from(time.0.as_secs()).unwrap_or(i64::MAX)));
        }
    };
    time("proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established", conntrack.tcp_established_timeout);
    time("proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait", conntrack.tcp_close_wait_timeout);
    time("proc/sys/net/netfilter/nf_conntrack_udp_timeout", conntrack.udp_timeout);
    time("proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream", conntrack.udp_stream_timeout);
    // in place of a rule that drops what connection tracking takes for invalid (row H9)
    if conntrack.tcp_be_liberal {
        settings.push(set("proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal", 1));
    }
    settings
}

/// How many processors the host has: its own limits are set, not those of the process.
pub fn processors() -> usize {
    let counted = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    counted.and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// How many flows there may be: so many for each processor, within bounds; nothing where the limit is to stay.
fn most_flows(conntrack: &Conntrack, processors: usize) -> Option<i64> {
    let per_processor = i64::from(conntrack.max_per_core);
    let scaled = per_processor.saturating_mul(processors as i64);
    let most = if scaled > MOST_SCALED { MOST_SCALED } else { scaled.max(conntrack.min.into()) };
    (per_processor > 0 && most > 0).then_some(most)
}

/// Writes what differs, below `root`, which is `/` but in tests. Nothing stops the others from being written.
pub fn apply(settings: &[Setting], root: &Path) -> Vec<Trouble> {
    settings.iter().filter_map(|setting| write(setting, root).err()).collect()
}

fn write(setting: &Setting, root: &Path) -> Result<(), Trouble> {
    let path = root.join(setting.path);
    let trouble = |error| Trouble { path: path.clone(), value: setting.value, error };
    let found: Option<i64> = fs::read_to_string(&path).map_err(trouble)?.trim().parse().ok();
    match found {
        Some(value) if value == setting.value || setting.at_least && value > setting.value => Ok(()),
        _ => fs::write(&path, setting.value.to_string()).map_err(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(fields: &str) -> KubeProxyConfiguration {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        KubeProxyConfiguration::parse(&format!("{head}{fields}")).unwrap().0
    }

    /// The last parts of the paths, and the numbers.
    fn listed(fields: &str, processors: usize) -> String {
        let settings = settings(&configuration(fields), processors);
        let name = |setting: &Setting| setting.path.rsplit(['/']).next().unwrap().replace("nf_conntrack_", "");
        settings.iter().map(|setting| format!("{}={}", name(setting), setting.value)).collect::<Vec<_>>().join(" ")
    }

    /// Row H10: what is set by default, and how the limit follows from the number of processors.
    #[test]
    fn limits_follow_the_configuration_and_the_processors() {
        let times = "tcp_timeout_established=86400 tcp_timeout_close_wait=3600";
        for (fields, processors, expected) in [
            ("", 2, format!("oom_score_adj=-999 max=131072 hashsize=32768 {times}")),
            ("", 8, format!("oom_score_adj=-999 max=262144 hashsize=65536 {times}")),
            ("", 256, format!("oom_score_adj=-999 max=1048576 hashsize=262144 {times}")),
            ("oomScoreAdj: 5\nconntrack: {maxPerCore: 0}", 8, format!("oom_score_adj=5 {times}")),
            ("conntrack: {maxPerCore: 1, min: 0}", 3, format!("oom_score_adj=-999 max=3 hashsize=0 {times}")),
            (
                "conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, tcpBeLiberal: true, \
                 udpTimeout: 10s, udpStreamTimeout: 2m}",
                1,
                "oom_score_adj=-999 udp_timeout=10 udp_timeout_stream=120 tcp_be_liberal=1".into(),
            ),
        ] {
            assert_eq!(listed(fields, processors), expected, "{fields:?} on {processors}");
        }
    }

    #[test]
    fn what_differs_is_written_and_what_cannot_be_is_said() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str| root.path().join(path);
        let settings = settings(&configuration(""), 2);
        for (setting, found) in settings.iter().zip(["0\n", "1\n", "262144\n", "86400\n"]) {
            fs::create_dir_all(file(setting.path).parent().unwrap()).unwrap();
            fs::write(file(setting.path), found).unwrap();
        }
        // what is as it should be is not touched: it may be read-only
        let established = file(settings[3].path);
        fs::set_permissions(&established, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
        let troubles = apply(&settings, root.path());
        let texts: Vec<String> = troubles.iter().map(Trouble::to_string).collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].contains("nf_conntrack_tcp_timeout_close_wait cannot be set to 3600: No such file"),
            "{texts:?}"
        );
        let found: Vec<String> = settings[..4].iter().map(|s| fs::read_to_string(file(s.path)).unwrap()).collect();
        assert_eq!(found, ["-999", "131072", "262144\n", "86400\n"], "the larger hash table stays");
    }
}
