//! Reads the text that Prometheus reads, as strictly as it does.

use std::collections::BTreeMap;

/// A metric: its type, and its series by name and labels.
#[derive(Debug, Default)]
pub struct Metric {
    pub kind: String,
    pub help: String,
    pub series: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

/// All metrics by name.
///
/// # Panics
/// When the text is not as it has to be: every series belongs to the metric that was last introduced with its help and
/// its type, no series comes twice, and buckets add up.
pub fn parse(text: &str) -> BTreeMap<String, Metric> {
    assert!(text.ends_with('\n'), "the last line ends");
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            let metric = Metric { help: help.into(), ..Metric::default() };
            assert!(metrics.insert(name.into(), metric).is_none(), "{name} is introduced twice");
            current = name.into();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, current, "help and type belong together");
            metrics.get_mut(name).expect("a help text first").kind = kind.into();
        } else {
            let (name, labels, value) = series(line);
            let metric = metrics.get_mut(&current).expect("an introduction first");
            let suffixes: &[&str] = if metric.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.iter().any(|suffix| name == format!("{current}{suffix}")), "{line} among {current}");
            assert!(metric.series.insert((name, labels), value).is_none(), "{line} comes twice");
        }
    }
    metrics.iter().filter(|(_, metric)| metric.kind == "histogram").for_each(|(name, metric)| check(name, metric));
    metrics
}

fn series(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value = value.parse().unwrap_or_else(|_| panic!("{line}: no number"));
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("an end of the labels")),
        None => (series, ""),
    };
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name:?}");
    let label = |text: &str| {
        let (name, value) = text.split_once('=').expect("a label's value");
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).expect("quotes");
        (name.to_owned(), value.to_owned())
    };
    (name.into(), labels.split(',').filter(|text| !text.is_empty()).map(label).collect(), value)
}

/// Buckets rise, and the last one holds all.
fn check(name: &str, metric: &Metric) {
    let mut by_labels: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for ((series, labels), value) in &metric.series {
        if *series == format!("{name}_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").expect("a bound");
            by_labels.entry(labels).or_default().push((bound.parse().expect("a bound"), *value));
        }
    }
    for (labels, mut buckets) in by_labels {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name}{labels:?}: {buckets:?}");
        let count = metric.series.get(&(format!("{name}_count"), labels.clone()));
        let last = buckets.last().expect("a bucket");
        assert_eq!((last.0, Some(&last.1)), (f64::INFINITY, count), "{name}{labels:?}");
    }
}
