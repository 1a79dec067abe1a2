//! Who is told what about health: pure rules (behaviour rows I2, I4, I5, I9, I10).

use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::http::{Answer, JSON};
use super::observer::Status;
use crate::objects::ServiceKey;

/// How a load balancer weighs nodes: by the number of their endpoints (row I4).
const WEIGHT: &str = "x-load-balancing-endpoint-weight";

/// How far the proxy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since when a change has been waiting to be programmed, where one has.
    pub pending: Option<Instant>,
    /// When the last sync succeeded, where one has.
    pub updated: Option<SystemTime>,
    /// Whether the own Node is about to go.
    pub node_leaving: bool,
    /// Whether somebody has changed what is programmed, and it has not been put right yet.
    pub damaged: bool,
}

/// Whether no change has been waiting longer than `patience` (row I9). A proxy that has not been told anything yet is
/// well.
pub fn is_current(progress: &Progress, now: Instant, patience: Duration) -> bool {
    progress.pending.is_none_or(|since| now.saturating_duration_since(since) < patience)
}

/// What `/healthz` answers, and `/livez` where the node does not count (row I10), in the form of kube-proxy 1.36. While all is
/// well, what is told as the last update is the present: nothing was left to do. One sync programs both families, so both
/// are as well as each other. While rules are not what they should be the node is not fit for traffic; the proxy
/// is, and to begin it anew would not help.
pub fn proxy_answer(progress: &Progress, is_current: bool, node_counts: bool, now: SystemTime) -> Answer {
    let is_well = is_current && !(node_counts && (progress.node_leaving || progress.damaged));
    let updated = if is_well { Some(now) } else { progress.updated };
    let mut body = json!({"lastUpdated": go_time(updated), "currentTime": go_time(Some(now)), "healthy": is_current});
    if node_counts {
        body["nodeEligible"] = (!progress.node_leaving).into();
    }
    for family in ["IPv4", "IPv6"] {
        body["status"][family] = json!({"lastUpdated": go_time(progress.updated), "healthy": is_current});
    }
    Answer::new(status(is_well), JSON, body.to_string())
}

/// What the health check of a Service answers on a node with so many ready endpoints (rows I2–I5).
pub fn check_answer(service: &ServiceKey, ready: usize, proxy_is_current: bool) -> Answer {
    let text = |text: &str| Value::from(text).to_string();
    let (namespace, name) = (text(&service.namespace), text(&service.name));
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace},\n\t\t\"name\": {name}\n\t}},\n\
         \t\"localEndpoints\": {ready},\n\t\"serviceProxyHealthy\": {proxy_is_current}\n}}"
    );
    Answer::new(status(ready != 0 && proxy_is_current), JSON, body).with_header(WEIGHT, ready)
}

fn status(is_well: bool) -> u16 {
    if is_well { 200 } else { 503 }
}

/// A time as Go writes it in JSON; the year 1 for never.
fn go_time(time: Option<SystemTime>) -> String {
    let time = time.and_then(|time| Timestamp::try_from(time).ok());
    time.map_or_else(|| "0001-01-01T00:00:00Z".into(), |time| time.to_string())
}

/// Looks at how the proxy is, now.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    status: watch::Receiver<Status>,
    patience: Duration,
}

impl Reader {
    pub fn new(status: watch::Receiver<Status>, patience: Duration) -> Reader {
        Reader { status, patience }
    }

    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub fn progress(&self) -> Progress {
        self.status.borrow().progress
    }

    pub fn is_current(&self, progress: &Progress) -> bool {
        is_current(progress, Instant::now(), self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn answer(progress: &Progress, waited: Duration, node_counts: bool) -> Answer {
        let now = progress.pending.map_or_else(Instant::now, |since| since + waited);
        let current = is_current(progress, now, PATIENCE);
        proxy_answer(progress, current, node_counts, SystemTime::UNIX_EPOCH + Duration::from_millis(86_400_500))
    }

    /// Cases H07–H10: what is pending since when, whether the node leaves, and the status of `/healthz` and `/livez`.
    #[test]
    fn the_proxy_is_well_as_long_as_nothing_waits_for_long() {
        let waiting = |seconds| Some(Duration::from_secs(seconds));
        for (case, waited, leaving, healthz, livez) in [
            ("nothing was ever told", None, false, 200, 200),
            ("H07, H09: the node is about to go", None, true, 503, 200),
            ("H10: a change has just come", waiting(0), false, 200, 200),
            ("H10: a change has waited for nearly two periods", waiting(59), false, 200, 200),
            ("H10: a change has waited for two periods", waiting(60), false, 503, 503),
            ("H10: a change has waited for long", waiting(3600), false, 503, 503),
            ("both", waiting(61), true, 503, 503),
        ] {
            let pending = waited.map(|_| Instant::now());
            let updated = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(5));
            let progress = Progress { pending, updated, node_leaving: leaving, damaged: false };
            let waited = waited.unwrap_or_default();
            let (ready, live) = (answer(&progress, waited, true), answer(&progress, waited, false));
            assert_eq!((ready.status, live.status), (healthz, livez), "{case}");
            let updated = if healthz == 200 { "1970-01-02T00:00:00.5Z" } else { "1970-01-01T00:00:05Z" };
            let of_family = json!({"lastUpdated": "1970-01-01T00:00:05Z", "healthy": livez == 200});
            assert_eq!(
                serde_json::from_str::<Value>(&ready.body).unwrap(),
                json!({"lastUpdated": updated, "currentTime": "1970-01-02T00:00:00.5Z", "nodeEligible": !leaving,
                    "healthy": livez == 200, "status": {"IPv4": of_family, "IPv6": of_family}}),
                "{case}"
            );
            assert!(!live.body.contains("nodeEligible"), "{case}: {}", live.body);
            serde_json::from_str::<Value>(&live.body).unwrap();
        }
    }

    /// Nor does it help the proxy to be begun anew.
    #[test]
    fn a_node_whose_rules_are_damaged_is_not_fit_for_traffic() {
        let progress = Progress { damaged: true, ..Progress::default() };
        let [healthz, livez] = [true, false].map(|node_counts| answer(&progress, Duration::ZERO, node_counts).status);
        assert_eq!((healthz, livez), (503, 200));
    }

    /// Cases H01–H03.
    #[test]
    fn a_service_is_well_where_it_has_endpoints_and_the_proxy_is() {
        for (ready, current, status) in
            [(0, true, 503), (1, true, 200), (18, true, 200), (18, false, 503), (0, false, 503)]
        {
            let answer = check_answer(&ServiceKey::new("default", "web"), ready, current);
            assert_eq!(answer.status, status, "{ready} {current}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(answer.header(WEIGHT), Some(ready.to_string().as_str()));
            assert_eq!(
                answer.body,
                format!(
                    "{{\n\t\"service\": {{\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t}},\n\
                     \t\"localEndpoints\": {ready},\n\t\"serviceProxyHealthy\": {current}\n}}"
                )
            );
        }
    }
}
