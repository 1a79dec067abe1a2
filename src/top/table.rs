//! Readings as a table: pure.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::reading::{Port, Reading};
use crate::plan::PortName;

/// What the rows are sorted by. Those that are equal are sorted by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// New connections per second, the most first.
    #[default]
    Rate,
    /// All connections, the most first.
    Total,
    /// Endpoints, the fewest first: where none are left stands at the top.
    Endpoints,
    /// Name.
    Name,
}

impl Sort {
    /// The next one, in a circle.
    pub fn next(self) -> Sort {
        match self {
            Sort::Rate => Sort::Total,
            Sort::Total => Sort::Endpoints,
            Sort::Endpoints => Sort::Name,
            Sort::Name => Sort::Rate,
        }
    }
}

/// One Service port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `namespace/name:port`.
    pub service: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// How many addresses and node ports lead to it.
    pub frontends: usize,
    /// How many endpoints it has.
    pub endpoints: Endpoints,
    /// New connections per second between the two readings; none without two, or without counters.
    pub connections_per_second: Option<f64>,
    /// All new connections since they are counted; none without counters.
    pub connections: Option<u64>,
    /// How long ago it was seen to change; none where it was not.
    pub changed_seconds_ago: Option<u64>,
}

/// Endpoints by family; none in a family that the Service does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoints {
    /// Those of IPv4.
    pub ipv4: Option<usize>,
    /// Those of IPv6.
    pub ipv6: Option<usize>,
}

impl Endpoints {
    /// One number where the families agree, else that of IPv4 and that of IPv6.
    pub fn text(self) -> String {
        match (self.ipv4, self.ipv6) {
            (Some(v4), Some(v6)) if v4 != v6 => format!("{v4}/{v6}"),
            (one, other) => one.or(other).unwrap_or_default().to_string(),
        }
    }

    fn fewest(self) -> usize {
        self.ipv4.into_iter().chain(self.ipv6).min().unwrap_or_default()
    }
}

/// All Service ports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The rows, sorted.
    pub services: Vec<Row>,
    /// Whether connections are counted.
    pub counters: bool,
    /// Whether there is a table of svcmap at all.
    #[serde(skip)]
    pub has_table: bool,
}

impl Table {
    /// The table of a reading; rates come from an earlier one.
    pub fn new(now: &Reading, earlier: Option<&Reading>, sort: Sort) -> Table {
        let earlier = earlier.map(|earlier| (now.at.saturating_duration_since(earlier.at), earlier));
        let row = |(name, port): (&PortName, &Port)| Row {
            service: name.to_string(),
            protocol: port.protocol.to_string(),
            frontends: port.frontends,
            endpoints: Endpoints { ipv4: port.endpoints[0], ipv6: port.endpoints[1] },
            connections_per_second: earlier.and_then(|(between, earlier)| rate(name, port, earlier, between)),
            connections: port.connections,
            changed_seconds_ago: port.changed.map(|at| now.at.saturating_duration_since(at).as_secs()),
        };
        let services: Vec<Row> = now.ports.iter().map(row).collect();
        let counters = services.is_empty() || services.iter().any(|row| row.connections.is_some());
        let mut table = Table { services, counters, has_table: now.has_table };
        table.sort(sort);
        table
    }

    /// Sorts the rows.
    pub fn sort(&mut self, sort: Sort) {
        let rows = &mut self.services;
        rows.sort_by(|a, b| a.service.cmp(&b.service));
        match sort {
            Sort::Rate => rows.sort_by(|a, b| {
                let rate = |row: &Row| row.connections_per_second.unwrap_or_default();
                rate(b).total_cmp(&rate(a))
            }),
            Sort::Total => rows.sort_by_key(|row| Reverse(row.connections)),
            Sort::Endpoints => rows.sort_by_key(|row| row.endpoints.fewest()),
            Sort::Name => {}
        }
    }

    /// What somebody who looks at it should know first.
    pub fn note(&self) -> Option<&'static str> {
        match self {
            Table { has_table: false, .. } => {
                Some("there is no table of this version of svcmap in this network namespace")
            }
            Table { counters: false, .. } => Some("connections are not counted: give svcmap run or apply --counters"),
            _ => None,
        }
    }

    /// New connections per second of all Services together.
    pub fn rate(&self) -> f64 {
        self.services.iter().filter_map(|row| row.connections_per_second).sum()
    }
}

/// The columns.
pub const HEADER: [&str; 7] = ["SERVICE", "PROTO", "FRONTENDS", "ENDPOINTS", "CONN/S", "TOTAL", "CHANGED"];

impl Row {
    /// What stands in the columns.
    pub fn cells(&self) -> [String; 7] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        [
            self.service.clone(),
            self.protocol.clone(),
            self.frontends.to_string(),
            self.endpoints.text(),
            or_dash(self.connections_per_second.map(|rate| format!("{rate:.1}"))),
            or_dash(self.connections.map(|count| count.to_string())),
            or_dash(self.changed_seconds_ago.map(ago)),
        ]
    }
}

