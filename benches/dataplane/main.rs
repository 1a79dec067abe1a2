//! `./dev bench`: one table of what the dataplane costs, from 100 to 100,000 Services.
//!
//! Every row is measured in a process of its own, in a fresh network namespace: `nft -f` of the same ruleset beside
//! svcmap's own load, a connection through a Service beside a direct one. On a shared machine only the ratios mean
//! much; nothing here fails because of the clock.

mod affinity;
mod connections;
mod load;
mod memory;
mod report;
mod walk;

use std::process::{Command, Stdio};

use report::{Row, Size};

/// Services × endpoints each.
const SIZES: [Size; 13] = [
    Size(100, 1),
    Size(100, 10),
    Size(1_000, 1),
    Size(1_000, 10),
    Size(5_000, 1),
    Size(5_000, 10),
    Size(5_000, 50),
    Size(20_000, 1),
    Size(20_000, 10),
    Size(45_000, 1),
    Size(45_000, 10),
    Size(100_000, 1),
    Size(100_000, 10),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.first().map(String::as_str) {
        Some("--row") => {
            let row = measure(Size::parse(&arguments[1])?)?;
            println!("{}", serde_json::to_string(&row)?);
            Ok(())
        }
        Some("--affinity-endpoints") => affinity::measure_endpoints(arguments[1].parse()?),
        Some("--affinity-clients") => affinity::measure_clients(arguments[1].parse()?),
        Some("affinity") => affinity::print(),
        Some("--help" | "-h") => {
            println!("cargo bench --bench dataplane [-- affinity | SERVICESxENDPOINTS …]   (everything without any)");
            Ok(())
        }
        Some(_) => all(&arguments),
        None => all(&arguments).and_then(|()| affinity::print()),
    }
}

fn all(sizes: &[String]) -> anyhow::Result<()> {
    let sizes = match sizes {
        [] => SIZES.to_vec(),
        some => some.iter().map(|text| Size::parse(text)).collect::<anyhow::Result<_>>()?,
    };
    report::print_header(memory::random_read());
    let mut rows = Vec::new();
    for size in sizes {
        let output = Command::new(std::env::current_exe()?)
            .args(["--row", &size.to_string()])
            .stderr(Stdio::inherit())
            .output()?;
        anyhow::ensure!(output.status.success(), "{size}: {}", output.status);
        let row: Row = serde_json::from_slice(&output.stdout)?;
        report::print_row(&row);
        rows.push(row);
    }
    report::print_notes(&rows);
    Ok(())
}

fn measure(size: Size) -> anyhow::Result<Row> {
    svcmap::lab::enter_network()?;
    let mut row = load::measure(size)?;
    connections::measure(size, &mut row)?;
    Ok(row)
}
