//! Text that others wrote, as it is shown to people.
//!
//! It may hold characters that do something to a terminal or a log instead of being seen: controls, and those that turn
//! the direction of what follows or have no width. They are replaced, so that what is shown is what is there.

use std::fmt::{self, Display, Write};

/// Several lines: line ends and tabs stay.
pub struct Clean<T>(pub T);

/// One line: line ends are replaced as well.
pub struct Line<T>(pub T);

/// One line, cut off where it is too long to be read.
pub struct Clipped<'t>(pub &'t str);

impl<T: Display> Display for Clean<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Filter { out: f, kept: &['\n', '\t'] }, "{}", self.0)
    }
}

impl<T: Display> Display for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Filter { out: f, kept: &[] }, "{}", self.0)
    }
}

impl Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        let end = self.0.char_indices().nth(SHOWN).map(|(end, _)| end);
        let ellipsis = if end.is_some() { "…" } else { "" };
        write!(f, "{}{ellipsis}", Line(&self.0[..end.unwrap_or(self.0.len())]))
    }
}

/// Replaces what is not seen in whatever is written through it.
struct Filter<'f, 'o> {
    out: &'f mut fmt::Formatter<'o>,
    kept: &'static [char],
}

impl Write for Filter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| is_unseen(c) && !self.kept.contains(&c)) {
            self.out.write_str(&rest[..at])?;
            self.out.write_char(char::REPLACEMENT_CHARACTER)?;
            rest = &rest[at + rest[at..].chars().next().map_or(1, char::len_utf8)..];
        }
        self.out.write_str(rest)
    }
}

/// Unicode's control and format characters (Cc, Cf), and its separators of lines and paragraphs (Zl, Zp).
fn is_unseen(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_replaced() {
        let text = "a\u{202e}b\u{1b}[31m\u{200b}\u{2066}\n\té\u{feff}";
        assert_eq!(Clean(text).to_string(), "a\u{fffd}b\u{fffd}[31m\u{fffd}\u{fffd}\n\té\u{fffd}");
        assert_eq!(Line(text).to_string(), "a\u{fffd}b\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}\u{fffd}é\u{fffd}");
        assert_eq!(Clean("10.96.0.1, “ü”, 東京, 🚀 …").to_string(), "10.96.0.1, “ü”, 東京, 🚀 …");
        assert_eq!(Clipped(&"é\u{202e}".repeat(61)).to_string(), format!("{}…", "é\u{fffd}".repeat(60)));
        assert_eq!(Clipped("short").to_string(), "short");
    }
}
