//! The live screen.

use std::io;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table as Widget};

use super::table::{self, HEADER};
use super::{Reader, Reading, Row, Sort, Table};
use crate::amounts::counted;
use crate::netlink::ReadError;

/// Why the screen ended before anybody asked for it.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    /// The kernel cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// What the person at the keyboard has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The order of the rows.
    pub sort: Sort,
    /// How many rows are scrolled out at the top.
    pub scrolled: usize,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    View(View),
}

/// How many rows a page scrolls.
const PAGE: usize = 20;

/// Shows the table and reads it again every `interval`, until `q`, Escape or Control-C. The terminal is left as it was.
///
/// # Errors
/// The kernel cannot be read, or the terminal not be used.
pub fn run(reader: &mut Reader, interval: Duration, sort: Sort) -> Result<(), ScreenError> {
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, reader, interval, View { sort, scrolled: 0 });
    ratatui::try_restore()?;
    result
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    reader: &mut Reader,
    interval: Duration,
    mut view: View,
) -> Result<(), ScreenError> {
    let (mut earlier, mut now): (Option<Reading>, Reading) = (None, reader.read()?);
    let mut due = Instant::now() + interval;
    loop {
        let table = Table::new(&now, earlier.as_ref(), view.sort);
        view.scrolled = view.scrolled.min(table.services.len().saturating_sub(1));
        terminal.draw(|frame| draw(frame, &table, view, interval))?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                match wish(key, view) {
                    Wish::Quit => return Ok(()),
                    Wish::View(wanted) => view = wanted,
                }
            }
        } else {
            due = Instant::now() + interval;
            match reader.read() {
                Ok(reading) => earlier = Some(std::mem::replace(&mut now, reading)),
                // the picture stays until the kernel can be read between two changes
                Err(ReadError::Unsteady(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn wish(key: KeyEvent, view: View) -> Wish {
    let scrolled = match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wish::Quit,
        KeyCode::Char('s') => return Wish::View(View { sort: view.sort.next(), scrolled: 0 }),
        KeyCode::Down => view.scrolled.saturating_add(1),
        KeyCode::Up => view.scrolled.saturating_sub(1),
        KeyCode::PageDown => view.scrolled.saturating_add(PAGE),
        KeyCode::PageUp => view.scrolled.saturating_sub(PAGE),
        KeyCode::Home => 0,
        KeyCode::End => usize::MAX,
        _ => view.scrolled,
    };
    Wish::View(View { scrolled, ..view })
}

/// One picture: a line about all, the table, and a line about the keys.
pub fn draw(frame: &mut Frame, table: &Table, view: View, interval: Duration) {
    let [head, note, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    let summary = format!(
        "svcmap top: {}, {:.1} new connections/s, every {}",
        counted(table.services.len(), "Service port"),
        table.rate(),
        crate::config::GoDuration(interval)
    );
    frame.render_widget(Line::from(summary).bold(), head);
    frame.render_widget(Line::from(table.note().unwrap_or_default()).yellow(), note);
    let rows: Vec<[String; 7]> =
        table.services.iter().skip(view.scrolled).take(body.height.into()).map(Row::cells).collect();
    frame.render_widget(widget(&rows, view.sort), body);
    frame.render_widget(Paragraph::new("q quit   s sort   ↑ ↓ PgUp PgDn Home End scroll").dim(), foot);
}

fn widget(rows: &[[String; 7]], sort: Sort) -> Widget<'static> {
    let sorted_by = match sort {
        Sort::Name => 0,
        Sort::Endpoints => 3,
        Sort::Rate => 4,
        Sort::Total => 5,
    };
    let cell = |index: usize, text: &str| {
        let alignment = if table::is_number(index) { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(text.to_owned()).alignment(alignment))
    };
    let header = HEADER.iter().enumerate().map(|(index, name)| {
        let style = if index == sorted_by { Modifier::REVERSED | Modifier::BOLD } else { Modifier::BOLD };
        cell(index, name).style(Style::new().add_modifier(style))
    });
    let lines = rows.iter().map(|row| Cells::new(row.iter().enumerate().map(|(index, text)| cell(index, text))));
    let widths = table::widths(rows).into_iter().enumerate().map(|(index, width)| match index {
        // long names give way to the numbers
        0 => Constraint::Fill(1),
        _ => Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)),
    });
    Widget::new(lines.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(Cells::new(header.collect::<Vec<_>>()))
        .column_spacing(2)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::table::tests::readings;
    use super::*;

    fn picture(table: &Table, view: View, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, table, view, Duration::from_secs(2))).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_picture_shows_what_was_read() {
        let [earlier, mut now] = readings();
        now.at = earlier.at + Duration::from_secs(2);
        now.ports.values_mut().for_each(|port| port.changed = port.changed.map(|_| now.at));
        let table = Table::new(&now, Some(&earlier), Sort::Rate);
        assert_eq!(
            picture(&table, View::default(), (80, 8)),
            [
                "svcmap top: 3 Service ports, 2.0 new connections/s, every 2s",
                "",
                "SERVICE                      PROTO  FRONTENDS  ENDPOINTS  CONN/S  TOTAL  CHANGED",
                "default/web:https            tcp            3       12/7     2.0      9       0s",
                "default/api:http             tcp            3          2     0.0    100        -",
                "default/empty                tcp            3          0     0.0      0        -",
                "",
                "q quit   s sort   ↑ ↓ PgUp PgDn Home End scroll",
            ]
        );
        let scrolled = picture(&table, View { scrolled: 2, ..View::default() }, (80, 8));
        assert!(scrolled[3].starts_with("default/empty") && scrolled[4].is_empty(), "{scrolled:?}");
        // a small window is no reason to end
        picture(&table, View::default(), (3, 1));
    }

    #[test]
    fn a_table_without_counters_is_said() {
        let [_, mut now] = readings();
        now.ports.values_mut().for_each(|port| port.connections = None);
        let table = Table::new(&now, None, Sort::Rate);
        let picture = picture(&table, View::default(), (80, 8));
        assert_eq!(picture[1], table.note().unwrap());
        assert!(picture[1].contains("--counters"), "{picture:?}");
    }

    #[test]
    fn keys_do_what_the_last_line_says() {
        let view = View { sort: Sort::Rate, scrolled: 5 };
        let press = |code| wish(KeyEvent::new(code, KeyModifiers::NONE), view);
        let scrolled = |scrolled| Wish::View(View { scrolled, ..view });
        for (code, wanted) in [
            (KeyCode::Char('q'), Wish::Quit),
            (KeyCode::Esc, Wish::Quit),
            (KeyCode::Char('c'), scrolled(5)),
            (KeyCode::Char('s'), Wish::View(View { sort: Sort::Total, scrolled: 0 })),
            (KeyCode::Down, scrolled(6)),
            (KeyCode::Up, scrolled(4)),
            (KeyCode::PageDown, scrolled(25)),
            (KeyCode::PageUp, scrolled(0)),
            (KeyCode::Home, scrolled(0)),
            (KeyCode::End, scrolled(usize::MAX)),
        ] {
            assert_eq!(press(code), wanted, "{code:?}");
        }
        assert_eq!(wish(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), view), Wish::Quit);
    }
}
