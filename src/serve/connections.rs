//! New connections by Service port, as the kernel counts them with `--counters`: a metric of which the number of series is
//! bounded.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex};

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tracing::warn;

use super::metrics::text;
use crate::netlink::{CodecKind, Connection, ReadError};
use crate::nftables::counts;
use crate::plan::PortName;

/// Reads the kernel's counters when it is asked. Clones share what they know.
#[derive(Clone)]
pub struct Connections(Arc<Mutex<Reader>>);

struct Reader {
    connection: Option<Connection>,
    series: Series,
}

impl Connections {
    /// With so many Service ports that have series of their own.
    pub fn new(most: usize) -> Connections {
        Connections(Arc::new(Mutex::new(Reader { connection: None, series: Series::new(most) })))
    }

    /// The counts in Prometheus's text format. It takes as long as the kernel takes to list them: to be called
    /// where nobody waits for anything else.
    pub fn text(&self) -> String {
        let mut reader = self.0.lock().expect("nothing panics with it");
        match reader.read() {
            Ok(counts) => reader.series.update(&counts),
            Err(error) => {
                warn!("the counters of connections cannot be read: {error}");
                reader.connection = None;
            }
        }
        text(&reader.series.registry)
    }
}

impl Reader {
    fn read(&mut self) -> Result<HashMap<PortName, u64>, ReadError> {
        let open = || Connection::open(CodecKind::default());
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(open().map_err(|error: io::Error| ReadError::from(error))?),
        };
        counts::read(connection)
    }
}

/// What is told. A Service port has series of its own from its first connection on, while there is room; what the others count
/// is told together. The room of one that is gone goes to the next that counts.
struct Series {
    registry: Registry,
    by_port: IntCounterVec,
    others: IntCounter,
    most: usize,
    shown: HashSet<PortName>,
    /// What was read last.
    last: HashMap<PortName, u64>,
}

impl Series {
    fn new(most: usize) -> Series {
        let registry = Registry::new();
        let by_port = IntCounterVec::new(
            Opts::new("svcmap_service_connections_total", "New connections to a Service port"),
            &["namespace", "service", "port"],
        )
        .expect("names and labels are well formed");
        let others = IntCounter::new(
            "svcmap_other_service_connections_total",
            "New connections to Service ports that have no series of their own",
        )
        .expect("the name is well formed");
        registry.register(Box::new(by_port.clone())).expect("each name is used once");
        registry.register(Box::new(others.clone())).expect("each name is used once");
        Series { registry, by_port, others, most, shown: HashSet::new(), last: HashMap::new() }
    }

    fn update(&mut self, counts: &HashMap<PortName, u64>) {
        let gone: Vec<PortName> = self.shown.iter().filter(|name| !counts.contains_key(*name)).cloned().collect();
        for name in gone {
            // it is there: it was made when the port was shown
            let _ = self.by_port.remove_label_values(&labels(&name));
            self.shown.remove(&name);
        }
        let mut busy: Vec<(&PortName, u64)> =
            counts.iter().filter(|(_, count)| **count > 0).map(|(name, count)| (name, *count)).collect();
        // where there is not room for all, the same have it every time
        busy.sort_unstable();
        for (name, count) in busy {
            // counters that are made anew begin at zero
            let before = self.last.get(name).copied().filter(|before| *before <= count).unwrap_or(0);
            let is_shown =
                self.shown.contains(name) || (self.shown.len() < self.most && self.shown.insert(name.clone()));
            if is_shown {
                self.by_port.with_label_values(&labels(name)).inc_by(count - before);
            } else {
                self.others.inc_by(count - before);
            }
        }
        self.last.clone_from(counts);
    }
}

/// Namespace, Service and port of a name; a name that had to be cut is told as far as it goes.
fn labels(name: &PortName) -> [&str; 3] {
    let (service, port) = name.as_str().split_once(':').unwrap_or((name.as_str(), ""));
    let (namespace, service) = service.split_once('/').unwrap_or(("", service));
    [namespace, service, port]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(series: &mut Series, counts: &[(&str, u64)]) -> Vec<String> {
        series.update(&counts.iter().map(|(name, count)| (PortName::parse(name), *count)).collect());
        let text = text(&series.registry);
        let figures = text.lines().filter(|line| !line.starts_with('#'));
        figures.map(|line| line.replace("svcmap_", "").replace("connections_total", "")).collect()
    }

    #[test]
    fn series_are_bounded_and_never_go_back() {
        let mut series = Series::new(2);
        let of = |port: &str, count: u64| format!("service_{{namespace=\"a\",port=\"{port}\",service=\"s\"}} {count}");
        let others = |count: u64| format!("other_service_ {count}");
        assert_eq!(told(&mut series, &[("a/s:x", 0), ("a/s:y", 0)]), [others(0)], "nothing has happened");
        assert_eq!(told(&mut series, &[("a/s:x", 0), ("a/s:y", 3), ("a/s", 1)]), [others(0), of("", 1), of("y", 3)]);
        let counts = [("a/s:x", 5), ("a/s:y", 4), ("a/s", 1)];
        assert_eq!(told(&mut series, &counts), [others(5), of("", 1), of("y", 4)], "there is no room for a third");
        let counts = [("a/s:x", 7), ("a/s:y", 2), ("a/s", 1)];
        assert_eq!(told(&mut series, &counts), [others(7), of("", 1), of("y", 6)], "y counts anew");
        assert_eq!(
            told(&mut series, &[("a/s:x", 8), ("a/s:y", 2)]),
            [others(7), of("x", 1), of("y", 6)],
            "x has its room"
        );
    }
}
