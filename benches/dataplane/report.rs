//! The table.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Services × endpoints each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size(pub usize, pub usize);

impl Size {
    /// Reads `5000x50`.
    pub fn parse(text: &str) -> anyhow::Result<Size> {
        let (services, endpoints) =
            text.split_once('x').ok_or_else(|| anyhow::anyhow!("{text}: expected SERVICESxENDPOINTS"))?;
        Ok(Size(services.parse()?, endpoints.parse()?))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.0, self.1)
    }
}

/// One row; times in seconds, memory in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub size: Size,
    pub elements: usize,
    /// From parsed objects to the plan.
    pub plan: f64,
    /// From the plan to bytes.
    pub encode: f64,
    /// In the kernel.
    pub commit: f64,
    pub longest_commit: f64,
    pub transactions: usize,
    /// From parsed objects to the last commit by the clock, while the next transaction is made beside each commit.
    pub wall: f64,
    /// `nft -f` of the same ruleset; none where nft is missing.
    pub nft: Option<f64>,
    /// One endpoint replaced by another: the kernel's time, and from the event to the commit.
    pub replace: (f64, f64),
    pub add_service: (f64, f64),
    /// What the kernel needs to add a verdict where there is nothing else.
    pub walk: f64,
    pub remove_service: (f64, f64),
    /// A Service that comes to have as many endpoints as no other: the kernel's time.
    pub new_number: f64,
    /// A restart that finds everything in place.
    pub adopt: f64,
    /// The process's peak, after the first load.
    pub rss: u64,
    /// The kernel's memory that the load took.
    pub kernel_memory: i64,
    /// A new connection: direct without any ruleset, direct with it, and to the first, middle and last Service.
    pub bare: f64,
    pub direct: f64,
    pub connections: [f64; 3],
    /// The last three with counters, as multiples of a direct one beside them.
    pub counted: [f64; 3],
}

const HEADER: [&str; 21] = [
    "size",
    "elements",
    "plan",
    "encode",
    "commit",
    "longest",
    "total",
    "clock",
    "nft -f",
    "ratio",
    "replace",
    "add",
    "walk",
    "remove",
    "new number",
    "restart",
    "RSS",
    "kernel",
    "direct",
    "Service first/middle/last",
    "counted",
];

/// Prints what the columns are, and how long a random read of memory takes here.
pub fn print_header(random_read: f64) {
    println!("A random read of memory takes {} here: compare times of different machines by it.", time(random_read));
    println!(
        "plan, encode, commit: processor time of a cold start from parsed objects; total: their sum; clock: the same by"
    );
    println!(
        "the clock, while commits and the making of the next one overlap; longest: the longest single commit by it."
    );
    println!("nft -f: the same ruleset as text; ratio: nft / total. replace, add, remove: the kernel's time for one");
    println!("endpoint replaced, one Service added, one removed (from the event to the commit in brackets), medians.");
    println!(
        "walk: one verdict added to a bare map with as many, which two base chains look up: the kernel's part of add."
    );
    println!(
        "restart: adopting what is there. RSS: peak after the load. kernel: the memory that it takes. direct: a new UDP flow"
    );
    println!(
        "to a pod, without a ruleset; Service: the same through the first, middle, last Service, as a multiple of it"
    );
    println!("(and of a direct one with the ruleset loaded); counted: the latter with --counters.\n");
    println!("| {} |", HEADER.join(" | "));
    println!("|{}", " ---: |".repeat(HEADER.len()));
}

/// Prints one row.
pub fn print_row(row: &Row) {
    let total = row.plan + row.encode + row.commit;
    let pair = |(kernel, whole): (f64, f64)| format!("{} ({})", time(kernel), time(whole));
    let multiples = |base: f64| row.connections.map(|c| format!("{:.2}", c / base)).join("/");
    println!(
        "| {} | {} | {} | {} | {} in {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} MiB | {:.1} MiB | {} | {} ({}) | {} |",
        row.size,
        row.elements,
        time(row.plan),
        time(row.encode),
        time(row.commit),
        row.transactions,
        time(row.longest_commit),
        time(total),
        time(row.wall),
        row.nft.map_or_else(|| "–".into(), time),
        row.nft.map_or_else(|| "–".into(), |nft| format!("{:.1}×", nft / total)),
        pair(row.replace),
        pair(row.add_service),
        time(row.walk),
        pair(row.remove_service),
        time(row.new_number),
        time(row.adopt),
        row.rss as f64 / f64::from(1 << 20),
        row.kernel_memory as f64 / f64::from(1 << 20),
        time(row.bare),
        multiples(row.bare),
        multiples(row.direct),
        row.counted.map(|ratio| format!("{ratio:.2}")).join("/"),
    );
}

/// Prints what follows from the rows together.
pub fn print_notes(rows: &[Row]) {
    let find = |services, endpoints| rows.iter().find(|row| row.size == Size(services, endpoints));
    if let (Some(few), Some(many)) = (find(100_000, 1), find(100_000, 10)) {
        let each = (many.rss.saturating_sub(few.rss)) as f64 / 900_000.0;
        println!("\nMemory of the process per endpoint beyond one per Service: {each:.0} bytes.");
    }
}

/// Seconds as people read them.
pub fn time(seconds: f64) -> String {
    svcmap::amounts::seconds(seconds, 2)
}
