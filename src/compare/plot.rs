//! What was measured, drawn by the number of Services.

use crate::amounts;
use std::ops::Range;

use anyhow::{Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Mode, Row};

const SIZE: (u32, u32) = (1080, 700);
const LEGEND: u32 = 36;
const FONT: &str = "sans-serif";
/// Colours that people who see fewer of them can tell apart, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One of the drawings.
struct Panel {
    title: &'static str,
    value: fn(&Row) -> Option<f64>,
    unit: fn(&f64) -> String,
}

const PANELS: [Panel; 6] = [
    Panel { title: "load everything", value: |row| Some(row.load.processor), unit: seconds },
    Panel {
        title: "replace an endpoint",
        value: |row| row.replace_endpoint.map(|spent| spent.processor),
        unit: seconds,
    },
    Panel { title: "add a Service", value: |row| row.add_service.map(|spent| spent.processor), unit: seconds },
    Panel {
        title: "new connection, last Service",
        value: |row| row.connection.map(|connection| connection.last),
        unit: seconds,
    },
    Panel {
        title: "new connection, no Service",
        value: |row| row.connection.map(|connection| connection.direct),
        unit: seconds,
    },
    Panel { title: "kernel memory", value: |row| Some(row.kernel_memory as f64), unit: bytes },
];

/// An SVG drawing of the processor time of loading, of changes and of connections, and of the kernel's memory. A line for each
/// mode, all scales logarithmic.
///
/// # Errors
/// There is nothing to draw.
pub fn plot(rows: &[Row]) -> Result<String> {
    ensure!(!rows.is_empty(), "nothing was measured that could be drawn");
    let mut modes: Vec<Mode> = Vec::new();
    rows.iter().for_each(|row| {
        if !modes.contains(&row.mode) {
            modes.push(row.mode)
        }
    });
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (drawings, below) = root.split_vertically(SIZE.1 - LEGEND);
        for (area, panel) in drawings.split_evenly((2, 3)).iter().zip(&PANELS) {
            draw(area, panel, rows, &modes)?;
        }
        legend(&below, &modes)?;
        root.present()?;
    }
    Ok(svg)
}

fn draw(area: &Area, panel: &Panel, rows: &[Row], modes: &[Mode]) -> Result<()> {
    let points = |mode: Mode| {
        let of_mode = rows.iter().filter(move |row| row.mode == mode);
        // what is nothing, or less, has no place on a logarithmic scale
        of_mode.filter_map(|row| Some((row.services as f64, (panel.value)(row).filter(|value| *value > 0.0)?)))
    };
    let all: Vec<(f64, f64)> = modes.iter().flat_map(|mode| points(*mode)).collect();
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, (FONT, 15))
        .margin(8)
        .margin_right(16)
        .x_label_area_size(36)
        .y_label_area_size(58)
        .build_cartesian_2d(
            range(all.iter().map(|(services, _)| *services)).log_scale(),
            decades(&range(all.iter().map(|(_, value)| *value))).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("Services")
        .label_style((FONT, 12))
        .light_line_style(TRANSPARENT)
        .x_labels(6)
        .y_labels(8)
        .x_label_formatter(&|services| format!("{services:.0}"))
        .y_label_formatter(&panel.unit)
        .draw()?;
    for (at, mode) in modes.iter().enumerate() {
        chart.draw_series(LineSeries::new(points(*mode), colour(at).stroke_width(2)))?;
        chart.draw_series(points(*mode).map(|point| Circle::new(point, 3, colour(at).filled())))?;
    }
    Ok(())
}

fn legend(area: &Area, modes: &[Mode]) -> Result<()> {
    let width = SIZE.0 as i32 / modes.len().max(1) as i32;
    for (at, mode) in modes.iter().enumerate() {
        let left = at as i32 * width + width / 4;
        area.draw(&Rectangle::new([(left, 10), (left + 24, 15)], colour(at).filled()))?;
        area.draw(&Text::new(mode.name(), (left + 32, 5), (FONT, 14)))?;
    }
    Ok(())
}

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

/// From the least to the most, with room on both sides.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    if least > most { 1.0..10.0 } else { least / 1.25..most * 1.25 }
}

/// The powers of ten around a range: they are what is labelled.
fn decades(range: &Range<f64>) -> Range<f64> {
    10f64.powf(range.start.log10().floor())..10f64.powf(range.end.log10().ceil())
}

fn seconds(value: &f64) -> String {
    amounts::seconds(*value, 0)
}

fn bytes(value: &f64) -> String {
    match *value {
        b if b >= 1e6 => format!("{:.0} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.0} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Spent;

    fn row(mode: Mode, services: usize, seconds: f64) -> Row {
        Row {
            services,
            endpoints: services,
            mode,
            loader: String::new(),
            objects: 1,
            kinds: [("rules", 1)].into(),
            bytes: 1,
            kernel_memory: -1,
            load: Spent { processor: seconds, clock: seconds },
            add_service: None,
            remove_service: None,
            replace_endpoint: None,
            control_plane: None,
            connection: None,
            packet: None,
        }
    }

    /// Also of one size alone, and where some of it was not measured or is nothing that a logarithm can be taken of.
    #[test]
    fn each_mode_has_a_line_in_each_drawing() {
        let rows = [row(Mode::Nftables, 100, 0.001), row(Mode::Nftables, 1000, 0.01), row(Mode::Ipvs, 100, 2.0)];
        let svg = plot(&rows).unwrap();
        for part in ["<svg", "</svg>", "nftables", "ipvs", "load everything", "kernel memory", "1 ms", "1000"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 3, "only loading was measured: {svg}");
        plot(&rows[..1]).unwrap();
        plot(&[]).unwrap_err();
    }
}