/// How wide the columns have to be.
pub fn widths(rows: &[[String; 7]]) -> [usize; 7] {
    let mut widths = HEADER.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// The table as text, a line per Service port, without the column of changes: one look sees none.
pub fn text(table: &Table) -> String {
    const COLUMNS: usize = HEADER.len() - 1;
    let rows: Vec<_> = table.services.iter().map(Row::cells).collect();
    let widths = widths(&rows);
    let mut text = String::new();
    let mut line = |cells: &[&str]| {
        let mut line = String::new();
        for (index, (cell, width)) in cells.iter().zip(widths).take(COLUMNS).enumerate() {
            let _ = if is_number(index) { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(&HEADER);
    rows.iter().for_each(|row| line(&row.each_ref().map(String::as_str)));
    text
}

/// Whether a column stands to the right.
pub fn is_number(column: usize) -> bool {
    column >= 2
}

/// A Service port that is new began at zero; one whose counters were made again has counted nothing.
fn rate(name: &PortName, port: &Port, earlier: &Reading, between: Duration) -> Option<f64> {
    let now = port.connections?;
    let before = earlier.ports.get(name).and_then(|port| port.connections).unwrap_or_default();
    let seconds = between.as_secs_f64();
    (seconds > 0.0).then(|| now.saturating_sub(before) as f64 / seconds)
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Instant;

    use super::*;
    use crate::objects::Protocol;

    /// Readings of three Service ports, two seconds apart.
    pub fn readings() -> [Reading; 2] {
        let at = Instant::now();
        let port = |endpoints, connections, changed| Port {
            protocol: Protocol::Tcp,
            frontends: 3,
            endpoints,
            connections,
            changed,
        };
        let of = |at, counts: [Option<u64>; 3], changed| {
            let ports = [
                ("default/api:http", port([Some(2), Some(2)], counts[0], None)),
                ("default/empty", port([Some(0), None], counts[1], None)),
                ("default/web:https", port([Some(12), Some(7)], counts[2], changed)),
            ];
            let ports = ports.map(|(name, port)| (PortName::parse(name), port)).into();
            Reading { at, has_table: true, ports }
        };
        let later = at + Duration::from_secs(2);
        [
            of(at, [Some(100), Some(0), Some(5)], None),
            of(later + Duration::from_secs(75), [Some(100), Some(0), Some(9)], Some(later)),
        ]
    }

    fn order(sort: Sort) -> Vec<String> {
        let [earlier, now] = readings();
        Table::new(&now, Some(&earlier), sort).services.into_iter().map(|row| row.service).collect()
    }

    #[test]
    fn rows_are_sorted_as_asked() {
        let (api, empty, web) = ("default/api:http", "default/empty", "default/web:https");
        assert_eq!(order(Sort::Rate), [web, api, empty]);
        assert_eq!(order(Sort::Total), [api, web, empty]);
        assert_eq!(order(Sort::Endpoints), [empty, api, web]);
        assert_eq!(order(Sort::Name), [api, empty, web]);
        let circle = (0..4).fold(Sort::Rate, |sort, _| sort.next());
        assert_eq!(circle, Sort::Rate);
    }

    #[test]
    fn the_text_has_a_line_for_each() {
        let [earlier, mut now] = readings();
        now.at = earlier.at + Duration::from_secs(2);
        let table = Table::new(&now, Some(&earlier), Sort::Rate);
        assert_eq!(
            text(&table),
            "SERVICE            PROTO  FRONTENDS  ENDPOINTS  CONN/S  TOTAL\n\
             default/web:https  tcp            3       12/7     2.0      9\n\
             default/api:http   tcp            3          2     0.0    100\n\
             default/empty      tcp            3          0     0.0      0\n"
        );
        assert!((table.rate() - 2.0).abs() < 1e-9);
        assert_eq!(table.note(), None);
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let [_, mut now] = readings();
        let once = Table::new(&now, None, Sort::Rate);
        assert_eq!(once.services[0].cells()[4..6], ["-".to_string(), "100".into()], "one reading tells no rate");
        now.ports.values_mut().for_each(|port| port.connections = None);
        let table = Table::new(&now, Some(&now), Sort::Total);
        assert!(table.services.iter().all(|row| row.cells()[4..6] == ["-".to_string(), "-".into()]));
        assert!(table.note().is_some_and(|note| note.contains("--counters")), "{:?}", table.note());
        now.ports.clear();
        now.has_table = false;
        assert!(Table::new(&now, None, Sort::Total).note().is_some_and(|note| note.contains("no table")));
    }

    #[test]
    fn counters_that_begin_again_give_no_negative_rate() {
        let [mut earlier, now] = readings();
        earlier.ports.values_mut().for_each(|port| port.connections = port.connections.map(|count| count + 1000));
        let table = Table::new(&now, Some(&earlier), Sort::Rate);
        assert!(table.services.iter().all(|row| row.connections_per_second == Some(0.0)));
    }
}
