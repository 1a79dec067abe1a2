//! A YAML list of objects in flow style (`{items: [{…}, {…}]}`), cut into its items by its brackets and quotes alone.

use super::block::{Item, List};

/// Cuts the text at the items of the outermost key `items`. Nothing where that is not there, or not in flow style, and where
/// the list has no end.
pub fn cut(text: &str) -> Option<List> {
    let mut marks = Marks { text, at: 0 };
    let mut depth = 0;
    let begin = loop {
        let (at, mark) = marks.next()?;
        match mark {
            '[' if depth == 1 && ends_with_items(&text[..at]) => break at + 1,
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
    };
    let (mut items, mut start, mut depth) = (Vec::new(), begin, 0);
    loop {
        let (at, mark) = marks.next()?;
        match mark {
            '[' | '{' => depth += 1,
            ']' if depth == 0 => {
                items.extend(item(text, start, at));
                let without_items = format!("{}{}", &text[..begin], &text[at..]);
                return (!items.is_empty()).then_some(List { without_items, items });
            }
            ',' if depth == 0 => {
                items.extend(item(text, start, at));
                start = at + 1;
            }
            ']' | '}' => depth -= 1,
            _ => {}
        }
    }
}

/// Whether the text ends with the key `items`.
fn ends_with_items(text: &str) -> bool {
    let key = text.trim_end().strip_suffix(':').map(str::trim_end);
    let before = key.and_then(|key| key.strip_suffix("items").or_else(|| key.strip_suffix("\"items\"")));
    before.is_some_and(|before| before.trim_end().ends_with(['{', ',']))
}

/// The item between two places, in the column that it has in the text. There is none behind the last comma.
fn item(text: &str, start: usize, end: usize) -> Option<Item> {
    let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
    let lines_before = text[..start].matches('\n').count();
    let item = &text[start..end];
    let indentation = " ".repeat(text[line..start].chars().count());
    (!item.trim().is_empty()).then(|| Item { lines_before, text: format!("{indentation}{item}") })
}

/// The brackets and commas of a text that stand in no quotes and no comment.
struct Marks<'t> {
    text: &'t str,
    at: usize,
}

impl Iterator for Marks<'_> {
    type Item = (usize, char);

    fn next(&mut self) -> Option<(usize, char)> {
        while let Some(c) = self.text[self.at..].chars().next() {
            let at = self.at;
            self.at += c.len_utf8();
            let before = self.text[..at].chars().next_back().unwrap_or(' ');
            let begins = before.is_whitespace() || "[{,:".contains(before);
            match c {
                '[' | ']' | '{' | '}' | ',' => return Some((at, c)),
                // within a word they are letters like others
                '"' | '\'' if begins => self.at = self.end_of_quotes(c)?,
                '#' if before.is_whitespace() => {
                    self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at);
                }
                _ => {}
            }
        }
        None
    }
}

impl Marks<'_> {
    /// Where the text goes on behind the quotes that it is in. Doubled quotes end and begin at once.
    fn end_of_quotes(&self, quote: char) -> Option<usize> {
        let mut escaped = false;
        for (at, c) in self.text[self.at..].char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quote == '"' => escaped = true,
                c if c == quote && !(quote == '\'' && self.text[self.at + at + 1..].starts_with('\'')) => {
                    return Some(self.at + at + 1);
                }
                '\'' if quote == '\'' => escaped = true, // the second of two
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_at_their_commas() {
        let text = "{kind: List, x: [items, [1]], items: [{a: \"},\\\"\", b: 'it''s]'}, # one, two\n {c: it's, d: [1, {}]},\n], e: 1}";
        let item = |lines_before, text: &str| Item { lines_before, text: text.into() };
        let items = vec![
            item(0, &format!("{}{{a: \"}},\\\"\", b: 'it''s]'}}", " ".repeat(38))),
            item(0, &format!("{} # one, two\n {{c: it's, d: [1, {{}}]}}", " ".repeat(63))),
        ];
        let without_items = "{kind: List, x: [items, [1]], items: [], e: 1}".to_string();
        assert_eq!(cut(text), Some(List { without_items, items }));
    }

    #[test]
    fn what_is_no_list_in_flow_style_is_not_cut() {
        for text in [
            "",
            "{a: 1}",
            "{items: []}",
            "{items: {a: [1]}}",
            "{spec: {items: [1]}}",
            "[items: [1]",
            "{items: [{a: 1}",
            "{items: ['a]}",
        ] {
            assert_eq!(cut(text), None, "{text:?}");
        }
    }
}
